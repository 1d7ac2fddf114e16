"""Pools of nodes that can be added: what a new node brings, their limits and prices."""

from collections.abc import Iterable

from dralab.capacity.changes import of_daemon_set
from dralab.objects.metadata import controller_of
from dralab.objects.nodes import offered
from dralab.objects.requests import base_units
from dralab.scheduling.copies import put, renamed
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement, Refusal
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class NodePool:
    """Nodes of one shape: `node` and its `slices` are what a new one brings.

    There are at least `least` of them and at most `most`. `price` is that of a node for an hour.
    Pools with a higher `priority` are preferred: the priority of cluster-autoscaler's expander, the
    weight of a NodePool of Karpenter. Those of one `group` are the instance types of one NodePool.
    `spot` machines may be taken back.
    """

    name: str
    node: JsonDict
    slices: tuple[JsonDict, ...] = ()
    least: int = 0
    most: int = 1000
    price: float = 0.0
    priority: int = 0
    group: str = ""
    spot: bool = False

    @property
    def amounts(self) -> dict[str, int]:
        """What a node counts for in limits, in base units."""
        offer = offered(self.node)
        return {"nodes": 1} | {name: base_units(name, text) for name, text in offer.items()}


@dataclass(frozen=True, slots=True)
class Expansion:
    """So many nodes of a pool, and the pods that run on them."""

    pool: NodePool
    count: int
    pods: tuple[PodInfo, ...]

    @property
    def price(self) -> float:
        """What the nodes cost an hour."""
        return self.pool.price * self.count


def add_node(model: ClusterModel, pool: NodePool, name: str) -> None:
    """Add a node of a pool to a model, as it will be once its drivers have published devices."""
    for item in renamed(pool.node, pool.slices, name):
        put(model, item)


def is_placed(model: ClusterModel, pod: PodInfo, node: str = "") -> bool:
    """Place a pod on a node, or on any, if the scheduler lets it; return whether it did.

    A pod of a gang is tried by itself: autoscalers do not wait for the others.
    """
    decided = model.try_pod(pod, node)
    if isinstance(decided, Refusal):
        return False
    model.place(decided)
    return True


def homeless(model: ClusterModel, pods: Iterable[PodInfo]) -> list[PodInfo]:
    """Place the pods that fit on the nodes of a model; return the others."""
    refused = set()
    left = []
    for pod in model.ordered(pods):
        kind = model.kind_of(pod)
        if (kind is not None and kind in refused) or not is_placed(model, pod):
            refused.add(kind)
            left.append(pod)
    return left


def in_groups(pods: Iterable[PodInfo]) -> list[list[PodInfo]]:
    """Return pods that are alike and of one controller together, the others each alone."""
    groups: dict[object, list[PodInfo]] = {}
    for pod in pods:
        owner = controller_of(pod.obj)
        key = pod.uid if owner is None else (owner.get("uid"), pod.asking)
        groups.setdefault(key, []).append(pod)
    return list(groups.values())


def users_of_node(model: ClusterModel, node: str) -> list[PodPlacement]:
    """Return the pods on a node but those that belong to it."""
    return [each for each in model.on(node) if not of_daemon_set(each.pod.obj)]
