"""Claims of devices, as pods name them and as their status says who has what.

Sources: k8s.io/dynamic-resource-allocation `resourceclaim` (Name, IsReservedForPod); KEP-5729 for
claims of pod groups, KEP-5004 for the claim of extended resources.
"""

from collections.abc import Sequence
from typing import Final

from dralab.objects.metadata import spec_of, status_of
from dralab.values.json_types import JsonObject

ENTRY: Final = ("name", "resourceClaimName", "resourceClaimTemplateName")
"""What makes two entries of `resourceClaims` the same one."""


# --- what a pod names ------------------------------------------------------------------------


def claims_by_entry(pod: JsonObject) -> dict[str, str]:
    """Return the names of a pod's claims by its entries; those not made yet are left out.

    >>> spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    >>> made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x7k2p"}]}
    >>> claims_by_entry({"spec": spec, "status": made})
    {'gpu': 'p-gpu-x7k2p'}
    """
    entries = spec_of(pod).get("resourceClaims")
    if not entries:
        return {}
    made = made_claims(pod)
    found = {}
    for entry in entries:
        name = (
            entry.get("resourceClaimName")
            or (entry.get("source") or {}).get("resourceClaimName")  # before 1.31
            or made.get(entry["name"])
        )
        if name:
            found[entry["name"]] = name
    return found


def made_claims(obj: JsonObject) -> dict[str, str | None]:
    """Return what was made for the entries of a pod or PodGroup; None where nothing was wanted."""
    return {
        status["name"]: status.get("resourceClaimName")
        for status in status_of(obj).get("resourceClaimStatuses") or ()
    }


def claim_names(pod: JsonObject) -> list[str]:
    """Return the names of all claims of a pod, the one for its extended resources last."""
    names = list(claims_by_entry(pod).values())
    extended = extended_claim(pod).get("resourceClaimName")
    return [*names, extended] if extended else names


def extended_claim(pod: JsonObject) -> JsonObject:
    """Return what a pod's status says of the claim for its extended resources; empty: none."""
    found: JsonObject = status_of(pod).get("extendedResourceClaimStatus") or {}
    return found


def uses_claims(pod: JsonObject) -> bool:
    """Return whether a pod has claims, made already or not."""
    return bool(spec_of(pod).get("resourceClaims") or extended_claim(pod))


def is_shared(entry: JsonObject, group: JsonObject) -> bool:
    """Return whether an entry of a pod is one of its PodGroup: then the claim is the group's."""
    return any(
        all(entry.get(name) == other.get(name) for name in ENTRY)
        for other in spec_of(group).get("resourceClaims") or ()
    )


def has_device_claims(pod: JsonObject) -> bool:
    """Return whether a pod asks for devices as k8srm does, which today's scheduler cannot give."""
    return bool(spec_of(pod).get("deviceClaims"))


def classic_sources(pod: JsonObject) -> dict[str, dict[str, str]]:
    """Return where a pod's classic entries (with a `source`) come from, by their names."""
    return {
        entry["name"]: entry["source"]
        for entry in spec_of(pod).get("resourceClaims") or ()
        if entry.get("source")
    }


def classic_claims_by_entry(pod: JsonObject) -> dict[str, str]:
    """Return the names of a pod's classic claims, by the names of its entries."""
    names, sources = claims_by_entry(pod), classic_sources(pod)
    return {entry: names[entry] for entry in sources if entry in names}


# --- what a claim says -----------------------------------------------------------------------


def allocation_of(claim: JsonObject) -> JsonObject | None:
    """Return the allocation of a claim; None where it has none."""
    found: JsonObject | None = status_of(claim).get("allocation")
    return found


def results_of(allocation: JsonObject | None) -> Sequence[JsonObject]:
    """Return the devices of an allocation."""
    found: Sequence[JsonObject] = ((allocation or {}).get("devices") or {}).get("results") or ()
    return found


def consumers_of(claim: JsonObject) -> Sequence[JsonObject]:
    """Return who may use a claim: the entries of `reservedFor`."""
    found: Sequence[JsonObject] = status_of(claim).get("reservedFor") or ()
    return found


def is_reserved_for(claim: JsonObject, uid: str) -> bool:
    """Return whether a pod or PodGroup may use a claim."""
    return any(consumer.get("uid") == uid for consumer in consumers_of(claim))
