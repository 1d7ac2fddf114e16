"""`dralab help report`: versions and settings for a bug report, without secrets."""

import os
import platform
import re
import shutil
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Final

import click

from dralab import __version__
from dralab.cli._options import options
from dralab.cli._output import echo_values, formats

# Programs that dralab meets, and how each tells its version.
PROGRAMS: Final = {
    "kubectl": ("version", "--client", "-o", "json"),
    "helm": ("version", "--short"),
    "go": ("version",),
    "node": ("--version",),
}
# Variables that change what dralab does. Their values may name people and places.
VARIABLES: Final = re.compile(r"DRALAB_\w+|KUBECONFIG|XDG_DATA_HOME|NO_COLOR|PYTHON\w+")
NUMBER: Final = re.compile(r"v?\d+\.\d+(?:\.\d+)?[\w.+-]*")
LONGEST: Final = 5  # seconds that a program may take to tell its version


@click.command(epilog="Example: dralab help report > report.txt, then read it and attach it")
@options
def report(*, output: str = formats("table", "json", "yaml")) -> None:
    """Print versions and settings for a report of a problem.

    It prints only the names of environment variables, reads no kubeconfig and asks no server.
    """
    found = {
        "dralab": __version__,
        "Python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "processors": str(os.cpu_count() or "unknown"),
        **{f"package {name}": installed(name) for name in packages()},
        **{f"program {name}": version_of(name) for name in PROGRAMS},
        "variables": ", ".join(sorted(filter(VARIABLES.fullmatch, os.environ))) or "none",
        "in a virtual environment": "yes" if sys.prefix != sys.base_prefix else "no",
    }
    echo_values(found, output)


def packages() -> list[str]:
    """Return the names of the packages that dralab needs, those of its extras included."""
    needed = requires("dralab") or []
    return sorted({match[0] for text in needed if (match := re.match(r"[\w.-]+", text))})


def installed(name: str) -> str:
    """Return the version of a package, or that it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def version_of(program: str) -> str:
    """Return the version that a program reports, or why it does not."""
    path = shutil.which(program)
    if path is None:
        return "not on the PATH"
    try:
        done = subprocess.run(  # noqa: S603 - a name of ours, found on the user's PATH
            [path, *PROGRAMS[program]],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=LONGEST,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return "did not answer"
    match = NUMBER.search(done.stdout)
    return match[0] if match else "did not tell its version"
