"""Which changes of a waiting pod and of its claims matter to its scheduling."""

from typing import Final

from dralab.objects.claims import consumers_of
from dralab.objects.metadata import status_of
from dralab.scheduling.claims import ClaimDemand
from dralab.values.json_types import JsonDict

# What a pod's status says of its claims, and what an attempt left behind of their costs.
OWN_STATUS: Final = ("resourceClaimStatuses", "nodeAllocatableResourceClaimStatuses")


def matters(old: JsonDict, new: JsonDict) -> bool:
    """Return whether a change of an unbound pod, or of a group, may matter to its scheduling."""
    one, other = status_of(old), status_of(new)
    return bool(
        old["spec"] != new["spec"]
        or old["metadata"].get("labels") != new["metadata"].get("labels")
        or any(one.get(name) != other.get(name) for name in OWN_STATUS)
    )


def is_given_up(item: ClaimDemand) -> bool:
    """Return whether a claim's devices tie it to nodes and no other pod uses them."""
    status = status_of(item.claim)
    users = {user["uid"] for user in consumers_of(item.claim)}
    tied = (status.get("allocation") or {}).get("nodeSelector") is not None
    return tied and users <= {item.consumer["uid"]}
