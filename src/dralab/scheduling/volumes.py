"""Persistent volumes of pods: the allowed nodes, and the bindings to make.

Sources: kube-scheduler's VolumeRestrictions, VolumeBinding and VolumeZone. A claim whose class
binds at once must be bound before its pod is tried. One that waits for its first consumer gets,
with the pod's node, a volume that is there, or is left to its provisioner by the annotation
`selected-node`.
"""

from collections.abc import Callable, Collection, Iterable
from typing import NamedTuple, Protocol

import numpy as np

from dralab.objects import volumes as rules
from dralab.objects.metadata import (
    NamespacedName,
    is_deleting,
    key_of,
    labels_of,
    owner_uids,
    status_of,
)
from dralab.scheduling.nodes import Mask, NodeTable
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import (
    NO_VOLUME,
    NO_VOLUME_ZONE,
    VOLUME_CLAIM_DELETED,
    VOLUME_CLAIM_NOT_CREATED,
    VOLUME_CLAIM_NOT_FOUND,
    VOLUME_CLAIM_NOT_OWNED,
    VOLUME_ELSEWHERE,
    VOLUME_IN_USE,
    VOLUME_LOST,
    VOLUME_UNBOUND,
    Reason,
)
from dralab.values import labels
from dralab.values.json_types import JsonDict
from dralab.values.quantity import parse_any
from dralab.values.records import dataclass


class VolumePlan(NamedTuple):
    """What to write for one claim: its volume, or (None) the node for its provisioner."""

    claim: JsonDict
    volume: JsonDict | None


@dataclass(frozen=True, slots=True)
class VolumeDemand:
    """The bound volumes of a pod, and the claims that wait for its node.

    `exclusive` are claims that no other pod may use.
    """

    bound: tuple[JsonDict, ...] = ()
    unbound: tuple[JsonDict, ...] = ()
    exclusive: tuple[NamespacedName, ...] = ()


class IndexedObjects(Protocol):
    """Objects of one kind by name, and by what an index makes of them: a cache has this."""

    def get(self, key: NamespacedName) -> JsonDict | None:
        """Return an object, or None if there is none."""
        ...

    def index(self, name: str, values: Callable[[JsonDict], Iterable[str]]) -> None:
        """Keep an index: `find(name, v)` returns the objects for which `values` yields v."""
        ...

    def find(self, index: str, value: str) -> list[JsonDict]:
        """Return the objects that an index has under a value, by key."""
        ...


