"""Claims of devices: how pods name them, and what their status holds.

Sources: k8s.io/dynamic-resource-allocation `resourceclaim` (Name, IsReservedForPod); KEP-5729 for
claims of pod groups, KEP-5004 for the claim of extended resources.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from dralab.objects.metadata import key_of, spec_of, status_of, uid_of
from dralab.values.json_types import JsonObject

PREPARE: Final = "NodePrepareResources"
UNPREPARE: Final = "NodeUnprepareResources"


class PodClaim(NamedTuple):
    """One entry of `resourceClaims` of a pod or PodGroup, and the claim created for it.

    `claim` and `template` are the names that the entry gives, empty if it gives none. `made` is
    what the status says of it: None while it says nothing, empty if no claim was needed.
    `is_classic` is true for entries with a `source`, as before 1.31.
    """

    entry: str
    claim: str
    template: str
    made: str | None
    is_classic: bool

    @property
    def name(self) -> str | None:
        """The name of the claim; None while it is not created, empty if none is needed."""
        return self.claim or self.made


# --- what a pod names ------------------------------------------------------------------------


def pod_claims(obj: JsonObject) -> list[PodClaim]:
    """Return the entries of a pod or PodGroup, in their order."""
    entries = spec_of(obj).get("resourceClaims")
    if not entries:
        return []
    statuses = status_of(obj).get("resourceClaimStatuses")
    made = made_claims(obj) if statuses else {}
    found = []
    for entry in entries:
        name = entry["name"]
        source = entry.get("source") or entry
        found.append(
            PodClaim(
                name,
                source.get("resourceClaimName") or "",
                source.get("resourceClaimTemplateName") or "",
                made.get(name),
                source is not entry,
            )
        )
    return found


def claims_by_entry(pod: JsonObject) -> dict[str, str]:
    """Return the names of a pod's claims by its entries; those not made yet are left out.

    >>> spec = {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "one"}]}
    >>> made = {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x7k2p"}]}
    >>> claims_by_entry({"spec": spec, "status": made})
    {'gpu': 'p-gpu-x7k2p'}
    """
    return {item.entry: item.name for item in pod_claims(pod) if item.name}


def made_claims(obj: JsonObject) -> dict[str, str]:
    """Return the claims created for the entries of a pod or PodGroup; empty if none was needed.

    An entry that the status does not mention is not in it.
    """
    return {
        status["name"]: status.get("resourceClaimName") or ""
        for status in status_of(obj).get("resourceClaimStatuses") or ()
    }


def claim_names(pod: JsonObject) -> list[str]:
    """Return the names of all claims of a pod, the one for its extended resources last."""
    names = list(claims_by_entry(pod).values())
    extended = extended_claim(pod).get("resourceClaimName")
    return [*names, extended] if extended else names


def extended_claim(pod: JsonObject) -> JsonObject:
    """Return a pod's status of the claim for its extended resources; empty without one."""
    found: JsonObject = status_of(pod).get("extendedResourceClaimStatus") or {}
    return found


def uses_claims(pod: JsonObject) -> bool:
    """Return whether a pod has claims, created already or not."""
    return bool(spec_of(pod).get("resourceClaims") or extended_claim(pod))


def is_shared(item: PodClaim, group: JsonObject) -> bool:
    """Return whether an entry of a pod refers to its PodGroup's claim."""
    return any(item[:3] == other[:3] for other in pod_claims(group))


def has_device_claims(pod: JsonObject) -> bool:
    """Return whether a pod asks for devices of k8srm, which today's scheduler does not allocate."""
    return bool(spec_of(pod).get("deviceClaims"))


def claims_for_scheduler(pod: JsonObject) -> list[PodClaim]:
    """Return the entries of a pod that today's scheduler allocates."""
    return [item for item in pod_claims(pod) if not item.is_classic]


def classic_pod_claims(pod: JsonObject) -> list[PodClaim]:
    """Return the entries of a pod that are for classic DRA."""
    return [item for item in pod_claims(pod) if item.is_classic]


def classic_claims_by_entry(pod: JsonObject) -> dict[str, str]:
    """Return the names of a pod's classic claims, by the names of its entries."""
    return {item.entry: item.name for item in classic_pod_claims(pod) if item.name}


def uses_of(container: JsonObject) -> list[tuple[str, str]]:
    """Return the entries of its pod that a container uses, each with one request or an empty text.

    >>> uses_of({"resources": {"claims": [{"name": "gpu"}, {"name": "nic", "request": "fast"}]}})
    [('gpu', ''), ('nic', 'fast')]
    """
    resources = container.get("resources") or {}
    return [(use["name"], use.get("request") or "") for use in resources.get("claims") or ()]


# --- what a claim says -----------------------------------------------------------------------


def requests_of(spec: JsonObject) -> Sequence[JsonObject]:
    """Return the requests of a claim's spec."""
    found: Sequence[JsonObject] = (spec.get("devices") or {}).get("requests") or ()
    return found


def alternatives_of(request: JsonObject) -> Sequence[JsonObject]:
    """Return the alternatives of a request in order, or the request itself."""
    found: Sequence[JsonObject] = request.get("firstAvailable") or (request.get("exactly") or {},)
    return found


def allocation_of(claim: JsonObject) -> JsonObject | None:
    """Return the allocation of a claim; None if it has none."""
    found: JsonObject | None = status_of(claim).get("allocation")
    return found


def results_of(allocation: JsonObject | None) -> Sequence[JsonObject]:
    """Return the devices of an allocation."""
    found: Sequence[JsonObject] = ((allocation or {}).get("devices") or {}).get("results") or ()
    return found


class Holding(NamedTuple):
    """What one result of an allocation holds: a device, or a part of it.

    `share` is the id of the part, empty where the device is held whole; a part takes `consumed` of
    the device's capacities, as quantities.
    """

    driver: str
    pool: str
    device: str
    share: str = ""
    consumed: Mapping[str, Any] = MappingProxyType({})


def holds(allocation: JsonObject | None) -> list[Holding]:
    """Return what an allocation holds.

    Admin access watches a device and does not hold it.

    >>> device = {"driver": "d", "pool": "p", "device": "x", "request": "r"}
    >>> holds({"devices": {"results": [device, device | {"adminAccess": True}]}})
    [Holding(driver='d', pool='p', device='x', share='', consumed=mappingproxy({}))]
    """
    return [
        Holding(
            item["driver"],
            item["pool"],
            item["device"],
            item.get("shareID") or "",
            item.get("consumedCapacity") or MappingProxyType({}),
        )
        for item in results_of(allocation)
        if not item.get("adminAccess")
    ]


def consumers_of(claim: JsonObject) -> Sequence[JsonObject]:
    """Return who may use a claim: the entries of `reservedFor`."""
    found: Sequence[JsonObject] = status_of(claim).get("reservedFor") or ()
    return found


def consumer_of(pod: JsonObject) -> dict[str, str]:
    """Return the entry of `reservedFor` by which a pod uses a claim."""
    return {"resource": "pods", "name": key_of(pod).name, "uid": uid_of(pod)}


def is_reserved_for(claim: JsonObject, uid: str) -> bool:
    """Return whether a pod or PodGroup may use a claim."""
    return any(consumer.get("uid") == uid for consumer in consumers_of(claim))


def skipped_operations(allocation: JsonObject | None) -> dict[str, frozenset[str]]:
    """Return the node operations to skip for a claim, by driver: those that all devices allow.

    >>> each = {"driver": "d", "skipNodeOperations": ["*"]}
    >>> skipped_operations({"devices": {"results": [each, {"driver": "d"}]}})
    {'d': frozenset()}
    """
    found: dict[str, frozenset[str]] = {}
    for result in results_of(allocation):
        skips = frozenset(result.get("skipNodeOperations") or ())
        if "*" in skips:
            skips |= {PREPARE, UNPREPARE}
        found[result["driver"]] = found.get(result["driver"], skips) & skips
    return found
