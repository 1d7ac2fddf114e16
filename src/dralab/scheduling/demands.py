"""The devices that a pod requests: its claims and its extended resources.

Sources: kube-scheduler's DynamicResources plugin (texts, order of checks), KEP-5004 (extended
resources), KEP-5729 (claims of pod groups).
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Final, NamedTuple

import orjson

from dralab.objects.claims import (
    PodClaim,
    allocation_of,
    alternatives_of,
    consumers_of,
    has_device_claims,
    is_reserved_for,
    is_shared,
    requests_of,
)
from dralab.objects.extended_resources import classes_by_resource
from dralab.objects.metadata import NamespacedName, is_deleting, owner_uids, uid_of
from dralab.scheduling.claims import ClaimDemand, MadeClaim
from dralab.scheduling.pods import PodInfo, PodLoad
from dralab.scheduling.reasons import (
    CLAIM_DELETED,
    CLAIM_IN_USE,
    CLAIM_NOT_CREATED,
    CLAIM_NOT_FOUND,
    CLAIM_NOT_OWNED,
    CLASS_NOT_FOUND,
    OTHER_API,
    Reason,
)
from dralab.scheduling.volumes import VolumeDemand
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.records import dataclass

MOST_CONSUMERS: Final = 256
# Specs of claims that are remembered; beyond it they are forgotten.
MOST_KNOWN: Final = 1_024


class PodDemand(NamedTuple):
    """All devices that a pod requests.

    `signature` names what is still to be allocated: pods that agree on it fit on the same nodes.
    `extended` maps extended resources to the class whose devices provide them.
    """

    claims: tuple[ClaimDemand, ...] = ()
    extended: Mapping[str, str] = MappingProxyType({})
    signature: bytes = b""
    ranked: bool = False
    volumes: VolumeDemand | None = None

    @property
    def unallocated(self) -> tuple[ClaimDemand, ...]:
        """The claims that have no devices yet."""
        return tuple([item for item in self.claims if item.allocation is None])


NOTHING_WANTED: Final = PodDemand()


@dataclass(frozen=True, slots=True)
class BlockedPod:
    """A pod cannot be tried on any node; `demand` is its demand, if known."""

    reason: Reason
    demand: PodDemand = NOTHING_WANTED


class AskedDevices(NamedTuple):
    """The requests of unallocated claims and for extended resources, with the classes of these.

    `specs` are kept so that their ids stay valid.
    """

    specs: list[JsonDict]
    extended: Mapping[str, str]
    signature: bytes
    ranked: bool
    missing: Reason | None


class DemandReader:
    """Reads the demands of pods.

    `claim` looks a claim up by key, `group` a pod group; `in_flight` what was decided for a claim
    and is being written; `volumes` what a pod needs in volumes, or why it cannot be tried.
    `not_made` says why an entry of a pod has no claim yet, where that can be known. `own` are
    claims that were made for a pod and that it alone has.
    """

    def __init__(
        self,
        claim: Callable[[NamespacedName], JsonDict | None],
        group: Callable[[NamespacedName], JsonDict | None],
        in_flight: Callable[[str], JsonObject | None],
        volumes: Callable[[PodInfo], VolumeDemand | Reason] | None = None,
        *,
        not_made: Callable[[PodInfo, PodClaim], Reason | None] | None = None,
        own: Callable[[PodInfo], Sequence[MadeClaim]] | None = None,
    ) -> None:
        self.classes: dict[str, JsonDict] = {}
        self._claim = claim
        self._group = group
        self._in_flight = in_flight
        self._volumes = volumes
        self._not_made = not_made
        self._own = own
        self._by_resource: dict[str, str] = {}
        self._known: dict[tuple[object, ...], AskedDevices] = {}

    def put_class(self, name: str, obj: JsonDict | None) -> None:
        """Handle a new, changed or deleted (None) DeviceClass."""
        self._known.clear()
        if obj is None:
            self.classes.pop(name, None)
        else:
            self.classes[name] = obj
        self._by_resource = classes_by_resource(self.classes.values())

    @property
    def provided(self) -> Mapping[str, str]:
        """The extended resources that classes provide, with the class of each."""
        return self._by_resource

    def claim(self, key: NamespacedName) -> JsonDict | None:
        """Return a claim; None if it does not exist."""
        return self._claim(key)

    @contextmanager
    def supposing(self, claims: Mapping[NamespacedName, JsonDict]) -> Iterator[None]:
        """Assume inside that claims have another form."""
        before = self._claim, self._own
        self._claim = lambda key: claims.get(key) or before[0](key)
        self._own = None
        try:
            yield
        finally:
            self._claim, self._own = before

    def claims_of(self, pod: PodInfo) -> list[JsonDict]:
        """Return the existing claims that a pod names."""
        found = (self._claim(NamespacedName(pod.key.namespace, name)) for name in pod.claim_names)
        return [claim for claim in found if claim is not None]

    def demand_of(self, pod: PodInfo) -> PodDemand | BlockedPod:
        """Return a pod's demand, or why it cannot be tried."""
        if has_device_claims(pod.obj):
            return BlockedPod(Reason(OTHER_API, (pod.key.namespace, pod.key.name)))
        # Claims that were made for the pod alone are there, and nobody else uses them.
        own = () if self._own is None or pod.group else self._own(pod)
        there: list[tuple[JsonDict, dict[str, str]]] = []
        if len(own) < len(pod.claims):
            own = ()
            for item in pod.claims:
                # A pod is not even queued before its claims are there (PreEnqueue).
                found = self._made(pod, item)
                if isinstance(found, BlockedPod):
                    return found
                if found is not None:
                    there.append(found)
        volumes: VolumeDemand | None = None
        if pod.volume_claims and self._volumes is not None:
            found_volumes = self._volumes(pod)
            if isinstance(found_volumes, Reason):
                return BlockedPod(found_volumes)
            volumes = found_volumes
        claims: list[ClaimDemand] = []
        specs: list[JsonDict] = []
        for claim, consumer in there:
            full = len(consumers_of(claim)) >= MOST_CONSUMERS
            if full and not is_reserved_for(claim, consumer["uid"]):
                return BlockedPod(Reason(CLAIM_IN_USE))
            allocation = allocation_of(claim) or self._in_flight(uid_of(claim))
            claims.append(ClaimDemand(claim, consumer, allocation))
            if allocation is None:
                specs.append(claim["spec"])
        for made in own:
            allocation = self._in_flight(made.uid)
            claims.append(ClaimDemand(made, made.consumer, allocation))
            if allocation is None:
                specs.append(made.spec)
        asked = self._asked(pod.load, specs)
        if not (claims or asked.extended or volumes):
            return NOTHING_WANTED
        demand = PodDemand(tuple(claims), asked.extended, asked.signature, asked.ranked, volumes)
        return demand if asked.missing is None else BlockedPod(asked.missing, demand)

    def _asked(self, load: PodLoad, specs: list[JsonDict]) -> AskedDevices:
        """Return the combined requests of claims and extended resources.

        Claims that are made from one template share its spec: what is known of it is not found
        out again.
        """
        key = (load, *map(id, specs))
        found = self._known.get(key)
        if found is None:
            requests = [request for spec in specs for request in requests_of(spec)]
            amounts = {name: amount for name, amount in load.requests if name in self._by_resource}
            extended = sorted(amounts.items())
            signature = b""
            if specs or extended:
                signature = orjson.dumps([specs, extended], option=orjson.OPT_SORT_KEYS)
            found = AskedDevices(
                specs,
                {name: self._by_resource[name] for name in amounts},
                signature,
                any(request.get("firstAvailable") for request in requests),
                self._missing_class(requests),
            )
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[key] = found
        return found

    def _made(
        self, pod: PodInfo, item: PodClaim
    ) -> tuple[JsonDict, dict[str, str]] | BlockedPod | None:
        """Return an entry's claim with its consumer, or why it is missing; None if not needed."""
        namespace, name = pod.key.namespace, item.name
        if name is None:
            known = self._not_made(pod, item) if self._not_made is not None else None
            return BlockedPod(known or Reason(CLAIM_NOT_CREATED, (str(pod.key),)))
        if not name:
            return None
        claim = self._claim(NamespacedName(namespace, name))
        if claim is None:
            return BlockedPod(Reason(CLAIM_NOT_FOUND, (name,)))
        if is_deleting(claim):
            return BlockedPod(Reason(CLAIM_DELETED, (name,)))
        consumer = self._consumer(pod, item)
        if not item.claim and consumer["uid"] not in owner_uids(claim):
            return BlockedPod(Reason(CLAIM_NOT_OWNED, (f"{namespace}/{name}", str(pod.key))))
        return claim, consumer

    def _consumer(self, pod: PodInfo, item: PodClaim) -> dict[str, str]:
        if pod.group:
            group = self._group(NamespacedName(pod.key.namespace, pod.group))
            if group is not None and is_shared(item, group):
                return {
                    "apiGroup": "scheduling.k8s.io",
                    "resource": "podgroups",
                    "name": pod.group,
                    "uid": uid_of(group),
                }
        return {"resource": "pods", "name": pod.key.name, "uid": pod.uid}

    def _missing_class(self, requests: Iterable[JsonObject]) -> Reason | None:
        for request in requests:
            for alternative in alternatives_of(request):
                name = alternative.get("deviceClassName") or ""
                if name not in self.classes:
                    asked = request["name"]
                    if request.get("firstAvailable"):
                        asked += f"/{alternative['name']}"
                    return Reason(CLASS_NOT_FOUND, (asked, name))
        return None
