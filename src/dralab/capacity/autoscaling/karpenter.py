"""What Karpenter would do: the cheapest shapes for pods that wait, and nodes to give up or replace.

Source: Karpenter 1.x of August 2026 (`provisioning/scheduling`, `disruption`). A pool here is an
instance type with a price; those of one priority are the types of one NodePool.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from dralab.capacity.autoscaling.pools import (
    Expansion,
    NodePool,
    add_node,
    homeless,
    is_placed,
    users_of_node,
)
from dralab.capacity.changes import RemoveNode
from dralab.capacity.move_costs import MoveCosts
from dralab.objects.metadata import NamespacedName, annotations_of
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


@dataclass(slots=True)
class _NodeToAsk:
    """A node to ask for: its pods, and the pools of which one would do; claims that are on it."""

    pods: list[PodInfo]
    options: list[NodePool]
    claims: set[NamespacedName] = field(default_factory=set)


def provision(
    model: ClusterModel, pools: Mapping[NodePool, int], pods: Iterable[PodInfo]
) -> list[Expansion]:
    """Return a node for each group of pods that wait; `pools` have room for so many nodes.

    The largest pod comes first. Of the nodes to ask for, it joins the one with the fewest pods for
    which some pool still has a shape that fits all of them; else it gets one of its own. Each node
    is of the cheapest pool that is left for it. The model is left as it was.
    """
    fits = _Fits(model)
    claims: list[_NodeToAsk] = []
    for pod in sorted(pods, key=_size):
        shared = _shared_claims(pod)
        joined = next((each for each in claims if each.claims & shared), None)
        open_to = [joined] if joined else sorted(claims, key=lambda each: len(each.pods))
        if any(_joins(fits, each, pod, shared) for each in open_to) or joined:
            continue
        for priority in sorted({each.priority for each in pools}, reverse=True):
            options = [each for each in pools if each.priority == priority and fits(each, (pod,))]
            if options:
                claims.append(_NodeToAsk([pod], options, set(shared)))
                break
    rooms = dict(pools)
    found = []
    for each in claims:
        options = [pool for pool in each.options if rooms[pool] > 0]
        if options:
            cheapest = min(options, key=lambda pool: (pool.price, pool.name))
            rooms[cheapest] -= 1
            found.append(Expansion(cheapest, 1, tuple(each.pods)))
    return found


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


def _size(pod: PodInfo) -> tuple[int, int, int, str]:
    """Return a key that sorts pods by CPU, then by memory, the largest first; then by age."""
    cpu, memory = (pod.requests.get(name, 0) for name in ("cpu", "memory"))
    return -cpu, -memory, pod.created, pod.uid


def _shared_claims(pod: PodInfo) -> set[NamespacedName]:
    """Return the claims of a pod that others may use, too."""
    return {NamespacedName(pod.key.namespace, each.claim) for each in pod.claims if each.claim}


# --- which nodes can go, or be replaced ---------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Disruption:
    """Nodes that go together, and the node that comes for them first; None: none is needed."""

    nodes: tuple[str, ...]
    replacement: NodePool | None = None


def disruptions(
    model: ClusterModel,
    nodes: Mapping[str, NodePool],
    pools: Mapping[NodePool, int],
    *,
    allowed: int,
    only_empty: bool = False,
) -> Disruption | None:
    """Return the next nodes to disrupt, at most so many; None: there is nothing to gain.

    Empty nodes go first, all together. Then as many of the others as can go for at most one cheaper
    node, those first that save most for each pod; then the first single node. The model is left as
    it was.
    """
    refused = MoveCosts(model).refused
    candidates = [name for name in nodes if _may_go(model, name, refused)]
    empty = [name for name in candidates if not users_of_node(model, name)]
    if empty:
        return Disruption(tuple(empty[:allowed])) if allowed else None
    if only_empty or not allowed:
        return None
    ordered = sorted(candidates, key=lambda name: -nodes[name].price / _cost(model, name))

    def consolidated(names: Sequence[str]) -> Disruption | None:
        return _consolidation(model, names, nodes, pools)

    several = _first_ones(ordered[: min(allowed, MOST_TOGETHER)], consolidated)
    return several or next(filter(None, (consolidated([name]) for name in ordered)), None)


def _may_go(model: ClusterModel, name: str, refused: Collection[str]) -> bool:
    """Return whether no pod of a node says that it must stay, and no budget does."""
    return not any(
        each.pod.uid in refused or annotations_of(each.pod.obj).get(DO_NOT_DISRUPT) == "true"
        for each in users_of_node(model, name)
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


def _consolidation(
    model: ClusterModel,
    names: Sequence[str],
    nodes: Mapping[str, NodePool],
    pools: Mapping[NodePool, int],
) -> Disruption | None:
    """Return the disruption of all these nodes, for at most one node that is cheaper."""
    with model.tentatively():
        leaving = [pod for name in names for pod in RemoveNode(name).apply(model)]
        left = homeless(model, leaving)
        if not left:
            return Disruption(tuple(names))
        price = sum(nodes[name].price for name in names)
        cheaper = {pool: room for pool, room in pools.items() if pool.price < price and room > 0}
        found = provision(model, cheaper, left)
    if len(found) != 1 or len(found[0].pods) < len(left):
        return None
    # Of several nodes, one of the kind that would come is rather kept.
    if len(names) > 1 and found[0].pool in {nodes[name] for name in names}:
        return None
    return Disruption(tuple(names), found[0].pool)
