"""Nodes that need no look of their own: their slices have the same contents as those of others.

What a driver publishes on a thousand equal machines differs in names of nodes and pools, and in
attributes that no selector reads. Such nodes form one class, one of which is viewed for all, so
that a page about a large fleet does not touch every partition of every device.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from dralab.allocation.pools import PoolId, PoolView, SliceCatalog
from dralab.allocation.problem import AllocationFeatures, DeviceId, InUse, Node
from dralab.explanation.likeness import Likeness


class Uses:
    """What is in use, found by pool: a node needs a few of thousands."""

    def __init__(self, in_use: InUse) -> None:
        self.in_use = in_use
        self.held = in_use.devices()
        self.by_pool: dict[PoolId, set[DeviceId]] = {}
        for device in self.held:
            self.by_pool.setdefault((device.driver, device.pool), set()).add(device)
        # Holders may be known of devices that are not in use any more.
        self.holders_by_pool: dict[PoolId, dict[DeviceId, tuple[str, ...]]] = {}
        for device, holders in in_use.holders.items():
            self.holders_by_pool.setdefault((device.driver, device.pool), {})[device] = holders

    def use_of(self, device: DeviceId) -> Hashable:
        """Return how a device is used, regardless of who uses it."""
        if device not in self.held:
            return None
        if device in self.in_use.exclusive:
            return True
        return tuple(sorted(self.in_use.consumed.get(device, {}).items()))

    def on(self, view: PoolView) -> InUse:
        """Return what is in use of the pools of a node."""
        mine = {device for pool in view.pools for device in self.by_pool.get(pool.id, ())}
        return InUse(
            exclusive=frozenset(mine & self.in_use.exclusive),
            shares=frozenset(share for share in self.in_use.shares if share.device in mine),
            consumed={
                device: self.in_use.consumed[device]
                for device in mine
                if device in self.in_use.consumed
            },
            holders={
                device: self.in_use.holders[device]
                for device in mine
                if device in self.in_use.holders
            },
        )


class NodeViews:
    """The nodes that are asked about, each with what it sees of the slices."""

    def __init__(
        self, nodes: Sequence[Node], catalog: SliceCatalog, features: AllocationFeatures
    ) -> None:
        self.nodes = nodes
        self.catalog = catalog
        self.features = features
        self.order = {node.name: number for number, node in enumerate(nodes)}
        self._views: dict[str, PoolView] = {}
        self._shapes: dict[Likeness, list[NodeContents | None]] = {}

    def __len__(self) -> int:
        return len(self.nodes)

    def view(self, name: str) -> PoolView:
        """Return what a node sees."""
        found = self._views.get(name)
        if found is None:
            node = self.nodes[self.order[name]]
            found = self._views[name] = self.catalog.view(node, self.features)
        return found

    def shapes(self, likeness: Likeness) -> "list[NodeContents | None]":
        """Return what each node has; None: it needs a look of its own."""
        found = self._shapes.get(likeness)
        if found is None:
            found = self._shapes[likeness] = [self._shape(node, likeness) for node in self.nodes]
        return found

    def _shape(self, node: Node, likeness: Likeness) -> "NodeContents | None":
        """Return what a node has.

        Nodes that share pools or devices of the network with others are looked at one by one.
        """
        slices = self.catalog.by_node.get(node.name, ())
        if self.catalog.elsewhere:
            return None
        counts: dict[PoolId, int] = {}
        for each in slices:
            if each.per_device_scope:
                return None
            key = each.driver, each.pool
            counts[key] = counts.get(key, 0) + 1
        if any(len(self.catalog.by_pool[pool]) != count for pool, count in counts.items()):
            return None
        pools = tuple(sorted(counts))
        ordered = sorted(slices, key=lambda each: (each.driver, each.pool, each.name))
        has = tuple([
            (
                each.driver,
                pools.index((each.driver, each.pool)),
                each.generation,
                each.slice_count,
                each.skip_node_operations,
                likeness.of_slice(each),
            )
            for each in ordered
        ])  # fmt: skip
        return NodeContents(has, pools)


class NodeContents(NamedTuple):
    """What a node has, as far as the claims read it, and its pools in the order of that."""

    has: Hashable
    pools: tuple[PoolId, ...]


class NodeClass:
    """Nodes of one shape; `view` is that of the first, `pools` are the pools of each.

    A pool of one node stands where the pool of another node does that corresponds to it.
    `example` is the first class of that shape, however it is used, and `used` how this one is: by
    pool and name of the device. A class of a node that is looked at by itself has no `used`.
    """

    def __init__(
        self,
        view: Callable[[], PoolView],
        example: "NodeClass | None" = None,
        used: frozenset[tuple[int, str, Hashable]] | None = None,
    ) -> None:
        self._view = view
        self.example = example or self
        self.used = used
        self.nodes: list[str] = []
        self.pools: list[tuple[PoolId, ...]] = []

    @property
    def view(self) -> PoolView:
        """What the first node sees."""
        return self._view()

    def add(self, node: str, pools: tuple[PoolId, ...]) -> None:
        """Add a node."""
        self.nodes.append(node)
        self.pools.append(pools)

    def counterpart(self, device: DeviceId, member: int) -> DeviceId:
        """Return the device of a member that corresponds to one of the first node."""
        pool = self.pools[member][self.pools[0].index((device.driver, device.pool))]
        return DeviceId(*pool, device.device)


def node_classes(views: NodeViews, likeness: Likeness, uses: Uses | None = None) -> list[NodeClass]:
    """Return nodes by class, in their order; with `uses` only those that are used alike."""
    found: dict[Hashable, NodeClass] = {}
    examples: dict[Hashable, NodeClass] = {}
    for node, shape in zip(views.nodes, views.shapes(likeness), strict=True):
        view = partial(views.view, node.name)
        if shape is None:
            alone = found[node.name] = NodeClass(view)
            alone.add(node.name, tuple(pool.id for pool in alone.view.pools))
            continue
        has, pools = shape
        used = frozenset(() if uses is None else _used(pools, uses))
        known = found.get((has, used))
        if known is None:
            known = found[has, used] = NodeClass(view, examples.get(has), used)
            examples.setdefault(has, known)
        known.add(node.name, pools)
    return list(found.values())


def _used(pools: Iterable[PoolId], uses: Uses) -> Iterable[tuple[int, str, Hashable]]:
    for number, pool in enumerate(pools):
        for device in uses.by_pool.get(pool, ()):
            yield number, device.device, uses.use_of(device)
