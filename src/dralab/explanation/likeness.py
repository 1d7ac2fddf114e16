"""`Likeness`: devices are alike for some claims if they differ in nothing that the claims read."""

from collections.abc import Hashable
from dataclasses import dataclass, field

from dralab.allocation.pools import Pool
from dralab.allocation.problem import (
    Device,
    DevicePath,
    DeviceSelector,
    DeviceSelectorError,
    Problem,
    Slice,
)
from dralab.allocation.selectors import projection


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
        asked = [
            subrequest
            for claim in problem.claims
            for request in claim.requests
            for subrequest in request.subrequests
        ]
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
        """Return the kinds of the devices of a pool, found out once."""
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
    for claim in problem.claims:
        for request in claim.requests:
            for subrequest in request.subrequests:
                of_class = problem.classes.get(subrequest.class_name)
                both = (*(of_class.selectors if of_class else ()), *subrequest.selectors)
                found += [each for each in both if each is not None]
    return found
