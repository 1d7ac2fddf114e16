"""Write src/dralab/api/data/gates.json: the feature gates of each release.

Each gate with its stage, its default and whether it is locked to it, as of a release, from the
list of versioned gates in the Go module k8s.io/kubernetes. Releases older than that list are read
from the oldest one that there is.

    python tools/generate_gates.py
"""

import re
from pathlib import Path

from releases import DATA, chain, releases, source, written

LIST = "test/compatibility_lifecycle/reference/versioned_feature_list.yaml"
GATE = re.compile(r"^- name: (\S+)\n  versionedSpecs:\n((?:  .*\n)+)", re.MULTILINE)
SPEC = re.compile(
    r"  - default: (true|false)\n    lockToDefault: (true|false)\n    preRelease: (\w+)\n"
    r'    version: "(\d+)\.(\d+)"\n(?:    minCompatibilityVersion: "(\d+)\.(\d+)"\n)?'
)
# Stage, default, locked: a letter each, as in "B+" or "G+!".
STAGES = {"Alpha": "A", "Beta": "B", "GA": "G", "Deprecated": "D"}


def main() -> None:
    """Write the file."""
    lists = {release: source(release) / LIST for release in releases()}
    oldest = min((path for path in lists.values() if path.exists()), key=_release_of)
    tables = {
        release: _gates(path if path.exists() else oldest, release)
        for release, path in lists.items()
    }
    size = written(DATA / "gates.json", chain(tables))
    counts = ", ".join(f"{release}: {len(table)}" for release, table in tables.items())
    print(f"gates of {counts}; {size} bytes")


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
