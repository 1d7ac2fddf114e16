"""Builds what a release consists of, twice, and fails where the second differs from the first.

python tools/release.py     write dist/: the wheel, the source archive, SHA256SUMS, and sbom.json

Times in the archives are that of the last commit (SOURCE_DATE_EPOCH), so anyone can build the same
bytes from the same commit. Signing and uploading are left to a maintainer.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"


def git(*arguments: str) -> str:
    """Return what git prints about the checkout."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def build(directory: Path, moment: str) -> dict[str, str]:
    """Build wheel and source archive; return their hashes by name."""
    command = [sys.executable, "-m", "build", "--no-isolation", "-o", str(directory), str(ROOT)]
    env = os.environ | {"SOURCE_DATE_EPOCH": moment}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.suffix in {".whl", ".gz"}
    }


def needed_by(name: str) -> list[str]:
    """Return the names of what an installed package needs, its extras aside."""
    found = []
    for text in distribution(name).requires or ():
        match = re.match(r"[\w.-]+", text)
        if match and "extra ==" not in text:
            found.append(match[0])
    return found


def components() -> list[dict[str, str]]:
    """Return the packages of the base install, as installed here, by name."""
    seen: dict[str, dict[str, str]] = {}
    names = needed_by("dralab")
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in seen:
            continue
        try:
            version = distribution(name).version
        except ImportError:
            continue  # for another platform
        purl = f"pkg:pypi/{name}@{version}"
        seen[name] = {"type": "library", "name": name, "version": version, "purl": purl}
        names += needed_by(name)
    return [seen[name] for name in sorted(seen)]


def main() -> int:
    """Build, compare, describe; return the exit code."""
    if git("status", "--porcelain"):
        print("the checkout has changes that are not committed: commit or remove them first")
        return 1
    moment = git("log", "-1", "--format=%ct")
    shutil.rmtree(DIST, ignore_errors=True)
    first = build(DIST, moment)
    with tempfile.TemporaryDirectory() as other:
        again = build(Path(other), moment)
    if first != again:
        print(f"two builds differ: {first} and {again}")
        return 1
    version = distribution("dralab").version
    sbom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "dralab", "version": version}},
        "components": components(),
    }
    (DIST / "sbom.json").write_text(json.dumps(sbom, indent=2) + "\n")
    lines = [f"{digest}  {name}\n" for name, digest in first.items()]
    (DIST / "SHA256SUMS").write_text("".join(lines))
    print("".join(lines), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
