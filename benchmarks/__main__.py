"""Run every benchmark, each in a process of its own: `python -m benchmarks`.

Figures that are compared over commits go to build/bench.jsonl, and their page to build/bench.html.
"""

import os
import subprocess
import sys
from pathlib import Path

from benchmarks.board import BUILD, LINES

HERE = Path(__file__).parent
HELPERS = {"__init__", "__main__", "board", "kube", "load"}
LONG = {"endurance"}  # by the hour, at night


def main() -> None:
    failed = []
    BUILD.mkdir(exist_ok=True)
    os.environ[LINES] = str(BUILD / "bench.jsonl")
    for name in sorted(file.stem for file in HERE.glob("*.py")):
        if name in HELPERS | LONG:
            continue
        print(f"\n=== benchmarks.{name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    subprocess.run([sys.executable, "-m", "benchmarks.board"], check=False)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
