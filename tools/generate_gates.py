"""Write gates.json, gate_needs.json and gated_fields.json.gz below src/dralab/api/data.

Each gate with its stage, its default and whether it is locked to it, as of a release, from the
list of versioned gates in the Go module k8s.io/kubernetes. Releases older than that list are read
from the oldest one that there is. Which gates need which is a table in Go, since 1.35. Which fields
need a gate is said by tags in k8s.io/api, which the
newest release has most of: of all releases together.

    python tools/generate_gates.py
"""

import re
from pathlib import Path

from releases import DATA, chain, releases, source, written

STRUCT = re.compile(r"^type (\w+) struct \{\n(.*?)^\}", re.MULTILINE | re.DOTALL)
GATED = re.compile(
    r"^\t// \+featureGate=(\S+)\n(?:\t//.*\n)*\t\w+ .*json:\"([^\",]+)", re.MULTILINE
)

NEEDS = re.compile(r"FeatureGateDependencies = map.*?\n\}", re.DOTALL)
NEED = re.compile(r"^\t(?:\w+\.)?(\w+): +\{([^}]+)\}", re.MULTILINE)
LIST = "test/compatibility_lifecycle/reference/versioned_feature_list.yaml"
GATE = re.compile(r"^- name: (\S+)\n  versionedSpecs:\n((?:  .*\n)+)", re.MULTILINE)
SPEC = re.compile(
    r"  - default: (true|false)\n    lockToDefault: (true|false)\n    preRelease: (\w+)\n"
    r'    version: "(\d+)\.(\d+)"\n(?:    minCompatibilityVersion: "(\d+)\.(\d+)"\n)?'
)
# Stage, default, locked: a letter each, as in "B+" or "G+!".
STAGES = {"Alpha": "A", "Beta": "B", "GA": "G", "Deprecated": "D"}


def main() -> None:
    """Write the files."""
    fields: dict[str, dict[str, list[str]]] = {}
    for release in releases():
        _add_fields(source(release, "k8s.io/api"), fields)
    size = written(DATA / "gated_fields.json.gz", fields)
    print(f"{sum(map(len, fields.values()))} fields behind gates; {size} bytes")
    lists = {release: source(release) / LIST for release in releases()}
    oldest = min((path for path in lists.values() if path.exists()), key=_release_of)
    tables = {
        release: _gates(path if path.exists() else oldest, release)
        for release, path in lists.items()
    }
    needs = {release: _needs(source(release), tables[release]) for release in tables}
    written(DATA / "gate_needs.json", chain(needs))
    size = written(DATA / "gates.json", chain(tables))
    counts = ", ".join(f"{release}: {len(table)}" for release, table in tables.items())
    print(f"gates of {counts}; {size} bytes")


def _add_fields(root: Path, fields: dict[str, dict[str, list[str]]]) -> None:
    """Add the gates of the fields of each definition; what is known stays."""
    for path in sorted(root.rglob("types.go")):
        package = ".".join(path.relative_to(root).parent.parts)
        for name, body in STRUCT.findall(path.read_text()):
            for gates, field in GATED.findall(body):
                known = fields.setdefault(f"io.k8s.api.{package}.{name}", {})
                known.setdefault(field, gates.split(","))


def _needs(root: Path, known: dict[str, str]) -> dict[str, list[str]]:
    """Return the gates that others need, of those that a release has."""
    found = NEEDS.search((root / "pkg/features/kube_features.go").read_text())
    pairs = NEED.findall(found[0]) if found else []
    named = {gate: re.findall(r"(\w+)(?=[,)]|$)", needed) for gate, needed in pairs}
    return {
        gate: sorted(known.keys() & set(needed))
        for gate, needed in sorted(named.items())
        if gate in known and known.keys() & set(needed)
    }


def _release_of(path: Path) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"@v(\d+)\.(\d+)", str(path))[-1]))


def _gates(path: Path, release: str) -> dict[str, str]:
    major, minor = map(int, release.split("."))
    found = {}
    for name, specs in GATE.findall(path.read_text()):
        for default, locked, stage, *numbers in SPEC.findall(specs):
            since, compatible = (tuple(map(int, filter(None, numbers[i : i + 2]))) for i in (0, 2))
            # A server can go back to the release before it unless it is told otherwise.
            if since <= (major, minor) and compatible <= (major, minor - 1):
                mark = "+" if default == "true" else "-"
                found[name] = STAGES[stage] + mark + ("!" if locked == "true" else "")
    return found


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    main()
