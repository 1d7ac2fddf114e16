"""What Karpenter would do: the cheapest shapes for pods that wait, and nodes to give up or replace.

Source: Karpenter 1.x of August 2026 (`provisioning/scheduling`, `disruption`). A pool here is an
instance type with a price; those of one priority and group are the types of one NodePool.
"""

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Final

from dralab.capacity.autoscaling.node_pools import DRIFTED, EMPTY, UNDERUTILIZED
from dralab.capacity.autoscaling.pools import (
    Expansion,
    NodePool,
    add_node,
    homeless,
    is_placed,
    users_of_node,
)
from dralab.capacity.changes import RemoveNode, Uncordon
from dralab.capacity.move_costs import MoveCosts
from dralab.objects.budgets import covers, never_allows
from dralab.objects.metadata import NamespacedName, annotations_of, is_deleting
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.values.records import dataclass

DO_NOT_DISRUPT: Final = "karpenter.sh/do-not-disrupt"
DELETION_COST: Final = "controller.kubernetes.io/pod-deletion-cost"
# Nodes that are considered together at most.
MOST_TOGETHER: Final = 100
# The cost of disrupting a node without pods.
PER_NODE: Final = 1.0
TRIED: Final = "karpenter-tries"
# What is left of the limits of NodePools, by name and resource.
Limits = Mapping[str, Mapping[str, int]]
NO_LIMITS: Final[Limits] = {}
NOTHING: Final[Mapping[str, NodePool]] = {}
# How many nodes of a NodePool may be disrupted now for a reason.
Allowed = Callable[[str, str], int]


@dataclass(slots=True)
class _NodeToAsk:
    """A node to ask for: its pods, and the pools of which one would do; claims that are on it."""

    pods: list[PodInfo]
    options: list[NodePool]
    claims: set[NamespacedName] = field(default_factory=set)


def provision(
    model: ClusterModel,
    pools: Mapping[NodePool, int],
    pods: Iterable[PodInfo],
    remaining: Limits = NO_LIMITS,
) -> list[Expansion]:
    """Return a node for each group of pods that wait; `pools` have room for so many nodes.

    Of the limits of NodePools so much is `remaining`, by resource.

    The largest pod comes first. Of the nodes to ask for, it joins the one with the fewest pods for
    which some pool still has a shape that fits all of them; else it gets one of its own. Each node
    is of the cheapest pool that is left for it. The model is left as it was.
    """
    return _chosen(_planned(model, pools, pods, remaining), pools)


def _chosen(planned: Iterable[_NodeToAsk], pools: Mapping[NodePool, int]) -> list[Expansion]:
    """Return the cheapest node of each that is planned, as far as there is room."""
    rooms = dict(pools)
    found = []
    for each in planned:
        options = [pool for pool in each.options if rooms[pool] > 0]
        if options:
            chosen = min(options, key=_by_price)
            rooms[chosen] -= 1
            found.append(Expansion(chosen, 1, tuple(each.pods)))
    return found


def _rank(pool: NodePool) -> tuple[int, str]:
    """Return what sorts NodePools: the one with the highest weight is the last, then by name."""
    return pool.priority, pool.group


def _by_price(pool: NodePool) -> tuple[float, str]:
    return pool.price, pool.name


def _planned(
    model: ClusterModel,
    pools: Collection[NodePool],
    pods: Iterable[PodInfo],
    remaining: Limits,
    most: int = sys.maxsize,
) -> list[_NodeToAsk]:
    """Return the nodes that pods need, the first `most`, each with all pools that would do."""
    fits = _Fits(model)
    claims: list[_NodeToAsk] = []
    left = {group: dict(amounts) for group, amounts in remaining.items()}
    for pod in sorted(pods, key=_size):
        shared = _shared_claims(pod)
        joined = next((each for each in claims if each.claims & shared), None)
        open_to = [joined] if joined else sorted(claims, key=lambda each: len(each.pods))
        if any(_joins(fits, each, pod, shared) for each in open_to) or joined:
            continue
        if len(claims) == most:
            break
        for key in sorted({_rank(each) for each in pools}, reverse=True):
            limits = left.get(key[1], {})
            options = [
                each
                for each in pools
                if _rank(each) == key
                and all(each.amounts.get(name, 0) <= most for name, most in limits.items())
                and fits(each, (pod,))
            ]
            if options:
                claims.append(_NodeToAsk([pod], options, set(shared)))
                # It counts with the most that it may come to be.
                for name in limits:
                    limits[name] -= max(each.amounts.get(name, 0) for each in options)
                break
    return claims


