"""`diagnose`: the cause of a "no", the most fundamental first, and what would help.

The order is the one in which a person would ask: is the claim sound, is there such a device at
all, has any node enough of them, are they free, can all requests be met together. Every step is a
question to the allocator about a smaller problem; counts are told beside the answer.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple

from dralab.allocation.allocator import DEFAULT_BUDGET
from dralab.allocation.facts import CounterShortage, PoolUnusable, Shortage
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import Capacity, Claim, Constraint, Device, Node, Problem
from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.search.node_devices import bits
from dralab.explanation import misses
from dralab.explanation.alike_nodes import AlikeNodes, DeviceKind
from dralab.explanation.causes import (
    Asked,
    Competing,
    Diagnosis,
    Lacking,
    NoAlternative,
    NothingThere,
    Offered,
    Together,
    TooFew,
    Unmatched,
    WaitingCause,
)
from dralab.explanation.findings import findings
from dralab.explanation.helps import MOST_HELPS, helps_for
from dralab.explanation.inquiry import Inquiry, total_of
from dralab.explanation.names import HolderEnd, amount, device_name, shown_value
from dralab.explanation.questions import MOST_QUESTIONS, FleetQuestions, node_groups
from dralab.values.quantity import Number

WAITING: Final = frozenset({"DRA030", "DRA032", "DRA038", "DRA039", "DRA044"})
"""Causes that end once others release their devices."""


def cause_of(inquiry: Inquiry, *, refused: bool = False) -> WaitingCause | None:
    """Return the cause if no node can serve the request; None if one can.

    `refused`: the search ended with an error although some node could serve it.
    """
    return _CauseFinder(inquiry).cause(refused=refused)


class _CauseFinder:
    def __init__(self, inquiry: Inquiry) -> None:
        self.of = inquiry

    def cause(self, *, refused: bool) -> WaitingCause | None:
        """Return the cause; None if a node can serve the claims."""
        wrong = self.of.read_claims()
        if wrong is not None:
            return wrong
        feasible = self.of.asking.everywhere()
        if feasible is True:
            return (self._failing() or NothingThere(code="DRA060")) if refused else None
        if not self.of.asking.fleet.nodes:
            return NothingThere(code="DRA007", detail="there are no nodes")
        if feasible is None:
            return NothingThere(code="DRA060")
        if not self.of.kinds:
            return self._no_devices()
        if self.of.asking.error and (broken := self._failing()):
            return broken
        alone = [found for each in self.of.alternatives if (found := self._of_request(each))]
        if not alone:
            return self._together()
        worst = min(alone, key=lambda found: found.code)
        if worst.code in WAITING and self.of.asking.serves(empty=True) is False:
            # It would not fit an empty cluster either: that comes first.
            return self._together()
        return worst

    def _no_devices(self) -> NothingThere:
        places = self.of.asking.places
        broken = [item for place in places for item in place.view.unusable]
        if broken:
            return _unusable(broken[0])
        return NothingThere(code="DRA007", detail="no node has any device")

    def _failing(self) -> WaitingCause | None:
        order = self.of.asking.fleet.order
        found = (
            misses.failing(each, self.of.asked(each), misses.parts_of(each.conditions),
                           self.of.kinds, order)
            for each in self.of.each_alternative()
        )  # fmt: skip
        return next(filter(None, found), None)

    # --- one request by itself

    def _of_request(self, alternatives: Sequence[Alternative]) -> WaitingCause | None:
        found: list[WaitingCause] = []
        for alternative in alternatives:
            cause = self._of_alternative(alternative)
            if cause is None:
                return None
            found.append(cause)
        if len(found) == 1:
            return found[0]
        if not found:
            return None
        first = alternatives[0]
        return NoAlternative(
            code="DRA042",
            claim=self.of.claim_of(first),
            request=first.name.partition("/")[0],
            causes=tuple(found),
        )

    def _of_alternative(self, alternative: Alternative) -> WaitingCause | None:
        asked = self.of.asked(alternative)
        if missed := misses.miss(alternative, asked, self.of.kinds, self.of.asking.fleet.order):
            return missed
        suits = self.of.suits(alternative)
        if found := self._lacking(alternative, asked, suits):
            return found
        small = self.of.by_itself(alternative)
        if self.of.asking.serves(small) is not False:
            return None
        if alternative.all and asked.only and self.of.asking.serves(small, empty=True) is False:
            # All devices of a node are wanted, and parts of one of them exclude each other.
            parts = self._competing((asked,))
            if parts is not None and parts.code == "DRA037":
                return parts
        return self._too_few(alternative, asked, small)

    def _lacking(
        self, alternative: Alternative, asked: Asked, suits: Sequence[DeviceKind]
    ) -> Lacking | None:
        claim = self.of.problem.claims[alternative.claim]
        order = self.of.asking.fleet.order
        first = [kind.examples(order, 1)[0] for kind in suits[:3]]
        examples = tuple(device_name(*each) for each in first)
        for number, rule in enumerate(claim.constraints):
            if rule.kind not in {"match", "distinct"} or not rule.covers(alternative.name):
                continue
            if rule.name in alternative.subrequest.derived:
                continue
            if any(rule.name in kind.device.attributes for kind in suits):
                continue
            return Lacking(
                code="DRA027", asked=(asked,), number=number, name=rule.name, total=total_of(suits),
                nodes=misses.nodes_of(suits), examples=examples,
                known=misses.known_names("attributes", [kind.device for kind in suits]),
                mark=misses.compared(asked.claim, rule, number),
            )  # fmt: skip
        for name, wanted in alternative.subrequest.capacity.items():
            offers = [
                item for kind in suits for item in [_capacity(kind, name)] if item is not None
            ]
            if any(_gives(item, wanted) for item in offers):
                continue
            field = misses.request_field(alternative, f"capacity.requests[{name}]")
            best = max((item.value for item in offers), default=None)
            return Lacking(
                code="DRA028", asked=(asked,), name=name, total=total_of(suits),
                nodes=misses.nodes_of(suits), examples=examples, needed=shown_value(wanted),
                best="" if best is None else shown_value(best),
                known=misses.known_names("capacity", [kind.device for kind in suits]),
                mark=misses.in_claim(asked.claim, field, shown_value(wanted)),
            )  # fmt: skip
        return None

    def _too_few(self, alternative: Alternative, asked: Asked, small: Problem) -> TooFew:
        supply, suits = self.of.supply(alternative), self.of.suits(alternative)
        empty = self.of.asking.serves(small, empty=True)
        many = alternative.count > 1
        if alternative.all and empty is not False:
            code = "DRA044"
        elif empty is False:
            code = "DRA040" if supply.blocked.get("taint") else "DRA031"
        elif many:
            code = "DRA032" if supply.free >= alternative.count else "DRA030"
        elif supply.blocked.get("counters"):
            code = "DRA038"
        elif supply.blocked.get("capacity"):
            code = "DRA039"
        elif supply.blocked.get("taint", 0) > supply.blocked.get("in-use", 0):
            code = "DRA040"
        else:
            code = "DRA030"
        most = supply.most
        if code == "DRA031" and alternative.count > 1:
            # Parts that share a counter are more than fit at once.
            emptied = replace(small, in_use=type(small.in_use)())
            at_once = self.of.largest(emptied, alternative, empty=True)
            most = most if at_once is None else min(most, at_once)
        field = misses.request_field(alternative, "count")
        mark = misses.in_claim(asked.claim, field, str(asked.count)) if asked.count > 1 else None
        return replace(
            supply, code=code, asked=(asked,), total=total_of(suits), nodes=misses.nodes_of(suits),
            most=most, mark=mark,
        )  # fmt: skip

    # --- all requests together

    def _together(self) -> WaitingCause:
        found = unmatched(self.of)
        if found is not None:
            return found
        asked = tuple(self.of.asked(each) for each in self.of.each_alternative())
        if self.of.asking.serves(empty=True) is False:
            competing = self._competing(asked)
            if competing is not None:
                return competing
        core, _ = self.of.asking.conflict()
        holders = {name for item in core or () for name in item.holders}
        return Together(
            code="DRA041", asked=asked, conflict=core or (), holders=tuple(sorted(holders))
        )

    def _competing(self, asked: tuple[Asked, ...]) -> Competing | None:
        """Return what requests compete for on the node that comes nearest."""
        found: list[tuple[int, Competing]] = []
        for group in node_groups(self.of.asking, empty=True):
            for fact in group.facts:
                if isinstance(fact, Shortage):
                    names = set(fact.requests)
                    few = tuple(each for each in asked if (each.claim, each.request) in names)
                    cause = Competing(
                        code="DRA036", asked=few, wanted=fact.wanted, devices=fact.eligible,
                        where=group.nodes[0],
                    )  # fmt: skip
                    found.append((fact.wanted - fact.eligible, cause))
                elif isinstance(fact, CounterShortage):
                    cause = Competing(
                        code="DRA037", asked=asked, wanted=sum(each.count for each in asked),
                        devices=0, where=group.nodes[0], needed=amount(fact.least),
                        counter=f"{fact.counter_set}/{fact.counter}", offered=amount(fact.left),
                    )  # fmt: skip
                    found.append((1 << 20, cause))
        return min(found, key=lambda item: item[0])[1] if found else None


def _unusable(item: PoolUnusable) -> NothingThere:
    detail = f"pool {item.driver}/{item.pool} is {item.why}"
    return NothingThere(code="DRA008", detail=f"{detail}: {item.detail}" if item.detail else detail)


def _capacity(kind: DeviceKind, name: str) -> Capacity | None:
    device = kind.device
    return next(
        (item for full, item in device.capacity.items() if device.written(full) == name), None
    )


def _gives(item: Capacity, wanted: Number) -> bool:
    found = item.policy.amount(wanted, item.value)
    return found is not None and found <= item.value


def diagnose(
    problem: Problem,
    nodes: Sequence[Node],
    *,
    subject: str = "",
    catalog: SliceCatalog | None = None,
    budget: int = DEFAULT_BUDGET,
    questions: int = MOST_QUESTIONS,
    refused: bool = False,
    earlier: FleetQuestions | None = None,
    ends: Mapping[str, HolderEnd] | None = None,
    most: int = MOST_HELPS,
) -> Diagnosis | None:
    """Explain why no node can serve the claims of a problem, and what would help.

    None where one can. `subject` names what waits (`pod ml/train`); `budget` limits the steps of
    each question to the allocator, `questions` their number. `refused`: the search ended with an
    error although some node could serve them. `earlier` are questions about other claims on the
    same nodes: what was found out about these is not found out again. `ends` says when the users of
    claims end, by claim; at most `most` helps are told.
    """
    asking = (
        FleetQuestions(problem, nodes, catalog=catalog, budget=budget, questions=questions)
        if earlier is None
        else earlier.about(problem, questions)
    )
    inquiry = Inquiry(asking, ends or {})
    cause = cause_of(inquiry, refused=refused)
    if cause is None:
        return None
    helps = helps_for(inquiry, cause, most)
    return Diagnosis(
        subject=subject or ", ".join(f"claim {claim}" for claim in problem.claims),
        cause=cause,
        helps=helps,
        nodes=len(asking.fleet),
        grouped=partial(node_groups, asking),
        error=asking.error,
        settled=asking.allowance.left >= 0 and cause.code != "DRA060",
    )


MOST_VALUES: Final = 6
CODES: Final = {"match": "DRA034", "distinct": "DRA035", "total": "DRA043"}


class _Nearest(NamedTuple):
    """What a node has: matching devices (or a total), all devices, and their values."""

    agree: Number
    devices: int
    node: str
    values: Counter[str]


def unmatched(inquiry: Inquiry) -> Unmatched | None:
    """Return the constraint that cannot be met alone; None if it takes several.

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
    """Return the available devices of a node for the requests of a constraint."""
    found = findings(replace(only, in_use=place.in_use), place.view)
    mask = 0
    for alternative, eligible in found.eligible:
        if rule.covers(alternative.name):
            mask |= eligible
    return [found.node_devices.offers[number].device for number in bits(mask)]
