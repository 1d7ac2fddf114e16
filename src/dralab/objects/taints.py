"""Taints of nodes, and which of them a pod tolerates.

Sources: core/v1 `Toleration.ToleratesTaint`; `FindMatchingUntoleratedTaint` of
k8s.io/component-helpers. A server takes tolerations that compare numbers (Lt, Gt) only where its
gate `TaintTolerationComparisonOperators` is on; all later code honours it.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.objects.metadata import spec_of
from dralab.values.json_types import JsonObject
from dralab.values.quantity import is_decimal_integer

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
REPELLING: Final = frozenset({NO_SCHEDULE, NO_EXECUTE})
"""The effects that keep pods from being scheduled on a node."""

UNSCHEDULABLE: Final[JsonObject] = {
    "key": "node.kubernetes.io/unschedulable",
    "effect": NO_SCHEDULE,
}
"""The taint that a cordoned node counts as having, whether or not it has it yet."""

_INT64: Final = range(-(2**63), 2**63)


def taints_of(node: JsonObject) -> Sequence[JsonObject]:
    """Return the taints of a node."""
    found: Sequence[JsonObject] = spec_of(node).get("taints") or ()
    return found


OF_AUTOSCALER: Final = (
    "ToBeDeletedByClusterAutoscaler", "DeletionCandidateOfClusterAutoscaler",
)  # fmt: skip
"""What cluster-autoscaler puts on nodes that it removes, or may remove."""


def is_of_control_plane(key: str) -> bool:
    """Return whether a taint is set by the control plane from the state of the node.

    Removing such a taint by hand helps nobody: it comes back, or the node is not usable.
    """
    own = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", *OF_AUTOSCALER)
    return key.startswith(own)


def tolerates(tolerations: Iterable[JsonObject], taint: JsonObject) -> bool:
    """Return whether some toleration covers a taint of a node.

    >>> tolerates([{"key": "age", "operator": "Gt", "value": "5"}], {"key": "age", "value": "7"})
    True
    """
    return any(covers(toleration, taint) for toleration in tolerations)


def covers(toleration: JsonObject, taint: JsonObject) -> bool:
    """Return whether one toleration covers a taint; an unknown operator covers nothing."""
    if not is_about(toleration, taint["key"], taint.get("effect") or ""):
        return False
    operator = toleration.get("operator") or "Equal"
    if operator == "Exists":
        return True
    mine, other = toleration.get("value") or "", taint.get("value") or ""
    if operator == "Equal":
        return bool(mine == other)
    return operator in {"Lt", "Gt"} and _compares(operator, mine, other)


def is_about(toleration: JsonObject, key: str, effect: str) -> bool:
    """Return whether a toleration matches the key and effect of a taint."""
    return toleration.get("effect") in {effect, None, ""} and (
        toleration.get("key") in {key, None, ""}
    )


def untolerated(
    tolerations: Iterable[JsonObject], taints: Iterable[JsonObject], effects: Container[str]
) -> JsonObject | None:
    """Return the first taint with one of the effects that no toleration covers."""
    for taint in taints:
        if taint.get("effect") in effects and not tolerates(tolerations, taint):
            return taint
    return None


def leaves_at(
    tolerations: Sequence[JsonObject], taints: Iterable[tuple[JsonObject, int]], came: int
) -> int | None:
    """Return when a pod must leave a node, by its taints' start times; None if it may stay.

    `tolerationSeconds` count from when both the taint and the pod are there, in nanoseconds (as in
    the tainteviction controller): a pod that comes to a node tainted long ago has all of them.
    """
    times = []
    for taint, since in taints:
        if taint.get("effect") != NO_EXECUTE:
            continue
        added = max(since, came)
        matching = [toleration for toleration in tolerations if covers(toleration, taint)]
        if not matching:
            return added
        seconds = [item["tolerationSeconds"] for item in matching if "tolerationSeconds" in item]
        if seconds:
            times.append(added + max(0, min(seconds)) * SECOND)
    return min(times, default=None)


def _compares(operator: str, bound: str, value: str) -> bool:
    limit, found = _int64(bound), _int64(value)
    if limit is None or found is None:
        return False
    return found < limit if operator == "Lt" else found > limit


def _int64(text: str) -> int | None:
    # No number of 64 bits has more than 20 characters; Python refuses to read some that do.
    if len(text) > 20 or not is_decimal_integer(text):
        return None
    return number if (number := int(text)) in _INT64 else None
