"""The pools of a fleet: their slices, the nodes that see them, and their shapes."""

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from typing import Final, Literal

import orjson

from dralab.allocation.inventory.pool_states import PoolShape, PoolShapes
from dralab.allocation.pools import Offer, Pool, PoolId, PoolView, SliceCatalog, assembled, waits
from dralab.allocation.problem import AllocationFeatures, Device, DeviceId, Node, Slice
from dralab.allocation.search.node_devices import bits, mask_of
from dralab.values.labels import SelectorError
from dralab.values.quantity import Number

Names = tuple[str, ...]
# Contents of pools that are remembered; beyond it they are forgotten, which costs time alone.
MOST_CONTENTS: Final = 20_000
MOST_SELECTORS: Final = 1_000


class PoolContent:
    """The content of pools with the same devices and counters, whatever their names.

    `unusable` and `why` say how it contradicts itself; `waits` whether some device is bound only
    under conditions. `slices` are those of one such pool.
    """

    __slots__ = ("counter_sets", "names", "numbers", "slices", "unusable", "waits", "why")

    def __init__(
        self,
        slices: tuple[Slice, ...],
        features: AllocationFeatures,
        known: dict[Names, dict[str, int]],
        judged: "JudgedDevices",
    ) -> None:
        self.slices = slices
        devices = [device for each in slices for device in each.devices]
        self.names: Names = tuple(device.name for device in devices)
        found = known.get(self.names)
        if found is None:
            # Devices that differ have the same names all the same: one index for all of them.
            found = known[self.names] = {name: number for number, name in enumerate(self.names)}
        self.numbers = found
        self.waits = any(device.binding_conditions for device in devices)
        self.unusable: Literal["", "incomplete", "invalid"] = ""
        self.why = ""
        sets = {item.name: item.counters for each in slices for item in each.counter_sets}
        self.counter_sets: Mapping[str, Mapping[str, Number]] = sets
        several = len(sets) < sum(len(each.counter_sets) for each in slices)
        if several or len(found) < len(self.names) or not judged.fine(slices, devices, sets):
            pool = assembled(("", ""), slices, slices, None, features)
            self.unusable, self.why = pool.unusable, pool.why
            self.counter_sets = pool.counter_sets


class JudgedDevices:
    """Remembers which devices draw on nothing but counters that their pool has."""

    def __init__(self) -> None:
        self._fine: set[tuple[Device, tuple[int, ...]]] = set()

    def fine(
        self,
        slices: Sequence[Slice],
        devices: Sequence[Device],
        sets: Mapping[str, Mapping[str, Number]],
    ) -> bool:
        """Return whether all counters that devices draw on are among these slices."""
        # Equal counter sets are one object each; who remembers the devices keeps them too.
        key = tuple([id(each.counter_sets) for each in slices if each.counter_sets])
        for device in devices:
            if device.consumes and (device, key) not in self._fine:
                if not all(
                    drawn.counter_set in sets
                    and drawn.counters.keys() <= sets[drawn.counter_set].keys()
                    for drawn in device.consumes
                ):
                    return False
                self._fine.add((device, key))
        return True

    def forget(self) -> None:
        """Forget everything: it is computed again when needed."""
        self._fine.clear()


