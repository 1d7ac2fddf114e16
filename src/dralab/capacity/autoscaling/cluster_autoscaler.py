"""What cluster-autoscaler would do: nodes to add for pods that wait, and nodes that are unneeded.

Source: cluster-autoscaler 1.36 (`core/scaleup/orchestrator`, `estimator`, `expander`,
`core/scaledown/planner`). It takes one pool at a time: the nodes for the pods that fit there.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

from dralab.capacity.autoscaling.pools import (
    Expansion,
    NodePool,
    add_node,
    in_groups,
    is_placed,
    users_of_node,
)
from dralab.capacity.autoscaling.utilisation import utilisation
from dralab.capacity.changes import RemoveNode
from dralab.capacity.move_costs import MoveCosts
from dralab.objects.metadata import annotations_of, controller_of, spec_of
from dralab.objects.nodes import offered
from dralab.objects.pods import SAFE_TO_EVICT
from dralab.objects.requests import base_units
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.values.records import dataclass

# Nodes that one estimate adds at most (--max-nodes-per-scaleup).
MOST_NODES: Final = 1000


def expansions(
    model: ClusterModel, pools: Mapping[NodePool, int], pods: Sequence[PodInfo]
) -> list[Expansion]:
    """Return what each pool would do for pods that wait; `pools` have room for so many nodes.

    The model is left as it was.
    """
    groups = in_groups(pods)
    found = [_estimate(model, pool, groups, min(room, MOST_NODES)) for pool, room in pools.items()]
    return [each for each in found if each.count]


def _estimate(
    model: ClusterModel, pool: NodePool, groups: Sequence[Sequence[PodInfo]], most: int
) -> Expansion:
    """Return the nodes of a pool on which pods fit, first fit, the largest groups first.

    A pod is tried on the nodes so far, and then on one more: if it does not fit on an empty node,
    neither do the others of its group.
    """
    ordered = sorted(groups, key=lambda group: -_size(group[0], pool))
    names: list[str] = []
    used: set[str] = set()
    placed: list[PodInfo] = []

    def put(pod: PodInfo, name: str) -> bool:
        fits = is_placed(model, pod, name)
        if fits:
            used.add(name)
            placed.append(pod)
        return fits

    with model.tentatively():
        for group in ordered:
            left = list(group)
            while left and any(put(left[0], name) for name in names):
                left.pop(0)
            for pod in left:
                if names and put(pod, names[-1]):
                    continue
                if (names and names[-1] not in used) or len(names) >= most:
                    break
                names.append(f"{pool.name}-estimated-{len(names)}")
                add_node(model, pool, names[-1])
                if not put(pod, names[-1]):
                    break
    return Expansion(pool, len(used), tuple(placed))


def _size(pod: PodInfo, pool: NodePool) -> float:
    """Return what a pod asks of a node's CPU and memory: devices do not count."""
    offer = offered(pool.node)
    return sum(
        pod.requests.get(name, 0) / amount
        for name in ("cpu", "memory")
        if name in offer and (amount := base_units(name, offer[name]))
    )


# --- which of the pools -------------------------------------------------------------------------


def _waste(option: Expansion) -> float:
    """Return the parts of CPU and memory that nobody would use: devices do not count."""
    offer = offered(option.pool.node)
    parts = 0.0
    for name in ("cpu", "memory"):
        there = base_units(name, offer.get(name, "0")) * option.count
        asked = sum(pod.requests.get(name, 0) for pod in option.pods)
        parts += (there - asked) / there if there else 0.0
    return parts


EXPANDERS: Final[Mapping[str, Callable[[Expansion], float]]] = {
    "least-nodes": lambda option: option.count,
    "least-waste": _waste,
    "most-pods": lambda option: -len(option.pods),
    "price": lambda option: option.price / len(option.pods),
    "priority": lambda option: -option.pool.priority,
    "random": lambda option: 0.0,  # noqa: ARG005 - all are equal
}
"""What the best option has least of, by the name of the expander."""


def best(
    options: Sequence[Expansion],
    expanders: Iterable[str],
    choice: Callable[[Sequence[Expansion]], Expansion],
) -> Expansion | None:
    """Return the option that is left when the expanders have filtered, one after the other.

    `choice` draws among those that are equal; None: there is no option.
    """
    left = list(options)
    for name in expanders:
        values = [EXPANDERS[name](option) for option in left]
        left = [option for option, value in zip(left, values, strict=True) if value == min(values)]
    return choice(left) if len(left) > 1 else next(iter(left), None)


# --- which nodes can go -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnneededNode:
    """A node that can go, once its pods have moved."""

    name: str
    pods: tuple[PodInfo, ...]


def unneeded(
    model: ClusterModel, candidates: Iterable[str], *, threshold: float, passed: Collection[str]
) -> tuple[list[UnneededNode], list[str]]:
    """Return the nodes that can go together, and those whose pods would find no other place.

    Only nodes of which no more than the threshold is in use can go; `passed` over are those that
    were found to be needed a while ago. The model is left as it was.
    """
    found: list[UnneededNode] = []
    needed: list[str] = []
    refused = MoveCosts(model).refused
    with model.tentatively():
        for name in candidates:
            part = utilisation(model, name)
            if name in passed or part is None or part > threshold:
                continue
            pods = tuple(each.pod for each in users_of_node(model, name))
            mark = model.mark()
            stays = any(pod.uid in refused or _stays(pod) for pod in pods)
            if stays or not all(is_placed(model, pod) for pod in RemoveNode(name).apply(model)):
                model.rollback(mark)
                needed.append(name)
                continue
            found.append(UnneededNode(name, pods))
    return found, needed


def _stays(pod: PodInfo) -> bool:
    """Return whether nobody would make a pod again, or it says that it must not be evicted."""
    says = annotations_of(pod.obj).get(SAFE_TO_EVICT)
    if says in {"true", "false"}:
        return says == "false"
    has_data = any("emptyDir" in each for each in spec_of(pod.obj).get("volumes") or ())
    system = pod.key.namespace == "kube-system"
    return controller_of(pod.obj) is None or has_data or system
