"""`diagnose`: the cause of a "no", the most fundamental first, and what would help.

The order is the one in which a person would ask: is the claim sound, is there such a device at
all, has any node enough of them, are they free, can all requests be met together. Every step is a
question to the allocator about a smaller problem; counts are told beside the answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from dralab.allocation.allocator import DEFAULT_BUDGET
from dralab.allocation.facts import CounterShortage, PoolUnusable, Shortage
from dralab.allocation.pools import SliceCatalog
from dralab.allocation.problem import Capacity, Node, Problem
from dralab.allocation.search.alternatives import Alternative
from dralab.explanation import misses
from dralab.explanation.causes import (
    Asked,
    Cause,
    Competing,
    Diagnosis,
    Lacking,
    NoAlternative,
    NothingThere,
    Together,
    TooFew,
)
from dralab.explanation.constrained import unmatched
from dralab.explanation.explain import node_groups
from dralab.explanation.helps import MOST_HELPS, helps_for
from dralab.explanation.holders import HolderEnd
from dralab.explanation.inquiry import Inquiry, total_of
from dralab.explanation.names import amount, device_name, shown_value
from dralab.explanation.questions import MOST_QUESTIONS, DeviceKind, FleetQuestions
from dralab.values.quantity import Number

WAITING: Final = frozenset({"DRA030", "DRA032", "DRA038", "DRA039", "DRA044"})
"""Causes that end once others release their devices."""


def cause_of(inquiry: Inquiry, *, refused: bool = False) -> Cause | None:
    """Return why no node can serve what is asked; None where one can.

    `refused`: the search ended with an error although some node could serve it.
    """
    return _CauseFinder(inquiry).cause(refused=refused)


class _CauseFinder:
    def __init__(self, inquiry: Inquiry) -> None:
        self.of = inquiry

    def cause(self, *, refused: bool) -> Cause | None:
        """Return the cause; None where some node can serve the claims."""
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

    def _failing(self) -> Cause | None:
        for alternative in self.of.each_alternative():
            found = misses.failing(
                alternative, self.of.asked(alternative), self.of.kinds, self.of.asking.fleet.order
            )
            if found is not None:
                return found
        return None

    # --- one request by itself

    def _of_request(self, alternatives: Sequence[Alternative]) -> Cause | None:
        found: list[Cause] = []
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

    def _of_alternative(self, alternative: Alternative) -> Cause | None:
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
                code="DRA027", asked=asked, number=number, name=rule.name, total=total_of(suits),
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
                code="DRA028", asked=asked, name=name, total=total_of(suits),
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
        return TooFew(
            code=code, asked=asked, total=total_of(suits),
            nodes=misses.nodes_of(suits), most=most, free=supply.free,
            most_free=supply.most_free, where=supply.where, blocked=supply.blocked,
            holders=supply.holders, name=supply.name,
            needed=amount(supply.needed) if supply.name else "",
            offered=amount(supply.offered) if supply.name else "", taints=supply.taints,
            mark=misses.in_claim(
                asked.claim, misses.request_field(alternative, "count"), str(asked.count)
            )
            if asked.count > 1
            else None,
        )  # fmt: skip

    # --- all requests together

    def _together(self) -> Cause:
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
    """Return why no node can serve the claims of a problem, and what would help.

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
