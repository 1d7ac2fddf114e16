"""Nodes and devices that are alike for a problem: one is asked for all of them."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field
from heapq import nsmallest
from operator import itemgetter

from dralab.allocation.pools import Offer, Pool
from dralab.allocation.problem import Device, DeviceId, InUse
from dralab.explanation.likeness import (
    Likeness,
    NodeClass,
    NodeViews,
    PoolKinds,
    Uses,
    node_classes,
)
from dralab.values.records import dataclass


@dataclass(slots=True)
class DeviceKind:
    """Devices that are alike, `device` among them: `count` of them, `free` of which are not in use.

    `offers` are those of the first node of each class of nodes. A device that several nodes reach
    counts once, with the first of them.
    """

    number: int
    device: Device
    count: int = 0
    free: int = 0
    offers: list[tuple[NodeClass, DeviceId]] = field(default_factory=list)

    def examples(self, order: Mapping[str, int], most: int) -> list[tuple[DeviceId, str]]:
        """Return the first of the devices, each with its node; `order` is that of the nodes."""
        found = (
            (order[node], number, known.counterpart(device, member), node)
            for number, (known, device) in enumerate(self.offers)
            for member, node in enumerate(known.nodes[:most])
        )
        return [(device, node) for _, _, device, node in nsmallest(most, found)]


class AlikeNodes:
    """Equivalent nodes, one of which represents all; `in_use` is that one's."""

    def __init__(self, classes: Sequence[NodeClass], in_use: InUse, names: list[str]) -> None:
        self.classes = classes
        self.view = classes[0].view
        self.in_use = in_use
        self.names = names
        offers = self.view.offers()
        self.free = sum(offer.here and offer.id not in in_use.exclusive for offer in offers)
        # Shared devices may serve more than one request.
        self.shares = any(offer.device.shareable for offer in offers)
        self._held: list[list[tuple[int, tuple[str, ...]]]] = []

    @property
    def size(self) -> int:
        """How many nodes there are."""
        return len(self.names)

    def held(self, likeness: Likeness, uses: Uses) -> list[list[tuple[int, tuple[str, ...]]]]:
        """Return, node by node, the kinds of the devices that are held, and by whom.

        The node that is asked for all comes first.
        """
        if not self._held:
            self._held = [
                found for each in self.classes for found in _held_of(each, likeness, uses)
            ]
        return self._held


def _held_of(
    nodes: NodeClass, likeness: Likeness, uses: Uses
) -> Iterator[list[tuple[int, tuple[str, ...]]]]:
    places: dict[tuple[int, str], tuple[int, int]] = {}
    for pool in nodes.example.view.pools:
        at = nodes.example.pools[0].index(pool.id)
        for number, offer in zip(likeness.kinds_of(pool).numbers, pool.offers, strict=True):
            places[at, offer.id.device] = len(places), number
    for pools in nodes.pools:
        found = [
            (*places[at, device.device], holders)
            for at, pool in enumerate(pools)
            for device, holders in uses.holders_by_pool.get(pool, {}).items()
            if (at, device.device) in places
        ]
        yield [(number, holders) for _, number, holders in sorted(found)]


def groups_of(views: NodeViews, likeness: Likeness, uses: Uses) -> list[AlikeNodes]:
    """Return nodes in groups, those with the most free devices first: a "yes" is found sooner."""
    classes = node_classes(views, likeness, uses)
    for each in classes:
        if each.example is each:
            for pool in each.view.pools:
                likeness.kinds_of(pool)
    ordered = likeness.has_errors()
    alike: dict[Hashable, list[NodeClass]] = {}
    for each in classes:
        alike.setdefault(_looks(each, likeness, uses, ordered=ordered), []).append(each)
    places = []
    for members in alike.values():
        names = [name for each in members for name in each.nodes]
        if len(members) > 1:
            names.sort(key=views.order.__getitem__)
        places.append(AlikeNodes(members, uses.on(members[0].view), names))
    return sorted(places, key=lambda place: -place.free)


