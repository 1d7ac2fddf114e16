"""Pools as one node sees them: which slices count, which pools are complete, and in which order.

Source of the rules: k8s.io/dynamic-resource-allocation `structured`, GatherPools; reference
behaviour of Kubernetes 1.36 and 1.37.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import chain, repeat
from typing import Literal, NamedTuple

from dralab.allocation.facts import PoolUnusable
from dralab.allocation.problem import AllocationFeatures, Device, DeviceId, Node, Slice
from dralab.values.quantity import Number
from dralab.values.records import dataclass

PoolId = tuple[str, str]


class Offer(NamedTuple):
    """A device as a node sees it; `here`: the node is among those that can use the device."""

    id: DeviceId
    device: Device
    slice: Slice
    here: bool


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pool:
    """One generation of a pool; `offers` only if it is complete and consistent.

    `consuming` are all its devices, those for other nodes too: what they hold counts against the
    counters of the pool.
    """

    driver: str
    name: str
    unusable: Literal["", "incomplete", "invalid"] = ""
    why: str = ""
    offers: tuple[Offer, ...] = ()
    counter_sets: Mapping[str, Mapping[str, Number]] = field(default_factory=dict)
    consuming: tuple[Device, ...] = ()

    @property
    def id(self) -> PoolId:
        """Driver and name: names alone collide, as drivers like to name pools after the node."""
        return self.driver, self.name


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PoolView:
    """Everything that one node sees, in the order of the search.

    Order: pools by driver and name, those with binding conditions last; in a pool slices by name;
    in a slice devices as published.
    """

    node: Node
    pools: tuple[Pool, ...]
    unusable: tuple[PoolUnusable, ...] = ()

    def offers(self) -> list[Offer]:
        """Return the devices of all usable pools, in the order of the search."""
        return list(chain.from_iterable(pool.offers for pool in self.pools))


class SliceCatalog:
    """Slices, found by node and by pool."""

    def __init__(self, slices: Iterable[Slice]) -> None:
        self.by_node: dict[str, list[Slice]] = {}
        self.elsewhere: list[Slice] = []
        self.by_pool: dict[PoolId, list[Slice]] = {}
        for each in slices:
            self.by_pool.setdefault((each.driver, each.pool), []).append(each)
            if each.node_scope.node:
                self.by_node.setdefault(each.node_scope.node, []).append(each)
            else:
                self.elsewhere.append(each)

    def view(self, node: Node, features: AllocationFeatures) -> PoolView:
        """Return the pools that a node sees."""
        seen: dict[PoolId, list[Slice]] = {}
        for each in chain(self.by_node.get(node.name, ()), self.elsewhere):
            if known(each, features) and each.is_seen_from(node):
                seen.setdefault((each.driver, each.pool), []).append(each)
        pools: list[Pool] = []
        unusable: list[PoolUnusable] = []
        for key in sorted(seen):
            pool = self._pool(key, seen[key], node, features)
            if pool is None:
                unusable.append(PoolUnusable(*key, "obsolete"))
                continue
            pools.append(pool)
            if pool.unusable:
                unusable.append(PoolUnusable(*key, pool.unusable, pool.why))
        if features.binding_conditions:
            # Stable: both halves stay sorted.
            pools.sort(key=waits)
        return PoolView(node=node, pools=tuple(pools), unusable=tuple(unusable))

    def _pool(
        self, key: PoolId, seen: list[Slice], node: Node, features: AllocationFeatures
    ) -> Pool | None:
        """Return a pool, or None if a newer generation for other nodes made it obsolete."""
        generation = max(each.generation for each in seen)
        here = sorted(
            (each for each in seen if each.generation == generation), key=lambda each: each.name
        )
        everything = here
        if len(here) != here[0].slice_count:
            # All slices count here, also those that this cluster's features skip as candidates.
            cluster = [each for each in self.by_pool[key] if _readable(each, features)]
            if any(each.generation > generation for each in cluster):
                return None
            everything = [each for each in cluster if each.generation == generation]
            if len(everything) != here[0].slice_count:
                return Pool(
                    driver=key[0],
                    name=key[1],
                    unusable="incomplete",
                    why=f"{len(everything)} of {here[0].slice_count} slices of generation "
                    f"{generation} are there",
                )
        return assembled(key, here, everything, node, features)


def known(each: Slice, features: AllocationFeatures) -> bool:
    """Return whether this cluster's features let a slice be looked at at all."""
    if not features.partitionable_devices and (each.per_device_scope or each.counter_sets):
        return False
    return _readable(each, features)


def _readable(each: Slice, features: AllocationFeatures) -> bool:
    # KEP-5963 as implemented: without the feature such a slice is not there, and its pool is
    # never whole.
    return features.compatibility_groups or not any(
        drawn.groups for device in each.devices for drawn in device.consumes
    )


def assembled(
    key: PoolId,
    here: Sequence[Slice],
    everything: Sequence[Slice],
    node: Node | None,
    features: AllocationFeatures,
) -> Pool:
    """Combine the slices of a complete pool, and look for contradictions.

    Without a node all devices count as being where they are wanted.
    """
    counter_sets: dict[str, Mapping[str, Number]] = {}
    problems: list[str] = []
    for each in everything:
        for published in each.counter_sets:
            if published.name in counter_sets:
                problems.append(f"duplicate counter set {published.name}")
            counter_sets[published.name] = published.counters
    offers: list[Offer] = []
    for each in here:
        devices = each.devices
        ids = [DeviceId._make((*key, device.name)) for device in devices]
        # Slices that reach the node as a whole need no look at each device.
        fits = node is None or node.skips_operations or not each.skip_node_operations
        reaching = (
            [device.node_scope.accepts(node) for device in devices]
            if fits and each.per_device_scope and node is not None
            else [fits] * len(devices)
        )
        offers += map(Offer._make, zip(ids, devices, repeat(each), reaching, strict=False))
    if len({offer.id for offer in offers}) < len(offers):
        problems += _twice(offers)
    if features.partitionable_devices:
        for each in everything:
            for device in each.devices:
                for drawn in device.consumes:
                    counters = counter_sets.get(drawn.counter_set)
                    if counters is None or not drawn.counters.keys() <= counters.keys():
                        problems += _dangling(device, counter_sets)
                        break
    if problems:
        return Pool(driver=key[0], name=key[1], unusable="invalid", why="; ".join(problems[:3]))
    return Pool(
        driver=key[0],
        name=key[1],
        offers=tuple(offers),
        counter_sets=counter_sets,
        consuming=tuple(chain.from_iterable(each.devices for each in everything)),
    )


def _twice(offers: Sequence[Offer]) -> Iterator[str]:
    seen: set[DeviceId] = set()
    for offer in offers:
        if offer.id in seen:
            yield f"duplicate device {offer.device.name}"
        seen.add(offer.id)


def _dangling(device: Device, counter_sets: Mapping[str, Mapping[str, Number]]) -> list[str]:
    problems = []
    for drawn in device.consumes:
        counters = counter_sets.get(drawn.counter_set)
        if counters is None:
            problems.append(
                f"device {device.name} draws on counter set {drawn.counter_set}, which is not there"
            )
            continue
        problems += [
            f"device {device.name} draws on counter {drawn.counter_set}/{name}, which is not there"
            for name in drawn.counters
            if name not in counters
        ]
    return problems


def waits(pool: Pool) -> bool:
    """Return whether some device of a pool is bound only under conditions."""
    return any(offer.here and offer.device.binding_conditions for offer in pool.offers)