def _joins(
    fits: "_Fits", claim: _NodeToAsk, pod: PodInfo, shared: Collection[NamespacedName]
) -> bool:
    left = [pool for pool in claim.options if fits(pool, (*claim.pods, pod))]
    if left:
        claim.options = left
        claim.pods.append(pod)
        claim.claims.update(shared)
    return bool(left)


class _Fits:
    """Whether pods fit together on an empty node of a pool; the same question is asked once."""

    def __init__(self, model: ClusterModel) -> None:
        self.model = model
        self._known: dict[tuple[str, tuple[object, ...]], bool] = {}

    def __call__(self, pool: NodePool, pods: Sequence[PodInfo]) -> bool:
        kinds = tuple(
            pod.uid if (kind := self.model.kind_of(pod)) is None else kind for pod in pods
        )
        known = self._known.get((pool.name, kinds))
        if known is None:
            with self.model.tentatively():
                add_node(self.model, pool, TRIED)
                known = all(is_placed(self.model, pod, TRIED) for pod in pods)
            self._known[pool.name, kinds] = known
        return known


def _size(pod: PodInfo) -> tuple[int, int, int, NamespacedName]:
    """Return a key that sorts pods by CPU, then by memory, the largest first; then by age, name."""
    cpu, memory = (pod.requests.get(name, 0) for name in ("cpu", "memory"))
    return -cpu, -memory, pod.created, pod.key


def _shared_claims(pod: PodInfo) -> set[NamespacedName]:
    """Return the claims of a pod that others may use, too."""
    return {NamespacedName(pod.key.namespace, each.claim) for each in pod.claims if each.claim}


# --- which nodes can go, or be replaced ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disruption:
    """Nodes that go together for a reason, and the nodes that come for them first."""

    nodes: tuple[str, ...]
    reason: str
    replacements: tuple[NodePool, ...] = ()


def disruptions(
    model: ClusterModel,
    nodes: Mapping[str, NodePool],
    pools: Mapping[NodePool, int],
    allowed: Allowed,
    *,
    drifted: Mapping[str, NodePool] = NOTHING,
    unready: Collection[str] = (),
    only_empty: Collection[str] = (),
    remaining: Limits = NO_LIMITS,
) -> Disruption | None:
    """Return the next nodes to disrupt; None: there is nothing to gain, or nothing is `allowed`.

    Empty nodes go first, all together. Then one that has `drifted`, empty ones before the others,
    and as many nodes come as its pods need. Then as many of the others as can go for at most one
    cheaper node, those first that save most for each pod; then the first single node. Of some
    NodePools `only_empty` nodes go. Nodes that are `unready`, and cordoned, keep what needs them:
    no node goes whose pods would move there. The model is left as it was.
    """
    refused = MoveCosts(model).refused
    candidates = [name for name in nodes if _may_go(model, name, refused)]
    empty = [name for name in candidates if not users_of_node(model, name)]
    going = _as_allowed(empty, nodes, partial(allowed, EMPTY))
    if going:
        return Disruption(tuple(going), EMPTY)
    trial = _Trial(model, {**drifted, **nodes}, pools, remaining, unready)
    stale = [name for name in drifted if _may_go(model, name, refused)]
    stale.sort(key=lambda name: bool(users_of_node(model, name)))
    stale = _as_allowed(stale, drifted, partial(allowed, DRIFTED), at_once=False)
    if found := next(filter(None, map(trial.drift, stale)), None):
        return found
    # Empty nodes count with their own reason alone.
    others = [
        name for name in candidates if name not in empty and nodes[name].group not in only_empty
    ]
    ordered = sorted(others, key=lambda name: -nodes[name].price / _cost(model, name))
    ordered = _as_allowed(ordered, nodes, partial(allowed, UNDERUTILIZED), at_once=False)
    together = _as_allowed(ordered, nodes, partial(allowed, UNDERUTILIZED))
    several = _first_ones(together[:MOST_TOGETHER], trial.consolidation)
    return several or next(filter(None, (trial.consolidation([name]) for name in ordered)), None)


def _as_allowed(
    names: Iterable[str],
    nodes: Mapping[str, NodePool],
    allowed: Callable[[str], int],
    *,
    at_once: bool = True,
) -> list[str]:
    """Return the first nodes of each NodePool that may go `at_once`, or each of which may go."""
    left: dict[str, int] = {}
    found = []
    for name in names:
        group = nodes[name].group
        if left.setdefault(group, allowed(group)) > 0:
            left[group] -= at_once
            found.append(name)
    return found


def leave(model: ClusterModel, names: Iterable[str]) -> list[PodInfo]:
    """Take nodes that go out of a model; return their pods, which need other places.

    There are no places for those that will not leave by themselves (`IsCurrentlyReschedulable`).
    """
    blocking = [each for each in model.objects.of("PodDisruptionBudget") if never_allows(each)]
    pods = [pod for name in names for pod in RemoveNode(name).apply(model)]
    return [
        pod
        for pod in pods
        if not (is_deleting(pod.obj) or _stays(pod))
        and not any(covers(budget, pod.obj) for budget in blocking)
    ]


