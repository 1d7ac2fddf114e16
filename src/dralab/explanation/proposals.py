"""Proposals of each kind, and the question to the allocator that confirms or drops them."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from dralab.allocation.problem import Problem
from dralab.allocation.search.alternatives import Alternative
from dralab.cel.conjuncts import OWN_DOMAIN, Comparison
from dralab.explanation import edits, misses
from dralab.explanation.causes import ConditionText, Help, MarkedField, Unmatched
from dralab.explanation.conditions import Condition, without
from dralab.explanation.edits import repaired
from dralab.explanation.inquiry import Inquiry, total_of
from dralab.explanation.names import similar, taint_text
from dralab.explanation.questions import FleetQuestions
from dralab.explanation.sentences import condition_text
from dralab.objects.device_taints import DeviceTaint
from dralab.values.quantity import parse as parse_quantity

MOST_MORE: Final = 8
"""So many more devices than are asked for are tried."""


class Proposals:
    """Yields a proposal only where the allocator confirms it."""

    def __init__(self, inquiry: Inquiry) -> None:
        self.inquiry = inquiry
        self.asking = inquiry.asking
        self.problem = inquiry.problem

    # --- kinds of proposals

    def renamed(
        self,
        alternative: Alternative,
        mark: MarkedField,
        path: Sequence[str],
        known: Sequence[str],
        code: str,
    ) -> Iterator[Help]:
        """Propose a domain or a name that is spelled nearly the same."""
        span = mark.span
        if span is None:
            return
        if code == "DRA023":
            wrong, names = path[1], [name.partition("/")[0] for name in known]
        else:
            wrong = path[2]
            names = [
                name.partition("/")[2]
                for name in known
                if path[1] in {OWN_DOMAIN, name.partition("/")[0]}
            ]
        if not path[1]:
            names = [*known]
            full = [name for name in known if name.endswith(f"/{wrong}")]
        else:
            full = []
        near = next(iter(full), "") or similar(wrong, names)
        if not near:
            return
        text = mark.text[: span.start] + span.of(mark.text).replace(wrong, near)
        text += mark.text[span.end :]
        found = Help(kind="spelling", now=True, to=f"'{near}'")
        yield from self.edited(alternative, mark, text, found, even_if_not=True)

    def repaired(self, alternative: Alternative, mark: MarkedField) -> Iterator[Help]:
        """Propose what was meant by an expression that has the shape of a known mistake."""
        devices = [kind.device for kind in self.inquiry.kinds]
        if text := repaired(mark.text, devices):
            found = Help(kind="spelling", now=True, to=f"`{' '.join(text.split())}`")
            yield from self.edited(alternative, mark, text, found, even_if_not=True)

    def valued(
        self, alternative: Alternative, mark: MarkedField, comparison: Comparison, value: str, *,
        old: str = "",
    ) -> Iterator[Help]:  # fmt: skip
        """Propose another literal in a comparison; `old` is what it is a correction of."""
        text = edits.with_literal(mark.text, comparison, value, old)
        if text is None:
            return
        shown = f"'{value}'" if old else f"{comparison.path[-1]} {edits.quoted(comparison, value)}"
        made = Help(kind="spelling" if old else "value", now=True, to=shown)
        yield from self.edited(alternative, mark, text, made, even_if_not=bool(old))

    def threshold(
        self, alternative: Alternative, mark: MarkedField, comparison: Comparison, best: str
    ) -> Iterator[Help]:
        """Propose the best that there is as the threshold."""
        text = edits.with_literal(mark.text, comparison, best)
        if text is None:
            return
        lower, name = comparison.operator in {">", ">="}, comparison.path[-1]
        if comparison.constructor == "semver":
            what = f"{name} {best} or {'earlier' if lower else 'later'}"
        else:
            what = f"{best} {name} {'or less' if lower else 'or more'}"
        yield from self.edited(alternative, mark, text, Help(kind="value", now=True, to=what))

    def nearest(self, alternative: Alternative, mark: MarkedField, comparison: Comparison) -> str:
        """Return the best value of devices that meet every other condition; empty if none."""
        if comparison.operator not in misses.THRESHOLDS or comparison.span is None:
            return ""
        others = [
            part
            for part in misses.parts_of(alternative.conditions)
            if not (part.located.selector.text == mark.text and part.conjunct.span == mark.span)
        ]
        near = [
            kind
            for kind in misses.of_class(alternative, self.inquiry.kinds)
            if all(part.answer(kind.device) for part in others)
        ]
        return misses.best_of(comparison, near)

    def dropped(
        self, alternative: Alternative, mark: MarkedField, condition: ConditionText
    ) -> Iterator[Help]:
        """Propose to leave a condition out, where it is not all of a class."""
        if mark.owner[0] == "class":
            return
        text = edits.without(mark.text, condition.text)
        shown = condition_text(condition)
        yield from self.edited(alternative, mark, text, Help(kind="drop", now=True, to=shown))

    def relaxed(self, alternative: Alternative) -> Iterator[Help]:
        """Propose lower thresholds and other values for devices that are free now."""
        claim = self.inquiry.claim_of(alternative)
        for part in misses.parts_of(alternative.conditions):
            comparison = part.conjunct.comparison
            if part.located.where.startswith("class ") or comparison is None:
                continue
            mark = misses.mark_of(alternative, claim, part.located, part.conjunct.span)
            near = [
                kind
                for kind in misses.of_class(alternative, self.inquiry.kinds)
                if not part.answer(kind.device) and kind.free
            ]
            if comparison.operator in misses.THRESHOLDS:
                if best := misses.best_of(comparison, near):
                    yield from self.threshold(alternative, mark, comparison, best)
                continue
            if comparison.operator in {"==", "in"} and comparison.span is not None:
                values = misses.values_of(comparison.path, near)
                for each in sorted(values, key=lambda each: -each.free)[:1]:
                    yield from self.valued(alternative, mark, comparison, each.value)

    def request_note(self, alternative: Alternative) -> str:
        """Return which request a proposal is about, where that is not plain."""
        only = self.inquiry.asked(alternative).only and len(self.problem.claims) == 1
        return "" if only else f"in request {alternative.name}"

    def fewer(self, alternative: Alternative) -> Iterator[Help]:
        """Propose the largest count that fits now, or that would fit."""
        if alternative.count < 2:
            return
        claim = self.inquiry.claim_of(alternative)
        field = misses.request_field(alternative, "count")
        mark = misses.in_claim(claim, field, str(alternative.count))
        note = self.request_note(alternative)
        for empty in (False, True):
            most = self.inquiry.largest(self.problem, alternative, empty=empty)
            if most is None:
                return  # a smaller number would do as well, and the next page would name another
            if most:
                asked = with_text(mark, str(most))
                to = as_written(alternative, "count", most)
                yield Help(kind="count", now=not empty, number=most, mark=asked, note=note, to=to)
                return

    def more(self, alternative: Alternative) -> Iterator[Help]:
        """Propose the fewest devices that have an amount together, of a few more than are asked."""
        written = alternative.subrequest.written
        if written and "most" not in written:
            return  # a class limits them
        for number in range(alternative.count + 1, alternative.count + 1 + MOST_MORE):
            change = partial(replace, count=number)
            counted = edits.with_request(self.problem, alternative, change)
            note, to = self.request_note(alternative), as_written(alternative, "most", number)
            made = Help(kind="count", now=True, number=number, note=note, to=to)
            found = list(self.confirmed(made, counted))
            if found:
                yield found[0]
                return

    def less_capacity(self, alternative: Alternative, name: str, left: str) -> Iterator[Help]:
        """Propose the amount that is left, or that there is."""
        amount = parse_quantity(left)
        smaller = edits.with_request(
            self.problem, alternative,
            lambda each: replace(each, capacity={**each.capacity, name: amount}),
        )  # fmt: skip
        field = misses.request_field(alternative, f"capacity.requests[{name}]")
        mark = misses.in_claim(self.inquiry.claim_of(alternative), field, left)
        found = Help(kind="value", now=True, to=f"{left} {name} or less", mark=mark)
        yield from self.confirmed(found, smaller)

    def other_attributes(
        self, position: int, cause: Unmatched, known: Sequence[str]
    ) -> Iterator[Help]:
        """Propose the first of some other attributes for a constraint that is enough."""
        for each in known:
            changed = edits.with_attribute(self.problem, position, cause.number, each)
            found = Help(
                kind="constraint", now=True, to=each, note=cause.constraint.name,
                mark=with_text(cause.mark, each),
            )  # fmt: skip
            confirmed = list(self.confirmed(found, changed, only_now=True))
            if confirmed:
                yield confirmed[0]
                return

    def no_constraint(self, position: int, number: int) -> Iterator[Help]:
        """Propose to leave a constraint out."""
        claim = self.problem.claims[position]
        rule = claim.constraints[number]
        field = misses.constraint_field(rule, number)
        mark = misses.in_claim(str(claim), field)
        changed = edits.with_attribute(self.problem, position, number, "")
        found = Help(kind="drop", now=True, to=f"the constraint on {rule.name}", mark=mark)
        yield from self.confirmed(found, changed, only_now=True)

    def no_request(self, position: int) -> Iterator[Help]:
        """Propose to leave the last request of a claim out that is enough to leave out."""
        claim = self.problem.claims[position]
        for number in reversed(range(len(claim.requests))):
            name = claim.requests[number].name
            dropped = Condition(kind="request", claim=str(claim), request=name)
            field = misses.whole_request(claim, number)
            mark = misses.in_claim(str(claim), field)
            found = Help(kind="drop", now=True, to=f"request {name}", mark=mark)
            confirmed = list(self.confirmed(found, without(self.problem, [dropped])))
            if confirmed:
                yield confirmed[0]
                return

    def add_like(self, where: str) -> Iterator[Help]:
        """Propose one more node like one that could serve the pod if it were empty."""
        able = self.asking.servers(empty=True)
        if not able:
            return
        names = {name for place in able for name in place.names}
        like = where if where in names else able[0].names[0]
        yield Help(kind="add", now=True, to=f"add a node like {like}", note=like)

    # --- asking

    def edited(
        self, alternative: Alternative, mark: MarkedField, text: str, found: Help, *,
        even_if_not: bool = False,
    ) -> Iterator[Help]:  # fmt: skip
        """Yield a proposal to write another expression, with the devices that it would match."""
        changed = edits.with_expression(self.problem, alternative, mark, text)
        asking = self.asking.about(changed)
        again = Inquiry(asking)
        again.read_claims()
        same = next(
            each
            for each in again.each_alternative()
            if (each.claim, each.name) == (alternative.claim, alternative.name)
        )
        suits = [
            kind
            for kind in misses.of_class(same, again.kinds)
            if misses.selects(same.conditions, kind.device)
        ]
        free = sum(kind.free for kind in suits)
        counted = replace(
            found, mark=with_text(mark, text), devices=total_of(suits), free=free,
            note=self.request_note(alternative),
        )  # fmt: skip
        if even_if_not and not suits:
            return
        yield from self.confirmed(counted, changed, asking=asking, even_if_not=even_if_not)

    def confirmed(
        self, found: Help, changed: Problem, *, asking: FleetQuestions | None = None,
        only_now: bool = False, even_if_not: bool = False,
    ) -> Iterator[Help]:  # fmt: skip
        """Yield a proposal if the pod fits then, now or once devices are released.

        `even_if_not`: a correction is right even where something else is wrong, too.
        """
        asking = asking or self.asking.about(changed)
        if asking.serves() is True:
            yield replace(found, now=True)
        elif not only_now and (even_if_not or asking.serves(empty=True) is True):
            yield replace(found, now=False)


def tolerating(alternative: Alternative, claim: str, taint: DeviceTaint) -> Help:
    """Return a proposal to tolerate a taint of devices."""
    return Help(
        kind="tolerate", now=True, to=taint_text(taint),
        mark=misses.in_claim(claim, misses.request_field(alternative, "tolerations")),
        note="" if alternative.subrequest.tolerations else "first",
    )  # fmt: skip


def as_written(alternative: Alternative, part: str, number: int) -> str:
    """Return a number of devices in the words of an older generation's claim; empty if unknown."""
    path = misses.request_field(alternative, part)
    if not path or alternative.subrequest.written is None:
        return ""
    whole = misses.request_field(alternative, "")
    *outer, last = path.removeprefix(f"{whole}.").split(".")
    text = f"{last}: {number}"
    for name in reversed(outer):
        text = f"{name}: {{{text}}}"
    return f"`{text}` in {whole}"


def with_text(mark: MarkedField | None, text: str) -> MarkedField | None:
    """Return a mark with what is to be written there."""
    return None if mark is None else replace(mark, text=text, span=None)
