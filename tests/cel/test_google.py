"""Random expressions against Google's library for Python, which wraps cel-cpp."""

import math
import sys

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cel.expressions import expressions
from dralab.cel import CelError, compile_expression
from dralab.cel.library import extended

pytestmark = pytest.mark.conformance

KINDS = ["bool", "int", "double", "string", "list(int)", "list(string)"]
# cel-cpp knows no comprehensions with two variables.
UNKNOWN_THERE = ".exists(i, v,"


@pytest.fixture(scope="module")
def google():
    cel = pytest.importorskip(
        "cel_expr_python.cel", reason="cel-expr-python is missing: pip install --group oracle"
    )
    bindings = pytest.importorskip("cel_expr_python.ext.ext_bindings")
    optional = pytest.importorskip("cel_expr_python.ext.ext_optional")
    return cel.NewEnv(extensions=[bindings.ExtBindings(), optional.ExtOptional()])


def test_random_expressions_have_the_same_value(google):
    error = sys.modules["cel_expr_python.cel"].Type.ERROR
    answers = {"value": 0, "error": 0}

    @settings(max_examples=1000, deadline=None, database=None)
    @given(st.sampled_from(KINDS).flatmap(lambda kind: expressions(kind, 5, kubernetes=False)))
    def agree(text):
        assume(UNKNOWN_THERE not in text)
        found = google.compile(text).eval()
        ours, _ = compile_expression(text, extended()).outcome({})
        if found.type() == error:
            answers["error"] += 1
            assert isinstance(ours, CelError), (text, ours)
            return
        answers["value"] += 1
        theirs = found.plain_value()
        assert not isinstance(ours, CelError), (text, ours, theirs)
        if isinstance(theirs, float) and math.isnan(theirs):
            assert math.isnan(ours), text
        else:
            assert ours == theirs, (text, ours, theirs)

    agree()
    assert min(answers.values()) > 30
