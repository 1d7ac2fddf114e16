"""Builds the failing disk."""

import shutil
import subprocess
import sys
from pathlib import Path

COMPILER = shutil.which("cc") or shutil.which("gcc")
POSSIBLE = COMPILER is not None and sys.platform == "linux"


def built(folder: Path) -> Path:
    """Return the library to preload."""
    target, source = folder / "shim.so", Path(__file__).with_name("shim.c")
    command = [str(COMPILER), "-O1", "-shared", "-fPIC", "-o", str(target), str(source)]
    subprocess.run([*command, "-ldl"], check=True)
    return target
