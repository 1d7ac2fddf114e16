"""A problem with one thing changed, as a user could change the objects."""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from dralab.allocation.problem import Claim, DeviceSelector, Problem, SubRequest
from dralab.allocation.search.alternatives import Alternative
from dralab.cel.conjuncts import Comparison
from dralab.explanation.causes import MarkedField
from dralab.explanation.misses import like
from dralab.objects.device_taints import DeviceTaint, DeviceToleration
from dralab.values.quantity import QuantityError
from dralab.values.quantity import parse as parse_quantity

STRICT: Final = {">", "<"}


def with_expression(
    problem: Problem, alternative: Alternative, mark: MarkedField, text: str
) -> Problem:
    """Return a problem with another expression where `mark` is: in its class or its request."""
    old = mark.text
    if mark.owner[0] == "class":
        name = mark.owner[1]
        changed = replace(
            problem.classes[name], selectors=_replaced(problem.classes[name].selectors, old, text)
        )
        return replace(problem, classes={**problem.classes, name: changed})
    return with_request(
        problem,
        alternative,
        lambda each: replace(each, selectors=_replaced(each.selectors, old, text)),
    )


def with_request(
    problem: Problem, alternative: Alternative, change: Callable[[SubRequest], SubRequest]
) -> Problem:
    """Return a problem with one alternative changed."""
    return with_claim(
        problem,
        alternative.claim,
        lambda claim: replace(
            claim,
            requests=tuple(
                replace(
                    request,
                    subrequests=tuple(
                        change(each) if each.name == alternative.name else each
                        for each in request.subrequests
                    ),
                )
                for request in claim.requests
            ),
        ),
    )


def with_claim(problem: Problem, position: int, change: Callable[[Claim], Claim]) -> Problem:
    """Return a problem with the claim at a position changed."""
    claims = list(problem.claims)
    claims[position] = change(claims[position])
    return replace(problem, claims=tuple(claims))


def tolerating(problem: Problem, alternative: Alternative, taint: DeviceTaint) -> Problem:
    """Return a problem in which an alternative tolerates a taint."""
    more = DeviceToleration(taint.key, "Equal", taint.value, taint.effect)
    return with_request(
        problem, alternative, lambda each: replace(each, tolerations=(*each.tolerations, more))
    )


def with_attribute(problem: Problem, position: int, number: int, name: str) -> Problem:
    """Return a problem in which one constraint of a claim compares another attribute; "": none."""
    rules = list(problem.claims[position].constraints)
    rules[number : number + 1] = [replace(rules[number], name=name)] if name else []
    return with_claim(problem, position, lambda claim: replace(claim, constraints=tuple(rules)))


def without(expression: str, part: str) -> str:
    """Return an expression without one of its parts; `true` where it was all of it."""
    for pattern in (f" && {part}", f"&& {part}", f"{part} && ", f"{part} &&"):
        if pattern in expression:
            return expression.replace(pattern, "", 1)
    return expression.replace(part, "true", 1)


def quoted(comparison: Comparison, value: str) -> str:
    """Return a value as it is written in a comparison."""
    plain = comparison.constructor or not isinstance(comparison.values[0], str)
    return value if plain else f"'{value}'"


def with_literal(expression: str, comparison: Comparison, value: str, old: str = "") -> str | None:
    """Return an expression with another literal in a comparison, None where none will do."""
    span = comparison.span
    if span is None:
        return None
    before = span.of(expression)
    sample = comparison.values[0]
    if comparison.operator in STRICT:
        value = _beyond(comparison, value)
        if not value:
            return None
    if comparison.operator == "in":
        quote = before.strip()[0] if isinstance(sample, str) else ""
        after = (
            before.replace(f"{quote}{old}{quote}", f"{quote}{value}{quote}")
            if old
            else f"{quote}{value}{quote}"
        )
    elif isinstance(sample, str):
        after = before.replace(sample, value) if sample else f'"{value}"'
    else:
        after = value
    return expression[: span.start] + after + expression[span.end :]


def _beyond(comparison: Comparison, value: str) -> str:
    """Return a threshold that a strict comparison with `value` still passes; empty if unknown."""
    step = -1 if comparison.operator == ">" else 1
    if comparison.constructor == "quantity":
        try:
            return str(parse_quantity(value) + step)
        except QuantityError:
            return ""
    whole = value.removeprefix("-").isdecimal()
    return "" if comparison.constructor or not whole else str(int(value) + step)


def _replaced(
    selectors: tuple[DeviceSelector | None, ...], old: str, text: str
) -> tuple[DeviceSelector | None, ...]:
    return tuple(
        like(each, text) if each is not None and each.text == old else each for each in selectors
    )
