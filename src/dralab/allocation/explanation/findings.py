"""What each request found on a node: which devices were left out, and by what.

The order of the reasons is the one in which a person would ask: is there such a device at all,
does it suit, is it free, is there enough of it left; then, for what could each serve alone: is
there enough for all together. Everything is counted; nothing is decided here.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from dralab.allocation.facts import (
    BadRequest,
    ConstraintOffers,
    CounterShortage,
    Excluded,
    Fact,
    RequestFacts,
    Shortage,
    TooManyDevices,
)
from dralab.allocation.pools import View
from dralab.allocation.problem import Attribute, Constraint, InUse, Problem, SelectorError
from dralab.allocation.search.alternatives import RefusedError, Term, terms_of
from dralab.allocation.search.eligibility import Eligibility, SearchError, selector_sentence
from dralab.allocation.search.matching import Shortfall, matched
from dralab.allocation.search.node_devices import Board, State, bits
from dralab.values.quantity import Number

MOST_OFFERS: Final = 8
"""How many values of a constraint are told."""


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The facts of one node, and per alternative the devices that could each serve it alone."""

    facts: tuple[Fact, ...]
    eligible: tuple[tuple[Term, int], ...]
    """(alternative, bit set of devices)"""
    board: Board


def findings(problem: Problem, view: View) -> Found:
    """Return everything that speaks against a problem on one node."""
    board = Board(view, problem.features)
    looking = _Look(problem, board)
    facts: list[Fact] = list(view.unusable)
    eligible: list[tuple[Term, int]] = []
    for position, claim in enumerate(problem.claims):
        for number in range(len(claim.requests)):
            try:
                terms = list(
                    terms_of(
                        claim, position, number, classes=problem.classes, features=problem.features
                    )
                )
            except RefusedError as error:
                facts.append(error.fact)
                continue
            for term in terms:
                fact, mask = looking.request(term)
                facts.append(fact)
                eligible.append((term, mask))
    return Found((*facts, *looking.together(eligible)), tuple(eligible), board)


def reason_against(found: Found, problem: Problem, term: Term, number: int) -> Excluded | None:
    """Return why one device could not serve an alternative, None where it could."""
    return _Look(problem, found.board).against(term, number)


