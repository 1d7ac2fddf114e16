"""A model of a cluster on which pods are placed and removed; nothing is written.

The state is the scheduler's own (`ClusterState`), filled from objects instead of watches. Every
change is noted with its inverse, so that a question leaves the cluster as it was.
"""

from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from dralab.allocation import v1
from dralab.allocation.allocator import numbered_shares
from dralab.allocation.problem import AllocationFeatures
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.objects.binding_conditions import allocated_devices
from dralab.objects.claims import (
    allocation_of,
    consumer_of,
    consumers_of,
    results_of,
)
from dralab.objects.extended_resources import classes_by_resource
from dralab.objects.metadata import (
    NamespacedName,
    is_deleting,
    key_of,
    spec_of,
    status_of,
    uid_of,
)
from dralab.objects.pod_groups import POD_GROUP
from dralab.objects.taints import UNSCHEDULABLE, taints_of
from dralab.scheduling.backlog import Key
from dralab.scheduling.claims import ClaimPlan
from dralab.scheduling.cycle import kind_of, on_node, placement, schedule
from dralab.scheduling.demands import BlockedPod, DemandReader
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.group_placement import left_over, place_tree
from dralab.scheduling.group_trees import by_group, is_loose, tree_of, unready
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pod_question import named
from dralab.scheduling.pods import DEFAULT_SCHEDULER, PodInfo
from dralab.scheduling.reading import ClusterObjects, features_of
from dralab.scheduling.reasons import (
    BINDING_CONDITIONS,
    GATED,
    OTHER_SCHEDULER,
    POD_DELETED,
    Reason,
)
from dralab.scheduling.state import ClusterState, NominatedPod, PodPlacement, Refusal
from dralab.values import labels
from dralab.values.json_types import JsonDict, JsonObject

Decision = PodPlacement | Refusal


