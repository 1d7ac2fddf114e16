"""PodDisruptionBudgets: which pods they cover, and how many may go.

Source: `pkg/registry/core/pod/storage/eviction.go`, policy/v1.
"""

from dralab.objects.metadata import labels_of, spec_of, status_of
from dralab.values import labels
from dralab.values.json_types import JsonObject


def covers(budget: JsonObject, pod: JsonObject) -> bool:
    """Return whether a budget covers a pod; without a selector it covers none.

    >>> budget = {"metadata": {"namespace": "ml"}, "spec": {"selector": {}}}
    >>> covers(budget, {"metadata": {"namespace": "ml"}}), covers(budget, {"metadata": {}})
    (True, False)
    """
    wanted = spec_of(budget).get("selector")
    if wanted is None:
        return False
    if budget["metadata"].get("namespace", "") != pod["metadata"].get("namespace", ""):
        return False
    return labels.from_mapping(wanted).accepts(labels_of(pod))


def disruptions_allowed(budget: JsonObject) -> int:
    """Return how many of its pods may be evicted now, as its status says."""
    return int(status_of(budget).get("disruptionsAllowed") or 0)


def never_allows(budget: JsonObject) -> bool:
    """Return whether a budget lets no pod go, however many there are.

    >>> never_allows({"spec": {"maxUnavailable": 0}}), never_allows({"spec": {"minAvailable": 1}})
    (True, False)
    """
    spec = spec_of(budget)
    return spec.get("maxUnavailable") in {0, "0%"} or spec.get("minAvailable") == "100%"
