"""Print the lowest version of each dependency that pyproject.toml allows, for `pip install`.

    python tools/lowest.py [EXTRA…]

`make lowest` installs these, and runs the tests that use them.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
BOUND = re.compile(r"(?P<name>[A-Za-z0-9_.-]+)>=(?P<lowest>[0-9.]+)[^;]*(?P<marker>;.*)?")


def lowest(requirement: str) -> str:
    """Return a requirement of exactly the lowest version that it allows.

    >>> lowest("uvicorn>=0.53,<0.55"), lowest("uvloop>=0.20; sys_platform != 'win32'")
    ('uvicorn==0.53', "uvloop==0.20; sys_platform != 'win32'")
    """
    found = BOUND.fullmatch(requirement)
    if found is None:
        sys.exit(f"{requirement!r} names no lowest version: write NAME>=VERSION")
    return f"{found['name']}=={found['lowest']}{found['marker'] or ''}"


def main() -> None:
    """Print them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("extra", nargs="*", help="an extra of dralab, such as grpc")
    extras = parser.parse_args().extra
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = list(project["dependencies"])
    for extra in extras:
        wanted += project["optional-dependencies"][extra]
    print("\n".join(dict.fromkeys(map(lowest, wanted))))


if __name__ == "__main__":
    main()