class ClusterModel:
    """Nodes, devices and pods. `running` holds the pods on nodes by uid, `waiting` the others.

    `waiting` is in the order in which the scheduler tries pods: by priority, then by age, then as
    they were given. Pods that name their node and have no devices yet get some there at the
    beginning, unless `completing` is switched off. Pods of another scheduler than `scheduler` are
    left to it. With a `state` nothing is read: what is there is said later. `all_nodes`: there are
    no nodes but those that are given.
    """

    def __init__(
        self,
        objects: Iterable[JsonObject],
        *,
        features: AllocationFeatures | None = None,
        completing: bool = True,
        scheduler: str = DEFAULT_SCHEDULER,
        state: ClusterState | None = None,
        all_nodes: bool = False,
    ) -> None:
        self.scheduler = scheduler
        self.objects = ClusterObjects(objects, all_nodes=all_nodes)
        self.claims = dict(self.objects.claims)
        self.provided = classes_by_resource(self.objects.of("DeviceClass"))
        self.reader = v1.V1Reader(CelSelectorCompiler(), keeps=True)
        self._completing = completing
        self.state = self._empty_state(features) if state is None else state
        self.devices = self.state.devices
        self.slices: dict[str, JsonDict] = {}
        self.running: dict[str, PodPlacement] = {}
        self.waiting: list[PodInfo] = []
        # Pods that lost their place in the course of a change, and those that then had to wait.
        self.evicted: set[str] = set()
        self.interrupted: set[str] = set()
        self._undo: list[Callable[[], object]] = []
        self._unbound: dict[str, PodInfo] = {}
        self._given: dict[str, int] = {}
        # What room is kept for, by uid of the pod: `status.nominatedNodeName`.
        self._nominated: dict[str, NominatedPod] = {}
        # How often each node changed, and all of them together.
        self._changes: dict[str, int] = {}
        # Who uses a claim among the pods on nodes, by the claim's uid.
        self._users_of: dict[str, set[str]] = {}
        if state is None:
            self._load()

    # --- reading

    def _empty_state(self, features: AllocationFeatures | None) -> ClusterState:
        objects, table = self.objects, NodeTable()
        features = features or features_of(objects.nodes)
        devices = ClusterDevices(table, self.reader, share_ids=self._share_ids(), features=features)
        volumes = objects.volumes(table)
        demands = DemandReader(
            self.claims.get,
            objects.groups.get,
            devices.in_flight,
            volumes.demand_of,
            not_made=objects.not_made,
        )
        state = ClusterState(table, devices, demands, volumes, groups=objects.groups)
        state.forbids = self._forbids if objects.of("ResourceQuota") else None
        return state

    def _load(self) -> None:
        objects, table, volumes = self.objects, self.state.table, self.state.volumes
        for item in objects.of("DeviceTaintRule"):
            self.devices.put_rule(item["metadata"]["name"], item)
        for item in objects.of("DeviceClass"):
            self.state.demands.put_class(item["metadata"]["name"], item)
            self.devices.put_class(item["metadata"]["name"], item)
        if volumes is not None:
            for item in objects.of("PersistentVolume"):
                volumes.put_volume(item["metadata"]["name"], item)
        for node in objects.nodes:
            table.put_node(objects.with_room(node, self.provided))
        self.slices = {item["metadata"]["name"]: item for item in objects.of("ResourceSlice")}
        for name, item in self.slices.items():
            self.devices.put_slice(name, item)
        pods = [self.info(pod) for pod in objects.pods]
        self._given = {pod.uid: number for number, pod in enumerate(pods)}
        users = self._users(pods)
        late: list[PodInfo] = []
        for pod in pods:
            if not pod.node_name:
                self.waiting.append(pod)
            elif self._completing and self._lacks_devices(pod):
                late.append(pod)
        for key, claim in list(self.claims.items()):
            if key in users and _is_used_only_by(claim, users[key]):
                self.claims[key] = _unallocated(claim)
            else:
                self.devices.put_claim(claim)
        unplaced = {pod.uid for pod in (*self.waiting, *late)}
        for pod in pods:
            if pod.uid not in unplaced:
                self._note(PodPlacement(pod, pod.node_name, self._plans(pod)))
        for pod in late:
            self._note(self._on_its_node(pod))
        self.waiting = self.ordered(self.waiting)
        self._nominated.update(self._promises())
        self.state.nominees.update(self._nominated)

    def _promises(self) -> Iterator[tuple[str, NominatedPod]]:
        for pod in self.waiting:
            node = str(status_of(pod.obj).get("nominatedNodeName") or "")
            if node in self.state.table.row_of and not is_deleting(pod.obj):
                yield pod.uid, NominatedPod(pod, node)

    def _share_ids(self) -> Callable[[], str]:
        """Return a source of share ids that no object has."""
        given = {
            item.get("shareID")
            for claim in self.claims.values()
            for item in results_of(allocation_of(claim))
        }
        numbered = numbered_shares()

        def next_one() -> str:
            while (share := numbered()) in given:
                pass
            return share

        return next_one

    def info(self, pod: JsonDict) -> PodInfo:
        """Read a pod."""
        return self.objects.info(pod)

    def _users(self, pods: Sequence[PodInfo]) -> dict[Key, list[PodInfo]]:
        """Return the pods on nodes by the claims that they use."""
        found: dict[Key, list[PodInfo]] = {}
        for pod in pods:
            if pod.node_name:
                for name in pod.claim_names:
                    found.setdefault(NamespacedName(pod.key.namespace, name), []).append(pod)
        return found

    def _lacks_devices(self, pod: PodInfo) -> bool:
        claims = [self._original(pod, name) for name in pod.claim_names]
        return any(claim is not None and allocation_of(claim) is None for claim in claims)

    def _original(self, pod: PodInfo, name: str) -> JsonDict | None:
        return self.objects.claims.get(NamespacedName(pod.key.namespace, name))

    def _plans(self, pod: PodInfo) -> tuple[ClaimPlan, ...]:
        """Return the plans of a running pod, as if it had just been scheduled."""
        found = []
        for name in pod.claim_names:
            claim = self._original(pod, name)
            held = allocation_of(claim) if claim is not None else None
            if claim is None or held is None:
                continue
            now = self.claims[key_of(claim)]
            found.append(ClaimPlan(now, self._consumer(pod, claim), held))
        return tuple(found)

    def _consumer(self, pod: PodInfo, claim: JsonObject) -> Mapping[str, str]:
        for consumer in consumers_of(claim):
            if consumer.get("resource") == "podgroups" and consumer.get("name") == pod.group:
                return consumer
        return consumer_of(pod.obj)

    def _on_its_node(self, pod: PodInfo) -> PodPlacement:
        """Return a placement of a pod on its node, with devices if possible."""
        row = self.state.table.row_of.get(pod.node_name)
        demand = self.state.demands.demand_of(pod)
        if row is not None and not isinstance(demand, BlockedPod):
            found = on_node(self.state, pod, demand, row).placement
            if found is not None:
                return found
        return PodPlacement(pod, pod.node_name)

    # --- changes, each with its inverse

    def mark(self) -> int:
        """Return a point to which `rollback` returns."""
        return len(self._undo)

    def rollback(self, mark: int) -> None:
        """Undo every change since a mark, the last one first."""
        while len(self._undo) > mark:
            self._undo.pop()()
        if not self._undo:
            self.evicted.clear()
            self.interrupted.clear()

    @contextmanager
    def tentatively(self) -> Iterator[None]:
        """Undo at the end what is done inside."""
        mark = self.mark()
        try:
            yield
        finally:
            self.rollback(mark)

    @contextmanager
    def cordoned(self, name: str) -> Iterator[None]:
        """Cordon a node inside; changes inside are kept."""
        table = self.state.table
        before = table.objects[table.row_of[name]] or {}
        table.put_node({**before, "spec": {**spec_of(before), "unschedulable": True}})
        try:
            yield
        finally:
            table.put_node(dict(before))

    def place(self, decided: PodPlacement) -> None:
        """Let a pod run where the scheduler decided."""
        self._note(decided)
        self._undo.append(lambda: self._forget(decided.pod.uid))

    def take_away(self, uid: str) -> PodInfo:
        """Remove a pod from its node, with its devices; return it as a waiting one."""
        before = self._forget(uid)
        self._undo.append(lambda: self._note(before))
        return self.unbound(before.pod)

    def unbound(self, pod: PodInfo) -> PodInfo:
        """Return a pod as its controller would create it again: without node and devices."""
        found = self._unbound.get(pod.uid)
        if found is None:
            found = pod
            if pod.node_name or pod.claimed:
                spec = {k: v for k, v in pod.obj["spec"].items() if k != "nodeName"}
                kept = ("resourceClaimStatuses",)
                status = {k: v for k, v in status_of(pod.obj).items() if k in kept}
                gone = ("deletionTimestamp", "deletionGracePeriodSeconds")
                metadata = {k: v for k, v in pod.obj["metadata"].items() if k not in gone}
                found = self.info({**pod.obj, "metadata": metadata, "spec": spec, "status": status})
            self._unbound[pod.uid] = found
        return found

    def stop_waiting(self, uids: Container[str]) -> None:
        """Forget pods that wait."""
        before = self.waiting
        self.waiting = [pod for pod in before if pod.uid not in uids]
        self._undo.append(lambda: setattr(self, "waiting", before))

    def put_waiting(self, pod: PodInfo) -> None:
        """Replace a pod that waits by another form of it."""
        before = self.waiting
        self.waiting = [pod if each.uid == pod.uid else each for each in before]
        self._undo.append(lambda: setattr(self, "waiting", before))

    def put_node(self, node: JsonObject) -> None:
        """Add a node, or change one."""
        table, name = self.state.table, node["metadata"]["name"]
        row = table.row_of.get(name)
        before = None if row is None else table.objects[row]
        table.put_node(dict(node))
        if before is None:
            self._undo.append(lambda: table.remove_node(name))
        else:
            self._undo.append(lambda: table.put_node(before))

    def cordon(self, name: str) -> None:
        """Let a node take no new pods."""
        node = self.node(name) or {}
        self.put_node({**node, "spec": {**spec_of(node), "unschedulable": True}})

    def uncordon(self, name: str) -> None:
        """Let a node take new pods again."""
        self.put_node(self.uncordoned(name))

    def uncordoned(self, name: str) -> JsonDict:
        """Return a node as `kubectl uncordon` and the node controller make it."""
        node = self.node(name) or {}
        spec = {key: value for key, value in spec_of(node).items() if key != "unschedulable"}
        spec["taints"] = [item for item in taints_of(node) if item["key"] != UNSCHEDULABLE["key"]]
        return {**node, "spec": spec}

    def remove_node(self, name: str) -> None:
        """Remove a node; its pods must have been taken away, and its slices are removed apart."""
        table = self.state.table
        before = table.objects[table.row_of[name]]
        table.remove_node(name)
        if before is not None:
            self._undo.append(lambda: table.put_node(before))

    def put_slice(self, name: str, wire: JsonDict | None) -> None:
        """Add, change or (None) remove a ResourceSlice."""
        before = self.slices.get(name)
        self._set_slice(name, wire)
        self._undo.append(lambda: self._set_slice(name, before))

    def put_class(self, wire: JsonDict) -> None:
        """Add or change a DeviceClass."""
        name = wire["metadata"]["name"]
        before = self.state.demands.classes.get(name)
        self._set_class(name, wire)
        self._undo.append(lambda: self._set_class(name, before))

    def put_claim(self, wire: JsonDict) -> None:
        """Replace a claim that has no devices yet by another form of it."""
        key, before = key_of(wire), self.claims.get(key_of(wire))
        self.claims[key] = wire
        if before is not None:
            self._undo.append(lambda: self.claims.__setitem__(key, before))

    def put_group(self, wire: JsonDict) -> None:
        """Replace a PodGroup by another form of it."""
        groups = self.state.groups
        before = groups.get(key_of(wire))
        groups.put(POD_GROUP, wire)
        if before is not None:
            self._undo.append(lambda: groups.put(POD_GROUP, before))

    def release(self, key: NamespacedName) -> None:
        """Release the devices of a claim that no pod of the model uses."""
        before = self.claims[key]
        self.claims[key] = _unallocated(before)
        self.devices.put_claim(self.claims[key])
        self._undo.append(lambda: self.devices.put_claim(before))
        self._undo.append(lambda: self.claims.__setitem__(key, before))

    def changes_of(self, node: str) -> tuple[int, int]:
        """Return a number that changes whenever a node or its pods change."""
        return self._changes.get(node, 0), self._changes.get("", 0)

    def _changed(self, node: str) -> None:
        self._changes[node] = self._changes.get(node, 0) + 1

    def _note(self, decided: PodPlacement) -> None:
        uid = decided.pod.uid
        self._changed(decided.node)
        self.state.nominees.pop(uid, None)
        self._count_running(decided)
        self.state.assume_placement(decided)

    def _count_running(self, decided: PodPlacement) -> None:
        uid = decided.pod.uid
        self.running[uid] = decided
        for plan in decided.plans:
            self._users_of.setdefault(_holder(plan, uid), set()).add(uid)

    def _forget(self, uid: str) -> PodPlacement:
        before = self.running.pop(uid)
        if uid in self._nominated:
            self.state.nominees[uid] = self._nominated[uid]
        self._changed(before.node)
        for plan in before.plans:
            self._users_of[_holder(plan, uid)].discard(uid)
        self.state.forget_placement(before)
        return before

    def _set_slice(self, name: str, wire: JsonDict | None) -> None:
        self._changed("")
        if wire is None:
            self.slices.pop(name, None)
        else:
            self.slices[name] = wire
        self.devices.put_slice(name, wire)

    def _set_class(self, name: str, wire: JsonDict | None) -> None:
        self.state.demands.put_class(name, wire)
        self.devices.put_class(name, wire)

    # --- questions

    def node(self, name: str) -> JsonDict | None:
        """Return a node; None if it does not exist."""
        row = self.state.table.row_of.get(name)
        return None if row is None else self.state.table.objects[row]

    def on(self, node: str) -> list[PodPlacement]:
        """Return the pods on a node, in the order in which they were given."""
        row = self.state.table.row_of.get(node)
        if row is None:
            return self.in_order(each for each in self.running.values() if each.node == node)
        there = self.state.table.pods[row]
        return self.in_order(self.running[uid] for uid in there if uid in self.running)

    def released_by(self, leaving: Iterable[PodPlacement]) -> list[JsonObject]:
        """Return the allocations that are released if just these pods are removed."""
        going = list(leaving)
        uids = {each.pod.uid for each in going}
        found = {
            holder: plan.allocation
            for each in going
            for plan in each.plans
            if self._users_of[holder := _holder(plan, each.pod.uid)] <= uids
        }
        return list(found.values())

    def users_of(self, claim: JsonObject) -> set[str]:
        """Return the uids of the pods on nodes that use a claim."""
        return self._users_of.get(uid_of(claim), set())

    def in_order(self, placements: Iterable[PodPlacement]) -> list[PodPlacement]:
        """Return pods on nodes in the order in which they were given."""
        return sorted(placements, key=lambda each: self._place_of(each.pod))

    def held_back(self, pod: PodInfo) -> Reason | None:
        """Return the reason not to try a pod now, or to bind it later; None if it is tried."""
        if is_deleting(pod.obj):
            return Reason(POD_DELETED)
        scheduler = spec_of(pod.obj).get("schedulerName") or self.scheduler
        if scheduler != self.scheduler:
            return Reason(OTHER_SCHEDULER, (str(scheduler),))
        if pod.gates:
            return Reason(GATED, pod.gates)
        for claim in self.state.demands.claims_of(pod):
            devices = list(allocated_devices(claim))
            awaited = [each for each in devices if each.awaited]
            if awaited and not any(each.failed for each in devices):
                device, held = awaited[0], allocation_of(claim) or {}
                since = str(held.get("allocationTimestamp") or "")
                fields = (_node_of(held), ", ".join(device.awaited), str(device), since)
                return Reason(BINDING_CONDITIONS, fields)
        return None

    def try_pod(self, pod: PodInfo, only: str = "") -> Decision:
        """Return a pod's placement now, or why it fits nowhere; with `only`, on that node."""
        if (held := self.held_back(pod)) is not None:
            return Refusal(pod=pod, nodes=self.state.table.count, blocked=held)
        return schedule(self.state, pod, named(self.state.table, only) if only else None)

    def decide(self, pod: PodInfo, only: str = "") -> Decision:
        """Return the scheduler's decision now; a running pod is treated as a waiting one.

        A pod of a gang is decided with the others of its gang.
        """
        with self.tentatively():
            if pod.uid in self.running:
                self.take_away(pod.uid)
                return schedule(self.state, pod)
            if pod.group and not only:
                others = [each for each in self.members(pod) if each.uid != pod.uid]
                return self.run([*others, pod])[pod.uid]
            return self.try_pod(pod, only)

    def _forbids(self, placement: PodPlacement) -> Reason | None:
        """Return the quota that prevents the claim for extended resources."""
        made = [plan.claim for plan in placement.plans if plan.is_new]
        if not made:
            return None
        beside = [
            plan.claim for each in self.running.values() for plan in each.plans if plan.is_new
        ]
        return self.objects.exceeded(made[0], beside)

    def members(self, pod: PodInfo) -> list[PodInfo]:
        """Return the pods that wait and are scheduled with a pod: of its group, or its tree."""
        return [
            each
            for each in self.waiting
            if self.same_tree(pod, each) and each.uid not in self.running
        ]

    def same_tree(self, one: PodInfo, other: PodInfo) -> bool:
        """Return whether two pods are scheduled together."""
        keys = [NamespacedName(pod.key.namespace, pod.group) for pod in (one, other) if pod.group]
        return len(keys) == 2 and (
            keys[0] == keys[1] or self.state.groups.root(keys[0]) == self.state.groups.root(keys[1])
        )

    def find_place(self, pod: PodInfo) -> PodPlacement | None:
        """Return a pod's placement now, or None."""
        return None if self.held_back(pod) is not None else placement(self.state, pod)

    def run(self, pods: Iterable[PodInfo]) -> dict[str, Decision]:
        """Schedule pods in the scheduler's order, gangs as a whole; return the result of each.

        No pod leaves meanwhile, so all pods of a kind are refused once one of them is.
        """
        found: dict[str, Decision] = {}
        refused: dict[Hashable, Refusal] = {}
        ordered = self.ordered(pods)
        for pod in ordered:
            if pod.uid in found:
                continue
            if not pod.group:
                kind = self.kind_of(pod)
                if kind is not None and kind in refused:
                    found[pod.uid] = replace(refused[kind], pod=pod)
                    continue
                decision = found[pod.uid] = self._placed(self.try_pod(pod))
                if isinstance(decision, Refusal):
                    refused[kind] = decision
                continue
            members = [each for each in ordered if self.same_tree(pod, each)]
            held = [other for other in members if self.held_back(other) is not None]
            found |= {other.uid: self.try_pod(other) for other in held}
            if pod.uid not in found:
                found |= self._run_group([each for each in members if each not in held])
        return found

    def kind_of(self, pod: PodInfo) -> Hashable:
        """Return the key of pods that fit or fail alike; None if the pod is unique."""
        demand = self.state.demands.demand_of(pod)
        if isinstance(demand, BlockedPod) or self.held_back(pod) is not None:
            return None
        return kind_of(pod, demand)

    def _run_group(self, members: list[PodInfo]) -> dict[str, Decision]:
        state = self.state
        tree = tree_of(state, members[0], by_group(members))
        blocked = tree if isinstance(tree, Reason) else unready(tree)
        if isinstance(tree, Reason) or blocked is not None:
            waits = Refusal(pod=members[0], nodes=state.table.count, blocked=blocked)
            return {member.uid: replace(waits, pod=member) for member in members}
        if is_loose(tree):
            return {member.uid: self._placed(self.try_pod(member)) for member in members}
        result = place_tree(state, tree)
        if isinstance(result, Refusal):
            return {member.uid: replace(result, pod=member) for member in members}
        chosen: dict[str, Decision] = {each.pod.uid: self._placed(each) for each in result}
        return {
            member.uid: chosen.get(member.uid) or left_over(state, tree, member)
            for member in members
        }

    def _placed(self, decision: Decision) -> Decision:
        if isinstance(decision, PodPlacement):
            self.place(decision)
        return decision

    def ordered(self, pods: Iterable[PodInfo]) -> list[PodInfo]:
        """Return pods as the scheduler tries them: by priority, then by age."""
        return sorted(pods, key=lambda pod: (-pod.priority, pod.created, self._place_of(pod)))

    def _place_of(self, pod: PodInfo) -> tuple[int | str, ...]:
        """Return the place of a pod among those that were given."""
        return (self._given.get(pod.uid, len(self._given)),)


def _node_of(allocation: JsonObject) -> str:
    """Return the node that an allocation is for; empty where it is for several."""
    for term in (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ():
        names = labels.nodes_named_by(term)
        if names is not None and len(names) == 1:
            return str(names[0])
    return ""


_HELD: Final = frozenset({"allocation", "reservedFor", "devices"})


def _unallocated(claim: JsonDict) -> JsonDict:
    kept = {name: part for name, part in status_of(claim).items() if name not in _HELD}
    return {**claim, "status": kept}


def _is_used_only_by(claim: JsonObject, pods: Sequence[PodInfo]) -> bool:
    """Return whether a claim becomes free when these pods go."""
    known = {uid_of(pod.obj) for pod in pods} | {pod.key.name for pod in pods}
    groups = {pod.group for pod in pods if pod.group}
    return allocation_of(claim) is not None and all(
        consumer.get("uid") in known
        or consumer.get("name") in known
        or (consumer.get("resource") == "podgroups" and consumer.get("name") in groups)
        for consumer in consumers_of(claim)
    )


def _holder(plan: ClaimPlan, pod: str) -> str:
    return uid_of(plan.claim) or pod
