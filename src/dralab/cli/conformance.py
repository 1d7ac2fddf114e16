"""`dralab conformance`: case files with expected answers."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import click

from dralab.cli.main import LazyGroup
from dralab.files.reading import read
from dralab.files.sources import MAX_BYTES

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "allocator": (
        "dralab.cli.conformance_allocator:command",
        "allocation of claims: results, errors, feasibility",
    ),
    "apiserver": (
        "dralab.cli.conformance_apiserver:command",
        "recorded answers of a real API server",
    ),
    "cel": ("dralab.cli.conformance_cel:command", "device selectors: match, errors, costs"),
}


@click.group("conformance", cls=LazyGroup, commands_table=COMMANDS)
def group() -> None:
    """Run a file of cases and compare the results with the expected ones.

    Example: dralab conformance cel ../shared/cases/cel-cases.json
    """


def content(file: Path) -> Any:
    """Return the JSON of a case file. UnusableInput."""
    try:
        return json.loads(read(file, MAX_BYTES))
    except OSError as error:
        raise click.UsageError(f"{file}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise click.UsageError(f"{file}: not JSON: {error}") from None
    except RecursionError:
        raise click.UsageError(f"{file}: is nested too deep") from None
