"""What the status of a Deployment says of its rollout: counts, and conditions with their times."""

from collections.abc import Iterable, Sequence
from typing import Any, Final

from dralab.kernel.clock import SECOND, from_rfc3339, rfc3339
from dralab.objects.conditions import condition_of, conditions_of, with_condition
from dralab.objects.metadata import status_of
from dralab.values.json_types import JsonDict, JsonObject

Conditions = list[dict[str, Any]]

# Reasons that say the rollout has not come to its end.
UNDER_WAY: Final = frozenset(
    {"ReplicaSetUpdated", "ProgressDeadlineExceeded", "NewReplicaSetCreated"}
)
NO_DEADLINE: Final = 2**31 - 1


def deployment_status(
    deployment: JsonDict, new: JsonDict | None, sets: Sequence[JsonDict], needed: int, now: int
) -> tuple[dict[str, Any], int | None]:
    """Return the status of a deployment that is available with `needed` pods.

    With it comes the time after which it has to be looked at again, in nanoseconds.
    """
    wanted = deployment["spec"].get("replicas", 1)
    total = _sum(sets, "replicas")
    available = _sum(sets, "availableReplicas")
    updated = _sum([new], "replicas") if new is not None else 0
    time = rfc3339(now)
    conditions = _with_availability(conditions_of(deployment), time, enough=available >= needed)
    conditions = _with_failure(conditions, ([new] if new is not None else []) + [*sets], time)
    again: int | None = None
    if deployment["spec"].get("paused"):
        conditions = _paused(deployment, conditions, time)
    elif new is not None:
        complete = updated == wanted == total and available == wanted
        conditions, again = _progress(
            deployment, new, conditions, now, complete=complete, moved=updated + available
        )
    status = {
        "observedGeneration": deployment["metadata"].get("generation", 0),
        "replicas": total or None,
        "updatedReplicas": updated or None,
        "readyReplicas": _sum(sets, "readyReplicas") or None,
        "availableReplicas": available or None,
        "unavailableReplicas": max(0, sum(map(replicas_of, sets)) - available) or None,
        "terminatingReplicas": _sum(sets, "terminatingReplicas"),
        "conditions": conditions,
    }
    return status, again


def with_created_set(deployment: JsonDict, name: str, time: str) -> dict[str, Any]:
    """Return the status of a deployment that has created a set."""
    told = ("Progressing", "True", "NewReplicaSetCreated", f'Created new replica set "{name}"')
    conditions = _with(conditions_of(deployment), time, *told)
    return {**status_of(deployment), "conditions": conditions}


def replicas_of(replica_set: JsonDict) -> int:
    """Return how many pods a set is meant to have."""
    count: int = replica_set["spec"].get("replicas", 1)
    return count


def _with_availability(conditions: Iterable[JsonObject], time: str, *, enough: bool) -> Conditions:
    if enough:
        reason, has = "MinimumReplicasAvailable", "has"
    else:
        reason, has = "MinimumReplicasUnavailable", "does not have"
    message = f"Deployment {has} minimum availability."
    return _with(conditions, time, "Available", "True" if enough else "False", reason, message)


def _with_failure(conditions: Conditions, sets: Sequence[JsonDict], time: str) -> Conditions:
    """Return the conditions with the reason why a set cannot create pods, the newest set first."""
    found = (condition_of(item, "ReplicaFailure") for item in sets)
    failure = next((each for each in found if each is not None and each["status"] == "True"), None)
    if failure is None:
        return [item for item in conditions if item["type"] != "ReplicaFailure"]
    told = [failure.get(name, "") for name in ("type", "status", "reason", "message")]
    return _with(conditions, time, *told)


def _paused(deployment: JsonDict, conditions: Conditions, time: str) -> Conditions:
    known = condition_of(deployment, "Progressing") or {}
    if known.get("reason") == "ProgressDeadlineExceeded":
        return conditions
    told = ("Progressing", "Unknown", "DeploymentPaused", "Deployment is paused")
    return _with(conditions, time, *told)


def _progress(
    deployment: JsonDict,
    new: JsonDict,
    conditions: Conditions,
    now: int,
    *,
    complete: bool,
    moved: int,
) -> tuple[Conditions, int | None]:
    name, status = new["metadata"]["name"], "True"
    if complete:
        reason = "NewReplicaSetAvailable"
        message = f'ReplicaSet "{name}" has successfully progressed.'
    else:
        reason, message = "ReplicaSetUpdated", f'ReplicaSet "{name}" is progressing.'
    before = status_of(deployment)
    held = (before.get("updatedReplicas") or 0) + (before.get("availableReplicas") or 0)
    known = condition_of(deployment, "Progressing") or {}
    stuck = not complete and held == moved and known.get("reason") in UNDER_WAY
    deadline = deployment["spec"].get("progressDeadlineSeconds")
    again: int | None = None
    if not complete and deadline and deadline < NO_DEADLINE:
        again = deadline * SECOND
        if stuck and (since := known.get("lastUpdateTime")):
            left = from_rfc3339(since) + deadline * SECOND - now
            if left > 0:
                return conditions, left
            again, status, reason = None, "False", "ProgressDeadlineExceeded"
            message = f'ReplicaSet "{name}" has timed out progressing.'
    told = ("Progressing", status, reason, message)
    return _with(conditions, rfc3339(now), *told, moved=not stuck and not complete), again


def _with(  # noqa: PLR0917 - the fields of a condition
    conditions: Iterable[JsonObject],
    time: str,
    type: str,
    status: str,
    reason: str,
    message: str,
    *,
    moved: bool = False,
) -> Conditions:
    """Return the conditions with a new one in place; lastUpdateTime moves with what it says."""
    new = {"type": type, "status": status, "reason": reason, "message": message}
    kept = [dict(item) for item in conditions]
    held = next((item for item in kept if item["type"] == type), {})
    same = not moved and all(held.get(name) == value for name, value in new.items())
    updated = held.get("lastUpdateTime", time) if same else time
    return with_condition(kept, {**new, "lastUpdateTime": updated}, now=time)


def _sum(sets: Sequence[JsonDict], field: str) -> int:
    return sum(status_of(item).get(field) or 0 for item in sets)
