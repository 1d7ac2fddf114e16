"""The JSON schema of scenario files: what `scenario.scenario.load` reads."""

from copy import deepcopy

from dralab.controllers import registry
from dralab.scenarios.tables import DURATION, QUANTITY
from dralab.simulation.scenario.external import STOCK
from dralab.simulation.scenario.scenario import SCENARIO
from dralab.values.json_schema import JsonSchema, about, any_of, choice, document, listing


def schema() -> JsonSchema:
    """Return the schema of scenario files."""
    body = deepcopy(SCENARIO.schema())
    # The names of controllers are known once all of them are imported.
    controllers = body["properties"]["external"]["properties"]["controllers"]
    controllers |= any_of(choice([STOCK, "all"]), listing(choice(registry.CONTROLLERS)))
    return document(
        "Scenario of dralab simulate",
        "Fleet, workload, scheduler, faults and outputs of one run: `dralab simulate run FILE`.",
        body,
        duration=about("Seconds, or 90s, 1h30m, 7d.", DURATION),
        quantity=about("A Kubernetes quantity: 4, 500m, 16Gi.", QUANTITY),
    )
