"""Devices and nodes that are alike for some claims: they differ in nothing that the claims read.

A fleet of forty equal nodes has a serial number on every GPU. No selector reads it, so all of them
are one kind of device, and nodes with equal numbers of equal devices in equal use are one group.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from dralab.allocation.pools import Offer, Pool, PoolView
from dralab.allocation.problem import (
    Device,
    DeviceId,
    DevicePath,
    DeviceSelector,
    DeviceSelectorError,
    InUse,
    Problem,
)
from dralab.allocation.selectors import projection


@dataclass(slots=True)
class DeviceKind:
    """Devices that are alike, `device` among them; `nodes` has a node for each of `ids`.

    A device that several nodes reach has the first of them.
    """

    number: int
    device: Device
    ids: list[DeviceId] = field(default_factory=list)
    nodes: list[str] = field(default_factory=list)

    def free(self, in_use: InUse) -> list[int]:
        """Return the positions of the devices that nobody holds."""
        held = in_use.holders.keys() | in_use.devices()
        return [number for number, each in enumerate(self.ids) if each not in held]


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
        self.asks = (frozenset(reads), tuple(self._constrained), self._amounts)
        """What is read at all: problems that read the same see the same kinds."""
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[int, int] = {}
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
            tuple(device.attributes.get(name) for name in self._constrained),
            amounts,
            device.shareable,
            device.taints,
            device.binding_conditions,
            device.problem,
            tuple(
                (tuple(sorted(drawn.counters.items())), drawn.groups) for drawn in device.consumes
            ),
        )


class Uses:
    """What is in use, found by pool: a node needs a few of thousands."""

    def __init__(self, in_use: InUse) -> None:
        self.in_use = in_use
        self.held = in_use.devices()
        self.by_pool: dict[tuple[str, str], set[DeviceId]] = {}
        for device in self.held:
            self.by_pool.setdefault((device.driver, device.pool), set()).add(device)

    def use_of(self, device: DeviceId) -> Hashable:
        """Return how a device is used, whoever uses it."""
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


class AlikeNodes:
    """Nodes that are alike, one of which is asked for all; `in_use` is what matters on that one."""

    def __init__(self, views: list[PoolView], in_use: InUse) -> None:
        self.views = views
        self.view = views[0]
        self.in_use = in_use
        self.free = sum(
            offer.here and offer.id not in in_use.exclusive for offer in self.view.offers()
        )

        self._held: list[list[tuple[int, tuple[str, ...]]]] = []

    @property
    def names(self) -> list[str]:
        """The names of the nodes."""
        return [view.node.name for view in self.views]

    def held(self, likeness: Likeness, in_use: InUse) -> list[list[tuple[int, tuple[str, ...]]]]:
        """Return, node by node, the kinds of the devices that are held, and by whom."""
        if not self._held:
            holders = in_use.holders
            self._held = [
                [
                    (likeness.number(offer.device), holders[offer.id])
                    for pool in view.pools
                    for offer in pool.offers
                    if offer.id in holders
                ]
                for view in self.views
            ]
        return self._held


def groups_of(views: Sequence[PoolView], likeness: Likeness, in_use: InUse) -> list[AlikeNodes]:
    """Return nodes in groups, those with the most free devices first: a "yes" is found sooner."""
    uses = Uses(in_use)
    for view in views:
        for pool in view.pools:
            for offer in pool.offers:
                likeness.number(offer.device)
    ordered = likeness.has_errors()
    alike: dict[Hashable, list[PoolView]] = {}
    for view in views:
        alike.setdefault(_looks(view, likeness, uses, ordered=ordered), []).append(view)
    places = [AlikeNodes(members, uses.on(members[0])) for members in alike.values()]
    return sorted(places, key=lambda place: -place.free)


def kinds_of(views: Sequence[PoolView], likeness: Likeness) -> list[DeviceKind]:
    """Return all devices that nodes can use, by kind; a device that several reach counts once."""
    found: dict[int, DeviceKind] = {}
    seen: set[DeviceId] = set()
    for view in views:
        for offer in _here(view):
            if offer.slice.node_scope.node == "":
                if offer.id in seen:
                    continue
                seen.add(offer.id)
            number = likeness.number(offer.device)
            kind = found.get(number)
            if kind is None:
                kind = found[number] = DeviceKind(number, offer.device)
            kind.ids.append(offer.id)
            kind.nodes.append(view.node.name)
    return list(found.values())


def _here(view: PoolView) -> Iterator[Offer]:
    for pool in view.pools:
        for offer in pool.offers:
            if offer.here:
                yield offer


def _selectors(problem: Problem) -> list[DeviceSelector]:
    found = []
    for claim in problem.claims:
        for request in claim.requests:
            for subrequest in request.subrequests:
                of_class = problem.classes.get(subrequest.class_name)
                both = (*(of_class.selectors if of_class else ()), *subrequest.selectors)
                found += [each for each in both if each is not None]
    return found


def _looks(view: PoolView, likeness: Likeness, uses: Uses, *, ordered: bool) -> Hashable:
    """Return what a node looks like to the claims: equal looks, equal answers.

    A pool whose devices serve different nodes is itself part of the look: devices elsewhere draw
    on its counters.
    """
    return tuple(_pool_looks(pool, likeness, uses, ordered=ordered) for pool in view.pools) + tuple(
        (item.driver, item.why) for item in view.unusable
    )


def _pool_looks(pool: Pool, likeness: Likeness, uses: Uses, *, ordered: bool) -> Hashable:
    items = [
        likeness.intern(
            (
                likeness.number(offer.device),
                offer.here,
                uses.use_of(offer.id),
                offer.slice.skip_node_operations,
            )
        )
        for offer in pool.offers
    ]
    several = any(len(offer.device.consumes) > 1 for offer in pool.offers)
    contents: Hashable
    if ordered or several:
        names = tuple(
            tuple(drawn.counter_set for drawn in offer.device.consumes) for offer in pool.offers
        )
        sets = tuple(
            (name, tuple(sorted(counters.items())))
            for name, counters in sorted(pool.counter_sets.items())
        )
        contents = (tuple(items), names, sets)
    else:
        by_set: dict[str, list[int]] = {}
        for item, offer in zip(items, pool.offers, strict=True):
            name = offer.device.consumes[0].counter_set if offer.device.consumes else ""
            by_set.setdefault(name, []).append(item)
        contents = tuple(
            sorted(
                likeness.intern(
                    (tuple(sorted(pool.counter_sets.get(name, {}).items())), tuple(sorted(members)))
                )
                for name, members in by_set.items()
            )
        )
    elsewhere = len(pool.consuming) != len(pool.offers)
    shared = pool.id if elsewhere or any(not offer.here for offer in pool.offers) else None
    return pool.driver, pool.unusable, contents, shared
