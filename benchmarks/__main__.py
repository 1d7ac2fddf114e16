"""Run every benchmark, each in a process of its own: `python -m benchmarks`."""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
HELPERS = {"__init__", "__main__", "kube", "load"}
LONG = {"endurance"}  # by the hour, at night


def main() -> None:
    failed = []
    for name in sorted(file.stem for file in HERE.glob("*.py")):
        if name in HELPERS | LONG:
            continue
        print(f"\n=== benchmarks.{name}", flush=True)
        if subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode:
            failed.append(name)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
