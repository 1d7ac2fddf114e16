"""The releases of Kubernetes that data is made for, and how the data of an older one is kept.

The newest release is kept whole. Of each older one only the difference to the next newer is: a
merge patch (RFC 7386), in which null takes something away.
"""

import gzip
import json
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[1] / "src/dralab/api/data"
RELEASES = DATA / "releases.json"
OLDEST = (1, 32)


def releases() -> dict[str, str]:
    """Return the version of each release, the newest first: `{"1.37": "v1.37.2", …}`."""
    found: dict[str, str] = json.loads(RELEASES.read_text())
    return found


def add(release: str) -> None:
    """Note the latest version of a release, which may be new. SystemExit if there is none."""
    command = ["go", "list", "-m", "-versions", "k8s.io/kubernetes"]
    with tempfile.TemporaryDirectory() as empty:
        done = subprocess.run(command, cwd=empty, check=True, capture_output=True, text=True)
    numbers = re.findall(rf"v{re.escape(release)}\.(\d+)(?=\s|$)", done.stdout)
    if not numbers:
        raise SystemExit(f"{release}: k8s.io/kubernetes has no such release")
    known = releases() | {release: f"v{release}.{max(map(int, numbers))}"}
    ordered = sorted(known, key=_numbers, reverse=True)
    RELEASES.write_text(json.dumps({name: known[name] for name in ordered}, indent=1) + "\n")


def _numbers(release: str) -> tuple[int, ...]:
    return tuple(map(int, release.split(".")))


def source(release: str, module: str = "k8s.io/kubernetes") -> Path:
    """Return the folder of a Go module as of a release; the libraries are numbered 0.x."""
    version = releases()[release]
    return downloaded(module, version if module == "k8s.io/kubernetes" else f"v0{version[2:]}")


def downloaded(module: str, version: str) -> Path:
    """Return the folder of a Go module, which is downloaded if it is not there yet."""
    with tempfile.TemporaryDirectory() as empty:
        command = ["go", "mod", "download", "-json", f"{module}@{version}"]
        done = subprocess.run(command, cwd=empty, check=True, capture_output=True)
    return Path(json.loads(done.stdout)["Dir"])


def difference(newer: Any, older: Any) -> Any:
    """Return the merge patch that makes the older value of the newer one; {} if they are alike.

    >>> difference({"a": 1, "b": {"c": 2, "d": 3}}, {"b": {"c": 4, "d": 3}})
    {'b': {'c': 4}, 'a': None}
    """
    if not isinstance(newer, dict) or not isinstance(older, dict):
        return older
    found = {
        key: difference(newer[key], value) if key in newer else value
        for key, value in older.items()
        if newer.get(key) != value
    }
    return found | dict.fromkeys(sorted(newer.keys() - older.keys()))


def chain(tables: dict[str, Any]) -> dict[str, Any]:
    """Return the newest of some tables by release whole, and of the others their differences."""
    newer: Any = None
    found = {}
    for release, table in tables.items():
        found[release] = table if newer is None else difference(newer, table)
        newer = table
    return found


def written(path: Path, content: Any) -> int:
    """Write a data file, compressed if its name says so, the same each time; return its size."""
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False, sort_keys=True).encode()
    path.write_bytes(gzip.compress(text, 9, mtime=0) if path.suffix == ".gz" else text + b"\n")
    return path.stat().st_size
