"""Builds what a release consists of, twice, and fails where the second differs from the first.

python tools/release.py     write dist/: the wheel, the source archive, the archive for krew, what
                            krew and Homebrew read (dra.yaml, dralab.rb), SHA256SUMS, sbom.json

Times in the archives are that of the last commit (SOURCE_DATE_EPOCH), so anyone can build the same
bytes from the same commit. Signing and uploading are left to a maintainer; RELEASE_URL and HOME_URL
say where the files will be found, for krew and Homebrew.
"""

import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Sequence
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
DIST = ROOT / "dist"
PACKAGING = ROOT / "packaging"
# Not that of the installed package, which may be older than the checkout.
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = PROJECT["version"]
HOME_URL = os.environ.get("HOME_URL", "https://example.com/dralab")
RELEASE_URL = os.environ.get("RELEASE_URL", "https://example.com/dralab/releases")


def git(*arguments: str) -> str:
    """Return what git prints about the checkout."""
    done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def build(directory: Path, moment: str) -> dict[str, str]:
    """Build wheel and source archive; return their hashes by name."""
    command = [sys.executable, "-m", "build", "--no-isolation", "-o", str(directory), str(ROOT)]
    env = os.environ | {"SOURCE_DATE_EPOCH": moment}
    subprocess.run(command, env=env, check=True, stdout=subprocess.DEVNULL)
    (wheel,) = directory.glob("*.whl")
    krew = directory / f"kubectl-dra-{VERSION}.tar.gz"
    plugin = PACKAGING / "krew" / "kubectl-dra"
    krew.write_bytes(archive([plugin, wheel, ROOT / "LICENSE"], int(moment)))
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(directory.iterdir())
        if path.suffix in {".whl", ".gz"}
    }


def archive(files: list[Path], moment: int) -> bytes:
    """Return a .tar.gz of some files without their folders; the same files give the same bytes."""
    plain = io.BytesIO()
    with tarfile.open(fileobj=plain, mode="w") as tar:
        for path in files:
            entry = tarfile.TarInfo(path.name)
            entry.size, entry.mtime = path.stat().st_size, moment
            entry.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            tar.addfile(entry, io.BytesIO(path.read_bytes()))
    packed = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=packed, mtime=moment) as file:
        file.write(plain.getvalue())
    return packed.getvalue()


def filled(template: str, digest: str) -> str:
    """Return a file for a package manager: version, addresses and a digest in their places."""
    places = {"VERSION": VERSION, "SHA256": digest, "HOME": HOME_URL, "BASE": RELEASE_URL}
    return re.sub(r"@([A-Z0-9]+)@", lambda found: places[found[1]], template)


def names_of(requirements: Sequence[str]) -> list[str]:
    """Return the names of packages that are required here, without those of extras."""
    needed = map(Requirement, requirements)
    return [
        each.name for each in needed if each.marker is None or each.marker.evaluate({"extra": ""})
    ]


def components() -> list[dict[str, str]]:
    """Return the packages of the base install, as installed here, by name."""
    seen: dict[str, dict[str, str]] = {}
    names = names_of(PROJECT["dependencies"])
    while names:
        name = re.sub(r"[-_.]+", "-", names.pop()).lower()
        if name in seen:
            continue
        package = distribution(name)
        purl = f"pkg:pypi/{name}@{package.version}"
        seen[name] = {"type": "library", "name": name, "version": package.version, "purl": purl}
        names += names_of(package.requires or ())
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
    sbom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "dralab", "version": VERSION}},
        "components": components(),
    }
    for template, name in (
        (PACKAGING / "krew" / "dra.yaml", f"kubectl-dra-{VERSION}.tar.gz"),
        (PACKAGING / "homebrew" / "dralab.rb", f"dralab-{VERSION}.tar.gz"),
    ):
        text = filled(template.read_text(), first[name])
        (DIST / template.name).write_text(text)
    (DIST / "sbom.json").write_text(json.dumps(sbom, indent=2) + "\n")
    lines = [f"{digest}  {name}\n" for name, digest in first.items()]
    (DIST / "SHA256SUMS").write_text("".join(lines))
    print("".join(lines), end="")
    return 0


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    sys.exit(main())