class PoolRecord:
    """One pool of a fleet; it never changes, its state is kept beside it.

    An `irregular` pool is being replaced, or contradicts itself: nodes that see it are always
    looked at one by one.
    """

    __slots__ = (
        "_nodes", "_pool", "content", "driver", "features", "home", "irregular", "name",
        "one_scope", "shape", "slices",
    )  # fmt: skip

    def __init__(
        self,
        key: PoolId,
        slices: tuple[Slice, ...],
        content: PoolContent,
        features: AllocationFeatures,
        *,
        irregular: bool,
        nodes: int,
    ) -> None:
        self.driver, self.name = key
        self.slices = slices
        self.content = content
        self.features = features
        self.irregular = irregular
        # A set of one is kept as the negative of its number and 1: bits of 100,000 nodes are long.
        self._nodes = 0
        self.nodes = nodes
        self.shape: PoolShape  # set by the caller that finds it
        homes = {each.node_scope.node for each in slices}
        self.home = homes.pop() if len(homes) == 1 else ""
        # Whether a node that can use one of its slices can use them all.
        self.one_scope = not any(
            each.per_device_scope or each.node_scope != slices[0].node_scope for each in slices
        )
        self._pool: Pool | None = None

    @property
    def nodes(self) -> int:
        """The bit set of nodes that see it."""
        return 1 << ~self._nodes if self._nodes < 0 else self._nodes

    @nodes.setter
    def nodes(self, nodes: int) -> None:
        is_one = nodes.bit_count() == 1
        self._nodes = ~(nodes.bit_length() - 1) if is_one else nodes

    @property
    def row(self) -> int:
        """The number of the node that alone sees it; -1: none does, or several do."""
        return ~self._nodes if self._nodes < 0 else -1

    @property
    def names(self) -> Names:
        """The names of its devices, in order."""
        return self.content.names

    @property
    def pool(self) -> Pool:
        """The pool with its offers; made when first asked for, since equal pools share a shape."""
        if self._pool is None:
            key = self.driver, self.name
            if self.irregular:
                why = self.content.why
                self._pool = Pool(
                    driver=self.driver,
                    name=self.name,
                    unusable=self.content.unusable if why else "incomplete",
                    why=why,
                )
            else:
                current = self.current
                self._pool = assembled(key, current, current, None, self.features)
        return self._pool

    def number_of(self, device: str) -> int:
        """Return the number of a device in the pool; KeyError if it has none of that name."""
        return self.content.numbers[device]

    def has(self, device: str) -> bool:
        """Return whether the pool publishes a device of that name."""
        return device in self.content.numbers

    @property
    def current(self) -> list[Slice]:
        """The slices of the newest generation, in order."""
        newest = max((each.generation for each in self.slices), default=0)
        return [each for each in self.slices if each.generation == newest]


class PoolPart:
    """A pool as one node sees it; `key` tells parts of one shape apart."""

    __slots__ = ("_part", "_record", "key", "visible")

    def __init__(
        self, record: PoolRecord, visible: int, key: object, part: Pool | None = None
    ) -> None:
        self._record = record
        self._part = part
        self.visible = visible
        self.key = key

    @property
    def pool(self) -> Pool:
        """The pool itself where all of it is seen."""
        return self._record.pool if self._part is None else self._part


