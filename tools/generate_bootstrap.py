"""Write src/dralab/apiserver/authorization/data/bootstrap.json: what a cluster begins with.

Roles, bindings, flow schemas and priority levels as a kube-apiserver of 1.36 makes them, from a
recording of one: lists of objects by plural. What all of them have alike is left out.

    python tools/generate_bootstrap.py [RECORDING.json]
"""

import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
RECORDING = ROOT / "../shared/testdata/apiserver/bootstrap-v1.36.json"
TARGET = ROOT / "src/dralab/apiserver/authorization/data/bootstrap.json"
COLLECTIONS = (
    "clusterroles",
    "clusterrolebindings",
    "roles",
    "rolebindings",
    "prioritylevelconfigurations",
    "flowschemas",
)
LABELS = {"kubernetes.io/bootstrapping": "rbac-defaults"}


def plain(obj: dict[str, Any]) -> dict[str, Any]:
    """Return an object without its status and without what is alike in all of them."""
    metadata = obj["metadata"]
    found = {key: metadata[key] for key in ("namespace", "name") if key in metadata}
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k not in LABELS}
    if labels:
        found["labels"] = labels
    for key in ("aggregationRule", "rules", "roleRef", "subjects", "spec"):
        if obj.get(key):
            found[key] = obj[key]
    return found


def main(recording: Path) -> None:
    """Write the data."""
    if not recording.exists():
        print(f"{recording} does not exist: the data stays as it is")
        return
    recorded = json.loads(recording.read_text(encoding="utf-8"))
    parts = []
    for plural in COLLECTIONS:
        lines = [json.dumps(plain(obj), separators=(",", ":")) for obj in recorded[plural]]
        parts.append(f'"{plural}": [\n' + ",\n".join(lines) + "\n]")
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text("{\n" + ",\n".join(parts) + "\n}\n", encoding="utf-8")
    told = ", ".join(f"{len(recorded[plural])} {plural}" for plural in COLLECTIONS)
    print(f"{TARGET.relative_to(ROOT)}: {told}")


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else RECORDING)
