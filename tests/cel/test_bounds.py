"""The bound of an expression on a known input is never below what the evaluation costs."""

import pytest

from dralab import cel
from dralab.cel import types
from dralab.cel.bounds import bound
from dralab.cel.json_values import Converted

ENVIRONMENT = cel.kubernetes().extended(variables={"object": types.DYN})
POD = {
    "metadata": {"name": "web", "labels": {f"key-{n}": "v" * n for n in range(20)}},
    "spec": {
        "containers": [
            {"name": f"c{n}", "image": "registry.example.com/" + "x" * 50, "args": ["a", "b"] * n}
            for n in range(12)
        ]
    },
}
BOUNDED = [
    "object.metadata.name == 'web' && object.spec.containers.size() > 3",
    "object.spec.containers.all(c, c.image.startsWith('registry.example.com/'))",
    "object.spec.containers.all(c, object.spec.containers.exists(d, d.name == c.name))",
    "object.spec.containers.exists(c, 'b' in c.args) || object.metadata.labels == object.spec",
    "object.metadata.labels.all(k, k.matches('^key-[0-9]+$'))",
    "has(object.spec.none) ? object.spec.none : object.?metadata.orValue(object) == object.metadata",
    "object.spec.containers.all(c, c in object.spec.containers)",
]
GROWING = [
    "object.spec.containers.map(c, c.name).size() > 1",
    "cel.bind(x, object.metadata.name + object.metadata.name, x + x).size() > 1",
    "{'a': object}.size() == 1",
    "object.spec.containers.map(c, c.image).join('').size() > 1",
]


@pytest.mark.parametrize("text", BOUNDED)
def test_no_evaluation_costs_more_than_its_bound(text):
    program = cel.compile_expression(text, ENVIRONMENT)
    given = Converted(POD)
    _, cost = program.outcome({"object": given.value})
    found = bound(program.tree)
    assert found is not None
    assert cost <= found.of(given.parts, given.longest)


@pytest.mark.parametrize("text", GROWING)
def test_what_builds_larger_values_has_no_bound(text):
    assert bound(cel.compile_expression(text, ENVIRONMENT).tree) is None


def test_what_is_converted_is_measured():
    found = Converted({"a": ["x", "yyy"], "b": None})
    assert (found.parts, found.longest) == (6, 3)
    assert found.value == {"a": ["x", "yyy"], "b": None}
