"""Make all generated data anew: each generator in a fresh virtual environment of its own.

    python tools/generate.py [NAME ...]

Needs a package index; `messages` and `internal_types` need the Go toolchain and the Go module
proxy as well.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

TOOLS = Path(__file__).parent
GENERATORS = {
    "kinds": ("lightkube-models==1.37.*",),
    "schemas": ("kubernetes-validate==1.37.*",),
    "messages": (),
    "internal_types": (),
    "bootstrap": (),
}


def main(wanted: list[str]) -> int:
    """Run the generators named, or all of them."""
    unknown = sorted(set(wanted) - set(GENERATORS))
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(GENERATORS)}", file=sys.stderr)
        return 2
    for name, requirements in GENERATORS.items():
        if not wanted or name in wanted:
            print(f"{name}:", flush=True)
            _run(TOOLS / f"generate_{name}.py", requirements)
    return 0


def _run(script: Path, requirements: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        if requirements:
            install = [python, "-m", "pip", "install", "--quiet", "--no-deps", *requirements]
            subprocess.run(install, check=True)
        subprocess.run([python, script], check=True)


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    sys.exit(main(sys.argv[1:]))
