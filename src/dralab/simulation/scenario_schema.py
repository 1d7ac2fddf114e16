"""The JSON schema of scenario files: what `scenario.scenario.load` reads."""

from dataclasses import fields as fields_of
from typing import Any

from dralab.controllers import registry
from dralab.scenarios.tables import DURATION, QUANTITY
from dralab.simulation.engines.external.conductor import ConductorOptions
from dralab.simulation.engines.external.options import REAL, RENAMED, STOCK, VIRTUAL
from dralab.simulation.engines.external.pacing import PacingOptions
from dralab.simulation.scenario.scenario import SCENARIO
from dralab.values.json_schema import (
    FLAG,
    TEXT,
    JsonSchema,
    about,
    any_of,
    choice,
    document,
    listing,
    mapping,
    number,
    whole,
)


def schema() -> JsonSchema:
    """Return the schema of scenario files."""
    body = SCENARIO.schema()
    body["properties"]["external"] = _external()
    return document(
        "Scenario of dralab simulate",
        "Fleet, workload, scheduler, faults and outputs of one run: `dralab simulate run FILE`.",
        body,
        duration=about("Seconds, or 90s, 1h30m, 7d.", DURATION),
        quantity=about("A Kubernetes quantity: 4, 500m, 16Gi.", QUANTITY),
    )


def _external() -> JsonSchema:
    words = any_of(TEXT, listing(TEXT))
    options: dict[str, Any] = {
        item.name: _option(item.default)
        for kind in (PacingOptions, ConductorOptions)
        for item in fields_of(kind)
    }
    old = {name: {**options[new], "deprecated": True} for name, new in RENAMED.items()}
    own = {
        "command": about("The scheduler to start; {kubeconfig} is replaced by its path.", words),
        "schedulers": about(
            "Several schedulers: commands by name.",
            {"type": "object", "minProperties": 1, "additionalProperties": words},
        ),
        "port": whole(0, 65_535),
        "tls": FLAG,
        "clock": about("Default: virtual.", choice([VIRTUAL, REAL])),
        "start": about("What the clock shows first: 2026-01-01T00:00:00Z.", TEXT),
        "controllers": any_of(choice([STOCK, "all"]), listing(choice(registry.CONTROLLERS))),
        "heartbeats": about("Seconds between those of a node, 0 for none.", number()),
    }
    return about("For `scheduler: external`: your own program.", mapping(own | options | old))


def _option(default: object) -> JsonSchema:
    if isinstance(default, bool):
        return {"type": "boolean", "default": default}
    if isinstance(default, (int, float)):
        return {
            "type": "integer" if isinstance(default, int) else "number",
            "minimum": 0,
            "default": default,
        }
    return {"type": "string", "default": default}
