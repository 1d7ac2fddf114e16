"""Case files of device selectors: run each case and compare with what it expects.

A case has a selector, a device, feature gates, the expected match or error, the expected largest
cost, and what upstream recorded (largest and actual cost per state of the list attribute gate).
"""

from collections.abc import Iterator, Mapping
from typing import Any

from dralab.cel.device import CelFeatures, device_value
from dralab.cel.errors import CelError, CompileError, CostExceededError
from dralab.cel.program import CompiledSelector, compile_selector
from dralab.cel.values import Map
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class CelCaseResult:
    """The result of one case: it passed if it has no problems."""

    name: str
    problems: tuple[str, ...]


def run_cases(cases: list[Mapping[str, Any]]) -> Iterator[CelCaseResult]:
    """Yield the outcome of every case, in order."""
    for case in cases:
        gate = case.get("enableListTypeAttributes")
        states = (False, True) if gate is None else (gate,)
        problems = []
        for state in states:
            problems += [
                f"list attributes {'on' if state else 'off'}: {problem}"
                for problem in _problems(case, list_type_attributes=state)
            ]
        yield CelCaseResult(case["name"], tuple(problems))


def _problems(case: Mapping[str, Any], *, list_type_attributes: bool) -> Iterator[str]:
    features = CelFeatures(
        consumable_capacity=bool(case.get("enableConsumableCapacity")),
        list_type_attributes=list_type_attributes,
    )
    recorded: Mapping[str, Any] = next(
        (
            one
            for one in case.get("upstream") or ()
            if one.get("listTypeAttributes") == list_type_attributes and "maxCost" in one
        ),
        {},
    )
    wanted = case.get("expectCompileErrorSubstring")
    try:
        selector = compile_selector(
            case["expression"], features, "new" if case.get("newExpressions") else "stored"
        )
    except CompileError as error:
        if wanted is None:
            yield f"does not compile: {error.detail}"
        elif wanted not in error.detail:
            yield f"compile error {error.detail!r} does not contain {wanted!r}"
        elif case.get("expectCost"):
            yield f"cost {case['expectCost']} is expected of an expression that does not compile"
        return
    if wanted is not None:
        yield f"compiles, but should fail with {wanted!r}"
        return
    yield from _costs(case, recorded, selector)
    yield from _match(case, recorded, selector)


def _costs(
    case: Mapping[str, Any], recorded: Mapping[str, Any], selector: CompiledSelector
) -> Iterator[str]:
    for source, wanted in (
        ("expected", case.get("expectCost")),
        ("recorded", recorded.get("maxCost")),
    ):
        if wanted is not None and wanted != selector.max_cost:
            yield f"largest cost {selector.max_cost}, {source} {wanted}"


def _match(
    case: Mapping[str, Any], recorded: Mapping[str, Any], selector: CompiledSelector
) -> Iterator[str]:
    wanted = case.get("expectMatchErrorSubstring")
    cost: int | None = None
    answer: bool | CelError
    try:
        device = device_value(
            driver=case.get("driver") or "",
            attributes=case.get("attributes"),
            capacity=case.get("capacity"),
            allow_multiple_allocations=case.get("allowMultipleAllocations"),
        )
    except CelError as error:
        answer = error
    else:
        answer, cost = selector.outcome(device)
        yield from _agreement(selector, device, answer)
    if isinstance(answer, CelError):
        if wanted is None:
            yield f"fails: {answer.message}"
        elif wanted not in answer.message:
            yield f"error {answer.message!r} does not contain {wanted!r}"
    elif wanted is not None:
        yield f"returns {answer}, but should fail with {wanted!r}"
    elif answer != bool(case.get("expectMatch")):
        yield f"returns {answer}"
    actual = recorded.get("actualCost")
    if cost is not None and actual is not None and cost != actual:
        yield f"actual cost {cost}, recorded {actual}"


def _agreement(selector: CompiledSelector, device: Map, answer: object) -> Iterator[str]:
    """Compare the exact evaluation with the fast one, which all other code uses."""
    if isinstance(answer, CostExceededError):
        # The fast one gives way at once, to the evaluation that was just given up.
        return
    try:
        fast: object = selector.evaluate(device)
    except CelError as error:
        fast = error.message
    exact = answer.message if isinstance(answer, CelError) else answer
    if fast != exact:
        yield f"the fast form returns {fast!r}, the exact one {exact!r}"
