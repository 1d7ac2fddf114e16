"""`dralab conformance`: case files with expected answers."""

from collections.abc import Mapping
from typing import Final

import click

from dralab.cli.main import LazyGroup

COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "allocator": (
        "dralab.cli.conformance_allocator:command",
        "devices for claims: results, errors, feasibility",
    ),
    "apiserver": (
        "dralab.cli.conformance_apiserver:command",
        "recorded answers of a real API server",
    ),
    "cel": ("dralab.cli.conformance_cel:command", "device selectors: match, errors, costs"),
}


@click.group("conformance", cls=LazyGroup, commands_table=COMMANDS)
def group() -> None:
    """Run a file of cases and compare with what they expect.

    Example: dralab conformance cel ../shared/cases/cel-cases.json
    """
