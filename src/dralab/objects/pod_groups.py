"""PodGroups and CompositePodGroups of scheduling.k8s.io: their fields, and their trees.

A pod names its group, a group its parent; a workload's groups form a tree of at most four levels.
v1alpha2 (Kubernetes 1.36) has pod groups alone and other words for their disruption.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

from dralab.objects.metadata import NamespacedName, key_of, spec_of
from dralab.values.json_types import JsonDict, JsonObject

GroupKind = Literal["PodGroup", "CompositePodGroup"]
POD_GROUP: Final[GroupKind] = "PodGroup"
COMPOSITE: Final[GroupKind] = "CompositePodGroup"
MOST_LEVELS: Final = 4
DEFAULT_POLICY: Final = "PreemptLowerPriority"


def least_of(group: JsonObject) -> int | None:
    """Return how many pods, or groups of a composite, start together; None if it is not a gang.

    >>> least_of({"spec": {"schedulingPolicy": {"gang": {"minGroupCount": 2}}}})
    2
    """
    gang = (spec_of(group).get("schedulingPolicy") or {}).get("gang")
    return None if gang is None else int(gang.get("minCount") or gang.get("minGroupCount") or 1)


def topology_of(group: JsonObject) -> str:
    """Return the node label whose value all pods of a group must share; empty without one."""
    constraints = (spec_of(group).get("schedulingConstraints") or {}).get("topology") or [{}]
    key: str = constraints[0].get("key") or ""
    return key


def is_loose(group: JsonObject) -> bool:
    """Return whether the pods of a PodGroup without a parent are scheduled one by one."""
    return least_of(group) is None and not topology_of(group)


def parent_of(group: JsonObject) -> str:
    """Return the name of the composite that a group belongs to; empty if it has none."""
    name: str = spec_of(group).get("parentCompositePodGroupName") or ""
    return name


def ends_as_one(group: JsonObject) -> bool:
    """Return whether a group is only disrupted as a whole."""
    mode: Any = spec_of(group).get("disruptionMode")
    return mode == POD_GROUP or (isinstance(mode, dict) and mode.get("all") is not None)


def preempts(group: JsonObject) -> bool:
    """Return whether a group may preempt others."""
    policy: str = spec_of(group).get("preemptionPolicy") or DEFAULT_POLICY
    return policy != "Never"


class PodGroups:
    """The groups of a cluster, by name and by parent."""

    def __init__(self) -> None:
        self._of_kind: dict[GroupKind, dict[NamespacedName, JsonDict]] = {
            POD_GROUP: {},
            COMPOSITE: {},
        }
        # Counts the changes.
        self.version = 0
        self._children: dict[NamespacedName, dict[tuple[GroupKind, str], None]] = {}

    def put(self, kind: GroupKind, obj: JsonDict) -> None:
        """Add or replace a group."""
        self.remove(kind, key_of(obj))
        self._of_kind[kind][key_of(obj)] = obj
        if parent := parent_of(obj):
            key = NamespacedName(key_of(obj).namespace, parent)
            self._children.setdefault(key, {})[kind, key_of(obj).name] = None

    def remove(self, kind: GroupKind, key: NamespacedName) -> None:
        """Forget a group, if it is known."""
        self.version += 1
        before = self._of_kind[kind].pop(key, None)
        if before is not None and (parent := parent_of(before)):
            self._children[NamespacedName(key.namespace, parent)].pop((kind, key.name), None)

    def get(self, key: NamespacedName) -> JsonDict | None:
        """Return a PodGroup; None if it does not exist."""
        return self._of_kind[POD_GROUP].get(key)

    def composite(self, key: NamespacedName) -> JsonDict | None:
        """Return a CompositePodGroup; None if it does not exist."""
        return self._of_kind[COMPOSITE].get(key)

    def children(self, composite: NamespacedName) -> list[tuple[GroupKind, JsonDict]]:
        """Return the groups of a composite, by name."""
        found = self._children.get(composite, {})
        return [
            (kind, self._of_kind[kind][NamespacedName(composite.namespace, name)])
            for kind, name in sorted(found, key=lambda each: (each[1], each[0]))
        ]

    def above(self, key: NamespacedName) -> Iterator[tuple[GroupKind, JsonDict]]:
        """Yield a PodGroup and the composites above it, as far as they exist."""
        kind, found = POD_GROUP, self.get(key)
        for _ in range(MOST_LEVELS):
            if found is None:
                return
            yield kind, found
            if not (parent := parent_of(found)):
                return
            kind, found = COMPOSITE, self.composite(NamespacedName(key.namespace, parent))

    def root(self, key: NamespacedName) -> tuple[GroupKind, NamespacedName]:
        """Return the highest group over a PodGroup; itself where there is none."""
        kind, name = POD_GROUP, key
        for kind, found in self.above(key):  # noqa: B007 - the last one is the root
            name = key_of(found)
        return kind, name

    def tree(self, key: NamespacedName) -> Iterator[NamespacedName]:
        """Yield the PodGroups that are scheduled together with one; itself alone if unknown."""
        above = list(self.above(key))
        if above:
            yield from self.leaves(*above[-1])
        else:
            yield key

    def priority_of(self, key: NamespacedName) -> int | None:
        """Return the priority of the root of a PodGroup; None where none is stated."""
        roots = list(self.above(key))
        return spec_of(roots[-1][1]).get("priority") if roots else None

    def unit_of(self, key: NamespacedName) -> tuple[GroupKind, JsonDict] | None:
        """Return the highest group over a PodGroup that is disrupted as a whole, or None."""
        whole = [each for each in self.above(key) if ends_as_one(each[1])]
        return whole[-1] if whole else None

    def leaves(self, kind: GroupKind, group: JsonDict) -> Iterator[NamespacedName]:
        """Yield the PodGroups at or below a group."""
        yield from self._leaves(kind, group, MOST_LEVELS)

    def _leaves(self, kind: GroupKind, group: JsonDict, levels: int) -> Iterator[NamespacedName]:
        if kind == POD_GROUP:
            yield key_of(group)
        elif levels:
            for below, child in self.children(key_of(group)):
                yield from self._leaves(below, child, levels - 1)