class Pools:
    """All pools of a fleet, by number."""

    def __init__(self, features: AllocationFeatures, shapes: PoolShapes) -> None:
        self.features = features
        self.shapes = shapes
        self.records: list[PoolRecord] = []
        self._index: dict[PoolId, int] = {}
        self._seen: dict[int, list[int]] = {}
        # Pools by the one node that they are on, and all others.
        self._by_home: dict[str, set[int]] = {}
        self._homeless: set[int] = set()
        # The nodes that a node selector accepts, as long as no node changes.
        self._reaches: dict[bytes, int] = {}
        self._contents: dict[object, PoolContent] = {}
        self._numbers: dict[Names, dict[str, int]] = {}
        self._judged = JudgedDevices()
        self._parts: dict[tuple[PoolRecord, object], PoolPart] = {}

    @property
    def are_of_one_node(self) -> bool:
        """Whether every pool is on one node."""
        return not self._homeless

    def pool_number(self, driver: str, pool: str) -> int | None:
        """Return the number of a pool, None if there is none."""
        return self._index.get((driver, pool))

    def add_slices(
        self, slices: Iterable[Slice], nodes: Sequence[Node], number_of: Mapping[str, int]
    ) -> None:
        """Group slices into pools, and find out which nodes see them."""
        grouped: dict[PoolId, list[Slice]] = {}
        for each in slices:
            grouped.setdefault((each.driver, each.pool), []).append(each)
        self.shapes.look_at({each.devices for parts in grouped.values() for each in parts})
        for key in sorted(grouped):
            self.put_pool(key, grouped[key], nodes, number_of)

    def put_pool(
        self,
        key: PoolId,
        slices: Iterable[Slice],
        nodes: Sequence[Node],
        number_of: Mapping[str, int],
    ) -> int:
        """Add or replace one pool, now made of these slices; return its number."""
        parts = sorted(slices, key=lambda each: each.name)
        number = self._index.setdefault(key, len(self.records))
        if number < len(self.records):
            old = self.records[number]
            for position in bits(old.nodes):
                self._seen[position].remove(number)
            if old.home:
                self._by_home[old.home].discard(number)
        homes = {each.node_scope.node for each in parts}
        home = homes.pop() if len(homes) == 1 else ""
        if home:
            positions = [number_of[home]] if home in number_of else []
        else:
            seen = 0
            for each in parts:
                seen |= self._reach(each, nodes, number_of)
            positions = list(bits(seen))
        for position in positions:
            self._seen.setdefault(position, []).append(number)
        if home:
            self._by_home.setdefault(home, set()).add(number)
        if parts and not home:
            self._homeless.add(number)
        else:
            self._homeless.discard(number)
        record = self._record(key, parts, mask_of(positions))
        self._parts.clear()
        if number < len(self.records):
            self.records[number] = record
        else:
            self.records.append(record)
        return number

    def _reach(self, each: Slice, nodes: Sequence[Node], number_of: Mapping[str, int]) -> int:
        """Return the nodes that see a slice; those of equal selectors are worked out once."""
        selector = None if each.per_device_scope else each.node_scope.selector
        key = b"" if selector is None else orjson.dumps(selector)
        if not key or key not in self._reaches:
            found = mask_of(
                [number for number in number_of.values() if _sees_or_fails(each, nodes[number])]
            )
            if not key:
                return found
            if len(self._reaches) >= MOST_SELECTORS:
                self._reaches.clear()
            self._reaches[key] = found
        return self._reaches[key]

    def put_node(self, position: int, node: Node) -> None:
        """Find out which pools a new or changed node sees."""
        self.remove_node(position)
        for number in sorted(self._by_home.get(node.name, set()) | self._homeless):
            record = self.records[number]
            if record.home or any(_sees_or_fails(each, node) for each in record.slices):
                self._seen.setdefault(position, []).append(number)
                self._set_nodes(number, record.nodes | 1 << position)

    def remove_node(self, position: int) -> None:
        """Forget which pools a node sees."""
        self._reaches.clear()
        for number in self._seen.pop(position, ()):
            self._set_nodes(number, self.records[number].nodes & ~(1 << position))

    def _set_nodes(self, number: int, nodes: int) -> None:
        # Copies of a fleet share their records.
        record = self.records[number] = copy(self.records[number])
        record.nodes = nodes
        self._parts.clear()

    def _record(self, key: PoolId, parts: list[Slice], seen: int) -> PoolRecord:
        generation = max((each.generation for each in parts), default=0)
        current = tuple(each for each in parts if each.generation == generation)
        features = self.features
        content = self._content(current)
        whole = bool(parts) and len(current) == len(parts) == current[0].slice_count
        usable = whole and _all_known(parts, features) and _readable(parts)
        record = PoolRecord(
            key,
            tuple(parts),
            content,
            features,
            irregular=not usable or bool(content.unusable),
            nodes=seen,
        )
        if record.irregular:
            # Numbers are still needed for what is in use in it.
            offers = tuple(
                Offer(DeviceId(*key, device.name), device, each, here=False)
                for each in current
                for device in each.devices
            )
            pool = Pool(driver=key[0], name=key[1], offers=_plain(offers))
            record.shape = PoolShape(pool, features)
        else:
            record.shape = self._shape(record)
        return record

    def _shape(self, record: PoolRecord) -> PoolShape:
        return self.shapes.shape(
            record.driver, record.current, record.content.counter_sets, lambda: record.pool
        )

    def _content(self, current: tuple[Slice, ...]) -> PoolContent:
        # Equal lists of devices or counters are one object each (V1Reader).
        key = tuple(
            (each.devices, id(each.counter_sets), each.per_device_scope) for each in current
        )
        found = self._contents.get(key)
        if found is None:
            if len(self._contents) >= MOST_CONTENTS:
                self._contents.clear()
                self._numbers.clear()
                self._judged.forget()
            found = self._contents[key] = PoolContent(
                current, self.features, self._numbers, self._judged
            )
        return found

    def reshape(self) -> None:
        """Find all shapes anew, because selectors read more."""
        for number, record in enumerate(self.records):
            if not record.irregular and (shape := self._shape(record)) is not record.shape:
                self.records[number] = copy(record)
                self.records[number].shape = shape

    def copied(self) -> "Pools":
        """Return the same pools, for a copy of the fleet that may re-shape them on its own."""
        other = copy(self)
        other.records = self.records.copy()
        other._index = self._index.copy()  # noqa: SLF001 - a copy of oneself
        other._seen = {node: seen.copy() for node, seen in self._seen.items()}  # noqa: SLF001
        other._by_home = {name: known.copy() for name, known in self._by_home.items()}  # noqa: SLF001
        other._homeless = self._homeless.copy()  # noqa: SLF001
        other._reaches = {}  # noqa: SLF001
        return other

    def seen_by(self, number: int, node: Node) -> tuple[int, ...]:
        """Return the pools that a node sees, in the order of the search."""
        found = self._seen.get(number, [])
        if len(found) < 2:
            return tuple(found)
        binding = self.features.binding_conditions

        def order(each: int) -> tuple[bool, str, str]:
            # By driver and name, those that wait for conditions last.
            record = self.records[each]
            return binding and self._waits(record, node), record.driver, record.name

        return tuple(sorted(found, key=order))

    def _waits(self, record: PoolRecord, node: Node) -> bool:
        if not record.content.waits:
            return False
        return waits(record.pool) and waits(self.part(record, node).pool)

    def part(self, record: PoolRecord, node: Node) -> PoolPart:
        """Return a pool as a node sees it."""
        if record.home:
            # A pool of one node is visible only to that node.
            return PoolPart(record, record.shape.everything, ())
        # Large pools are seen alike by most nodes: one part for all of them.
        flags = self._flags(record, node)
        found = self._parts.get((record, flags))
        if found is None:
            found = self._parts[record, flags] = self._part(record, flags, node)
        return found

    @staticmethod
    def _flags(record: PoolRecord, node: Node) -> tuple[tuple[bool, ...] | bool, ...]:
        """Return which slices, or devices of them, a node that sees a pool can use."""
        if record.one_scope:
            return (True,)
        return tuple(
            tuple(device.node_scope.accepts(node) for device in each.devices)
            if each.per_device_scope
            else each.node_scope.accepts(node)
            for each in record.current
        )

    @staticmethod
    def _part(
        record: PoolRecord, flags: tuple[tuple[bool, ...] | bool, ...], node: Node
    ) -> PoolPart:
        pool = record.pool
        offers = []
        visible = 0
        reaches = []
        for number, offer in enumerate(pool.offers):
            each = offer.slice
            node_scope = each.scope_of(offer.device)
            here = node_scope.accepts(node)
            offers.append(offer._replace(here=here))
            if here or (each.per_device_scope and each.is_seen_from(node)):
                visible |= 1 << number
            reaches.append(repr(node_scope.selector))
        part = Pool(
            driver=pool.driver,
            name=pool.name,
            offers=tuple(offers),
            counter_sets=pool.counter_sets,
            consuming=pool.consuming,
        )
        return PoolPart(record, visible, (flags, tuple(reaches)), part)

    def view(self, node: Node, slices: Iterable[Slice]) -> PoolView:
        """Return what a node sees, by the rules that hold for pools in transition too."""
        return SliceCatalog(slices).view(node, self.features)


