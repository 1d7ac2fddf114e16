"""Conditions in the status of objects (metav1.Condition, and the lists that are like it)."""

from collections.abc import Iterable, Sequence

from dralab.objects.metadata import status_of
from dralab.values.json_types import JsonDict, JsonObject


def conditions_of(obj: JsonObject) -> Sequence[JsonObject]:
    """Return all conditions of an object's status."""
    found: Sequence[JsonObject] = status_of(obj).get("conditions") or ()
    return found


def condition_of(obj: JsonObject, type: str) -> JsonObject | None:
    """Return the condition of that type in the object's status."""
    return next((item for item in conditions_of(obj) if item.get("type") == type), None)


def condition_status(obj: JsonObject, type: str) -> str:
    """Return a condition's status: `True`, `False` or `Unknown`; empty without the condition."""
    condition = condition_of(obj, type) or {}
    return condition.get("status") or ""


def is_true(obj: JsonObject, type: str) -> bool:
    """Return whether a condition exists and is true."""
    return condition_status(obj, type) == "True"


def with_condition(
    conditions: Iterable[JsonObject], new: JsonObject, *, now: str
) -> list[JsonDict]:
    """Return the conditions with `new` in the place of the one of its type.

    The time of transition stays where the status does (metav1.Condition).
    """
    found, placed = [], False
    for condition in conditions:
        if condition["type"] != new["type"]:
            found.append(dict(condition))
            continue
        same = condition.get("status") == new["status"]
        since = condition.get("lastTransitionTime", now) if same else now
        found.append({**new, "lastTransitionTime": since})
        placed = True
    if not placed:
        found.append({**new, "lastTransitionTime": now})
    return found
