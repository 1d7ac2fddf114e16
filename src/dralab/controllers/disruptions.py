"""Deletes a pod on behalf of the cluster: a condition first records the reason.

Source: KEP-3329; `tainteviction`, `devicetainteviction` and `podgc` of kube-controller-manager. A
pod that is gone, or another one of that name, is left alone.
"""

from dralab.api.status import ignoring
from dralab.objects.metadata import key_of, uid_of
from dralab.runtime.client import Client, delete_only
from dralab.runtime.resources import PODS
from dralab.values.json_types import JsonDict, JsonObject


def target(reason: str, message: str, now: str) -> JsonDict:
    """Return the condition DisruptionTarget."""
    return {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": reason,
        "message": message,
        "lastTransitionTime": now,
    }


def mark(client: Client, pod: JsonObject, condition: JsonObject) -> bool:
    """Write a condition of a pod; False: the pod is gone.

    ApiError: the server refuses for another reason.
    """
    with ignoring("NotFound", "Conflict"):
        _write(client, pod, {"conditions": [condition]})
        return True
    return False


def evict(
    client: Client,
    pod: JsonObject,
    condition: JsonObject | None,
    *,
    phase: str = "",
    grace: int | None = None,
) -> bool:
    """Delete a pod, after the condition (and phase) that says why; False: the pod is gone.

    ApiError as `mark`.
    """
    options = {} if grace is None else {"gracePeriodSeconds": grace}
    with ignoring("NotFound", "Conflict"):
        if condition is not None:
            _write(client, pod, {"conditions": [condition]} | ({"phase": phase} if phase else {}))
        return delete_only(client, PODS, pod, **options)
    return False


def _write(client: Client, pod: JsonObject, status: JsonDict) -> None:
    key = key_of(pod)
    patch: JsonDict = {"metadata": {"uid": uid_of(pod)}, "status": status}
    client.patch(PODS, key.name, patch, key.namespace, type="strategic", subresource="status")
