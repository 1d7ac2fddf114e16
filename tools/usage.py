"""What the tools print for `--help`: what is written at their beginning."""

import sys


def print_if_asked(text: str | None) -> None:
    """Print a tool's docstring and end, if --help is among its arguments."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print((text or "").strip())
        sys.exit()