def kinds_of(views: NodeViews, likeness: Likeness, held: AbstractSet[DeviceId]) -> list[DeviceKind]:
    """Return all devices that nodes can use, by kind; a device that several reach counts once."""
    found: dict[int, DeviceKind] = {}
    seen: set[DeviceId] = set()
    by_pool: dict[tuple[str, str], list[str]] = {}
    for device in held:
        by_pool.setdefault((device.driver, device.pool), []).append(device.device)
    for each in node_classes(views, likeness):
        numbers: dict[tuple[int, str], int] = {}
        for at, number, offer in _here(each, likeness):
            if offer.slice.node_scope.node == "":
                if offer.id in seen:
                    continue
                seen.add(offer.id)
            numbers[at, offer.id.device] = number
            kind = found.get(number)
            if kind is None:
                kind = found[number] = DeviceKind(number, offer.device)
            kind.offers.append((each, offer.id))
            kind.count += len(each.nodes)
            kind.free += len(each.nodes)
        for pools in each.pools:
            for at, pool in enumerate(pools):
                for name in by_pool.get(pool, ()):
                    if (at, name) in numbers:
                        found[numbers[at, name]].free -= 1
    return list(found.values())


def _here(nodes: NodeClass, likeness: Likeness) -> Iterator[tuple[int, int, Offer]]:
    """Yield the devices that the first node of a class can use: pool, kind and offer."""
    for pool in nodes.view.pools:
        at = nodes.pools[0].index(pool.id)
        for number, offer in zip(likeness.kinds_of(pool).numbers, pool.offers, strict=True):
            if offer.here:
                yield at, number, offer


def _looks(nodes: NodeClass, likeness: Likeness, uses: Uses, *, ordered: bool) -> Hashable:
    """Return what the claims see of nodes: equal looks, equal answers.

    A pool whose devices serve different nodes is itself part of the look: devices elsewhere draw
    on its counters.
    """
    # Nodes of one shape are looked at by the example of one of them, with their own uses.
    view, pools = nodes.example.view, nodes.example.pools[0]
    used: dict[int, dict[str, Hashable]] = {}
    if nodes.used is None:
        used = {
            at: {device.device: uses.use_of(device) for device in uses.by_pool.get(pool, ())}
            for at, pool in enumerate(pools)
        }
    else:
        for at, name, use in nodes.used:
            used.setdefault(at, {})[name] = use
    return tuple(
        _pool_looks(pool, likeness, used.get(pools.index(pool.id), {}), ordered=ordered)
        for pool in view.pools
    ) + tuple((item.driver, item.why) for item in view.unusable)


def _pool_looks(
    pool: Pool, likeness: Likeness, used: Mapping[str, Hashable], *, ordered: bool
) -> Hashable:
    kinds = likeness.kinds_of(pool)
    contents: Hashable
    if ordered or kinds.groups is None:
        items = [
            likeness.intern((item, used[offer.device.name])) if offer.device.name in used else item
            for item, offer in zip(kinds.items, pool.offers, strict=True)
        ]
        names = tuple(
            tuple(drawn.counter_set for drawn in offer.device.consumes) for offer in pool.offers
        )
        sets = tuple(
            (name, tuple(sorted(counters.items())))
            for name, counters in sorted(pool.counter_sets.items())
        )
        contents = (tuple(items), names, sets)
    else:
        contents = tuple(sorted(_group_looks(kinds, likeness, used)))
    elsewhere = len(pool.consuming) != len(pool.offers)
    shared = pool.id if elsewhere or any(not offer.here for offer in pool.offers) else None
    return pool.driver, pool.unusable, contents, shared


def _group_looks(
    kinds: PoolKinds, likeness: Likeness, used: Mapping[str, Hashable]
) -> Iterator[int]:
    """Yield a number for each group of devices and how they are used; each use is met once."""
    parts: dict[int, list[tuple[int, Hashable]]] = {}
    for name, use in used.items():
        at = kinds.places.get(name)
        if at is not None:
            parts.setdefault(kinds.group_of[at], []).append((at, use))
    for number, (counters, positions) in enumerate(kinds.groups or ()):
        part = tuple(sorted(parts.get(number, ()), key=itemgetter(0)))
        known = kinds.looks.get((number, part))
        if known is None:
            uses = dict(part)
            items = [
                likeness.intern((kinds.items[at], uses[at])) if at in uses else kinds.items[at]
                for at in positions
            ]
            known = likeness.intern((counters, tuple(sorted(items))))
            kinds.looks[number, part] = known
        yield known
