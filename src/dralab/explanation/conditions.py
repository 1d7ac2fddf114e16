"""The conditions of a problem, a minimal conflict among them, and minimal remedies.

A condition is something that a person could change: a request, a selector, a count, a claim that
holds a device. What cannot be changed (how large a device is) is not a condition. Conflicts and
remedies ask "is the problem without these conditions feasible?" and nothing else. Conditions are
mostly monotone (dropping one never makes a problem infeasible), but not all: a selector of a
request for all devices is not, and one that guards another against errors is not. So results are
checked until nothing more can be left out, and are irreducible for any answers.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from itertools import combinations
from typing import Any, Final, Literal, TypeVar

from dralab.allocation.pools import PoolView
from dralab.allocation.problem import (
    Claim,
    Constraint,
    DeviceClass,
    DeviceId,
    InUse,
    Problem,
    Request,
    SubRequest,
    subrequests_of,
)
from dralab.objects.device_taints import DeviceTaint, DeviceToleration
from dralab.values.records import dataclass

T = TypeVar("T")
ConditionKind = Literal[
    "held", "taint", "capacity", "count", "constraint", "selector", "class-selector", "request"
]
EASIEST_FIRST: Final[tuple[ConditionKind, ...]] = (
    "held", "taint", "count", "capacity", "constraint", "selector", "class-selector", "request",
)  # fmt: skip
"""In which order a remedy is looked for: what costs a person least comes first."""

MOST_SINGLE_DEVICES: Final = 64
"""Beyond so many devices in use they are one condition for each node, not one for each device."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """One condition; which fields say which one depends on `kind`.

    held            `devices` that are in use, `holders` by which claims
    taint           `claim`, `request`: it does not tolerate `taint`
    count           `claim`, `request`: more than one device, `number` of them
    capacity        `claim`, `request`: it asks for `text`, an amount of a capacity
    constraint      `claim`, `number`: its position, `text`: what it says
    selector        `claim`, `request`, `number`: its position, `text`: the expression
    class-selector  `text`, `number` likewise; `request` is the name of the class
    request         `claim`, `request`: that it is asked at all

    `request` is a request, or an alternative as `request/subrequest`.
    """

    kind: ConditionKind
    claim: str = ""
    request: str = ""
    number: int = 0
    text: str = ""
    taint: DeviceTaint | None = None
    devices: tuple[DeviceId, ...] = ()
    holders: tuple[str, ...] = ()


def conditions_of(problem: Problem, views: Sequence[PoolView]) -> list[Condition]:
    """Return every condition of a problem on some nodes, the easiest to change first."""
    found = [*_held(problem.in_use, views), *_asked(problem, views)]
    classes = {each.class_name for each in subrequests_of(problem)}
    for name in sorted(classes & set(problem.classes)):
        for index, selector in enumerate(problem.classes[name].selectors):
            text = selector.text if selector is not None else ""
            found.append(Condition(kind="class-selector", request=name, number=index, text=text))
    return sorted(found, key=lambda condition: EASIEST_FIRST.index(condition.kind))


def without(problem: Problem, dropped: Iterable[Condition]) -> Problem:
    """Return the problem without some of its conditions."""
    gone = frozenset(dropped)
    if not gone:
        return problem
    freed = {device for condition in gone for device in condition.devices}
    fewer = replace(
        problem,
        claims=tuple(_claim(claim, gone) for claim in problem.claims),
        classes=_classes(problem.classes, gone),
        in_use=released(problem.in_use, freed),
    )
    return with_each(fewer, lambda claim, each: _alternative(str(claim), each, gone))


def with_each(problem: Problem, change: Callable[[Claim, SubRequest], SubRequest]) -> Problem:
    """Return a problem in which each alternative of each request is changed."""
    return replace(
        problem,
        claims=tuple(
            replace(
                claim,
                requests=tuple(
                    replace(
                        request,
                        subrequests=tuple(change(claim, each) for each in request.subrequests),
                    )
                    for request in claim.requests
                ),
            )
            for claim in problem.claims
        ),
    )


def holding(in_use: InUse, taken: AbstractSet[DeviceId]) -> InUse:
    """Return what is in use once some free devices are taken as a whole."""
    return replace(in_use, exclusive=in_use.exclusive | taken)


def released(in_use: InUse, freed: AbstractSet[DeviceId]) -> InUse:
    """Return what is in use once some devices are released."""
    if not freed:
        return in_use
    return InUse(
        exclusive=in_use.exclusive - freed,
        shares=frozenset(share for share in in_use.shares if share.device not in freed),
        consumed={
            device: amounts for device, amounts in in_use.consumed.items() if device not in freed
        },
        holders={device: names for device, names in in_use.holders.items() if device not in freed},
    )


def _held(in_use: InUse, views: Sequence[PoolView]) -> Iterator[Condition]:
    held = in_use.devices()
    if not held:
        return
    by_node: list[list[DeviceId]] = []
    seen: set[DeviceId] = set()
    for view in views:
        mine = [
            device
            for pool in view.pools
            for each in pool.consuming
            if (device := DeviceId(pool.driver, pool.name, each.name)) in held
            and device not in seen
        ]
        seen.update(mine)
        if mine:
            by_node.append(mine)
    single = len(seen) <= MOST_SINGLE_DEVICES
    for devices in by_node:
        for group in [[device] for device in devices] if single else [devices]:
            holders = {name for device in group for name in in_use.holders.get(device, ())}
            yield Condition(kind="held", devices=tuple(group), holders=tuple(sorted(holders)))


def _asked(problem: Problem, views: Sequence[PoolView]) -> Iterator[Condition]:
    taints = _repelling(views) if problem.features.device_taints else []
    for claim in problem.claims:
        name = str(claim)
        for request in claim.requests:
            yield Condition(kind="request", claim=name, request=request.name)
            for subrequest in request.subrequests:
                yield from _of_alternative(name, subrequest, taints)
        for index, constraint in enumerate(claim.constraints):
            yield Condition(kind="constraint", claim=name, number=index, text=said_by(constraint))


def _of_alternative(
    claim: str, subrequest: SubRequest, taints: Sequence[DeviceTaint]
) -> Iterator[Condition]:
    where: Mapping[str, Any] = {"claim": claim, "request": subrequest.name}
    for index, selector in enumerate(subrequest.selectors):
        text = selector.text if selector is not None else ""
        yield Condition(kind="selector", **where, number=index, text=text)
    if subrequest.mode == "ExactCount" and subrequest.count > 1:
        yield Condition(kind="count", **where, number=subrequest.count)
    for capacity in subrequest.capacity:
        yield Condition(kind="capacity", **where, text=capacity)
    for taint in taints:
        if not any(each.tolerates(taint) for each in subrequest.tolerations):
            yield Condition(kind="taint", **where, taint=taint)


def _repelling(views: Sequence[PoolView]) -> list[DeviceTaint]:
    found = {
        taint
        for view in views
        for offer in view.offers()
        for taint in offer.device.taints
        if taint.repels
    }
    return sorted(found, key=lambda taint: (taint.key, taint.value, taint.effect))


def said_by(constraint: Constraint) -> str:
    """Return a constraint in a few words."""
    words = {"match": "matchAttribute", "distinct": "distinctAttribute", "total": "total"}
    return f"{words.get(constraint.kind, 'unknown rule')} {constraint.name}".strip()


def _claim(claim: Claim, gone: frozenset[Condition]) -> Claim:
    name = str(claim)
    dropped = {each.request for each in gone if (each.kind, each.claim) == ("request", name)}
    ruled = {each.number for each in gone if (each.kind, each.claim) == ("constraint", name)}
    requests = tuple(each for each in claim.requests if each.name not in dropped)
    constraints = tuple(each for at, each in enumerate(claim.constraints) if at not in ruled)
    return replace(claim, requests=requests, constraints=_still_asked(constraints, requests))


def _still_asked(
    constraints: tuple[Constraint, ...], requests: tuple[Request, ...]
) -> tuple[Constraint, ...]:
    """Drop rules on requests that are gone: without requests they would bind all the others."""
    there = {request.name for request in requests}
    return tuple(
        constraint
        for constraint in constraints
        if not constraint.requests
        or any(name.partition("/")[0] in there for name in constraint.requests)
    )


def _alternative(claim: str, subrequest: SubRequest, gone: frozenset[Condition]) -> SubRequest:
    mine = [each for each in gone if (each.claim, each.request) == (claim, subrequest.name)]
    if not mine:
        return subrequest
    selectors = {each.number for each in mine if each.kind == "selector"}
    amounts = {each.text for each in mine if each.kind == "capacity"}
    tolerated = tuple(
        DeviceToleration(each.taint.key, "Equal", each.taint.value, each.taint.effect)
        for each in mine
        if each.taint is not None
    )
    return replace(
        subrequest,
        selectors=tuple(
            selector
            for index, selector in enumerate(subrequest.selectors)
            if index not in selectors
        ),
        count=1 if any(each.kind == "count" for each in mine) else subrequest.count,
        tolerations=subrequest.tolerations + tolerated,
        capacity={
            name: amount for name, amount in subrequest.capacity.items() if name not in amounts
        },
    )


def _classes(
    classes: Mapping[str, DeviceClass], gone: frozenset[Condition]
) -> Mapping[str, DeviceClass]:
    dropped = {(each.request, each.number) for each in gone if each.kind == "class-selector"}
    if not dropped:
        return classes
    return {
        name: replace(
            each,
            selectors=tuple(
                selector
                for index, selector in enumerate(each.selectors)
                if (name, index) not in dropped
            ),
        )
        for name, each in classes.items()
    }


IsFeasible = Callable[[Collection[Condition]], bool | None]
"""Whether the problem without these conditions is feasible; None: not known."""

MOST_PAIRS: Final = 300
MOST_REMEDIES: Final = 3


def conflict(conditions: Sequence[Condition], feasible: IsFeasible) -> tuple[Condition, ...] | None:
    """Return conditions that alone are infeasible, none of which can be left out.

    None where they are feasible, or where that is not known. What is hardest to change is
    kept last: the conditions at the end of the list are dropped first.
    """
    if feasible(()) is not False:
        return None

    def infeasible(candidate: Collection[Condition]) -> bool:
        return feasible([item for item in conditions if item not in candidate]) is False

    return tuple(_irreducible(conditions, infeasible))


def remedies(
    conditions: Sequence[Condition], feasible: IsFeasible
) -> tuple[tuple[Condition, ...], ...]:
    """Return minimal sets of conditions without which the rest is feasible, the easiest first.

    Single conditions where there are any (several, each enough by itself); what would have to be
    released if nothing else changed; a pair; else one set from which nothing can be taken away.
    That a request is not asked at all is proposed only where nothing less helps.
    """
    lesser = [item for item in conditions if item.kind != "request"]
    single = []
    for item in lesser:
        if feasible((item,)) is True:
            single.append((item,))
            if len(single) == MOST_REMEDIES:
                break
    if single:
        return (*single, *_waiting(single, lesser, feasible))
    released = tuple(_waiting((), lesser, feasible))
    if len(lesser) * (len(lesser) - 1) // 2 <= MOST_PAIRS:
        for pair in combinations(lesser, 2):
            if feasible(pair) is True:
                return (*released, pair) if pair not in released else released
    if released:
        return released
    found = _shrunk(conditions, feasible)
    return (found,) if found else ()


def _waiting(
    found: Sequence[tuple[Condition, ...]], lesser: Sequence[Condition], feasible: IsFeasible
) -> Iterator[tuple[Condition, ...]]:
    """Yield what would have to be released if nothing else changed, if that is several claims."""
    held = [item for item in lesser if item.kind == "held"]
    if len(held) > 1 and all(item.kind != "held" for remedy in found for item in remedy):
        released = _shrunk(held, feasible)
        if released:
            yield released


def _shrunk(conditions: Sequence[Condition], feasible: IsFeasible) -> tuple[Condition, ...]:
    """Start from all conditions dropped, and take back what is not needed, the hardest first."""
    if feasible(conditions) is not True:
        return ()
    dropped = _irreducible(conditions[::-1], lambda candidate: feasible(candidate) is True)
    return tuple(reversed(dropped))


def fewest(items: Sequence[T], holds: Callable[[Sequence[T]], bool]) -> list[T]:
    """Leave out each item without which a property still holds, the first ones first."""
    kept = list(items)
    for each in items:
        fewer = [other for other in kept if other is not each]
        if holds(fewer):
            kept = fewer
    return kept


def _irreducible(
    conditions: Sequence[Condition], holds: Callable[[Collection[Condition]], bool]
) -> list[Condition]:
    """Leave out what is not needed; whole runs at first: far fewer questions for many."""
    items = list(conditions)
    size = len(items) // 2
    while size > 1:
        at = 0
        while at < len(items):
            rest = items[:at] + items[at + size :]
            if holds(rest):
                items = rest
            else:
                at += size
        size //= 2
    while len(smaller := fewest(items, holds)) < len(items):
        items = smaller
    return items
