"""The filters: which nodes may run a pod, and why others may not; one value for each plugin.

`FILTERS` is the one list of them, in the order of kube-scheduler's default profile. The cycle,
refusals, preemption, gangs, questions and retries go through it; a rule that is added here is
known everywhere. How good a node is, is left to `scores`; which devices are taken, to `devices`.

Sources: kube-scheduler's plugins of the same names.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol

import numpy as np

from dralab.objects.host_ports import TakenPort, collide
from dralab.objects.metadata import NamespacedName
from dralab.objects.pod_groups import POD_GROUP, is_loose
from dralab.scheduling import topology
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.node_columns import Numbers
from dralab.scheduling.node_rules import (
    AFFINITY_RULE,
    NODE_RULES,
    NodeRule,
    nodes_named,
)
from dralab.scheduling.nodes import Mask, NodeTable
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import (
    CLAIM_ELSEWHERE,
    NO_DEVICES,
    NO_SHARES,
    NOT_NAMED,
    OTHER_MODEL,
    OTHER_NODE,
    PODS,
    PORT_TAKEN,
    Reason,
    insufficient,
)
from dralab.scheduling.scores import KUBERNETES
from dralab.scheduling.shares import WHOLE, Shares, has_model, has_room
from dralab.scheduling.state import ClusterState
from dralab.values.records import dataclass

Reasons = tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """A filter's judgement of all nodes for one pod: those that pass, and why others do not.

    `why` gets the row of a node that does not pass. `masks`, where it is given, are the nodes for
    which each reason holds, so that many nodes can be counted at once.
    """

    mask: Mask
    why: Callable[[int], Reasons]
    masks: Callable[[], Iterable[tuple[Reason, Mask]]] | None = None

    def counted(self, rows: Numbers) -> Counter[Reason]:
        """Count some nodes that do not pass, by reason."""
        found: Counter[Reason] = Counter()
        if self.masks is None:
            for row in rows.tolist():
                found.update(self.why(row))
        elif len(rows):
            for reason, mask in self.masks():
                if count := int(mask[rows].sum()):
                    found[reason] = count
        return found


class Filter(Protocol):
    """One filter plugin. If pods decide (`by_pods`), preemption may change the answer."""

    @property
    def plugin(self) -> str:
        """The plugin's name."""
        ...

    @property
    def by_pods(self) -> bool:
        """Whether pods on a node decide."""
        ...

    def judged(self, state: ClusterState, pod: PodInfo, demand: PodDemand) -> Judgement | None:
        """Return the judgement; None if the filter does not concern the pod."""
        ...

    def at(self, state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> Reasons:
        """Return the reasons against one node; empty if it passes."""
        ...


class NodeName:
    """A pod that names its node goes there and nowhere else."""

    plugin = "NodeName"
    by_pods = False

    def judged(self, state: ClusterState, pod: PodInfo, demand: PodDemand) -> Judgement | None:  # noqa: ARG002 - the seam's shape
        """Return the one node, for a pod that names it."""
        if not pod.node_name:
            return None
        named = np.zeros(state.table.size, dtype=bool)
        row = state.table.row_of.get(pod.node_name)
        if row is not None:
            named[row] = True
        return Judgement(named, lambda _: (Reason(OTHER_NODE),))

    def at(self, state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> Reasons:  # noqa: ARG002
        """Return the reason if it is another node."""
        other = pod.node_name and state.table.names[row] != pod.node_name
        return (Reason(OTHER_NODE),) if other else ()


@dataclass(frozen=True)
class OfNode:
    """The filter of a rule about the node alone."""

    rule: NodeRule
    by_pods: bool = False

    @property
    def plugin(self) -> str:
        """The plugin's name."""
        return self.rule.plugin

    def judged(self, state: ClusterState, pod: PodInfo, demand: PodDemand) -> Judgement | None:
        """Return the nodes that pass; nodes that the pod's affinity does not name are skipped."""
        names = nodes_named(pod)
        masks: Callable[[], Iterable[tuple[Reason, Mask]]] | None = None
        if names is None:
            mask = state.node_rules.passed(self.rule, pod)
            if (only := self.rule.only) is not None:
                masks = partial(list, [(only, ~mask)])
        else:
            rows = [state.table.row_of[name] for name in names if name in state.table.row_of]
            mask = np.zeros(state.table.size, dtype=bool) | (self.rule is not AFFINITY_RULE)
            mask[rows] = [state.node_rules.refusal(self.rule, pod, row) is None for row in rows]
        return Judgement(mask, lambda row: self.at(state, pod, demand, row), masks)

    def at(self, state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> Reasons:  # noqa: ARG002
        """Return the rule's reason."""
        names = nodes_named(pod) if self.rule is AFFINITY_RULE else None
        if names is not None and state.table.names[row] not in names:
            return (Reason(NOT_NAMED),)
        found = state.node_rules.refusal(self.rule, pod, row)
        return () if found is None else (found,)


class NodePorts:
    """Host ports of the pod are free."""

    plugin = "NodePorts"
    by_pods = True

    def judged(self, state: ClusterState, pod: PodInfo, demand: PodDemand) -> Judgement | None:  # noqa: ARG002
        """Return the nodes where its ports are free; None if it needs none."""
        if not pod.ports:
            return None
        free = np.ones(state.table.size, dtype=bool)
        for row, taken in state.table.ports_taken().items():
            free[row] = not _collides(pod, taken)
        for row, others in _promises(state, pod):
            free[row] &= not _collides(pod, (port for each in others for port in each.ports))
        return Judgement(free, lambda _: (Reason(PORT_TAKEN),))

    def at(self, state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> Reasons:  # noqa: ARG002
        """Return the reason if a port is in use."""
        taken = [*state.table.ports_taken().get(row, ())]
        for other in promised(state, pod, state.table.names[row]) if pod.ports else ():
            taken += other.ports
        return (Reason(PORT_TAKEN),) if _collides(pod, taken) else ()


class NodeResourcesFit:
    """There is room for the pod's requests, beside nominated pods."""

    plugin = "NodeResourcesFit"
    by_pods = True

    def judged(self, state: ClusterState, pod: PodInfo, demand: PodDemand) -> Judgement | None:
        """Return the nodes with room."""
        mask = room(state.table, pod, provided_elsewhere(state, demand))
        if state.nominees:
            for row, others in _promises(state, pod):
                if mask[row]:
                    with beside(state.table, row, others):
                        mask[row] = not lacking(state.table, pod, row, demand.extended)
        # Beside nominated pods each node is a case of its own.
        masks = None if state.nominees else partial(_lacking_masks, state, pod, demand)
        return Judgement(mask, lambda row: self.at(state, pod, demand, row), masks)

    def at(self, state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> Reasons:
        """Return the insufficient resources; what nominated pods reserve does not count as free."""
        with beside(state.table, row, promised(state, pod, state.table.names[row])):
            short = lacking(state.table, pod, row, demand.extended)
        return tuple(map(insufficient, short))


class SharedGpusFit:
    """Enough is left of the GPUs that pods share, and their model is allowed."""

    plugin = "SharedGpus"
    by_pods = True

    def judged(self, state: ClusterState, pod: PodInfo, demand: PodDemand) -> Judgement | None:  # noqa: ARG002
        """Return the nodes with enough of them; None if the pod wants none."""
        shares = pod.shares
        if shares is None:
            return None
        columns = state.table.shared_gpus()
        enough, fitting = has_room(columns, shares), has_model(columns, shares)
        for row, others in _promises(state, pod):
            if enough[row]:
                with beside(state.table, row, others):
                    enough[row] = has_room(state.table.shared_gpus(), shares)[row]

        masks = partial(_lacking_shares, shares, enough, fitting)
        return Judgement(
            enough if fitting is None else enough & fitting, partial(_first, masks), masks
        )

    def at(self, state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> Reasons:
        """Return what its GPUs lack."""
        found = self.judged(state, pod, demand)
        return () if found is None or found.mask[row] else found.why(row)


def _lacking_shares(
    shares: Shares, enough: Mask, fitting: Mask | None
) -> Iterator[tuple[Reason, Mask]]:
    """Yield the nodes whose GPUs are of another model, and those with too little left of them."""
    part = "" if shares.milli == WHOLE else f" with {shares.milli} milli left"
    little = Reason(NO_SHARES, (f"GPUs{part}",))
    if fitting is None:
        yield little, ~enough
    else:
        yield Reason(OTHER_MODEL), ~fitting
        yield little, fitting & ~enough


def _first(masks: Callable[[], Iterable[tuple[Reason, Mask]]], row: int) -> Reasons:
    return tuple(reason for reason, mask in masks() if mask[row])[:1]


@dataclass(frozen=True)
class ByRules:
    """A filter of several rules, each with its allowed nodes; the first to fail is reported."""

    plugin: str
    by_pods: bool
    rules: Callable[[ClusterState, PodInfo, PodDemand], Sequence[tuple[Reason, Mask]]]

    def judged(self, state: ClusterState, pod: PodInfo, demand: PodDemand) -> Judgement | None:
        """Return the nodes that every rule allows; None without rules."""
        rules = self.rules(state, pod, demand)
        beside = dict(self._beside_nominated(state, pod, demand)) if self.by_pods else {}
        if not rules and not any(beside.values()):
            return None
        mask = state.table.live.copy()
        for _, left in rules:
            mask &= left
        for row, others in beside.items():
            mask[row] &= all(left[row] for _, left in others)

        def why(row: int) -> Reasons:
            all_rules = (*rules, *beside.get(row, ()))
            return tuple(reason for reason, left in all_rules if not left[row])[:1]

        return Judgement(mask, why)

    def at(self, state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> Reasons:
        """Return the first rule that fails."""
        found = self.judged(state, pod, demand)
        return () if found is None or found.mask[row] else found.why(row)

    def _beside_nominated(
        self, state: ClusterState, pod: PodInfo, demand: PodDemand
    ) -> Iterator[tuple[int, Sequence[tuple[Reason, Mask]]]]:
        """Yield rows with nominated pods, with the rules as if these were running."""
        for row, others in _promises(state, pod):
            with beside(state.table, row, others):
                yield row, self.rules(state, pod, demand)


class DynamicResources:
    """Allocated devices are reachable from the node, and unallocated claims did not fail there.

    Whether all claims can be had on a node is found out by the cycle, node by node.
    """

    plugin = "DynamicResources"
    by_pods = True

    def judged(self, state: ClusterState, pod: PodInfo, demand: PodDemand) -> Judgement | None:
        """Return the nodes that are not known to lack devices."""
        if not (demand.claims or demand.signature):
            return None
        held = state.devices.reached(demand)
        feasible = state.devices.feasible(demand)
        if feasible is not None and state.nominees and demand.signature:
            # Which of the devices that are cleared for another pod it will need is known once
            # they are all free.
            feasible = feasible.copy()
            for row, others in _promises(state, pod):
                feasible[row] &= not _awaits_devices(state, others)
        if held is None or feasible is None:
            mask = held if feasible is None else feasible
            if mask is None:
                return None
        else:
            mask = held & feasible

        def why(row: int) -> Reasons:
            elsewhere = held is not None and not held[row]
            lacks = feasible is not None and not feasible[row]
            return (Reason(CLAIM_ELSEWHERE if elsewhere and not lacks else NO_DEVICES),)

        def masks() -> Iterator[tuple[Reason, Mask]]:
            lacks = ~mask if feasible is None or held is None else ~feasible
            only = CLAIM_ELSEWHERE if feasible is None else NO_DEVICES
            yield Reason(only), lacks
            if held is not None and feasible is not None:
                yield Reason(CLAIM_ELSEWHERE), feasible & ~held

        return Judgement(mask, why, masks)

    def at(self, state: ClusterState, pod: PodInfo, demand: PodDemand, row: int) -> Reasons:
        """Return the reason if devices are missing or elsewhere."""
        found = self.judged(state, pod, demand)
        return () if found is None or found.mask[row] else found.why(row)


def _volumes(plugin: str, *, by_pods: bool = False) -> ByRules:
    """Return the filter of one of the plugins about volumes."""

    def rules(state: ClusterState, _: PodInfo, demand: PodDemand) -> list[tuple[Reason, Mask]]:
        if state.volumes is None or demand.volumes is None:
            return []
        found = state.volumes.restrictions(demand.volumes)
        return [(reason, mask) for reason, mask in found if reason.rule.plugin == plugin]

    return ByRules(plugin, by_pods, rules)


FILTERS: Final[tuple[Filter, ...]] = (
    OfNode(NODE_RULES[0]),
    NodeName(),
    *map(OfNode, NODE_RULES[1:]),
    NodePorts(),
    NodeResourcesFit(),
    SharedGpusFit(),
    _volumes("VolumeRestrictions", by_pods=True),
    _volumes("VolumeBinding"),
    _volumes("VolumeZone"),
    ByRules(
        "PodTopologySpread",
        by_pods=True,
        rules=lambda state, pod, _: topology.spread_rules(state.table, state.node_rules, pod),
    ),
    ByRules(
        "InterPodAffinity",
        by_pods=True,
        rules=lambda state, pod, _: topology.affinity_rules(state.table, pod),
    ),
    DynamicResources(),
)
"""Every filter, in the order of kube-scheduler's default profile; shared GPUs are dralab's own."""
PAST_THE_SCHEDULER: Final = tuple(
    each for each in FILTERS if each.plugin in {"NodeName", "DynamicResources"}
)
"""What counts for a pod that names its node: the kubelet admits it, whatever others need."""


def filters_of(pod: PodInfo) -> tuple[Filter, ...]:
    """Return the filters that concern a pod."""
    return PAST_THE_SCHEDULER if pod.node_name else FILTERS


def judgements(
    state: ClusterState, pod: PodInfo, demand: PodDemand, among: Iterable[Filter] | None = None
) -> Iterator[tuple[Filter, Judgement]]:
    """Yield the judgement of each filter that concerns a pod; `among` restricts the filters."""
    for each in filters_of(pod) if among is None else among:
        found = each.judged(state, pod, demand)
        if found is not None:
            yield each, found


def passing(
    state: ClusterState, pod: PodInfo, demand: PodDemand, among: Iterable[Filter] | None = None
) -> Mask:
    """Return the nodes that pass every filter, without trying allocations."""
    found = state.table.live.copy()
    for each in filters_of(pod) if among is None else among:
        judgement = each.judged(state, pod, demand)
        if judgement is not None:
            found &= judgement.mask
    return found


def possible(state: ClusterState, pod: PodInfo, demand: PodDemand) -> Mask:
    """Return the nodes that a pod may use, whichever pods are on them."""
    found = passing(state, pod, demand, [each for each in filters_of(pod) if not each.by_pods])
    reached = state.devices.reached(demand)
    return found if reached is None else found & reached


def reasons_by_node(
    state: ClusterState, pod: PodInfo, demand: PodDemand, *, every: bool = False
) -> dict[str, Reasons]:
    """Return the reasons against nodes, by name: of the first failing filter, or of `every` one."""
    found: dict[str, Reasons] = {}
    judged = list(judgements(state, pod, demand))
    for name, row in state.table.row_of.items():
        for _, judgement in judged:
            if not judgement.mask[row]:
                found[name] = found.get(name, ()) + judgement.why(row)
                if not every:
                    break
    return found


# --- room and ports, for one node or all


def room(table: NodeTable, pod: PodInfo, elsewhere: Mapping[str, Mask] | None = None) -> Mask:
    """Return the nodes that have room for what a pod requests.

    `elsewhere` names, for resources that devices can also provide, the nodes where they do.
    """
    found = table.free(PODS) >= 1
    found &= table.live
    for resource, amount in pod.requests.items():
        if amount:
            enough = table.free(resource) >= amount
            if elsewhere is not None and resource in elsewhere:
                enough |= elsewhere[resource]
            found &= enough
    return found


def lacking(table: NodeTable, pod: PodInfo, row: int, provided: Iterable[str] = ()) -> list[str]:
    """Return the resources of which a node has too little, the number of pods first.

    `provided` are those that devices provide where the node itself offers none.
    """
    short = [PODS] if table.free(PODS)[row] < 1 else []
    return short + [
        resource
        for resource, amount in sorted(pod.requests.items())
        if amount
        and table.free(resource)[row] < amount
        and not (resource in provided and table.allocatable(resource)[row] == 0)
    ]


def _lacking_masks(
    state: ClusterState, pod: PodInfo, demand: PodDemand
) -> Iterator[tuple[Reason, Mask]]:
    """Yield the nodes that have too little of each resource."""
    table, elsewhere = state.table, provided_elsewhere(state, demand) or {}
    yield insufficient(PODS), table.free(PODS) < 1
    for resource, amount in sorted(pod.requests.items()):
        if amount:
            short = table.free(resource) < amount
            yield insufficient(resource), short & ~elsewhere.get(resource, np.False_)


def provided_elsewhere(state: ClusterState, demand: PodDemand) -> dict[str, Mask] | None:
    """Return, by extended resource that devices can provide, the nodes that do not offer it."""
    if not demand.extended:
        return None
    return {name: state.table.allocatable(name) == 0 for name in demand.extended}


def _collides(pod: PodInfo, taken: Iterable[TakenPort]) -> bool:
    return any(collide(mine, other) for mine in pod.ports for other in taken)


# --- nominated pods


def promised(state: ClusterState, pod: PodInfo, node: str) -> list[PodInfo]:
    """Return the pods of no lower priority for which room was cleared on a node."""
    return [
        nominee.pod
        for nominee in state.nominees.values()
        if nominee.node == node
        and nominee.pod.uid != pod.uid
        and nominee.pod.priority >= pod.priority
        and not (pod.group and _is_placed_with(state, pod, nominee.pod))
    ]


def _is_placed_with(state: ClusterState, pod: PodInfo, other: PodInfo) -> bool:
    """Return whether two pods are placed together: neither keeps room from the other."""
    keys = [NamespacedName(each.key.namespace, each.group) for each in (pod, other)]
    root = state.groups.root(keys[0])
    if not other.group or root != state.groups.root(keys[1]):
        return False
    alone = state.groups.get(keys[0]) if root == (POD_GROUP, keys[0]) else None
    return alone is None or not is_loose(alone)


def _promises(state: ClusterState, pod: PodInfo) -> Iterator[tuple[int, list[PodInfo]]]:
    for node in sorted({nominee.node for nominee in state.nominees.values()}):
        row = state.table.row_of.get(node)
        others = promised(state, pod, node)
        if row is not None and others:
            yield row, others


def _awaits_devices(state: ClusterState, pods: Iterable[PodInfo]) -> bool:
    return any(
        nominee.claims for pod in pods if (nominee := state.nominees.get(pod.uid)) is not None
    )


@contextmanager
def beside(table: NodeTable, row: int, others: Sequence[PodInfo]) -> Iterator[None]:
    """Count other pods on a node inside."""
    name = table.names[row]
    for other in others:
        table.add_pod(name, KUBERNETES.settled(table, other, row))
    try:
        yield
    finally:
        for other in others:
            table.remove_pod(name, other.uid)