class Volumes:
    """Claims, volumes and storage classes; `taken` are assigned volumes, not yet written."""

    def __init__(
        self,
        table: NodeTable,
        claims: IndexedObjects,
        volumes: IndexedObjects,
        classes: IndexedObjects,
    ) -> None:
        self._table = table
        self._claims = claims
        self._volumes = volumes
        volumes.index(rules.PLACE, lambda volume: (rules.place_of(volume),))
        self._classes = classes
        self._taken: set[str] = set()

    def demand_of(self, pod: PodInfo) -> VolumeDemand | Reason:
        """Return a pod's volume demand, or why it cannot be tried."""
        bound: list[JsonDict] = []
        waiting: list[JsonDict] = []
        claims: list[JsonDict] = []
        for name, made_for_it in pod.volume_claims:
            claim = self._claim_of(pod, name, made_for_it=made_for_it)
            if isinstance(claim, Reason):
                return claim
            claims.append(claim)
        for claim in claims:
            volume = claim["spec"].get("volumeName")
            found = self._volumes.get(NamespacedName("", volume)) if volume else None
            if found is not None and rules.is_bound(claim):
                bound.append(found)
            elif volume or not self._waits(claim):
                return Reason(VOLUME_UNBOUND)
            else:
                waiting.append(claim)
        # The largest first: a small claim may do with what is left.
        waiting.sort(key=lambda claim: (-_asked(claim), key_of(claim)))
        alone = (key_of(claim) for claim in claims if rules.is_exclusive(claim))
        return VolumeDemand(tuple(bound), tuple(waiting), tuple(alone))

    def _claim_of(self, pod: PodInfo, name: str, *, made_for_it: bool) -> JsonDict | Reason:
        """Return a claim of a pod, or why the pod cannot have it."""
        key = NamespacedName(pod.key.namespace, name)
        claim = self._claims.get(key)
        if claim is None:
            missing = VOLUME_CLAIM_NOT_CREATED if made_for_it else VOLUME_CLAIM_NOT_FOUND
            return Reason(missing, (name,))
        if status_of(claim).get("phase") == "Lost":
            return Reason(VOLUME_LOST, (name, str(claim["spec"].get("volumeName"))))
        if is_deleting(claim):
            return Reason(VOLUME_CLAIM_DELETED, (name,))
        if made_for_it and pod.uid not in owner_uids(claim):
            return Reason(VOLUME_CLAIM_NOT_OWNED, (str(key), str(pod.key)))
        return claim

    def restrictions(self, demand: VolumeDemand) -> list[tuple[Reason, Mask]]:
        """Return the nodes that a pod's volumes allow, each with the reason for the others."""
        table, found = self._table, list[tuple[Reason, Mask]]()
        if demand.exclusive and self._is_used(demand.exclusive):
            found.append((Reason(VOLUME_IN_USE), np.zeros(table.size, dtype=bool)))
        selectors = [
            required
            for volume in demand.bound
            if (required := (volume["spec"].get("nodeAffinity") or {}).get("required")) is not None
        ]
        if selectors:
            reached: Mask = np.zeros(table.size, dtype=bool)
            for name, row in table.row_of.items():
                reached[row] = all(
                    labels.node_selector_accepts(each, table.labels[row], name)
                    for each in selectors
                )
            found.append((Reason(VOLUME_ELSEWHERE), reached))
        if demand.unbound:
            served: Mask = np.zeros(table.size, dtype=bool)
            for row in table.row_of.values():
                served[row] = self.plans(demand, row) is not None
            found.append((Reason(NO_VOLUME), served))
        if any(key in labels_of(volume) for volume in demand.bound for key in rules.ZONES):
            near: Mask = np.zeros(table.size, dtype=bool)
            for row in table.row_of.values():
                own = table.labels[row]
                near[row] = all(rules.reaches_zone(volume, own) for volume in demand.bound)
            found.append((Reason(NO_VOLUME_ZONE), near))
        return found

    def plans(self, demand: VolumeDemand | None, row: int) -> tuple[VolumePlan, ...] | None:
        """Return what to write for a placement on a node; None if impossible."""
        if demand is None:
            return ()
        made: list[VolumePlan] = []
        taken = set(self._taken)
        for claim in demand.unbound:
            near = [
                volume
                for place in rules.places_for(claim)
                for volume in self._volumes.find(rules.PLACE, place)
                if self._reaches(volume, row)
            ]
            volume = rules.best_for(claim, near, without=taken)
            if volume is not None:
                taken.add(volume["metadata"]["name"])
            elif not self._provides(claim, row):
                return None
            made.append(VolumePlan(claim, None if volume is None else dict(volume)))
        return tuple(made)

    def assume(self, plans: Iterable[VolumePlan]) -> None:
        """Assume that volumes are assigned."""
        for plan in plans:
            if plan.volume is not None:
                self._taken.add(plan.volume["metadata"]["name"])

    def forget_plans(self, plans: Iterable[VolumePlan]) -> None:
        """Take that back."""
        for plan in plans:
            if plan.volume is not None:
                self._taken.discard(plan.volume["metadata"]["name"])

    def put_volume(self, name: str, volume: JsonDict | None) -> None:
        """Record a new, changed or deleted volume: assumptions about it end."""
        if volume is None or volume["spec"].get("claimRef") is not None:
            self._taken.discard(name)

    def _is_used(self, claims: Collection[NamespacedName]) -> bool:
        """Return whether a pod on some node uses one of these claims."""
        return any(
            NamespacedName(pod.key.namespace, name) in claims
            for pods in self._table.pods
            for pod in pods.values()
            for name, _ in pod.volume_claims
        )

    def _waits(self, claim: JsonDict) -> bool:
        found = self._classes.get(NamespacedName("", rules.class_of(claim))) or {}
        return found.get("volumeBindingMode") == "WaitForFirstConsumer"

    def _reaches(self, volume: JsonDict, row: int) -> bool:
        required = (volume["spec"].get("nodeAffinity") or {}).get("required")
        return required is None or labels.node_selector_accepts(
            required, self._table.labels[row], self._table.names[row]
        )

    def _provides(self, claim: JsonDict, row: int) -> bool:
        found = self._classes.get(NamespacedName("", rules.class_of(claim))) or {}
        if found.get("provisioner") in {None, rules.NO_PROVISIONER}:
            return False
        own = self._table.labels[row]
        terms = found.get("allowedTopologies") or ()
        return not terms or any(
            all(
                own.get(item["key"]) in item["values"]
                for item in term.get("matchLabelExpressions") or ()
            )
            for term in terms
        )


def _asked(claim: JsonDict) -> int:
    return int(parse_any(rules.asked(claim)))
