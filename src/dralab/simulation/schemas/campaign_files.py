"""The JSON schema of campaign files: what `campaigns.grid.read` reads."""

from dralab.simulation.schemas.field_words import LABEL
from dralab.simulation.schemas.scenario_files import SCHEDULER
from dralab.values.json_schema import (
    FILE,
    TEXT,
    JsonSchema,
    about,
    any_of,
    document,
    listing,
    mapping,
    number,
    one_of_fields,
    whole,
)


def schema() -> JsonSchema:
    """Return the schema of campaign files."""
    openb = mapping(
        {
            "nodes": FILE,
            "pods": listing(FILE, 1),
            "inflate": about("Clone pods until they ask for so much of all GPUs.", number()),
        },
        ["nodes", "pods"],
    )
    seeds = any_of(
        listing({"type": "integer"}, 1), mapping({"from": whole(), "count": whole(1)}, ["count"])
    )
    body = mapping(
        {
            "name": LABEL,
            "scenarios": about("Scenario files.", listing(FILE, 1)),
            "openb": about("Placements of openb traces.", openb),
            "schedulers": listing(SCHEDULER, 1),
            "seeds": about("A list, or so many from a first one.", seeds),
            "compare": about("Metrics, as of `dralab simulate run -o json`.", listing(TEXT, 1)),
            "baseline": about("The scheduler that others are compared with.", SCHEDULER),
        },
        ["schedulers", "seeds"],
        anyOf=one_of_fields("scenarios", "openb"),
    )
    return document(
        "Campaign of dralab",
        "Every scenario with every scheduler and every seed: `dralab simulate campaign FILE`.",
        body,
    )
