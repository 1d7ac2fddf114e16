"""What would help against a cause: few changes, the cheapest first, each asked of the allocator.

Nothing is proposed that the allocator does not confirm: either the whole pod fits after the change
as things are now, or it would fit once devices in use are released, which the text then says.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final

from dralab.allocation.explanation import edits, misses
from dralab.allocation.explanation.causes import (
    Cause,
    Competing,
    ConditionText,
    FailingSelector,
    Help,
    Lacking,
    Mark,
    NoAlternative,
    NoSuchDevice,
    NotTogether,
    Refused,
    Together,
    TooFew,
    Unmatched,
)
from dralab.allocation.explanation.constrained import wider_attributes
from dralab.allocation.explanation.inquiry import Inquiry
from dralab.allocation.explanation.names import similar, taint_text
from dralab.allocation.explanation.questions import FleetQuestions
from dralab.allocation.explanation.supply import total_of
from dralab.allocation.explanation.waiting import waits_for
from dralab.allocation.explanation.words import condition_text
from dralab.allocation.problem import Problem
from dralab.allocation.search.alternatives import Alternative
from dralab.cel.conjuncts import Comparison
from dralab.values.quantity import parse as parse_quantity

MOST_HELPS: Final = 4
RANKS: Final = (
    "spelling", "node", "wait", "value", "count", "constraint", "tolerate", "drop", "move",
    "preempt", "add",
)  # fmt: skip


def helps_for(inquiry: Inquiry, cause: Cause) -> tuple[Help, ...]:
    """Return what would help against a cause, the cheapest first."""
    found: list[Help] = []
    for each in _candidates(inquiry, cause):
        if all((each.kind, each.to, each.who, each.number) != (o.kind, o.to, o.who, o.number)
               for o in found):  # fmt: skip
            found.append(each)
    found.sort(key=lambda each: (not each.now, RANKS.index(each.kind)))
    spelled = [each for each in found if each.kind == "spelling"]
    # A typo explains everything: to ask for something else would only distract.
    return tuple(spelled[:1] if spelled else found[:MOST_HELPS])


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


class _Checks:
    """Makes proposals and asks the allocator about each."""

    def __init__(self, inquiry: Inquiry) -> None:
        self.inquiry = inquiry
        self.asking = inquiry.asking
        self.problem = inquiry.problem

    # --- by cause

    def class_name(self, cause: Refused) -> Iterator[Help]:
        """Propose a class of nearly the same name."""
        near = similar(cause.name, cause.known)
        if not near or cause.asked is None:
            return
        renamed = replace(
            self.problem,
            claims=tuple(
                replace(
                    claim,
                    requests=tuple(
                        replace(
                            request,
                            subrequests=tuple(
                                replace(each, class_name=near)
                                if each.class_name == cause.name
                                else each
                                for each in request.subrequests
                            ),
                        )
                        for request in claim.requests
                    ),
                )
                for claim in self.problem.claims
            ),
        )
        yield from self.confirmed(
            Help(kind="spelling", now=True, to=near, mark=_with(cause.mark, near)), renamed,
            even_if_not=True,
        )  # fmt: skip

    def failing(self, cause: FailingSelector) -> Iterator[Help]:
        """Propose the right name of an attribute, or a guard for devices that lack it."""
        alternative = self.alternative(cause.asked.claim, cause.asked.request)
        if cause.lacking and cause.code != "DRA006":
            yield from self.renamed(alternative, cause.mark, cause.lacking, cause.known, cause.code)
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
            alternative, cause.mark, text, Help(kind="value", now=True, to=f"`{guard}`")
        )

    def no_such_device(self, cause: NoSuchDevice) -> Iterator[Help]:
        """Propose the nearest value, the right name, or a node with such a device."""
        alternative = self.alternative(cause.asked.claim, cause.asked.request)
        comparison, mark = cause.condition.comparison, cause.mark
        if cause.code in {"DRA022", "DRA023"} and comparison is not None:
            kinds = misses.of_class(alternative, self.inquiry.kinds) or self.inquiry.kinds
            known = misses.known_names(comparison.path[0], [kind.device for kind in kinds])
            yield from self.renamed(alternative, mark, comparison.path, known, cause.code)
        elif comparison is not None and comparison.span is not None:
            if cause.best:
                yield from self.threshold(alternative, mark, comparison, cause.best)
            else:
                yield from self.other_values(alternative, cause, comparison)
        if comparison is None or comparison.span is None:
            yield from self.dropped(alternative, mark, cause.condition)
        if cause.code == "DRA014" and cause.of_class:
            size = "larger" if comparison and comparison.operator in {">", ">="} else "smaller"
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
        alternative = self.alternative(cause.asked.claim, cause.asked.request)
        for mark, (condition, _) in zip(cause.marks, cause.met, strict=True):
            comparison = condition.comparison
            nearest = self.nearest(alternative, mark, comparison) if comparison else ""
            if comparison is not None and nearest:
                yield from self.threshold(alternative, mark, comparison, nearest)
            else:
                yield from self.dropped(alternative, mark, condition)

    def lacking(self, cause: Lacking) -> Iterator[Help]:
        """Propose another attribute, or the amount that there is."""
        alternative = self.alternative(cause.asked.claim, cause.asked.request)
        if cause.code == "DRA028":
            if not cause.best:
                return
            amount = parse_quantity(cause.best)
            smaller = edits.with_request(
                self.problem, alternative,
                lambda each: replace(each, capacity={**each.capacity, cause.name: amount}),
            )  # fmt: skip
            found = Help(
                kind="value", now=True, to=f"{cause.best} {cause.name} or less",
                mark=_with(cause.mark, cause.best),
            )  # fmt: skip
            yield from self.confirmed(found, smaller)
            return
        near = similar(cause.name, cause.known)
        if near:
            changed = edits.with_attribute(self.problem, alternative.claim, cause.name, near)
            found = Help(kind="spelling", now=True, to=near, mark=_with(cause.mark, near))
            yield from self.confirmed(found, changed)
        yield from self.no_constraint(alternative.claim, cause.name, cause.mark)

    def too_few(self, cause: TooFew) -> Iterator[Help]:
        """Propose to wait, to ask for less, to tolerate a taint."""
        alternative = self.alternative(cause.asked.claim, cause.asked.request)
        if cause.holders:
            yield from waits_for(self.inquiry, cause.holders)
        yield from self.fewer(alternative)
        for kind in self.inquiry.suits(alternative):
            for taint in kind.device.taints:
                if taint.repels and any(text == taint_text(taint) for text, _ in cause.taints):
                    tolerant = edits.tolerating(self.problem, alternative, taint)
                    found = Help(kind="tolerate", now=True, to=taint_text(taint))
                    yield from self.confirmed(found, tolerant)
        if cause.code == "DRA039":
            yield from self.less_capacity(alternative, cause)
        if cause.code != "DRA031":
            yield from self.relaxed(alternative)
            yield from self.add_like(cause.where)

    def unmatched(self, cause: Unmatched) -> Iterator[Help]:
        """Propose to wait, another attribute, fewer devices, or to leave the constraint out."""
        alternative = self.alternative(cause.asked.claim, cause.asked.request)
        if cause.holders:
            yield from waits_for(self.inquiry, cause.holders)
        yield from self.fewer(alternative)
        name = cause.constraint.name
        if cause.constraint.kind == "match":
            wider = wider_attributes(self.inquiry, alternative, name, cause.where)
            yield from self.other_attributes(alternative.claim, name, cause.mark, wider)
        yield from self.no_constraint(alternative.claim, name, cause.mark)

    def together(self, cause: Competing | Together) -> Iterator[Help]:
        """Propose to wait, or to ask for less in one of the requests."""
        if isinstance(cause, Together) and cause.holders:
            yield from waits_for(self.inquiry, cause.holders)
        for asked in cause.asked:
            alternative = self.alternative(asked.claim, asked.request)
            yield from self.fewer(alternative, name=True)
            yield from self.relaxed(alternative)
        for position, claim in enumerate(self.problem.claims):
            for number, rule in enumerate(claim.constraints):
                field = f"spec.devices.constraints[{number}]"
                mark = Mark(owner=("claim", str(claim)), field=field, text=rule.name)
                yield from self.no_constraint(position, rule.name, mark)

    # --- kinds of proposals

    def renamed(
        self, alternative: Alternative, mark: Mark, path: Sequence[str], known: Sequence[str],
        code: str,
    ) -> Iterator[Help]:  # fmt: skip
        """Propose a domain or a name that is spelled nearly the same."""
        span = mark.span
        if span is None:
            return
        if code == "DRA023":
            wrong, names = path[1], [name.partition("/")[0] for name in known]
        else:
            wrong = path[2]
            names = [name.partition("/")[2] for name in known if name.startswith(f"{path[1]}/")]
        near = similar(wrong, names)
        if not near:
            return
        text = mark.text[: span.start] + span.of(mark.text).replace(wrong, near)
        text += mark.text[span.end :]
        found = Help(kind="spelling", now=True, to=f"'{near}'")
        yield from self.edited(alternative, mark, text, found, even_if_not=True)

    def valued(
        self, alternative: Alternative, mark: Mark, comparison: Comparison, value: str, *,
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
        self, alternative: Alternative, mark: Mark, comparison: Comparison, best: str
    ) -> Iterator[Help]:
        """Propose the best that there is as the threshold."""
        text = edits.with_literal(mark.text, comparison, best)
        if text is None:
            return
        less = "or less" if comparison.operator in {">", ">="} else "or more"
        what = f"{best} {comparison.path[-1]} {less}"
        yield from self.edited(alternative, mark, text, Help(kind="value", now=True, to=what))

    def nearest(self, alternative: Alternative, mark: Mark, comparison: Comparison) -> str:
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
        self, alternative: Alternative, mark: Mark, condition: ConditionText
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
                if not part.answer(kind.device) and kind.free(self.inquiry.in_use)
            ]
            if comparison.operator in misses.THRESHOLDS:
                if best := misses.best_of(comparison, near):
                    yield from self.threshold(alternative, mark, comparison, best)
                continue
            if comparison.operator in {"==", "in"} and comparison.span is not None:
                values = misses.values_of(comparison.path, near, self.inquiry.in_use)
                for each in sorted(values, key=lambda each: -each.free)[:1]:
                    yield from self.valued(alternative, mark, comparison, each.value)

    def fewer(self, alternative: Alternative, *, name: bool = False) -> Iterator[Help]:
        """Propose the largest count that fits now, or that would fit."""
        if alternative.count < 2:
            return
        claim = self.inquiry.claim_of(alternative)
        mark = Mark(
            owner=("claim", claim), field=f"{misses.request_field(alternative)}.count",
            text=str(alternative.count),
        )  # fmt: skip
        note = f"in request {alternative.name}" if name else ""
        for empty in (False, True):
            most = self.inquiry.largest(self.problem, alternative, empty=empty)
            if most:
                yield Help(kind="count", now=not empty, number=most, mark=_with(mark, str(most)),
                           note=note)  # fmt: skip
                return

    def less_capacity(self, alternative: Alternative, cause: TooFew) -> Iterator[Help]:
        """Propose the amount that is left."""
        left = cause.offered
        if left in {"", "0"}:
            return
        name = next(
            (each for each in cause.asked.capacity if cause.name.endswith(each.rpartition("/")[2])),
            "",
        )
        if not name:
            return
        amount = parse_quantity(left)
        smaller = edits.with_request(
            self.problem, alternative,
            lambda each: replace(each, capacity={**each.capacity, name: amount}),
        )  # fmt: skip
        yield from self.confirmed(
            Help(kind="value", now=True, to=f"{left} {name} or less"), smaller
        )

    def other_attributes(
        self, position: int, name: str, mark: Mark | None, known: Sequence[str]
    ) -> Iterator[Help]:
        """Propose the first of some other attributes for a constraint that is enough."""
        for each in known:
            changed = edits.with_attribute(self.problem, position, name, each)
            found = Help(kind="constraint", now=True, to=each, note=name, mark=_with(mark, each))
            confirmed = list(self.confirmed(found, changed, only_now=True))
            if confirmed:
                yield confirmed[0]
                return

    def no_constraint(self, position: int, name: str, mark: Mark | None) -> Iterator[Help]:
        """Propose to leave a constraint out."""
        changed = edits.with_attribute(self.problem, position, name, "")
        found = Help(kind="drop", now=True, to=f"the constraint on {name}", mark=mark)
        yield from self.confirmed(found, changed, only_now=True)

    def add_like(self, where: str) -> Iterator[Help]:
        """Propose one more node like one that could serve the pod if it were empty."""
        able = self.asking.servers(empty=True)
        if not able:
            return
        names = {name for place in able for name in place.names}
        like = where if where in names else able[0].names[0]
        yield Help(kind="add", now=True, to=f"add a node like {like}")

    # --- asking

    def edited(
        self, alternative: Alternative, mark: Mark, text: str, found: Help, *,
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
        free = sum(len(kind.free(self.inquiry.in_use)) for kind in suits)
        counted = replace(found, mark=_with(mark, text), devices=total_of(suits), free=free)
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

    def alternative(self, claim: str, request: str) -> Alternative:
        """Return the alternative that a cause is about."""
        return next(
            each
            for each in self.inquiry.each_alternative()
            if (self.inquiry.claim_of(each), each.name) == (claim, request)
        )


def _with(mark: Mark | None, text: str) -> Mark | None:
    return None if mark is None else replace(mark, text=text, span=None)


def _noun(cause: NoSuchDevice) -> str:
    return cause.asked.class_name if "." not in cause.asked.class_name else "device"
