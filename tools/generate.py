"""Make all generated data anew: each generator in a fresh virtual environment of its own.

    python tools/generate.py [NAME ...] [VERSION=1.NN]

Needs a package index, the Go toolchain and the Go module proxy. With VERSION, the latest version
of that release of Kubernetes is taken, which may be a new one; what cannot be generated is in
docs/concepts/releases.md.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import releases

TOOLS = Path(__file__).parent
GENERATORS = (
    "kinds", "schemas", "gates", "declared", "messages", "internal_types", "bootstrap", "go_random",
)  # fmt: skip


def main(wanted: list[str]) -> int:
    """Run the generators named, or all of them."""
    names = [each for each in wanted if "=" not in each]
    for setting in wanted:
        if setting.startswith("VERSION=") and (release := setting.partition("=")[2]):
            releases.add(release)
    unknown = sorted(set(names) - set(GENERATORS))
    if unknown:
        print(f"unknown: {', '.join(unknown)}; there are {', '.join(GENERATORS)}", file=sys.stderr)
        return 2
    for name in GENERATORS:
        if not names or name in names:
            print(f"{name}:", flush=True)
            _run(TOOLS / f"generate_{name}.py")
    return 0


def _run(script: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        python = Path(folder, "bin", "python")
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
        subprocess.run([python, script], check=True)


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    sys.exit(main(sys.argv[1:]))
