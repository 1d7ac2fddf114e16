"""What would help against a cause: few changes, the cheapest first, each asked of the allocator.

Nothing is proposed that the allocator does not confirm: either the whole pod fits after the change
as things are now, or it would fit once devices in use are released, which the text then says.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from dralab.allocation.search.alternatives import Alternative
from dralab.cel.conjuncts import Comparison
from dralab.explanation import edits, misses
from dralab.explanation.causes import (
    Cause,
    Competing,
    FailingSelector,
    Help,
    Lacking,
    NoAlternative,
    NoSuchDevice,
    NothingThere,
    NotTogether,
    Refused,
    Together,
    TooFew,
    Unmatched,
)
from dralab.explanation.conditions import Condition, conditions_of, remedies, with_each, without
from dralab.explanation.constrained import wider_attributes
from dralab.explanation.inquiry import Inquiry
from dralab.explanation.names import counted, similar, taint_text
from dralab.explanation.proposals import Proposals, as_written, tolerating, with_text
from dralab.explanation.questions import MOST_GROUPS
from dralab.explanation.waiting import waits_for

MOST_HELPS: Final = 4
RANKS: Final = (
    "spelling", "guard", "tolerate", "wait", "value", "count", "constraint", "node", "drop",
    "move", "preempt", "several", "add",
)  # fmt: skip


def helps_for(inquiry: Inquiry, cause: Cause, most: int = MOST_HELPS) -> tuple[Help, ...]:
    """Return what would help against a cause, the cheapest first."""
    found: list[Help] = []
    for each in _candidates(inquiry, cause):
        if all((each.kind, each.to, each.who, each.number) != (o.kind, o.to, o.who, o.number)
               for o in found):  # fmt: skip
            found.append(each)
    if not found and not isinstance(cause, (NothingThere, Refused)):
        found = list(_together(inquiry))
    return ordered(found, most)


def ordered(found: Iterable[Help], most: int = MOST_HELPS) -> tuple[Help, ...]:
    """Return the cheapest helps first; a correction of a spelling stands alone."""
    best = sorted(found, key=lambda each: (not each.now, RANKS.index(each.kind)))
    spelled = [each for each in best if each.kind == "spelling"]
    # A typo explains everything: to ask for something else would only distract.
    return tuple(spelled[:1] if spelled else best[:most])


def _candidates(inquiry: Inquiry, cause: Cause) -> Iterator[Help]:
    checks = _Checks(inquiry)
    match cause:
        case Refused(code="DRA002"):
            yield from checks.class_name(cause)
        case FailingSelector():
            yield from checks.failing(cause)
        case NoSuchDevice():
            yield from checks.no_such_device(cause)
        case NotTogether():
            yield from checks.not_together(cause)
        case Lacking():
            yield from checks.lacking(cause)
        case TooFew():
            yield from checks.too_few(cause)
        case Unmatched():
            yield from checks.unmatched(cause)
        case Competing() | Together():
            yield from checks.together(cause)
        case NoAlternative():
            for each in cause.causes:
                yield from _candidates(inquiry, each)
        case _:
            return


def _together(inquiry: Inquiry) -> Iterator[Help]:
    """Yield the smallest sets of changes that are enough, where no single change is."""
    places = inquiry.asking.places[:MOST_GROUPS]
    conditions = conditions_of(inquiry.problem, [place.view for place in places])
    feasible = partial(inquiry.asking.among, places=places)
    for found in remedies(conditions, feasible)[:2]:
        if any(each.kind in {"class-selector", "request"} for each in found):
            continue
        # From the end of a list: what comes before keeps its place.
        given_up = sorted(found, key=lambda each: -each.number)
        parts = [_following(inquiry, each, found) for each in given_up if each.kind != "held"]
        first: set[tuple[object, str]] = set()
        for number, each in enumerate(parts):
            if each.kind == "tolerate" and each.mark is not None:
                place = each.mark.owner, each.mark.field
                if place in first:
                    parts[number] = replace(each, note="")
                first.add(place)
        if holders := sorted({name for each in found for name in each.holders}):
            parts.insert(0, Help(kind="wait", now=True, who=tuple(holders), number=len(holders)))
        yield (Help(kind="several", now=True, parts=tuple(parts)) if len(parts) > 1 else parts[0])


def _following(inquiry: Inquiry, condition: Condition, others: Sequence[Condition]) -> Help:
    """Return how a condition is given up, beside others."""
    if condition.kind == "constraint":
        position = [str(each) for each in inquiry.problem.claims].index(condition.claim)
        rule = inquiry.problem.claims[position].constraints[condition.number]
        field, name = misses.constraint_field(rule, condition.number), condition.text
        mark = misses.in_claim(condition.claim, field)
        return Help(kind="drop", now=True, to=f"the constraint on {name}", mark=mark)
    alternative = inquiry.alternative(condition.claim, condition.request)
    field_of = partial(misses.request_field, alternative)
    note = f"in request {condition.request}"
    match condition.kind:
        case "taint" if condition.taint is not None:
            return tolerating(alternative, condition.claim, condition.taint)
        case "count":
            rest = without(inquiry.problem, [each for each in others if each is not condition])
            number = inquiry.largest(rest, alternative) or 1
            mark = misses.in_claim(condition.claim, field_of("count"), str(number))
            to = as_written(alternative, "count", number)
            return Help(kind="count", now=True, number=number, mark=mark, note=note, to=to)
        case "capacity":
            field, to = field_of(f"capacity.requests[{condition.text}]"), condition.text
        case _:
            field, to = (
                field_of(f"selectors[{condition.number}]"),
                f"`{' '.join(condition.text.split())}`",
            )
    mark = misses.in_claim(condition.claim, field)
    return Help(kind="drop", now=True, to=to, mark=mark, note=note)


class _Checks(Proposals):
    """Makes the proposals for one cause."""

    # --- by cause

    def class_name(self, cause: Refused) -> Iterator[Help]:
        """Propose a class of nearly the same name."""
        near = similar(cause.name, cause.known)
        if not near:
            count = sum(
                kind.count for kind in self.inquiry.kinds if kind.device.driver == cause.name
            )
            if count:
                text = (
                    f"create the class: {counted(count, 'device')} of driver {cause.name} are there"
                )
                yield Help(kind="add", now=False, to=text)
        if not near or cause.asked is None:
            return
        renamed = with_each(
            self.problem,
            lambda _, each: (
                replace(each, class_name=near) if each.class_name == cause.name else each
            ),
        )
        yield from self.confirmed(
            Help(kind="spelling", now=True, to=near, mark=with_text(cause.mark, near)), renamed,
            even_if_not=True,
        )  # fmt: skip

    def failing(self, cause: FailingSelector) -> Iterator[Help]:
        """Propose the right name of an attribute, or a guard for devices that lack it."""
        alternative = self.inquiry.alternative(cause.asked.claim, cause.asked.request)
        if cause.lacking and cause.code != "DRA006":
            helps = list(
                self.renamed(alternative, cause.mark, cause.lacking, cause.known, cause.code)
            )
            yield from helps or self.repaired(alternative, cause.mark)
            return
        if helps := list(self.repaired(alternative, cause.mark)):
            yield from helps
            return
        span = cause.mark.span
        if not cause.lacking or span is None:
            return
        sort, domain, name = cause.lacking
        part = next(
            part
            for part in misses.parts_of(alternative.conditions)
            if part.conjunct.span.start <= span.start < part.conjunct.span.end
            and part.located.selector.text == cause.mark.text
        )
        at, inner = part.conjunct.span, part.conjunct.text
        inner = f"({inner})" if "||" in inner or "?" in inner else inner
        guard = f'"{name}" in device.{sort}["{domain}"] && {inner}'
        text = cause.mark.text[: at.start] + guard + cause.mark.text[at.end :]
        yield from self.edited(
            alternative, cause.mark, text, Help(kind="guard", now=True, to=guard)
        )

    def no_such_device(self, cause: NoSuchDevice) -> Iterator[Help]:
        """Propose the nearest value, the right name, or a node with such a device."""
        alternative = self.inquiry.alternative(cause.asked.claim, cause.asked.request)
        comparison, mark = cause.condition.comparison, cause.mark
        if cause.code in {"DRA022", "DRA023"} and comparison is not None:
            kinds = misses.of_class(alternative, self.inquiry.kinds) or self.inquiry.kinds
            known = misses.known_names(comparison.path[0], [kind.device for kind in kinds])
            yield from self.renamed(alternative, mark, comparison.path, known, cause.code)
        found: list[Help] = []
        if comparison is not None and comparison.span is not None:
            if cause.best:
                found += self.threshold(alternative, mark, comparison, cause.best)
            elif cause.code not in {"DRA022", "DRA023"}:
                found += self.other_values(alternative, cause, comparison)
        if not found and cause.code not in {"DRA022", "DRA023"}:
            found += self.repaired(alternative, mark)
        yield from found
        if not found:
            yield from self.dropped(alternative, mark, cause.condition)
        of_capacity = comparison is not None and comparison.path[0] == "capacity"
        if cause.code == "DRA014" and cause.of_class and comparison and of_capacity:
            size = "larger" if comparison.operator in {">", ">="} else "smaller"
            yield Help(kind="add", now=False, to=f"add a node with a {size} {_noun(cause)}")

    def other_values(
        self, alternative: Alternative, cause: NoSuchDevice, comparison: Comparison
    ) -> Iterator[Help]:
        """Propose a value that is spelled nearly the same, else the one with most free devices."""
        known = [each.value for each in cause.values]
        for value in comparison.values:
            near = similar(str(value), known) if isinstance(value, str) else ""
            if near:
                yield from self.valued(alternative, cause.mark, comparison, near, old=str(value))
        ordered = sorted(cause.values, key=lambda each: (-each.free, -each.devices, each.value))
        for each in ordered[:2]:
            yield from self.valued(alternative, cause.mark, comparison, each.value)

    def not_together(self, cause: NotTogether) -> Iterator[Help]:
        """Propose to give up, or to lower, each of the conditions."""
        alternative = self.inquiry.alternative(cause.asked.claim, cause.asked.request)
        for mark, (condition, _) in zip(cause.marks, cause.met, strict=True):
            comparison = condition.comparison
            nearest = self.nearest(alternative, mark, comparison) if comparison else ""
            if comparison is not None and nearest:
                yield from self.threshold(alternative, mark, comparison, nearest)
            else:
                yield from self.dropped(alternative, mark, condition)

    def lacking(self, cause: Lacking) -> Iterator[Help]:
        """Propose another attribute, or the amount that there is."""
        alternative = self.inquiry.alternative(cause.asked.claim, cause.asked.request)
        if cause.code == "DRA028":
            if cause.best:
                yield from self.less_capacity(alternative, cause.name, cause.best)
            return
        near = similar(cause.name, cause.known)
        if near:
            changed = edits.with_attribute(self.problem, alternative.claim, cause.number, near)
            found = Help(kind="spelling", now=True, to=near, mark=with_text(cause.mark, near))
            yield from self.confirmed(found, changed, even_if_not=True)
        yield from self.no_constraint(alternative.claim, cause.number)

    def too_few(self, cause: TooFew) -> Iterator[Help]:
        """Propose to wait, to ask for less, to tolerate a taint."""
        alternative = self.inquiry.alternative(cause.asked.claim, cause.asked.request)
        if cause.holders:
            yield from waits_for(self.inquiry, cause.holders)
        yield from self.fewer(alternative)
        for kind in self.inquiry.suits(alternative):
            for taint in kind.device.taints:
                if taint.repels and any(text == taint_text(taint) for text, _ in cause.taints):
                    tolerant = edits.tolerating(self.problem, alternative, taint)
                    found = tolerating(alternative, cause.asked.claim, taint)
                    yield from self.confirmed(found, tolerant)
        if cause.code == "DRA039":
            short = cause.name.rpartition("/")[2]
            names = [each for each in cause.asked.capacity if each.rpartition("/")[2] == short]
            if names and cause.offered not in {"", "0"}:
                yield from self.less_capacity(alternative, names[0], cause.offered)
        if cause.code != "DRA031":
            yield from self.relaxed(alternative)
            yield from self.add_like(cause.where)

    def unmatched(self, cause: Unmatched) -> Iterator[Help]:
        """Propose to wait, another attribute, fewer devices, or to leave the constraint out."""
        alternative = self.inquiry.alternative(cause.asked[0].claim, cause.asked[0].request)
        if cause.holders:
            yield from waits_for(self.inquiry, cause.holders)
        for asked in cause.asked:
            one = self.inquiry.alternative(asked.claim, asked.request)
            yield from self.fewer(one)
        name = cause.constraint.name
        if cause.constraint.kind == "match":
            wider = wider_attributes(self.inquiry, alternative, name, cause.where)
            yield from self.other_attributes(alternative.claim, cause, wider)
        elif cause.constraint.kind == "total":
            yield from self.more(alternative)
        yield from self.no_constraint(alternative.claim, cause.number)

    def together(self, cause: Competing | Together) -> Iterator[Help]:
        """Propose to wait, or to ask for less in one of the requests."""
        if isinstance(cause, Together) and cause.holders:
            yield from waits_for(self.inquiry, cause.holders)
        for asked in cause.asked:
            alternative = self.inquiry.alternative(asked.claim, asked.request)
            yield from self.fewer(alternative)
            yield from self.relaxed(alternative)
        for position, claim in enumerate(self.problem.claims):
            for number in range(len(claim.constraints)):
                yield from self.no_constraint(position, number)
            if len(claim.requests) > 1:
                yield from self.no_request(position)


def _noun(cause: NoSuchDevice) -> str:
    return cause.asked.class_name if "." not in cause.asked.class_name else "device"