def _stays(pod: PodInfo) -> bool:
    return annotations_of(pod.obj).get(DO_NOT_DISRUPT) == "true"


def _may_go(model: ClusterModel, name: str, refused: Collection[str]) -> bool:
    """Return whether no pod of a node says that it must stay, and no budget does."""
    return not any(
        each.pod.uid in refused or _stays(each.pod) for each in users_of_node(model, name)
    )


def _cost(model: ClusterModel, name: str) -> float:
    """Return the cost of moving the pods of a node, about one for each."""
    cost = PER_NODE
    for each in users_of_node(model, name):
        said = annotations_of(each.pod.obj).get(DELETION_COST) or "0"
        own = int(said) if said.lstrip("-").isdecimal() else 0
        cost += max(0.0, 1.0 + own / 2**27 + each.pod.priority / 2**25)
    return cost


def _first_ones(
    names: Sequence[str], consolidated: Callable[[Sequence[str]], Disruption | None]
) -> Disruption | None:
    """Return the disruption of as many of the first nodes as a search by halves finds."""
    found = None
    least, most = 1, len(names) - 1
    while least <= most:
        middle = (least + most) // 2
        tried = consolidated(names[: middle + 1])
        if tried is None:
            most = middle - 1
        else:
            found, least = tried, middle + 1
    return found


@dataclass(frozen=True, slots=True)
class _Trial:
    """What comes of it when nodes go; none of the answers changes the model."""

    model: ClusterModel
    nodes: Mapping[str, NodePool]
    pools: Mapping[NodePool, int]
    remaining: Limits
    unready: Collection[str]

    def consolidation(self, names: Sequence[str]) -> Disruption | None:
        """Return the disruption of all these nodes, for at most one node that is cheaper."""
        price = sum(self.nodes[name].price for name in names)
        last = min((_rank(pool) for pool in self.pools), default=None)
        # Of the NodePool that comes last, others would come for nothing.
        tried = [
            pool for pool in self.pools if pool.price < price or pool.spot or _rank(pool) != last
        ]
        planned = self._replacements(names, tried, most=1)
        if planned is None:
            return None
        if not planned:
            return Disruption(tuple(names), UNDERUTILIZED)
        going, (node,) = {self.nodes[name] for name in names}, planned
        spot = [pool for pool in node.options if pool.spot]
        if spot and all(pool.spot for pool in going):
            return None  # as long as the feature gate SpotToSpotConsolidation is off
        cheaper = [
            pool for pool in spot or node.options if pool.price < price and self.pools[pool] > 0
        ]
        chosen = min(cheaper, key=_by_price, default=None)
        # Of several nodes, one of the kind that would come is rather kept.
        if chosen is None or (len(names) > 1 and chosen in going):
            return None
        return Disruption(tuple(names), UNDERUTILIZED, (chosen,))

    def drift(self, name: str) -> Disruption | None:
        """Return the disruption of a node, for as many nodes as its pods need."""
        planned = self._replacements([name], self.pools)
        if planned is None:
            return None
        coming = _chosen(planned, self.pools)
        if len(coming) < len(planned):
            return None
        return Disruption((name,), DRIFTED, tuple(each.pool for each in coming))

    def _replacements(
        self, names: Sequence[str], pools: Collection[NodePool], most: int = sys.maxsize
    ) -> list[_NodeToAsk] | None:
        """Return the nodes that pods of these need; None: more than `most`, or none would do.

        None as well where they would move to nodes that are not ready yet.
        """
        model = self.model
        with model.tentatively():
            leaving = [pod for name in names for pod in RemoveNode(name).apply(model)]
            left = homeless(model, leaving)
            if not left:
                return []
            for name in self.unready:
                Uncordon(name).apply(model)
            if self.unready and len(homeless(model, left)) < len(left):
                return None
            limits = _limits_without(names, self.nodes, self.remaining)
            planned = _planned(model, pools, left, limits, most)
        return planned if sum(len(each.pods) for each in planned) == len(left) else None


def _limits_without(
    names: Sequence[str], nodes: Mapping[str, NodePool], remaining: Limits
) -> dict[str, dict[str, int]]:
    """Return what is left of limits when nodes have gone."""
    found = {group: dict(amounts) for group, amounts in remaining.items()}
    for name in names:
        pool = nodes[name]
        for resource in found.get(pool.group, ()):
            found[pool.group][resource] += pool.amounts.get(resource, 0)
    return found
