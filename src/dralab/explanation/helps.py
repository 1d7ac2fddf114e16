"""Changes that would help against a cause, the cheapest first, each checked by the allocator.

Nothing is proposed that the allocator does not confirm: either the whole pod fits after the change
as things are now, or it would fit once devices in use are released, which the text then says.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from dralab.allocation.problem import Problem, SubRequest
from dralab.allocation.search.alternatives import Alternative
from dralab.cel.conjuncts import OWN_DOMAIN, Comparison
from dralab.explanation import causes, edits, misses
from dralab.explanation.causes import Help, MarkedField
from dralab.explanation.conditions import Condition, conditions_of, remedies, with_each, without
from dralab.explanation.inquiry import Inquiry, total_of, wider_attributes
from dralab.explanation.names import counted, similar, taint_text
from dralab.explanation.questions import MOST_GROUPS, FleetQuestions
from dralab.explanation.sentences import condition_text
from dralab.explanation.trial import waits_for
from dralab.values.quantity import parse as parse_quantity

MOST_HELPS: Final = 4
MOST_MORE: Final = 8
"""So many more devices than are asked for are tried."""
RANKS: Final = (
    "spelling", "guard", "tolerate", "wait", "value", "count", "constraint", "node", "drop",
    "move", "preempt", "several", "add",
)  # fmt: skip


def helps_for(
    inquiry: Inquiry, cause: causes.WaitingCause, most: int = MOST_HELPS
) -> tuple[Help, ...]:
    """Return what would help against a cause, the cheapest first."""
    found: dict[tuple[object, ...], Help] = {}
    proposals = _Proposals(inquiry)
    for each in proposals.against(cause):
        found.setdefault((each.kind, each.to, each.who, each.number), each)
    if not found and not isinstance(cause, causes.NothingThere | causes.Refused):
        return ordered(proposals.several(), most)
    return ordered(found.values(), most)


def ordered(found: Iterable[Help], most: int = MOST_HELPS) -> tuple[Help, ...]:
    """Return the cheapest helps first; a spelling correction is returned alone."""
    best = sorted(found, key=lambda each: (not each.now, RANKS.index(each.kind)))
    spelled = [each for each in best if each.kind == "spelling"]
    # A typo explains everything: to ask for something else would only distract.
    return tuple(spelled[:1] if spelled else best[:most])


class _Proposals:
    """Makes proposals for a cause, and yields those that the allocator confirms."""

    def __init__(self, inquiry: Inquiry) -> None:
        self.inquiry = inquiry
        self.asking = inquiry.asking
        self.problem = inquiry.problem

    def against(self, cause: causes.WaitingCause) -> Iterator[Help]:
        """Yield what would help against a cause."""
        match cause:
            case causes.Refused(code="DRA002"):
                yield from self._class_name(cause)
            case causes.FailingSelector():
                yield from self._failing(cause, self._of(*cause.asked))
            case causes.NoSuchDevice():
                yield from self._no_such_device(cause, self._of(*cause.asked))
            case causes.NotTogether():
                alternative = self._of(*cause.asked)
                for mark, (condition, _) in zip(cause.marks, cause.met, strict=True):
                    comparison = condition.comparison
                    best = self._nearest(alternative, mark, comparison) if comparison else ""
                    if comparison is not None and best:
                        yield from self._threshold(alternative, mark, comparison, best)
                    else:
                        yield from self._dropped(alternative, mark, condition)
            case causes.Lacking():
                yield from self._lacking(cause, self._of(*cause.asked))
            case causes.TooFew():
                yield from self._too_few(cause, self._of(*cause.asked))
            case causes.Unmatched():
                yield from self._unmatched(cause)
            case causes.Competing() | causes.Together():
                yield from self._together(cause)
            case causes.NoAlternative():
                for each in cause.causes:
                    yield from self.against(each)
            case _:
                return

    def several(self) -> Iterator[Help]:
        """Yield the smallest sets of changes that are enough, where no single change is."""
        places = self.asking.places[:MOST_GROUPS]
        conditions = conditions_of(self.problem, [place.view for place in places])
        for found in remedies(conditions, partial(self.asking.among, places=places))[:2]:
            if any(each.kind in {"class-selector", "request"} for each in found):
                continue
            # From the end of a list: what comes before keeps its place.
            given_up = sorted(found, key=lambda each: -each.number)
            parts = [self._given_up(each, found) for each in given_up if each.kind != "held"]
            first: set[tuple[object, str]] = set()
            for number, each in enumerate(parts):
                if each.kind == "tolerate" and each.mark is not None:
                    place = each.mark.owner, each.mark.field
                    if place in first:
                        parts[number] = replace(each, note="")
                    first.add(place)
            if holders := sorted({name for each in found for name in each.holders}):
                parts.insert(0, Help.waiting(holders, ""))
            yield Help(kind="several", parts=tuple(parts)) if len(parts) > 1 else parts[0]

    # --- by cause

    def _class_name(self, cause: causes.Refused) -> Iterator[Help]:
        """Propose a class of nearly the same name, or to create one for the driver."""
        near = similar(cause.name, cause.known)
        count = sum(kind.count for kind in self.inquiry.kinds if kind.device.driver == cause.name)
        if not near and count:
            text = f"create the class: {counted(count, 'device')} of driver {cause.name} are there"
            yield Help(kind="add", now=False, to=text)
        if not near or not cause.asked:
            return
        renamed = with_each(
            self.problem,
            lambda _, each: (
                replace(each, class_name=near) if each.class_name == cause.name else each
            ),
        )
        found = Help(kind="spelling", to=near, mark=with_text(cause.mark, near))
        yield from self._confirmed(found, renamed, even_if_not=True)

    def _failing(self, cause: causes.FailingSelector, alternative: Alternative) -> Iterator[Help]:
        """Propose the right name of an attribute, or a guard for devices that lack it."""
        mark, span = cause.mark, cause.mark.span
        if cause.lacking and cause.code != "DRA006":
            helps = list(self._renamed(alternative, mark, cause.lacking, cause.known, cause.code))
            yield from helps or self._repaired(alternative, mark)
            return
        if helps := list(self._repaired(alternative, mark)):
            yield from helps
            return
        if not cause.lacking or span is None:
            return
        sort, domain, name = cause.lacking
        part = next(
            part
            for part in misses.parts_of(alternative.conditions)
            if part.conjunct.span.start <= span.start < part.conjunct.span.end
            and part.located.selector.text == mark.text
        )
        at, inner = part.conjunct.span, part.conjunct.text
        inner = f"({inner})" if "||" in inner or "?" in inner else inner
        guard = f'"{name}" in device.{sort}["{domain}"] && {inner}'
        text = mark.text[: at.start] + guard + mark.text[at.end :]
        yield from self._edited(alternative, mark, text, Help(kind="guard", to=guard))

    def _no_such_device(
        self, cause: causes.NoSuchDevice, alternative: Alternative
    ) -> Iterator[Help]:
        """Propose the nearest value, the right name, or a node with such a device."""
        comparison, mark = cause.condition.comparison, cause.mark
        found: list[Help] = []
        if cause.code in {"DRA022", "DRA023"}:
            if comparison is not None:
                kinds = misses.of_class(alternative, self.inquiry.kinds) or self.inquiry.kinds
                known = misses.known_names(comparison.path[0], [kind.device for kind in kinds])
                yield from self._renamed(alternative, mark, comparison.path, known, cause.code)
        else:
            if comparison is not None and comparison.span is not None:
                if cause.best:
                    found += self._threshold(alternative, mark, comparison, cause.best)
                else:
                    found += self._other_values(alternative, cause, comparison)
            found = found or list(self._repaired(alternative, mark))
        yield from found
        if not found:
            yield from self._dropped(alternative, mark, cause.condition)
        of_capacity = comparison is not None and comparison.path[0] == "capacity"
        if cause.code == "DRA014" and cause.of_class and comparison and of_capacity:
            size = "larger" if comparison.operator in {">", ">="} else "smaller"
            noun = cause.asked[0].class_name if "." not in cause.asked[0].class_name else "device"
            yield Help(kind="add", now=False, to=f"add a node with a {size} {noun}")

    def _lacking(self, cause: causes.Lacking, alternative: Alternative) -> Iterator[Help]:
        """Propose another attribute, or the existing amount."""
        if cause.code == "DRA028":
            if cause.best:
                yield from self._less_capacity(alternative, cause.name, cause.best)
            return
        if near := similar(cause.name, cause.known):
            changed = edits.with_attribute(self.problem, alternative.claim, cause.number, near)
            found = Help(kind="spelling", to=near, mark=with_text(cause.mark, near))
            yield from self._confirmed(found, changed, even_if_not=True)
        yield from self._no_constraint(alternative.claim, cause.number)

    def _too_few(self, cause: causes.TooFew, alternative: Alternative) -> Iterator[Help]:
        """Propose to wait, to ask for less, to tolerate a taint."""
        yield from waits_for(self.inquiry, cause.holders)
        yield from self._fewer(alternative)
        for kind in self.inquiry.suits(alternative):
            for taint in kind.device.taints:
                if taint.repels and any(text == taint_text(taint) for text, _ in cause.taints):
                    asked = cause.asked[0]
                    given_up = Condition(
                        kind="taint", claim=asked.claim, request=asked.request, taint=taint
                    )
                    yield from self._without(given_up)
        if cause.code == "DRA039":
            short = cause.name.rpartition("/")[2]
            names = [each for each in cause.asked[0].capacity if each.rpartition("/")[2] == short]
            if names and cause.offered not in {"", "0"}:
                yield from self._less_capacity(alternative, names[0], cause.offered)
        if cause.code != "DRA031":
            yield from self._relaxed(alternative)
            yield from self._add_like(cause.where)

    def _unmatched(self, cause: causes.Unmatched) -> Iterator[Help]:
        """Propose to wait, another attribute, fewer devices, or to leave the constraint out."""
        alternative, rule = self._of(*cause.asked[:1]), cause.constraint
        yield from waits_for(self.inquiry, cause.holders)
        for asked in cause.asked:
            yield from self._fewer(self._of(asked))
        if rule.kind == "match":
            for each in wider_attributes(self.inquiry, alternative, rule.name, cause.where):
                changed = edits.with_attribute(self.problem, alternative.claim, cause.number, each)
                mark = with_text(cause.mark, each)
                found = Help(kind="constraint", to=each, note=rule.name, mark=mark)
                if confirmed := list(self._confirmed(found, changed, only_now=True)):
                    yield confirmed[0]
                    break
        elif rule.kind == "total":
            yield from self._more(alternative)
        yield from self._no_constraint(alternative.claim, cause.number)

    def _together(self, cause: causes.Competing | causes.Together) -> Iterator[Help]:
        """Propose to wait, or to ask for less in one of the requests."""
        if isinstance(cause, causes.Together):
            yield from waits_for(self.inquiry, cause.holders)
        for asked in cause.asked:
            yield from self._fewer(self._of(asked))
            yield from self._relaxed(self._of(asked))
        for position, claim in enumerate(self.problem.claims):
            for number in range(len(claim.constraints)):
                yield from self._no_constraint(position, number)
            # The last request that is enough to leave out.
            for request in reversed(claim.requests if len(claim.requests) > 1 else ()):
                given_up = Condition(kind="request", claim=str(claim), request=request.name)
                if found := list(self._without(given_up)):
                    yield found[0]
                    break

    # --- other expressions

    def _renamed(
        self, alternative: Alternative, mark: MarkedField, path: Sequence[str],
        known: Sequence[str], code: str,
    ) -> Iterator[Help]:  # fmt: skip
        """Propose a domain or a name that is spelled nearly the same."""
        span = mark.span
        if span is None:
            return
        _, domain, name = path
        wrong, full = (domain if code == "DRA023" else name), list[str]()
        if not domain:
            names, full = [*known], [each for each in known if each.endswith(f"/{wrong}")]
        elif code == "DRA023":
            names = [each.partition("/")[0] for each in known]
        else:
            split = (each.partition("/") for each in known)
            names = [short for of, _, short in split if domain in {OWN_DOMAIN, of}]
        near = next(iter(full), "") or similar(wrong, names)
        if near:
            text = mark.text[: span.start] + span.of(mark.text).replace(wrong, near)
            yield from self._spelled(alternative, mark, text + mark.text[span.end :], f"'{near}'")

    def _repaired(self, alternative: Alternative, mark: MarkedField) -> Iterator[Help]:
        """Propose a correction of an expression with a known mistake."""
        if text := edits.repaired(mark.text, [kind.device for kind in self.inquiry.kinds]):
            yield from self._spelled(alternative, mark, text, f"`{' '.join(text.split())}`")

    def _spelled(
        self, alternative: Alternative, mark: MarkedField, text: str, shown: str
    ) -> Iterator[Help]:
        found = Help(kind="spelling", to=shown)
        yield from self._edited(alternative, mark, text, found, even_if_not=True)

    def _other_values(
        self, alternative: Alternative, cause: causes.NoSuchDevice, comparison: Comparison
    ) -> Iterator[Help]:
        """Propose a value that is spelled nearly the same, else the one with most free devices."""
        known = [each.value for each in cause.values]
        for value in comparison.values:
            near = similar(str(value), known) if isinstance(value, str) else ""
            if near and (text := edits.with_literal(cause.mark.text, comparison, near, str(value))):
                yield from self._spelled(alternative, cause.mark, text, f"'{near}'")
        ordered_ = sorted(cause.values, key=lambda each: (-each.free, -each.devices, each.value))
        for each in ordered_[:2]:
            yield from self._valued(alternative, cause.mark, comparison, each.value)

    def _valued(
        self, alternative: Alternative, mark: MarkedField, comparison: Comparison, value: str
    ) -> Iterator[Help]:
        """Propose another literal in a comparison."""
        text = edits.with_literal(mark.text, comparison, value)
        if text is not None:
            shown = f"{comparison.path[-1]} {edits.quoted(comparison, value)}"
            yield from self._edited(alternative, mark, text, Help(kind="value", to=shown))

    def _threshold(
        self, alternative: Alternative, mark: MarkedField, comparison: Comparison, best: str
    ) -> Iterator[Help]:
        """Propose the best existing value as the threshold."""
        text = edits.with_literal(mark.text, comparison, best)
        if text is None:
            return
        lower, name = comparison.operator in {">", ">="}, comparison.path[-1]
        what = f"{best} {name} {'or less' if lower else 'or more'}"
        if comparison.constructor == "semver":
            what = f"{name} {best} or {'earlier' if lower else 'later'}"
        yield from self._edited(alternative, mark, text, Help(kind="value", to=what))

    def _dropped(
        self, alternative: Alternative, mark: MarkedField, condition: causes.ConditionText
    ) -> Iterator[Help]:
        """Propose to drop a condition, unless it is the only one of a class."""
        if mark.owner[0] != "class":
            text = edits.without(mark.text, condition.text)
            found = Help(kind="drop", to=condition_text(condition))
            yield from self._edited(alternative, mark, text, found)

    def _nearest(self, alternative: Alternative, mark: MarkedField, comparison: Comparison) -> str:
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

    def _relaxed(self, alternative: Alternative) -> Iterator[Help]:
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
                    yield from self._threshold(alternative, mark, comparison, best)
            elif comparison.operator in {"==", "in"} and comparison.span is not None:
                values = misses.values_of(comparison.path, near)
                for each in sorted(values, key=lambda each: -each.free)[:1]:
                    yield from self._valued(alternative, mark, comparison, each.value)

    # --- less

    def _fewer(self, alternative: Alternative) -> Iterator[Help]:
        """Propose the largest count that fits now, or that would fit."""
        if alternative.count < 2:
            return
        for empty in (False, True):
            most = self.inquiry.largest(self.problem, alternative, empty=empty)
            if most is None:
                return  # a smaller number would do as well, and the next page would name another
            if most:
                yield replace(self._count(alternative, most), now=not empty)
                return

    def _more(self, alternative: Alternative) -> Iterator[Help]:
        """Propose the fewest devices that have an amount together, of a few more than are asked."""
        written = alternative.subrequest.written
        if written and "most" not in written:
            return  # a class limits them
        for number in range(alternative.count + 1, alternative.count + 1 + MOST_MORE):
            found = replace(self._count(alternative, number, "most"), mark=None)
            change: Callable[[SubRequest], SubRequest] = partial(replace, count=number)
            counted_ = edits.with_request(self.problem, alternative, change)
            if confirmed := list(self._confirmed(found, counted_)):
                yield confirmed[0]
                return

    def _less_capacity(self, alternative: Alternative, name: str, left: str) -> Iterator[Help]:
        """Propose the amount that is left, or that exists."""
        amount = parse_quantity(left)
        smaller = edits.with_request(
            self.problem, alternative,
            lambda each: replace(each, capacity={**each.capacity, name: amount}),
        )  # fmt: skip
        mark = self._mark(alternative, f"capacity.requests[{name}]", left)
        found = Help(kind="value", to=f"{left} {name} or less", mark=mark)
        yield from self._confirmed(found, smaller)

    def _no_constraint(self, position: int, number: int) -> Iterator[Help]:
        """Propose to leave a constraint out."""
        claim = self.problem.claims[position]
        text = claim.constraints[number].name
        given_up = Condition(kind="constraint", claim=str(claim), number=number, text=text)
        yield from self._without(given_up, only_now=True)

    def _add_like(self, where: str) -> Iterator[Help]:
        """Propose one more node like one that could serve the pod if it were empty."""
        able = self.asking.servers(empty=True)
        if able:
            names = {name for place in able for name in place.names}
            like = where if where in names else able[0].names[0]
            yield Help(kind="add", to=f"add a node like {like}", note=like)

    # --- parts of helps

    def _of(self, asked: causes.Asked) -> Alternative:
        return self.inquiry.alternative(asked.claim, asked.request)

    def _mark(self, alternative: Alternative, part: str, text: str = "") -> MarkedField:
        field = misses.request_field(alternative, part)
        return misses.in_claim(self.inquiry.claim_of(alternative), field, text)

    def _note(self, alternative: Alternative) -> str:
        """Return which request a proposal is about, if that is not obvious."""
        only = self.inquiry.asked(alternative).only and len(self.problem.claims) == 1
        return "" if only else f"in request {alternative.name}"

    def _count(self, alternative: Alternative, number: int, part: str = "count") -> Help:
        return Help(
            kind="count", number=number, mark=self._mark(alternative, "count", str(number)),
            note=self._note(alternative), to=_as_written(alternative, part, number),
        )  # fmt: skip

    def _given_up(self, condition: Condition, others: Sequence[Condition] = ()) -> Help:
        """Return how a condition is dropped, together with others."""
        claims = [str(each) for each in self.problem.claims]
        claim = self.problem.claims[claims.index(condition.claim)]
        if condition.kind == "constraint":
            field = misses.constraint_field(claim.constraints[condition.number], condition.number)
            mark = misses.in_claim(condition.claim, field)
            return Help(kind="drop", to=f"the constraint on {condition.text}", mark=mark)
        if condition.kind == "request":
            number = [each.name for each in claim.requests].index(condition.request)
            mark = misses.in_claim(condition.claim, misses.whole_request(claim, number))
            return Help(kind="drop", to=f"request {condition.request}", mark=mark)
        alternative = self.inquiry.alternative(condition.claim, condition.request)
        note = f"in request {condition.request}"
        if condition.taint is not None:
            first = "" if alternative.subrequest.tolerations else "first"
            mark = self._mark(alternative, "tolerations")
            return Help(kind="tolerate", to=taint_text(condition.taint), mark=mark, note=first)
        if condition.kind == "count":
            rest = without(self.problem, [each for each in others if each is not condition])
            number = self.inquiry.largest(rest, alternative) or 1
            return replace(self._count(alternative, number), note=note)
        part, to = f"capacity.requests[{condition.text}]", condition.text
        if condition.kind != "capacity":
            part, to = f"selectors[{condition.number}]", f"`{' '.join(condition.text.split())}`"
        return Help(kind="drop", to=to, mark=self._mark(alternative, part), note=note)

    # --- asking

    def _without(self, condition: Condition, *, only_now: bool = False) -> Iterator[Help]:
        found = self._given_up(condition)
        yield from self._confirmed(found, without(self.problem, [condition]), only_now=only_now)

    def _edited(
        self, alternative: Alternative, mark: MarkedField, text: str, found: Help, *,
        even_if_not: bool = False,
    ) -> Iterator[Help]:  # fmt: skip
        """Yield a proposal to write another expression, with the devices that it would match."""
        changed = edits.with_expression(self.problem, alternative, mark, text)
        asking = self.asking.about(changed)
        again = Inquiry(asking)
        again.read_claims()
        suits = again.suits(again.alternative(again.claim_of(alternative), alternative.name))
        counted_ = replace(
            found, mark=with_text(mark, text), devices=total_of(suits),
            free=sum(kind.free for kind in suits), note=self._note(alternative),
        )  # fmt: skip
        if suits or not even_if_not:
            yield from self._confirmed(counted_, changed, asking=asking, even_if_not=even_if_not)

    def _confirmed(
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


def _as_written(alternative: Alternative, part: str, number: int) -> str:
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
    """Return a mark with the replacement text."""
    return None if mark is None else replace(mark, text=text, span=None)
