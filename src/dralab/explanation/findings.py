"""The findings of each request on a node: which devices were excluded, and why.

The order of the reasons is the one in which a person would ask: is there such a device at all,
does it suit, is it free, is there enough of it left; then, for what could each serve alone: is
there enough for all together. Everything is counted; nothing is decided here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import inf
from typing import Final

from dralab.allocation.facts import (
    ConstraintOffers,
    CounterShortage,
    Excluded,
    Fact,
    RequestFacts,
    Shortage,
    TooManyDevices,
)
from dralab.allocation.pools import PoolView
from dralab.allocation.problem import (
    Attribute,
    Constraint,
    DeviceId,
    DeviceSelectorError,
    InUse,
    Problem,
)
from dralab.allocation.search.alternatives import Alternative, RefusedError, alternatives_of
from dralab.allocation.search.eligibility import Eligibility, SearchError, selector_sentence
from dralab.allocation.search.matching import Shortfall, matched
from dralab.allocation.search.node_devices import DeviceState, NodeDevices, bits
from dralab.values.quantity import Number
from dralab.values.records import dataclass

MOST_OFFERS: Final = 8
UNDECLARED: Final = "node operations to skip, which the node does not declare"
"""How many values of a constraint are told."""


@dataclass(frozen=True, slots=True, eq=False)
class NodeFindings:
    """The facts of one node, and the devices that could serve each alternative alone."""

    facts: tuple[Fact, ...]
    eligible: tuple[tuple[Alternative, int], ...]
    """(alternative, bit set of devices)"""
    node_devices: NodeDevices


def findings(problem: Problem, view: PoolView) -> NodeFindings:
    """Return all reasons against a problem on one node."""
    node_devices = NodeDevices(view, problem.features)
    looking = _FactCollector(problem, node_devices)
    facts: list[Fact] = list(view.unusable)
    eligible: list[tuple[Alternative, int]] = []
    for position, claim in enumerate(problem.claims):
        for number in range(len(claim.requests)):
            try:
                alternatives = list(
                    alternatives_of(
                        claim, position, number, classes=problem.classes, features=problem.features
                    )
                )
            except RefusedError as error:
                facts.append(error.fact)
                continue
            for alternative in alternatives:
                fact, mask = looking.request(alternative)
                facts.append(fact)
                eligible.append((alternative, mask))
    return NodeFindings((*facts, *looking.together(eligible)), tuple(eligible), node_devices)


def reason_against(
    found: NodeFindings, problem: Problem, alternative: Alternative, number: int
) -> Excluded | None:
    """Return the reason that a device cannot serve an alternative; None if it can."""
    return _FactCollector(problem, found.node_devices).against(alternative, number)


def against_each(
    problem: Problem, view: PoolView, alternatives: Sequence[Alternative]
) -> Iterator[tuple[DeviceId, list[Excluded | None]]]:
    """Yield the devices of a node, each with the reason against it for each alternative."""
    looking = _FactCollector(problem, NodeDevices(view, problem.features))
    for number, offer in enumerate(looking.node_devices.offers):
        yield offer.id, [looking.against(each, number) for each in alternatives]


class _FactCollector:
    def __init__(self, problem: Problem, node_devices: NodeDevices) -> None:
        self.problem = problem
        self.node_devices = node_devices
        self.eligibility = Eligibility(node_devices)
        self.in_use: InUse = problem.in_use
        self.start: DeviceState = node_devices.state(problem.in_use)

    # --- one request

    def request(self, alternative: Alternative) -> tuple[RequestFacts, int]:
        """Count the devices of a node for one alternative."""
        excluded: dict[tuple[object, ...], Excluded] = {}
        mask = 0
        suitable = 0
        for number in range(len(self.node_devices.offers)):
            why = self.against(alternative, number)
            if why is None:
                mask |= 1 << number
                suitable += 1
                continue
            suitable += why.why in {"in-use", "taint", "counters", "groups"}
            key = (why.why, why.where, why.index, why.detail, why.taint)
            before = excluded.get(key)
            excluded[key] = why if before is None else _both(before, why)
        facts = RequestFacts(
            claim=str(self.problem.claims[alternative.claim]),
            request=alternative.name,
            # All wants what is there, and at least one device.
            wanted=max(suitable, 1) if alternative.all else alternative.count,
            devices=len(self.node_devices.offers),
            eligible=mask.bit_count(),
            excluded=tuple(sorted(excluded.values(), key=lambda item: -item.count)),
        )
        return facts, mask

    def against(self, alternative: Alternative, number: int) -> Excluded | None:
        """Return the first reason against a device, None where it could serve the request."""
        offer = self.node_devices.offers[number]
        device = offer.device
        here = Excluded("node", 1, offer.id)
        no = partial(replace, here)
        if not offer.here:
            skips = offer.slice.skip_node_operations
            if skips and not self.node_devices.view.node.skips_operations:
                return no(why="feature", detail=UNDECLARED)
            return here
        if device.binding_conditions and not self.problem.features.binding_conditions:
            return no(why="feature", detail="binding conditions")
        for where, index, selector in alternative.conditions:
            refused = partial(no, where=where, index=index, detail=selector.text)
            try:
                if not selector.matches(device):
                    return refused(why="selector")
            except DeviceSelectorError as error:
                text = selector_sentence(where, index, str(offer.id), error)
                return refused(why="error", error=text)
        if not self.eligibility.offered(number):
            detail = "counters" if device.consumes else "node operations to skip"
            return no(why="feature", detail=detail)
        return self._left(alternative, number, here) or self._constrained(alternative, number, here)

    def _left(self, alternative: Alternative, number: int, here: Excluded) -> Excluded | None:
        amounts = self.eligibility.amounts(alternative, number)
        if amounts is None:
            return self._too_small(alternative, number, here)
        device, bit = self.node_devices.offers[number].device, 1 << number
        held = partial(replace, here, holders=self.in_use.holders.get(here.example, ()))
        if not alternative.admin and self.start.used & bit:
            return held(why="in-use")
        untolerated = self.eligibility.untolerated(alternative, number)
        if untolerated is not None and self.problem.features.device_taints:
            return replace(here, why="taint", taint=device.taints[untolerated])
        shared = bool(self.node_devices.shareable & bit)
        taken = amounts if shared else None
        if (
            alternative.admin
            or self.node_devices.take_device(self.start, number, taken) is not None
        ):
            return None
        if shared and number in self.start.room:
            room = self.start.room[number]
            for name, have, want in zip(device.capacity, room, amounts, strict=True):
                if want > have:
                    return held(why="capacity", detail=name, needed=want, offered=have)
        return self._overdrawn(number, here)

    def _too_small(self, alternative: Alternative, number: int, here: Excluded) -> Excluded:
        device = self.node_devices.offers[number].device
        known = {device.written(name): item for name, item in device.capacity.items()}
        fractional = self.problem.features.fractional_ranges
        no = partial(replace, here, why="capacity")
        for name, asked in alternative.subrequest.capacity.items():
            item = known.get(name)
            if item is None:
                return no(detail=name, needed=asked)
            amount = item.policy.amount(asked, item.value, fractional=fractional)
            if amount is None or amount > item.value:
                return no(detail=name, needed=asked, offered=item.value)
        return no()

    def _overdrawn(self, number: int, here: Excluded) -> Excluded:
        consumption = self.node_devices.consumptions[number]
        if consumption is None:
            return replace(here, why="in-use", holders=self.in_use.holders.get(here.example, ()))
        counter_group = self.node_devices.counter_groups[consumption.counter_group]
        remaining = self.start.remaining[consumption.counter_group]
        no = partial(replace, here, holders=self._holders_of(consumption.counter_group))
        for position, amount in consumption.amounts:
            have, name = remaining.counters[position], "/".join(counter_group.counters[position])
            if have < amount:
                return no(why="counters", detail=name, needed=amount, offered=have)
        return no(why="groups", detail=counter_group.sets[consumption.groups[0][0]])

    def _holders_of(self, counter_group: int) -> tuple[str, ...]:
        """Return the holders of devices that draw on a counter group, on other nodes too."""
        pool = self.node_devices.view.pools[self.node_devices.counter_groups[counter_group].pool]
        sets = set(self.node_devices.counter_groups[counter_group].sets)
        names = {
            name
            for device in pool.consuming
            if sets.intersection(drawn.counter_set for drawn in device.consumes)
            for name in self.in_use.holders.get((pool.driver, pool.name, device.name), ())  # type: ignore[call-overload]  # a DeviceId is this tuple
        }
        return tuple(sorted(names))

    def _constrained(
        self, alternative: Alternative, number: int, here: Excluded
    ) -> Excluded | None:
        for rule in self.problem.claims[alternative.claim].constraints:
            if rule.kind not in {"match", "distinct"} or not rule.covers(alternative.name):
                continue
            no = partial(replace, here, detail=rule.name)
            try:
                if self.eligibility.values(alternative, number, rule.name) is None:
                    return no(why="attribute")
            except SearchError as error:
                return no(why="error", where="derived attribute", error=str(error))
        return None

    # --- all requests together

    def together(self, eligible: Sequence[tuple[Alternative, int]]) -> Iterator[Fact]:
        """Yield what is insufficient only for several devices together."""
        certain = [
            (alternative, mask) for alternative, mask in eligible if not alternative.prioritized
        ]
        yield from self._too_many()
        yield from self._shortage(certain)
        yield from self._counters(certain)
        for claim in self.problem.claims:
            for constraint in claim.constraints:
                yield self._offers(str(claim), constraint, eligible)

    def _too_many(self) -> Iterator[TooManyDevices]:
        for claim in self.problem.claims:
            if claim.least() > claim.limit:
                yield TooManyDevices(str(claim), claim.limit)

    def _shortage(self, certain: Sequence[tuple[Alternative, int]]) -> Iterator[Shortage]:
        wanting = [
            (alternative, mask)
            for alternative, mask in certain
            if not alternative.all
            and not alternative.admin
            and mask.bit_count() >= alternative.count
        ]
        shares = {number: len(wanting) for number in bits(self.node_devices.shareable)}
        found = matched(
            [alternative.count for alternative, _ in wanting],
            [mask for _, mask in wanting],
            shares,
            lambda _: None,
        )
        if isinstance(found, Shortfall):
            names = tuple(
                (str(self.problem.claims[wanting[at][0].claim]), wanting[at][0].name)
                for at in found.demands
            )
            yield Shortage(names, found.needed, found.devices)

    def _counters(self, certain: Sequence[tuple[Alternative, int]]) -> Iterator[CounterShortage]:
        """Compare what the cheapest devices draw from a counter group with what it has left."""
        needs: dict[int, list[Number]] = {}
        wanted: dict[int, int] = {}
        for alternative, mask in certain:
            consumptions = [self.node_devices.consumptions[number] for number in bits(mask)]
            counter_groups = {
                consumption.counter_group for consumption in consumptions if consumption is not None
            }
            if alternative.admin or len(counter_groups) != 1 or None in consumptions:
                continue
            (at,) = counter_groups
            count = len(consumptions) if alternative.all else alternative.count
            if len(consumptions) < count or any(
                self.start.charged >> number & 1 for number in bits(mask)
            ):
                continue
            size = len(self.node_devices.counter_groups[at].counters)
            total = needs.setdefault(at, [0] * size)
            wanted[at] = wanted.get(at, 0) + count
            for position in range(size):
                amounts = sorted(
                    dict(consumption.amounts).get(position, 0)
                    for consumption in consumptions
                    if consumption is not None
                )
                total[position] += sum(amounts[:count])
        for at, total in needs.items():
            counter_group, remaining = (
                self.node_devices.counter_groups[at],
                self.start.remaining[at],
            )
            shared = any(
                self.node_devices.consumptions[number]
                for number in bits(self.node_devices.shareable)
            )
            for position, (counter_set, counter) in enumerate(counter_group.counters):
                if wanted[at] > 1 and not shared and total[position] > remaining.counters[position]:
                    pool = self.node_devices.view.pools[counter_group.pool]
                    have, least = remaining.counters[position], total[position]
                    yield CounterShortage(pool.driver, pool.name, counter_set, counter, have, least)
                    break

    def _offers(
        self, claim: str, constraint: Constraint, eligible: Sequence[tuple[Alternative, int]]
    ) -> ConstraintOffers:
        counts: dict[Attribute | None, int] = {}
        wanted = 0
        mask = 0
        for alternative, devices in eligible:
            if str(self.problem.claims[alternative.claim]) == claim and constraint.covers(
                alternative.name
            ):
                if alternative.rank == 0:
                    wanted += max(devices.bit_count(), 1) if alternative.all else alternative.count
                mask |= devices
        for number in bits(mask):
            attribute = self.node_devices.offers[number].device.attributes.get(constraint.name)
            counts[attribute] = counts.get(attribute, 0) + 1
        ordered = sorted(counts.items(), key=lambda item: (-item[1], str(item[0])))
        return ConstraintOffers(
            claim=claim,
            kind=constraint.kind,
            name=constraint.name,
            requests=constraint.requests,
            wanted=wanted,
            offers=tuple(ordered[:MOST_OFFERS]),
        )


def _both(first: Excluded, second: Excluded) -> Excluded:
    """Return the common facts of two devices that are excluded for one reason."""
    closer = min(first, second, key=lambda item: item.needed - item.offered if item.needed else inf)
    return replace(
        closer,
        count=first.count + second.count,
        example=first.example,
        holders=tuple(sorted({*first.holders, *second.holders})),
        error=first.error,
    )
