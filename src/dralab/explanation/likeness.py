"""Equivalent devices and nodes for some claims: they differ in nothing that the claims read.

What a driver publishes on a thousand equal machines differs in names of nodes and pools, and in
attributes that no selector reads. Such nodes form one class, one of which is viewed for all, so
that a page about a large fleet does not touch every partition of every device.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import field
from functools import partial
from typing import NamedTuple

from dralab.allocation.pools import Pool, PoolId, PoolView, SliceCatalog
from dralab.allocation.problem import (
    AllocationFeatures,
    Device,
    DeviceId,
    DevicePath,
    DeviceSelector,
    DeviceSelectorError,
    InUse,
    Node,
    Problem,
    Slice,
    subrequests_of,
)
from dralab.allocation.selectors import projection
from dralab.values.records import dataclass


@dataclass(slots=True)
class PoolKinds:
    """The kinds of a pool's devices: `numbers` as in `Likeness`, `items` with where they are.

    `groups` are the positions of the devices that draw on one counter set, with a number for what
    the set has; None where the order of the devices counts. `places` are the positions of devices
    by name, `looks` what groups look like in uses that were met before.
    """

    pool: Pool
    numbers: list[int]
    items: list[int]
    groups: list[tuple[int, list[int]]] | None
    places: dict[str, int]
    group_of: list[int]
    looks: dict[Hashable, int] = field(default_factory=dict)


class Likeness:
    """Numbers devices: equal numbers, equal answers to everything that the claims ask."""

    def __init__(self, problem: Problem) -> None:
        asked = list(subrequests_of(problem))
        selectors = _selectors(problem)
        reads: set[DevicePath] = {path for each in selectors for path in each.reads}
        for subrequest in asked:
            reads.update(path for each in subrequest.derived.values() for path in each.reads)
        self._selectors = selectors
        self._project = projection(tuple(reads))
        self._constrained = sorted(
            {rule.name for claim in problem.claims for rule in claim.constraints}
        )
        self._amounts = any(subrequest.capacity for subrequest in asked) or any(
            rule.kind == "total" for claim in problem.claims for rule in claim.constraints
        )
        # The attributes that are read, where nothing but attributes and the driver is.
        self._names: list[str] | None = None
        if not self._amounts and all(path[0] == "driver" or len(path) == 3 for path in reads):
            named = {f"{path[1]}/{path[2]}" for path in reads if path[0] == "attributes"}
            if not any(path[0] == "capacity" for path in reads):
                self._names = sorted({*named, *self._constrained})
        self._same_columns: dict[Hashable, int] = {}
        self.asks = (frozenset(reads), tuple(self._constrained), self._amounts)
        """What is read at all: problems that read the same see the same kinds."""
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, int] = {}
        self._consumptions: dict[int, tuple[object, int]] = {}
        self._pools: dict[int, PoolKinds] = {}
        self._slices: dict[tuple[int, int], tuple[Slice, int]] = {}
        self.examples: list[Device] = []

    def number(self, device: Device) -> int:
        """Return the number of the kind of a device."""
        known = self._known.get(id(device))
        if known is None:
            key = self._key(device)
            known = self._numbers.setdefault(key, len(self.examples))
            if known == len(self.examples):
                self.examples.append(device)
            # Devices live as long as the problem does: an identity stays one.
            self._known[id(device)] = known
        return known

    def kinds_of(self, pool: Pool) -> PoolKinds:
        """Return the kinds of the devices of a pool, computed once."""
        known = self._pools.get(id(pool))
        if known is None:
            of_device = self._known
            numbers = [
                of_device[id(offer.device)]
                if id(offer.device) in of_device
                else self.number(offer.device)
                for offer in pool.offers
            ]
            items = [
                number
                if offer.here and not offer.slice.skip_node_operations
                else self.intern((number, offer.here, offer.slice.skip_node_operations))
                for number, offer in zip(numbers, pool.offers, strict=True)
            ]
            places = {offer.device.name: at for at, offer in enumerate(pool.offers)}
            groups = self._groups(pool)
            group_of = [0] * len(items)
            for number, (_, positions) in enumerate(groups or ()):
                for at in positions:
                    group_of[at] = number
            known = PoolKinds(pool, numbers, items, groups, places, group_of)
            self._pools[id(pool)] = known
        return known

    def _groups(self, pool: Pool) -> list[tuple[int, list[int]]] | None:
        by_set: dict[str, list[int]] = {}
        for position, offer in enumerate(pool.offers):
            consumes = offer.device.consumes
            if len(consumes) > 1:
                return None
            by_set.setdefault(consumes[0].counter_set if consumes else "", []).append(position)
        return [
            (self.intern(tuple(sorted(pool.counter_sets.get(name, {}).items()))), positions)
            for name, positions in by_set.items()
        ]

    def of_slice(self, item: Slice) -> int:
        """Return a number for the contents of a slice; slices of equal nodes may share them."""
        key = id(item.devices), id(item.counter_sets)
        known = self._slices.get(key)
        if known is None:
            columns = self._columns(item)
            number = self._same_columns.get(columns)
            if number is None:
                devices = tuple([(self.number(device), device.name) for device in item.devices])
                sets = tuple(
                    (each.name, tuple(sorted(each.counters.items()))) for each in item.counter_sets
                )
                number = self._same_columns[columns] = self.intern((devices, sets))
            known = self._slices[key] = item, number
        return known[1]

    def _columns(self, item: Slice) -> Hashable:
        """Return what the numbers of a slice's devices depend on, by the identity of its parts.

        Readers share attributes and consumptions of equal values, so slices that differ in a
        serial number are the same here, and none of their devices has to be looked at.
        """
        devices = item.devices
        reads: Hashable = ()
        if self._names is None or True in [device.shareable for device in devices]:
            reads = id(devices)
        else:
            attributes = [device.attributes for device in devices]
            reads = tuple(
                [tuple([id(each.get(name)) for each in attributes]) for name in self._names]
            )
        return (
            reads,
            tuple([device.name for device in devices]),
            tuple([id(device.consumes) for device in devices]),
            tuple([id(device.taints) for device in devices]),
            tuple([id(device.binding_conditions) for device in devices]),
            tuple([device.problem for device in devices]),
            devices[0].driver if devices else "",
            id(item.counter_sets),
        )

    def intern(self, key: Hashable) -> int:
        """Return a number for anything: equal numbers, equal things."""
        return self._numbers.setdefault(("thing", key), len(self._numbers) + (1 << 32))

    def has_errors(self) -> bool:
        """Return whether a selector fails for a device seen so far: then the order counts."""
        for selector in self._selectors:
            for device in self.examples:
                try:
                    selector.matches(device)
                except DeviceSelectorError:
                    return True
        return False

    def _key(self, device: Device) -> Hashable:
        amounts: Hashable = ()
        if device.shareable or self._amounts:
            amounts = tuple(
                (device.written(name), item.value, item.policy)
                for name, item in device.capacity.items()
            )
        return (
            self._project(device),
            tuple([device.attributes.get(name) for name in self._constrained]),
            amounts,
            device.shareable,
            device.taints,
            device.binding_conditions,
            device.problem,
            self._consumption(device),
        )

    def _consumption(self, device: Device) -> int:
        """Return a number for what a device draws; devices of equal GPUs share the object."""
        consumes = device.consumes
        known = self._consumptions.get(id(consumes))
        if known is None:
            drawn = tuple((tuple(sorted(each.counters.items())), each.groups) for each in consumes)
            known = self._consumptions[id(consumes)] = consumes, self.intern(drawn)
        return known[1]


def _selectors(problem: Problem) -> list[DeviceSelector]:
    found = []
    for subrequest in subrequests_of(problem):
        of_class = problem.classes.get(subrequest.class_name)
        both = (*(of_class.selectors if of_class else ()), *subrequest.selectors)
        found += [each for each in both if each is not None]
    return found


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
    """The nodes in question, each with its view of the slices."""

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
        """Return the contents of each node; None if it has to be examined itself."""
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
