"""ResourcePoolStatusRequest: a question asked once, and its answer."""

from typing import Final

from dralab.api.conditions import condition_errors
from dralab.api.fields import FieldError, invalid_value, required, too_many
from dralab.api.resource.structure import go_form
from dralab.api.resource.validation.names import (
    driver_errors,
    fully_qualified_errors,
    pool_errors,
)
from dralab.api.rules import RuleTables
from dralab.values.json_types import JsonObject

MAX_LIMIT: Final = 1000
MAX_CONDITIONS: Final = 10


RULES: Final = RuleTables(globals(), driver_errors, fully_qualified_errors, pool_errors)
question_errors: Final = RULES["validateResourcePoolStatusRequestSpec"]


def answer_errors(
    status: JsonObject | None, old: JsonObject | None, spec: JsonObject, path: str
) -> list[FieldError]:
    """Return the errors of the status of a request: it is written once."""
    if old is not None:
        if status == old:
            return []
        shown = go_form("ResourcePoolStatusRequestStatus", status) if status else None
        return [invalid_value(path, shown, "field is immutable")]
    if status is None:
        return []
    found: list[FieldError] = []
    count = status.get("poolCount")
    if count is None:
        found.append(required(f"{path}.poolCount"))
    elif count < 0:
        text = "must be greater than or equal to 0"
        found.append(invalid_value(f"{path}.poolCount", count, text))
    pools, limit = status.get("pools") or (), spec.get("limit") or MAX_LIMIT
    if len(pools) > limit:
        found.append(too_many(f"{path}.pools", len(pools), limit))
    else:
        for index, pool in enumerate(pools):
            found += RULES["validatePoolStatus"](pool, f"{path}.pools[{index}]")
    conditions = status.get("conditions") or ()
    if len(conditions) > MAX_CONDITIONS:
        found.append(too_many(f"{path}.conditions", len(conditions), MAX_CONDITIONS))
    return found + condition_errors(conditions, f"{path}.conditions")
