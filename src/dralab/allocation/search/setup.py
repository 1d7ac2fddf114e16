"""Everything a search on one node starts from, checked in the order of Kubernetes' allocator."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from dralab.allocation.problem import Claim, DeviceClass, Features, InUse
from dralab.allocation.search.alternatives import (
    RefusedError,
    Term,
    check_constraints,
    terms_of,
    too_many,
)
from dralab.allocation.search.eligibility import Eligibility
from dralab.allocation.search.node_devices import Board, State
from dralab.allocation.search.observers import SILENT, Observer
from dralab.allocation.search.rules import Rules, rules_of


@dataclass(frozen=True, slots=True, eq=False)
class Picked:
    """The chosen alternative of one request, and its devices by number, in order."""

    term: Term
    devices: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Setup:
    """A search problem on one node.

    `terms` is [claim][request][alternative]; `fixed` are the devices of each alternative that
    asks for all. `known` are the devices that could serve each alternative, where somebody knows
    already and no selector is without an answer.
    """

    board: Board
    eligibility: Eligibility
    start: State
    claims: Sequence[Claim]
    terms: Sequence[Sequence[Sequence[Term]]]
    fixed: Mapping[Term, tuple[int, ...]]
    known: Mapping[Term, int] | None = None
    observer: Observer = SILENT

    def count(self, term: Term) -> int:
        """Return how many devices an alternative needs on this node."""
        return len(self.fixed[term]) if term.all else term.count

    def rules(self, claim: int) -> Rules:
        """Return the constraints of a claim before any device is chosen."""
        return rules_of(self.claims[claim].constraints)

    @cached_property
    def requests(self) -> list[Sequence[Term]]:
        """The alternatives of every request of every claim, in the order of the search."""
        return [request for claim in self.terms for request in claim]

    @cached_property
    def least_after(self) -> list[int]:
        """Per request: the devices that later requests of its claim need at least."""
        found = []
        for claim in self.terms:
            needs = [min(self.count(term) for term in request) for request in claim]
            found += [sum(needs[number + 1 :]) for number in range(len(claim))]
        return found


def prepare(
    board: Board,
    claims: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    features: Features,
    in_use: InUse,
    *,
    observer: Observer = SILENT,
) -> Setup:
    """Check the claims and collect what is fixed; RefusedError or SearchError stop the pod."""
    eligibility = Eligibility(board)
    start = board.state(in_use)
    fixed: dict[Term, tuple[int, ...]] = {}

    def count(term: Term) -> int:
        if term.all:
            fixed[term] = _all(eligibility, start, claims[term.claim], term)
            return len(fixed[term])
        return term.count

    terms = _checked(claims, classes, features, count)
    return Setup(board, eligibility, start, claims, terms, fixed, observer=observer)


def prepare_terms(
    claims: Sequence[Claim], classes: Mapping[str, DeviceClass], features: Features
) -> Sequence[Sequence[Sequence[Term]]]:
    """Check the claims apart from any node: requests for all devices count nothing yet."""
    return _checked(claims, classes, features, lambda term: term.count)


def fixed_devices(
    eligibility: Eligibility,
    start: State,
    claims: Sequence[Claim],
    terms: Sequence[Sequence[Sequence[Term]]],
) -> dict[Term, tuple[int, ...]]:
    """Collect the devices of requests for all of them; RefusedError where they are too many."""
    fixed = {
        term: _all(eligibility, start, claims[term.claim], term)
        for claim in terms
        for request in claim
        for term in request
        if term.all
    }
    for claim, requests in zip(claims, terms, strict=True):
        _check_least(claim, requests, lambda term: len(fixed[term]) if term.all else term.count)
    return fixed


def _checked(
    claims: Sequence[Claim],
    classes: Mapping[str, DeviceClass],
    features: Features,
    count: Callable[[Term], int],
) -> Sequence[Sequence[Sequence[Term]]]:
    everything: list[list[list[Term]]] = []
    for position, claim in enumerate(claims):
        requests: list[list[Term]] = []
        counts: dict[Term, int] = {}
        for number in range(len(claim.requests)):
            terms = []
            for term in terms_of(claim, position, number, classes=classes, features=features):
                counts[term] = count(term)
                terms.append(term)
            requests.append(terms)
        _check_least(claim, requests, counts.__getitem__)
        check_constraints(claim)
        everything.append(requests)
    return everything


def _check_least(
    claim: Claim, requests: Sequence[Sequence[Term]], count: Callable[[Term], int]
) -> None:
    least = sum(min(count(term) for term in request) for request in requests)
    if least > claim.limit:
        raise too_many(claim, least)


def _all(eligibility: Eligibility, start: State, claim: Claim, term: Term) -> tuple[int, ...]:
    """Collect the devices of a request for all of them, in use or not."""
    board = eligibility.board
    for pool in board.view.pools:
        if pool.unusable:
            state = "being updated" if pool.unusable == "incomplete" else "invalid"
            raise RefusedError(
                claim,
                term.short,
                f"claim {claim}, request {term.short}: asks for all devices, but resource pool "
                f"{pool.driver}/{pool.name} is currently {state}",
            )
    found = []
    for number in range(len(board.offers)):
        if not eligibility.selectable(term, number):
            continue
        amounts = eligibility.amounts(term, number)
        if amounts is None:
            continue
        room = start.room.get(number)
        if amounts and room and any(have < want for have, want in zip(room, amounts, strict=True)):
            continue
        found.append(number)
    return tuple(found)
