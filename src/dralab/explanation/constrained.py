"""Constraints that cannot be met: which values there are, and where most devices agree."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import chain
from typing import Final, NamedTuple

from dralab.allocation.problem import Claim, Constraint, Device, Problem
from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.node_devices import bits
from dralab.explanation import misses
from dralab.explanation.causes import Offered, Unmatched
from dralab.explanation.findings import findings
from dralab.explanation.inquiry import Inquiry, total_of
from dralab.explanation.names import shown_value
from dralab.explanation.questions import AlikeNodes
from dralab.values.quantity import Number

MOST_VALUES: Final = 6
CODES: Final = {"match": "DRA034", "distinct": "DRA035", "total": "DRA043"}


class _Nearest(NamedTuple):
    """What a node has: devices that agree (or a total), devices at all, and their values."""

    agree: Number
    devices: int
    node: str
    values: Counter[str]


def unmatched(inquiry: Inquiry) -> Unmatched | None:
    """Return the constraint that by itself cannot be met; None where no single one is to blame.

    Where each alternative of a request has a constraint of its own on the same thing, they count
    as one, and that of the last alternative is told.
    """
    for position, claim in enumerate(inquiry.problem.claims):
        for numbers in _sets_of(claim):
            number = numbers[-1]
            rule = claim.constraints[number]
            rules = tuple(claim.constraints[each] for each in numbers)
            only = with_constraints(inquiry.problem, position, rules)
            if inquiry.asking.serves(only) is not False:
                continue
            bare = with_constraints(inquiry.problem, position, ())
            if inquiry.asking.serves(bare) is not True:
                # Without the constraint it would not fit either: not this one is to blame.
                if inquiry.asking.serves(bare, empty=True) is not True:
                    continue
                if inquiry.asking.serves(only, empty=True) is not False:
                    continue
            return _cause(inquiry, position, number, rule, only)
    return None


def _sets_of(claim: Claim) -> Iterator[list[int]]:
    """Yield the constraints to look at together.

    Each alone, then those on the same thing that are each about alternatives of one request.
    """
    same: dict[tuple[str, str, str], list[int]] = {}
    for number, rule in enumerate(claim.constraints):
        if rule.kind:
            yield [number]
            about = [
                request.name
                for request in claim.requests
                if any(rule.covers(each.name) for each in request.subrequests)
                and not all(rule.covers(each.name) for each in request.subrequests)
            ]
            if len(about) == 1:
                same.setdefault((rule.kind, rule.name, about[0]), []).append(number)
    yield from (numbers for numbers in same.values() if len(numbers) > 1)


def with_constraints(problem: Problem, position: int, rules: tuple[Constraint, ...]) -> Problem:
    """Return a problem of one of its claims, with these constraints."""
    return replace(problem, claims=(replace(problem.claims[position], constraints=rules),))


def wider_attributes(
    inquiry: Inquiry, alternative: Alternative, name: str, where: str
) -> list[str]:
    """Return attributes that divide the devices of a node into fewer, larger parts than one does.

    The one with most parts first: it is nearest to what was asked.
    """
    found = {kind.number for kind in inquiry.suits(alternative)}
    devices = [
        offer.device
        for offer in inquiry.asking.fleet.view(where).offers()
        if inquiry.asking.likeness.number(offer.device) in found
    ]
    names = {each for device in devices for each in device.attributes}
    parts = {
        each: len({device.attributes.get(each) for device in devices}) for each in sorted(names)
    }
    wider = [each for each in parts if 1 < parts[each] < parts.get(name, 0)]
    return sorted(wider, key=lambda each: -parts[each])


def _cause(
    inquiry: Inquiry, position: int, number: int, rule: Constraint, only: Problem
) -> Unmatched:
    held = inquiry.asking.serves(only, empty=True) is not False
    claim = inquiry.problem.claims[position]
    every = [
        each
        for each in inquiry.each_alternative()
        if each.claim == position and rule.covers(each.name)
    ]
    # Of alternatives the one that asks for least comes nearest.
    by_request: dict[int, list[Alternative]] = {}
    for each in every:
        by_request.setdefault(each.request, []).append(each)
    covered = [
        min(several, key=lambda each: (claim.limit if each.all else each.count, each.rank))
        for several in by_request.values()
    ]
    wanted = sum(max(each.count, 1) for each in covered)
    most_of = {each.request: 0 for each in every}
    for each in every:
        count = claim.limit if each.all else each.count
        most_of[each.request] = max(most_of[each.request], count)
    best = _Nearest(0, 0, "", Counter())
    nodes = free = 0
    holders: dict[str, None] = {}
    for place in inquiry.asking.places if held else inquiry.asking.emptied:
        devices = _had(only, place, rule)
        if rule.kind == "total":
            amounts = sorted(
                item.value for each in devices if (item := each.capacity.get(rule.name))
            )
            total = sum(amounts[-sum(most_of.values()) :])
            found = _Nearest(total, 0, place.names[0], Counter())
        else:
            values = Counter(
                shown_value(value) for each in devices if (value := each.attributes.get(rule.name))
            )
            agree = max(values.values(), default=0) if rule.kind == "match" else len(values)
            found = _Nearest(agree, values.total(), place.names[0], values)
        best = max(best, found, key=lambda each: (each.agree, each.devices))
        free += len(devices) * place.size
        nodes += place.size if len(devices) >= wanted else 0
        if held:
            for _, names in chain.from_iterable(
                place.held(inquiry.asking.likeness, inquiry.asking.uses)
            ):
                holders |= dict.fromkeys(names)
    return Unmatched(
        code="DRA033" if held else CODES[rule.kind],
        asked=tuple(inquiry.asked(each) for each in covered),
        constraint=rule,
        number=number,
        wanted=wanted,
        most=int(best.agree),
        best=shown_value(best.agree) if rule.kind == "total" else "",
        where=best.node,
        values=tuple(
            Offered(value=value, devices=count, free=count)
            for value, count in best.values.most_common(MOST_VALUES)
        ),
        total=total_of(inquiry.suits(covered[0])),
        nodes=nodes,
        free=free,
        holders=tuple(holders),
        mark=misses.compared(str(claim), rule, number) if rule.kind != "total" else None,
    )


def _had(only: Problem, place: AlikeNodes, rule: Constraint) -> list[Device]:
    """Return the devices of a node that could be had for the requests of a constraint."""
    found = findings(replace(only, in_use=place.in_use), place.view)
    mask = 0
    for alternative, eligible in found.eligible:
        if rule.covers(alternative.name):
            mask |= eligible
    return [found.node_devices.offers[number].device for number in bits(mask)]
