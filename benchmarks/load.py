"""The compiled load generator, built when it is first needed: `go build` in benchmarks/go/load.

The same program drives whatever is compared, so that ratios say something about servers alone.
"""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
SOURCE = HERE / "go" / "load"
BINARY = HERE.parent / "build" / "load"


def built() -> Path:
    """Return the load generator; the process ends where there is no Go."""
    newest = max(file.stat().st_mtime for file in SOURCE.iterdir())
    if BINARY.exists() and BINARY.stat().st_mtime >= newest:
        return BINARY
    go = shutil.which("go")
    if go is None:
        sys.exit("the load generator is written in Go: install Go 1.21 or newer, then try again")
    BINARY.parent.mkdir(exist_ok=True)
    subprocess.run([go, "build", "-o", str(BINARY), "."], cwd=SOURCE, check=True)
    return BINARY


def load(url: str, **options: object) -> dict[str, Any]:
    """Run the generator with options as its flags name them; return what it measured."""
    flags = [f"-{name}={value}" for name, value in options.items()]
    done = subprocess.run(
        [str(built()), f"-url={url}", *flags], capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout)
    return found
