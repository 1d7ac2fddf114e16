"""Selectors in objects are compiled, and what is wrong with them is told as a server does."""

import json

import pytest

from builders import SHARED, device_class
from dralab.allocation.cel_compiler import compiled
from dralab.api.fields import invalid
from dralab.api.resource.features import ALL, DEFAULT_1_36
from dralab.api.resource.rules import validate_create

RECORDED = SHARED / "testdata" / "apiserver" / "semantics-v1.36.json"


@pytest.mark.skipif(not RECORDED.exists(), reason="recorded answers of a real server are not here")
@pytest.mark.parametrize("case", ["resourceslice bad"])
def test_refusals_are_those_of_a_recorded_server(case):
    (found,) = [item for item in json.loads(RECORDED.read_text())["cases"] if item["case"] == case]
    kind = found["answer"]["details"]["kind"]
    made = {"kind": kind} | found["body"]
    errors = validate_create(made, DEFAULT_1_36, compiled)
    status = invalid(kind, made["metadata"]["name"], errors, group="resource.k8s.io").status()
    assert status == found["answer"]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("device.driver == 'd'", None),
        ("device.driver", "must evaluate to bool or the unknown type"),
        ("devices.driver == 'd'", "undeclared reference to 'devices'"),
    ],
)
def test_expressions_are_compiled(expression, expected):
    error = compiled(expression, ALL, derived=False).error
    assert error is None if expected is None else expected in error


def test_lists_need_their_feature():
    text = "device.attributes['d'].sizes.includes(1)"
    assert compiled(text, ALL, derived=False).error is None
    assert compiled(text, DEFAULT_1_36, derived=False).error is not None


def test_an_expensive_expression_is_refused():
    inner = "true"
    for name in "abcde":
        inner = f"device.attributes.all({name}, {inner})"
    (error,) = validate_create(device_class("c", inner), ALL, compiled)
    assert str(error) == (
        "spec.selectors[0].cel.expression: Forbidden: too complex, exceeds cost limit"
    )
