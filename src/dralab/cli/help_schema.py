"""`dralab help schema`: JSON schemas of the files that users write."""

import importlib
from collections.abc import Mapping
from typing import Final

import click

from dralab.cli._options import arg, options
from dralab.cli._output import echo_json

# name → module whose `schema()` it is
SCHEMAS: Final[Mapping[str, str]] = {
    "scenario": "dralab.simulation.scenario_schema",
    "campaign": "dralab.simulation.campaigns.grid",
    "dst": "dralab.testing.scenario",
    "allocator-cases": "dralab.allocation.check.case_schema",
    "cel-cases": "dralab.cel.case_schema",
}


@click.command()
@options
def schema(*, kind: str = arg(list(SCHEMAS))) -> None:
    """Print the JSON schema (draft 2020-12) of a kind of file, for editors.

    scenario: of `dralab simulate run`. campaign: of `dralab simulate campaign`. dst: of
    `dralab dst run`. allocator-cases, cel-cases: of `dralab conformance`.

    Example: `dralab help schema scenario > scenario.schema.json`
    """
    echo_json(schema_of(kind))


def schema_of(kind: str) -> dict[str, object]:
    """Return the schema of a kind of file."""
    found: dict[str, object] = importlib.import_module(SCHEMAS[kind]).schema()
    return found