class _Look:
    def __init__(self, problem: Problem, board: Board) -> None:
        self.problem = problem
        self.board = board
        self.eligibility = Eligibility(board)
        self.in_use: InUse = problem.in_use
        self.start: State = board.state(problem.in_use)

    # --- one request

    def request(self, term: Term) -> tuple[RequestFacts, int]:
        """Count the devices of a node for one alternative."""
        excluded: dict[tuple[object, ...], Excluded] = {}
        mask = 0
        suitable = 0
        for number in range(len(self.board.offers)):
            why = self.against(term, number)
            if why is None:
                mask |= 1 << number
                suitable += 1
                continue
            suitable += why.why in {"in-use", "taint", "counters", "groups"}
            key = (why.why, why.where, why.index, why.detail, why.taint)
            before = excluded.get(key)
            excluded[key] = why if before is None else _both(before, why)
        facts = RequestFacts(
            claim=str(self.problem.claims[term.claim]),
            request=term.name,
            # All wants what is there, and at least one device.
            wanted=max(suitable, 1) if term.all else term.count,
            devices=len(self.board.offers),
            eligible=mask.bit_count(),
            excluded=tuple(sorted(excluded.values(), key=lambda item: -item.count)),
        )
        return facts, mask

    def against(self, term: Term, number: int) -> Excluded | None:
        """Return the first reason against a device, None where it could serve the request."""
        offer = self.board.offers[number]
        device = offer.device
        here = Excluded("node", 1, offer.id)
        if not offer.here:
            return here
        features = self.problem.features
        if device.binding_conditions and not features.binding_conditions:
            return replace(here, why="feature", detail="binding conditions")
        for where, index, selector in term.conditions:
            try:
                accepted = selector.matches(device)
            except SelectorError as error:
                text = selector_sentence(where, index, str(offer.id), error)
                return replace(
                    here, why="error", where=where, index=index, detail=selector.text, error=text
                )
            if not accepted:
                return replace(here, why="selector", where=where, index=index, detail=selector.text)
        if not self.eligibility.offered(number):
            detail = "counters" if device.consumes else "node operations to skip"
            return replace(here, why="feature", detail=detail)
        return self._left(term, number, here) or self._constrained(term, number, here)

    def _left(self, term: Term, number: int, here: Excluded) -> Excluded | None:
        amounts = self.eligibility.amounts(term, number)
        if amounts is None:
            return self._too_small(term, number, here)
        untolerated = (
            self.eligibility.untolerated(term, number)
            if self.problem.features.device_taints
            else None
        )
        bit = 1 << number
        if not term.admin and self.start.used & bit:
            return replace(here, why="in-use", holders=self.in_use.holders.get(here.example, ()))
        if untolerated is not None:
            taint = self.board.offers[number].device.taints[untolerated]
            return replace(here, why="taint", taint=taint)
        if term.admin:
            return None
        shared = bool(self.board.shareable & bit)
        if self.board.take(self.start, number, amounts if shared else None) is not None:
            return None
        if shared and number in self.start.room:
            names = list(self.board.offers[number].device.capacity)
            for name, have, want in zip(names, self.start.room[number], amounts, strict=True):
                if want > have:
                    return replace(
                        here, why="capacity", detail=name, needed=want, offered=have,
                        holders=self.in_use.holders.get(here.example, ()),
                    )  # fmt: skip
        return self._overdrawn(number, here)

    def _too_small(self, term: Term, number: int, here: Excluded) -> Excluded:
        device = self.board.offers[number].device
        known = {device.written(name): item for name, item in device.capacity.items()}
        for name, asked in term.alternative.capacity.items():
            item = known.get(name)
            if item is None:
                return replace(here, why="capacity", detail=name, needed=asked)
            amount = item.policy.amount(asked, item.value)
            if amount is None or amount > item.value:
                return replace(here, why="capacity", detail=name, needed=asked, offered=item.value)
        return replace(here, why="capacity")

    def _overdrawn(self, number: int, here: Excluded) -> Excluded:
        draw = self.board.draws[number]
        if draw is None:
            return replace(here, why="in-use", holders=self.in_use.holders.get(here.example, ()))
        unit = self.board.units[draw.unit]
        left = self.start.left[draw.unit]
        holders = self._holders_of(draw.unit)
        for position, amount in draw.amounts:
            if left.counters[position] < amount:
                return replace(
                    here, why="counters", detail="/".join(unit.counters[position]),
                    needed=amount, offered=left.counters[position], holders=holders,
                )  # fmt: skip
        position = draw.groups[0][0]
        return replace(here, why="groups", detail=unit.sets[position], holders=holders)

    def _holders_of(self, unit: int) -> tuple[str, ...]:
        """Return who holds devices that draw on the counters of a unit, other nodes' too."""
        pool = self.board.view.pools[self.board.units[unit].pool]
        sets = set(self.board.units[unit].sets)
        names = {
            name
            for device in pool.drawing
            if sets.intersection(drawn.counter_set for drawn in device.consumes)
            for name in self.in_use.holders.get((pool.driver, pool.name, device.name), ())  # type: ignore[call-overload]  # a DeviceId is this tuple
        }
        return tuple(sorted(names))

    def _constrained(self, term: Term, number: int, here: Excluded) -> Excluded | None:
        for constraint in self._binding(term):
            if constraint.kind in {"match", "distinct"}:
                try:
                    values = self.eligibility.values(term, number, constraint.name)
                except SearchError as error:
                    return replace(
                        here, why="error", where="derived attribute",
                        detail=constraint.name, error=str(error),
                    )  # fmt: skip
                if values is None:
                    return replace(here, why="attribute", detail=constraint.name)
        return None

    def _binding(self, term: Term) -> Iterator[Constraint]:
        for constraint in self.problem.claims[term.claim].constraints:
            if constraint.covers(term.name):
                yield constraint

    # --- all requests together

    def together(self, eligible: Sequence[tuple[Term, int]]) -> Iterator[Fact]:
        """Yield what is short only because several devices are wanted at once."""
        certain = [(term, mask) for term, mask in eligible if not term.prioritized]
        yield from self._too_many()
        yield from self._shortage(certain)
        yield from self._counters(certain)
        for claim in self.problem.claims:
            for constraint in claim.constraints:
                yield self._offers(str(claim), constraint, eligible)

    def _too_many(self) -> Iterator[TooManyDevices]:
        for claim in self.problem.claims:
            least = sum(
                min((each.count for each in request.alternatives), default=0)
                for request in claim.requests
            )
            if least > claim.limit:
                yield TooManyDevices(str(claim), claim.limit)

    def _shortage(self, certain: Sequence[tuple[Term, int]]) -> Iterator[Shortage]:
        wanting = [
            (term, mask)
            for term, mask in certain
            if not term.all and not term.admin and mask.bit_count() >= term.count
        ]
        shares = {number: len(wanting) for number in bits(self.board.shareable)}
        found = matched(
            [term.count for term, _ in wanting],
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

    def _counters(self, certain: Sequence[tuple[Term, int]]) -> Iterator[CounterShortage]:
        """Compare what the cheapest devices draw from a unit with what the unit has left."""
        needs: dict[int, list[Number]] = {}
        wanted: dict[int, int] = {}
        for term, mask in certain:
            draws = [self.board.draws[number] for number in bits(mask)]
            units = {draw.unit for draw in draws if draw is not None}
            if term.all or term.admin or len(units) != 1 or None in draws:
                continue
            (at,) = units
            if len(draws) < term.count or any(
                self.start.charged >> number & 1 for number in bits(mask)
            ):
                continue
            size = len(self.board.units[at].counters)
            total = needs.setdefault(at, [0] * size)
            wanted[at] = wanted.get(at, 0) + term.count
            for position in range(size):
                amounts = sorted(
                    dict(draw.amounts).get(position, 0) for draw in draws if draw is not None
                )
                total[position] += sum(amounts[: term.count])
        for at, total in needs.items():
            unit, left = self.board.units[at], self.start.left[at]
            shared = any(self.board.draws[number] for number in bits(self.board.shareable))
            for position, (counter_set, counter) in enumerate(unit.counters):
                if wanted[at] > 1 and not shared and total[position] > left.counters[position]:
                    pool = self.board.view.pools[unit.pool]
                    have, least = left.counters[position], total[position]
                    yield CounterShortage(pool.driver, pool.name, counter_set, counter, have, least)
                    break

    def _offers(
        self, claim: str, constraint: Constraint, eligible: Sequence[tuple[Term, int]]
    ) -> ConstraintOffers:
        counts: dict[Attribute | None, int] = {}
        wanted = 0
        mask = 0
        for term, devices in eligible:
            if str(self.problem.claims[term.claim]) == claim and constraint.covers(term.name):
                if term.rank == 0:
                    wanted += max(devices.bit_count(), 1) if term.all else term.count
                mask |= devices
        for number in bits(mask):
            attribute = self.board.offers[number].device.attributes.get(constraint.name)
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
    """Return what two devices that are left out for one reason have in common."""
    closer = min(first, second, key=lambda item: item.needed - item.offered if item.needed else inf)
    return replace(
        closer,
        count=first.count + second.count,
        example=first.example,
        holders=tuple(sorted({*first.holders, *second.holders})),
        error=first.error,
    )


def refusals(facts: Sequence[Fact]) -> list[BadRequest]:
    """Return what is wrong with the claims whatever the devices are."""
    return [fact for fact in facts if isinstance(fact, BadRequest)]
