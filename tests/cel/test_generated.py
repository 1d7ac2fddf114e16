"""Generated code against the exact evaluation, which is slow and plain."""

from dataclasses import replace

import pytest
from hypothesis import given, settings

from cel.expressions import devices, expressions
from dralab.cel import CelError, CompileError, compile_expression, compile_selector
from dralab.cel.device import environment
from dralab.cel.program import FAILURES, CompiledSelector
from dralab.cel.values import Map, equals

ANY_TYPE = replace(environment(), result=())


def compared(text, device):
    """Return the value, having seen that both forms agree wherever the fast one answers."""
    program = compile_expression(text, ANY_TYPE)
    exact, _ = program.outcome({"device": device}, 10**12)
    assert program.fast is not None
    try:
        fast = program.fast(device)
    except FAILURES:
        return exact
    assert type(fast) is type(exact), (text, fast, exact)
    assert equals(fast, exact), (text, fast, exact)
    return exact


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(text=expressions(), device=devices())
def test_the_generated_form_answers_as_the_exact_one_or_gives_way(text, device):
    compared(text, device)


@pytest.mark.thorough
@settings(max_examples=100, deadline=None)
@given(text=expressions(), device=devices())
def test_a_selector_answers_like_the_exact_evaluation(text, device):
    selector = compile_selector(text)
    answer, _ = selector.outcome(device)
    try:
        found = selector.evaluate(device)
    except CelError as error:
        found = error
    if isinstance(answer, CelError):
        assert (type(found), str(found)) == (type(answer), str(answer))
    else:
        assert found is answer


@pytest.mark.thorough
def test_random_expressions_are_of_every_kind():
    # A generator that made only errors, or only constants, would prove nothing.
    seen = set()

    @settings(max_examples=100, deadline=None, database=None)
    @given(text=expressions(), device=devices())
    def collect(text, device):
        answer, _ = compile_selector(text).outcome(device)
        seen.add("error" if isinstance(answer, CelError) else answer)

    collect()
    assert seen == {True, False, "error"}


def nested(template, depth, inner):
    for level in range(depth):
        inner = template.replace("@", inner).replace("#", str(level))
    return inner


DEEP = {
    "a sum of 2,000 terms": "+".join(["1"] * 2000) + " == 2000",
    "500 conditions": " && ".join(["1 == 1"] * 500),
    "500 alternatives with loops": " || ".join(["[1].exists(x, x == 2)"] * 500) + " || true",
    "nested loops": nested("[1].exists(x#, x# == 1 && @)", 60, "true"),
    "loops in conditionals": nested("([1].all(y#, y# == 1) ? @ : false)", 100, "true"),
    "loops in optionals": nested(
        "optional.of(1).optMap(a#, [a#].map(z#, @)[0]).orValue(2)", 70, "1"
    )
    + " == 1",
    "bindings in bindings": nested("cel.bind(b#, 1, @)", 200, "true"),
    "a chain of loops": "[1]" + ".map(x, x + 1)" * 200 + " == [201]",
    "240 brackets": "(" * 240 + "true" + ")" * 240,
    "240 lists": "size(" + "[" * 240 + "]" * 240 + ") == 1",
    "a chain of calls": '"A"' + ".lowerAscii()" * 900 + ' == "a"',
    "a chain of conditionals": "1 > 2 ? false : " * 240 + "true",
    "a chain of nots": "!" * 9000 + "true",
    "a chain of minuses": "-" * 9000 + "1 == 1",
    "optMap on optMap": "optional.of(1)" + ".optMap(x, x)" * 30 + ".orValue(2) == 1",
}


@pytest.mark.parametrize("text", DEEP.values(), ids=DEEP)
def test_deep_and_huge_expressions_work(text):
    device = Map(driver="d")
    assert compared(text, device) is True
    program = compile_expression(text, ANY_TYPE)
    assert program.paths == ()
    assert CompiledSelector(program=program, limit=10**12).evaluate(device) is True


TOO_DEEP = {
    "brackets": ("(" * 251 + "true" + ")" * 251, "expression recursion limit exceeded: 250"),
    "lists": ("[" * 5000 + "]" * 5000, "expression recursion limit exceeded: 250"),
    "open brackets": ("(" * 100_000, "expression recursion limit exceeded: 250"),
    "conditionals": ("true ? false : " * 5000 + "true", "expression recursion limit exceeded: 250"),
    "length": ("1" * 100_001, "expression code point size exceeds limit"),
}


@pytest.mark.parametrize(("text", "message"), TOO_DEEP.values(), ids=TOO_DEEP)
def test_what_is_too_deep_or_too_long_is_refused_with_one_message(text, message):
    with pytest.raises(CompileError, match=message):
        compile_expression(text, ANY_TYPE)
