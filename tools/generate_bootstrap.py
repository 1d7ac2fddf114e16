"""Write roles.json.gz and flows.json below src/dralab/apiserver/access/authorization/data.

The roles and bindings that a cluster of each release begins with come from the tables that
kube-apiserver's own tests use, in the Go module k8s.io/kubernetes. Flow schemas and priority
levels, which no module has as data, come from a recording of a kube-apiserver of 1.36; all releases
have the same. What all objects have alike is left out.

    python tools/generate_bootstrap.py [RECORDING.json]
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from releases import chain, releases, source, written

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "../shared/testdata/apiserver/bootstrap-v1.36.json"
DATA = ROOT / "src/dralab/apiserver/access/authorization/data"
TABLES = "plugin/pkg/auth/authorizer/rbac/bootstrappolicy/testdata"
FILES = {
    "clusterroles": ("cluster-roles", "controller-roles"),
    "clusterrolebindings": ("cluster-role-bindings", "controller-role-bindings"),
    "roles": ("namespace-roles",),
    "rolebindings": ("namespace-role-bindings",),
}
FLOWS = ("prioritylevelconfigurations", "flowschemas")
LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}


def plain(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without its name, its status, and what is alike in all of them."""
    found = {}
    labels = {k: v for k, v in (obj["metadata"].get("labels") or {}).items() if k not in LABELS}
    if labels:
        found["labels"] = labels
    for key in ("aggregationRule", "rules", "roleRef", "subjects", "spec"):
        if obj.get(key):
            found[key] = obj[key]
    return found


def main(recording: Path) -> None:
    """Write the data."""
    tables = {release: _roles(release) for release in releases()}
    size = written(DATA / "roles.json.gz", chain(tables))
    counts = ", ".join(f"{name}: {len(each['clusterroles'])}" for name, each in tables.items())
    print(f"cluster roles of {counts}; {size} bytes")
    if not recording.exists():
        print(f"{recording} does not exist: flows.json stays as it is")
        return
    recorded = json.loads(recording.read_text(encoding="utf-8"))
    flows = {
        plural: {obj["metadata"]["name"]: plain(obj) for obj in recorded[plural]}
        for plural in FLOWS
    }
    print(f"flow schemas: {written(DATA / 'flows.json', flows)} bytes")


def _roles(release: str) -> dict[str, dict[str, Any]]:
    """Return the roles and bindings of a release, by plural and `namespace/name`."""
    folder = source(release) / TABLES
    return {
        plural: {
            "/".join(filter(None, (obj["metadata"].get("namespace"), obj["metadata"]["name"]))): (
                plain(obj)
            )
            for name in names
            for obj in _objects(yaml.safe_load((folder / f"{name}.yaml").read_text()))
        }
        for plural, names in FILES.items()
    }


def _objects(found: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "items" not in found:
        yield found
        return
    for each in found["items"]:
        yield from _objects(each)


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING)
