"""Programs of public Go modules, built as they are published, and their sources."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BUILD = 1200
TOOL = Path(__file__).parents[1] / "tools" / "build_clients.py"
OPERATORS = runpy.run_path(str(TOOL))["OPERATORS"]


def sources(path: str, version: str) -> Path:
    """Return the folder of a module, which nothing may write to. Skips where it can't be had."""
    if shutil.which("go") is None:
        pytest.skip("Go is not installed")
    words = ["go", "mod", "download", "-json", f"{path}@{version}"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"{path} can't be had: {done.stdout.strip()}")
    return Path(json.loads(done.stdout)["Dir"])


def program(found: Path, place: Path, package: str, folder: str = ".") -> Path:
    """Build a package of the sources in `place`, which is made: it takes minutes the first time.

    `folder` is where the module of the program is, if it is not that of the sources.
    """
    shutil.copytree(found, place, copy_function=shutil.copyfile)
    for each in [place, *place.rglob("*")]:
        each.chmod(0o755 if each.is_dir() else 0o644)
    target = place / "program"
    # Its own go.mod, as it was published.
    flags = {"GOFLAGS": "-mod=mod -buildvcs=false"}
    subprocess.run(
        ["go", "build", "-trimpath", "-o", str(target), package],
        cwd=place / folder, env={**os.environ, **flags}, check=True, timeout=BUILD,
    )  # fmt: skip
    return target


def operator(name: str, folders: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return an operator's sources and its program, which is built where none is given.

    DRALAB_OPERATORS names a folder of programs that were built before.
    """
    found = sources(*OPERATORS[name][1].split())
    ready = Path(os.environ.get("DRALAB_OPERATORS", "")) / name
    if ready.is_file():
        return found, ready
    place = folders.mktemp("operators")
    subprocess.run([sys.executable, str(TOOL), str(place), name], check=True, timeout=BUILD)
    return found, place / name
