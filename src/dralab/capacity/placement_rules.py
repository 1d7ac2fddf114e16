"""`PlacementRules`: the scheduler's rules about other pods and volumes, for a snapshot of objects.

They are the scheduler's own functions on its own table. The table is filled when a pod is asked
about that states such a rule, or that a rule of another pod may concern: most clusters have few.
What each broken rule means to a person is told by `broken_rules`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Final, Literal

from dralab.capacity.broken_rules import RuleTeller
from dralab.objects.host_ports import NO_PORTS
from dralab.objects.metadata import NamespacedName, metadata_of, spec_of
from dralab.objects.nodes import UnfitReason
from dralab.objects.pods import group_of
from dralab.objects.requests import amount_of
from dralab.objects.slices import devices_of
from dralab.scheduling import filters, gangs, topology
from dralab.scheduling.cycle import PodPlacement, Refusal
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.nodes import Mask, NodeTable
from dralab.scheduling.pod_rules import BrokenRule, GangRefusal, RoomRefusal
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reading import ClusterObjects
from dralab.scheduling.volumes import ELSEWHERE, IN_USE, NO_ZONE, NONE_FREE, Volumes
from dralab.values.json_types import JsonDict, JsonObject

FilterName = Literal[
    "NodePorts", "VolumeRestrictions", "VolumeBinding", "VolumeZone", "PodTopologySpread",
    "InterPodAffinity",
]  # fmt: skip
FILTERS: Final[Mapping[str, FilterName]] = {
    NO_PORTS: "NodePorts",
    IN_USE: "VolumeRestrictions",
    ELSEWHERE: "VolumeBinding",
    NONE_FREE: "VolumeBinding",
    NO_ZONE: "VolumeZone",
    topology.NO_LABEL: "PodTopologySpread",
    topology.NO_SPREAD: "PodTopologySpread",
    topology.NO_AFFINITY: "InterPodAffinity",
    topology.NO_ANTI_AFFINITY: "InterPodAffinity",
    topology.REPELLED: "InterPodAffinity",
}
MOST_TRIED: Final = 24
MOST_NAMED: Final = 3
OF_NODES: Final = ("nodeAllocatableResources", "nodeAllocatableResourceMappings")


class PlacementRules:
    """The rules of the scheduler that need more than a node and a pod: an implementation."""

    def __init__(self, objects: Sequence[JsonDict]) -> None:
        self._objects = objects
        self._noted: dict[NamespacedName, tuple[JsonDict, str]] = {}
        self._read: tuple[JsonObject, PodInfo] | None = None
        self._known: tuple[PodInfo, int, list[tuple[str, Mask]]] | None = None

    # --- the rules

    def blocked(self, pod: JsonObject) -> str:
        """Return why no node may run a pod because of its volume claims; empty if that is fine."""
        if not spec_of(pod).get("volumes") or spec_of(pod).get("nodeName"):
            return ""
        demand = self._volumes.demand_of(self._info(pod))
        return demand if isinstance(demand, str) else ""

    def refusal(self, pod: JsonObject, node: str) -> UnfitReason | None:
        """Return the first rule that keeps a pod from a node; None if there is none."""
        if not self._concern(pod):
            return None
        row = self._table.row_of.get(node)
        if row is None:
            return None
        for sentence, mask in self._rules(self._info(pod)):
            if not mask[row]:
                return UnfitReason(FILTERS[sentence], sentence)
        return None

    def told(self, pod: JsonObject, node: str) -> BrokenRule | None:
        """Return the same rule with everything that helps a person."""
        reason = self.refusal(pod, node)
        if reason is None:
            return None
        teller = RuleTeller(self._completed, self._table, self._rules_of)
        return teller.told(self._info(pod), self._table.row_of[node], reason)

    def note_pod(self, pod: Mapping[str, object], node: str) -> None:
        """Take it that a pod runs on a node."""
        info = self._completed_pod(pod)
        self._noted[info.key] = {**pod, "spec": {**spec_of(pod), "nodeName": node}}, node
        if "_table" in self.__dict__:
            self._table.add_pod(node, info)

    def _rules(self, pod: PodInfo) -> list[tuple[str, Mask]]:
        """Return the sentences of the rules that bind a pod, each with the nodes it leaves."""
        version = self._table.version
        if self._known is None or self._known[:2] != (pod, version):
            self._known = pod, version, self._rules_of(pod)
        return self._known[2]

    def _rules_of(self, pod: PodInfo) -> list[tuple[str, Mask]]:
        found: list[tuple[str, Mask]] = []
        ports = filters.ports_free(self._table, pod)
        if ports is not None:
            found.append((NO_PORTS, ports))
        demand = self._volumes.demand_of(pod)
        if not isinstance(demand, str):
            found += self._volumes.restrictions(demand)
        return found + topology.restrictions(self._table, self._filters, pod)

    def _concern(self, pod: JsonObject) -> bool:
        spec = spec_of(pod)
        if spec.get("nodeName"):
            return False
        return _states_rules(spec) or self._is_repelled

    @cached_property
    def _is_repelled(self) -> bool:
        """Whether some pod refuses others beside it: then every pod has to be looked at."""
        return any(
            (spec_of(item).get("affinity") or {}).get("podAntiAffinity")
            for item in self._objects
            if item.get("kind") == "Pod"
        )

    # --- the scheduler's state, once it is needed

    @cached_property
    def _completed(self) -> ClusterObjects:
        return ClusterObjects(self._objects)

    @cached_property
    def _table(self) -> NodeTable:
        found = NodeTable()
        for each in self._completed.nodes:
            found.put_node(each)
        for pod in self._completed.pods:
            info = self._completed.info(pod)
            if info.node_name and info.key not in self._noted:
                found.add_pod(info.node_name, info)
        for noted, node in self._noted.values():
            found.add_pod(node, self._completed_pod(noted))
        return found

    @cached_property
    def _filters(self) -> filters.NodeFilter:
        return filters.NodeFilter(self._table)

    @cached_property
    def _volumes(self) -> Volumes:
        return self._completed.volumes(self._table)

    def _info(self, pod: JsonObject) -> PodInfo:
        if self._read is None or self._read[0] is not pod:
            self._read = pod, self._completed_pod(pod)
        return self._read[1]

    def _completed_pod(self, pod: Mapping[str, Any]) -> PodInfo:
        return self._completed.info(self._completed.pod(pod))

    # --- what is known only once devices are chosen

    def after_devices(
        self, pod: JsonObject, claims: Iterable[JsonDict]
    ) -> GangRefusal | RoomRefusal | None:
        """Return why a pod whose devices are free still does not start; None if it does."""
        if spec_of(pod).get("nodeName") or not (group_of(pod) or self._takes_of_nodes):
            return None
        model = ClusterModel(self._now(claims))
        info = model.info(model.objects.pod(pod))
        wanted = next((each for each in model.waiting if each.key == info.key), info)
        if wanted.group:
            return _of_gang(model, wanted)
        decision = model.try_pod(wanted)
        if not isinstance(decision, Refusal):
            return None
        found = _of_room(decision)
        return None if found is None else replace(found, blockers=_blockers(model, wanted, found))

    @cached_property
    def _takes_of_nodes(self) -> bool:
        """Whether some device takes CPU or memory of its node."""
        return any(
            device.get(name)
            for item in self._objects
            if item.get("kind") == "ResourceSlice"
            for device in devices_of(item)
            for name in OF_NODES
        )

    def _now(self, claims: Iterable[JsonDict]) -> list[JsonDict]:
        """Return the objects with the claims as they are now, and noted pods on their nodes."""
        found = [item for item in self._objects if item.get("kind") != "ResourceClaim"]
        for number, item in enumerate(found):
            if item.get("kind") == "Pod" and self._noted:
                key = NamespacedName(
                    metadata_of(item).get("namespace") or "default", metadata_of(item)["name"]
                )
                found[number] = self._noted.get(key, (item, ""))[0]
        return [*found, *claims]


def _states_rules(spec: JsonObject) -> bool:
    affinity = spec.get("affinity") or {}
    return bool(
        affinity.get("podAffinity")
        or affinity.get("podAntiAffinity")
        or spec.get("topologySpreadConstraints")
        or spec.get("volumes")
        or any(
            port.get("hostPort")
            for container in spec.get("containers") or ()
            for port in container.get("ports") or ()
        )
    )


def _of_gang(model: ClusterModel, pod: PodInfo) -> GangRefusal | None:
    group = model.objects.group(NamespacedName(pod.key.namespace, pod.group))
    if group is None:
        return GangRefusal(group=pod.group, least=0, members=0, why="it does not exist")
    least = gangs.least_members(group)
    members = [
        each
        for each in model.waiting
        if (each.key.namespace, each.group) == (pod.key.namespace, pod.group)
    ]
    if least is None:
        return None
    there = gangs.placed_members(model.state, pod)
    if len(members) + there < least:
        return GangRefusal(group=pod.group, least=least, members=len(members) + there)
    with model.tentatively():
        decided = model.run(members)
        if all(isinstance(decided[each.uid], PodPlacement) for each in members):
            return None
        if isinstance(decided[pod.uid], PodPlacement):
            return None
    with model.tentatively():
        # One after the other: what is left for the first one that does not fit.
        allocations: list[JsonObject] = []
        fitting = there
        for each in members:
            decision = model.try_pod(each)
            if isinstance(decision, Refusal):
                return GangRefusal(
                    group=pod.group,
                    least=least,
                    members=len(members) + there,
                    fitting=fitting,
                    failing=each.obj,
                    allocations=allocations,
                    why=decision.message,
                )
            model.place(decision)
            allocations += [plan.allocation for plan in decision.plans]
            fitting += 1
    return None


def _blockers(model: ClusterModel, pod: PodInfo, refused: RoomRefusal) -> tuple[str, ...]:
    """Return pods of a node of which each one's end makes room for a pod with its devices."""
    found = []
    for each in model.on(refused.node)[:MOST_TRIED]:
        with model.tentatively():
            model.take_away(each.pod.uid)
            if model.find_place(pod) is not None:
                found.append(str(each.pod.key))
    return tuple(found[:MOST_NAMED])


def _of_room(refusal: Refusal) -> RoomRefusal | None:
    """Return what is missing on the node that lacks least; None if room is not the reason."""
    found = [
        (sum(lack.own + lack.devices - lack.free for lack in shortage.lacks), name, shortage)
        for name, shortage in refusal.shortages.items()
    ]
    if not found:
        return None
    _, name, shortage = min(found, key=lambda item: (not item[2].lacks, item[0], item[1]))
    lacks = [
        (
            each.resource,
            amount_of(each.resource, each.own + each.devices),
            amount_of(each.resource, each.devices),
            amount_of(each.resource, max(each.free, 0)),
        )
        for each in shortage.lacks
    ]
    return RoomRefusal(node=name, lacks=lacks, why="" if lacks else ", ".join(shortage.reasons))
