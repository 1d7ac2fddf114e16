"""Which changes retry a waiting pod: its own, its claims', and those that could help it."""

from typing import Final

from dralab.objects.claims import consumers_of
from dralab.objects.metadata import status_of
from dralab.scheduler.queue import ClusterChange
from dralab.scheduling.cycle import Refusal
from dralab.scheduling.demands import ClaimDemand
from dralab.scheduling.topology import NO_AFFINITY, NO_ANTI_AFFINITY, NO_SPREAD, REPELLED
from dralab.scheduling.volumes import IN_USE, NO_ZONE
from dralab.values.json_types import JsonDict

# What a pod's status says of its claims, and what an attempt left behind of their costs.
OWN_STATUS: Final = ("resourceClaimStatuses", "nodeAllocatableResourceClaimStatuses")


def matters(old: JsonDict, new: JsonDict) -> bool:
    """Return whether a change of an unbound pod may make a difference to its scheduling."""
    one, other = status_of(old), status_of(new)
    return bool(
        old["spec"] != new["spec"]
        or old["metadata"].get("labels") != new["metadata"].get("labels")
        or any(one.get(name) != other.get(name) for name in OWN_STATUS)
    )


def awaited(refusal: Refusal) -> ClusterChange:
    """Return the changes that could help: only for those the pod is retried."""
    if refusal.blocked or refusal.fatal:
        if "persistentvolume" in refusal.blocked.lower():
            return ClusterChange.VOLUMES
        # Changes of its claims and its group reach a pod by name.
        return (
            ClusterChange.DEVICES
            if "class" in refusal.blocked or refusal.fatal
            else ClusterChange.NOTHING
        )
    found = ClusterChange.NODE
    for reason in refusal.reasons:
        if reason.startswith(("Insufficient", "Too many")) or "port" in reason:
            found |= ClusterChange.POD_GONE
            if "/" in reason:
                # Of an extended resource: a class may come that provides it.
                found |= ClusterChange.DEVICES
        elif reason == IN_USE:
            found |= ClusterChange.POD_GONE
        elif (
            reason == NO_ZONE
            or "persistentvolume" in reason.lower()
            or "persistent volumes" in reason
        ):
            found |= ClusterChange.VOLUMES
        elif reason in {NO_AFFINITY, NO_SPREAD}:
            found |= ClusterChange.POD_GONE | ClusterChange.POD_PLACED
        elif reason in {NO_ANTI_AFFINITY, REPELLED}:
            found |= ClusterChange.POD_GONE
        elif "taint" not in reason and "node affinity" not in reason:
            found |= ClusterChange.DEVICES
    return found | ClusterChange.DEVICES if refusal.shortages else found


def is_given_up(item: ClaimDemand) -> bool:
    """Return whether a claim's devices tie it to nodes and no other pod uses them."""
    status = status_of(item.claim)
    users = {user["uid"] for user in consumers_of(item.claim)}
    tied = (status.get("allocation") or {}).get("nodeSelector") is not None
    return tied and users <= {item.consumer["uid"]}
