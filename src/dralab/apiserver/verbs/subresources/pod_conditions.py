"""Conditions that the server itself sets, such as PodScheduled of a pod that is bound."""

from dralab.values.json_types import JsonDict


def with_condition(conditions: list[JsonDict], condition: JsonDict) -> list[JsonDict]:
    """Return conditions with one of them set; the time of its last change stays if it did not."""
    found = []
    for each in conditions:
        if each.get("type") != condition["type"]:
            found.append(each)
        elif each.get("status") == condition["status"]:
            condition = {**condition, "lastTransitionTime": each.get("lastTransitionTime")}
    return [*found, condition]