def _plain(offers: tuple[Offer, ...]) -> tuple[Offer, ...]:
    """Return offers without counters: an irregular pool may name counters that do not exist."""
    return tuple(
        offer._replace(
            device=Device(
                name=offer.device.name,
                driver=offer.device.driver,
                capacity=offer.device.capacity,
                capacity_names=offer.device.capacity_names,
                shareable=offer.device.shareable,
            )
        )
        for offer in offers
    )


def _all_known(parts: Sequence[Slice], features: AllocationFeatures) -> bool:
    if any(each.skip_node_operations for each in parts):
        return False  # which nodes may use them is for each of them to declare
    if features.partitionable_devices and features.compatibility_groups:
        return True
    return not any(
        each.per_device_scope
        or each.counter_sets
        or any(drawn.groups for device in each.devices for drawn in device.consumes)
        for each in parts
    )


def _sees_or_fails(each: Slice, node: Node) -> bool:
    """Nodes for which this is uncertain are checked one by one, and report it then."""
    try:
        return each.is_seen_from(node)
    except SelectorError:
        return True


def _readable(parts: Sequence[Slice]) -> bool:
    """Return whether all node selectors of a pool can be read."""
    nobody = Node("")
    try:
        for each in parts:
            each.is_seen_from(nobody)
    except SelectorError:
        return False
    return True
