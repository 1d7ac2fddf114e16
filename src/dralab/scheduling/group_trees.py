"""The groups of waiting pods as trees: who waits, who has a place, and how many start together."""

from collections.abc import Callable, Hashable, Iterable, Sequence

from dralab.objects import pod_groups
from dralab.objects.metadata import NamespacedName, key_of, spec_of
from dralab.objects.pod_groups import COMPOSITE, MOST_LEVELS, POD_GROUP, GroupKind
from dralab.scheduling.cycle import form_of
from dralab.scheduling.demands import BlockedPod
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.reasons import (
    COMPOSITE_INCOMPLETE,
    GANG_INCOMPLETE,
    GROUP_NOT_FOUND,
    GROUP_PRIORITY,
    GROUPS_TOO_DEEP,
    Reason,
)
from dralab.scheduling.state import ClusterState
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

Waiting = Callable[[NamespacedName], Sequence[PodInfo]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupTree:
    """A group: its waiting pods and the rows of placed ones, or its child groups.

    `least` pods or groups start together; 1 of a group that is not a gang.
    """

    kind: GroupKind
    obj: JsonDict
    least: int
    gang: bool
    waiting: tuple[PodInfo, ...] = ()
    rows: tuple[int, ...] = ()
    children: tuple["GroupTree", ...] = ()

    @property
    def name(self) -> str:
        """Its name."""
        return key_of(self.obj).name

    @property
    def pods(self) -> tuple[PodInfo, ...]:
        """All pods below it that wait, in the order in which they are tried."""
        return (*self.waiting, *(pod for child in self.children for pod in child.pods))

    @property
    def placed(self) -> tuple[int, ...]:
        """The rows of all pods below it that have their place."""
        return (*self.rows, *(row for child in self.children for row in child.placed))

    @property
    def leaves(self) -> tuple["GroupTree", ...]:
        """The PodGroups in it."""
        if self.kind == POD_GROUP:
            return (self,)
        return tuple(leaf for child in self.children for leaf in child.leaves)

    @property
    def needed(self) -> int:
        """The minimal number of further pods to place."""
        if self.kind == POD_GROUP:
            return max(self.least - len(self.rows), 0)
        return sum(sorted(child.needed for child in self.children)[: self.least])

    @property
    def is_ready(self) -> bool:
        """Whether enough pods exist."""
        if self.kind == POD_GROUP:
            return len(self.waiting) + len(self.rows) >= self.least
        return sum(child.is_ready for child in self.children) >= self.least


def tree_of(state: ClusterState, pod: PodInfo, waiting: Waiting) -> GroupTree | Reason:
    """Return the tree of a pod's group; `waiting` returns the waiting pods of a PodGroup."""
    namespace = pod.key.namespace
    above = list(state.groups.above(NamespacedName(namespace, pod.group)))
    if not above:
        return Reason(GROUP_NOT_FOUND, (POD_GROUP.lower(), pod.group))
    kind, root = above[-1]
    if parent := pod_groups.parent_of(root):
        if len(above) < MOST_LEVELS:
            return Reason(GROUP_NOT_FOUND, (COMPOSITE.lower(), parent))
        return Reason(GROUPS_TOO_DEEP, (str(MOST_LEVELS), pod.group))
    if kind == POD_GROUP and pod_groups.is_loose(root):
        # Where the others of the group are does not matter: they are many.
        return _tree(state, kind, root, waiting, {}, 1)
    rows: dict[NamespacedName, list[int]] = {key: [] for key in state.groups.leaves(kind, root)}
    for row, pods in enumerate(state.table.pods):
        for other in pods.values():
            key = NamespacedName(other.key.namespace, other.group)
            if other.group and key in rows:
                rows[key].append(row)
    return _tree(state, kind, root, waiting, rows, MOST_LEVELS)


def _tree(  # noqa: PLR0917 - what is the same in the whole tree, and where in it
    state: ClusterState,
    kind: GroupKind,
    obj: JsonDict,
    waiting: Waiting,
    rows: dict[NamespacedName, list[int]],
    levels: int,
) -> GroupTree:
    least = pod_groups.least_of(obj)
    key = key_of(obj)
    children: tuple[GroupTree, ...] = ()
    if kind == COMPOSITE and levels > 1:
        below = state.groups.children(key)
        children = tuple(_tree(state, *each, waiting, rows, levels - 1) for each in below)
    return GroupTree(
        kind=kind,
        obj=obj,
        least=least or 1,
        gang=least is not None,
        waiting=tuple(waiting(key)) if kind == POD_GROUP else (),
        rows=tuple(rows.get(key, ())),
        children=children,
    )


def by_group(pods: Iterable[PodInfo]) -> Waiting:
    """Return the pods of each PodGroup among some, in the order in which they are given."""
    found: dict[NamespacedName, list[PodInfo]] = {}
    for pod in pods:
        found.setdefault(NamespacedName(pod.key.namespace, pod.group), []).append(pod)
    return lambda key: found.get(key, ())


def is_loose(tree: GroupTree) -> bool:
    """Return whether the pods of a group are scheduled one by one."""
    return tree.kind == POD_GROUP and pod_groups.is_loose(tree.obj)


def unready(tree: GroupTree) -> Reason | None:
    """Return the reason not to try a tree yet; None if it is tried."""
    stated = spec_of(tree.obj).get("priority")
    for pod in tree.pods:
        if stated is not None and pod.priority != stated:
            return Reason(GROUP_PRIORITY, (str(pod.priority), str(stated)))
    if tree.is_ready:
        return None
    if tree.kind == POD_GROUP:
        exist = len(tree.waiting) + len(tree.rows)
        return Reason(GANG_INCOMPLETE, (str(tree.least), tree.name, str(exist)))
    ready = sum(child.is_ready for child in tree.children)
    return Reason(COMPOSITE_INCOMPLETE, (str(tree.least), tree.name, str(ready)))


def form_of_tree(state: ClusterState, tree: GroupTree) -> Hashable | None:
    """Return the key of PodGroups that fit or fail alike beside the same pods on the same nodes.

    None where devices or volumes count as well.
    """
    asked = []
    for pod in tree.waiting:
        demand = state.demands.demand_of(pod)
        if isinstance(demand, BlockedPod) or demand.signature:
            return None
        asked.append(form_of(pod, demand))
    if tree.kind == COMPOSITE or None in asked:
        return None
    return tuple(asked), tree.least, tree.gang, tree.rows, pod_groups.topology_of(tree.obj)
