"""A problem changed as a user would change the objects, and the commands that do so."""

import json
import shlex
from dataclasses import replace

import pytest

from allocation.test_fleet import CLASSES
from builders import ask, claim, device_class, first_of, request
from dralab.allocation import v1
from dralab.allocation.problem import Problem
from dralab.cel.conjuncts import conjuncts
from dralab.cel.device import environment
from dralab.explanation.causes import Help, MarkedField
from dralab.explanation.conditions import Condition
from dralab.explanation.conditions import without as dropped
from dralab.explanation.edits import (
    command_of,
    patch_of,
    pointer,
    quoted,
    with_attribute,
    with_expression,
    with_literal,
    with_request,
    without,
)
from dralab.explanation.misses import COMPILER
from dralab.objects.device_taints import DeviceTaint


class Which:
    """What edits need of an alternative."""

    def __init__(self, claim_, name):
        self.claim, self.name = claim_, name


def problem():
    reader = v1.V1Reader(COMPILER)
    rules = [{"matchAttribute": "d/a"}, {"distinctAttribute": "d/b"}, {"matchAttribute": "d/c"}]
    claims = [
        claim("c", request("r", "gpu", "true", "1 == 1"), request("s", "gpu", "true")),
        claim("d", first_of("f", a=ask("gpu", "true"), b=ask("gpu", "true")), constraints=rules),
    ]
    classes = [reader.device_class(each) for each in (device_class("gpu", "true"), CLASSES[0])]
    return Problem(
        claims=tuple(map(reader.claim, claims)),
        classes={each.name: each for each in classes},
        slices=(),
    )


def texts(found):
    """Return the selectors of all alternatives."""
    return {
        each.name: [one.text for one in each.selectors]
        for claim_ in found.claims
        for request_ in claim_.requests
        for each in request_.subrequests
    }


BEFORE = {"r": ["true", "1 == 1"], "s": ["true"], "f/a": ["true"], "f/b": ["true"]}


def test_an_expression_is_written_where_its_mark_is():
    mark = MarkedField(owner=("claim", "c"), field="x", text="true")
    found = with_expression(problem(), Which(0, "r"), mark, "false")
    assert texts(found) == BEFORE | {"r": ["false", "1 == 1"]}
    found = with_expression(problem(), Which(1, "f/b"), mark, "false")
    assert texts(found) == BEFORE | {"f/b": ["false"]}
    owner = replace(mark, owner=("class", "gpu"))
    found = with_expression(problem(), Which(0, "r"), owner, "false")
    assert texts(found) == BEFORE
    assert [each.text for each in found.classes["gpu"].selectors] == ["false"]
    assert found.classes.keys() == {"gpu", "any"}


def test_one_request_of_one_claim_is_changed():
    found = with_request(problem(), Which(0, "s"), lambda each: replace(each, count=7))
    counts = {
        each.name: each.count
        for claim_ in found.claims
        for request_ in claim_.requests
        for each in request_.subrequests
    }
    assert counts == {"r": 1, "s": 7, "f/a": 1, "f/b": 1}


@pytest.mark.parametrize(
    ("number", "name", "names"),
    [
        (0, "d/x", ["d/x", "d/b", "d/c"]),
        (1, "d/x", ["d/a", "d/x", "d/c"]),
    ],
)
def test_a_constraint_compares_another_attribute(number, name, names):
    found = with_attribute(problem(), 1, number, name)
    assert [each.name for each in found.claims[1].constraints] == names
    assert found.claims[0].constraints == ()


def test_a_taint_is_tolerated_besides_others():
    taint = DeviceTaint.read({"key": "k", "value": "v", "effect": "NoSchedule"})
    given_up = [Condition(kind="taint", claim="c", request="r", taint=taint)]
    found = dropped(dropped(problem(), given_up), given_up)
    first, second = (each.subrequests[0] for each in found.claims[0].requests)
    [one, other] = first.tolerations
    assert (one.key, one.operator, one.value, one.effect) == ("k", "Equal", "v", "NoSchedule")
    assert other == one
    assert second.tolerations == ()


@pytest.mark.parametrize(
    ("expression", "part", "left"),
    [
        ("a && b && c", "a", "b && c"),
        ("a && b && c", "b", "a && c"),
        ("a && b && c", "c", "a && b"),
        ("a &&b", "a", "b"),
        ("a", "a", "true"),
        ("(a || b) && c", "c", "(a || b)"),
        ("!(a)", "a", "!(true)"),
    ],
)
def test_a_part_of_an_expression_is_left_out(expression, part, left):
    assert without(expression, part).strip() == left


def comparison(expression):
    [only] = conjuncts(expression, environment())
    return only.comparison


@pytest.mark.parametrize(
    ("expression", "value", "expected"),
    [
        ('device.attributes["d"].a == "x"', "y", 'device.attributes["d"].a == "y"'),
        ("device.attributes['d'].a == 'x'", "y", "device.attributes['d'].a == 'y'"),
        ('device.attributes["d"].a == ""', "y", 'device.attributes["d"].a == "y"'),
        ('device.attributes["d"].n == 4', "2", 'device.attributes["d"].n == 2'),
        ('device.attributes["d"].n >= 4', "2", 'device.attributes["d"].n >= 2'),
        ('device.attributes["d"].n > 4', "2", 'device.attributes["d"].n > 1'),
        ('device.attributes["d"].n < 4', "6", 'device.attributes["d"].n < 7'),
        ('device.attributes["d"].n <= 4', "6", 'device.attributes["d"].n <= 6'),
        (
            'device.capacity["d"].m.compareTo(quantity("4Gi")) >= 0',
            "2Gi",
            'device.capacity["d"].m.compareTo(quantity("2Gi")) >= 0',
        ),
    ],
)
def test_another_literal_is_written_as_a_user_would(expression, value, expected):
    assert with_literal(expression, comparison(expression), value) == expected


def test_of_a_list_one_value_or_all_are_replaced():
    text = 'device.attributes["d"].a in ["x", "y"]'
    assert with_literal(text, comparison(text), "z", "x") == text.replace('"x"', '"z"')
    assert with_literal(text, comparison(text), "z") == text.replace('"x", "y"', '"z"')
    assert quoted(comparison(text), "z") == "'z'"
    number = comparison('device.attributes["d"].n == 4')
    assert quoted(number, "4") == "4"
    assert with_literal("x", replace(number, span=None), "4") is None


def test_a_strict_comparison_needs_what_lies_just_beyond():
    text = 'device.capacity["d"].m.compareTo(quantity("4Gi")) > 0'
    found = with_literal(text, comparison(text), "2Gi")
    assert found == text.replace("4Gi", "2147483647")
    assert with_literal(text, comparison(text), "x") is None
    version = 'device.attributes["d"].v.isGreaterThan(semver("1.2.3"))'
    assert with_literal(version, comparison(version), "1.0.0") is None


# --- patches --------------------------------------------------------------------------------------------

MARK = MarkedField(owner=("claim", "ml/c"), field="spec.devices.requests[0].exactly.count")


def helped(kind, *, text="", **fields):
    return Help(kind=kind, now=True, **({"mark": replace(MARK, text=text)} | fields))


PATH = "/spec/devices/requests/0/exactly/count"


@pytest.mark.parametrize(
    ("found", "patch"),
    [
        (helped("count", number=2), {"op": "replace", "path": PATH, "value": 2}),
        (helped("drop"), {"op": "remove", "path": PATH}),
        (helped("drop", text="t"), {"op": "replace", "path": PATH, "value": "t"}),
        (helped("spelling", text="t"), {"op": "replace", "path": PATH, "value": "t"}),
        (helped("value", text="t"), {"op": "replace", "path": PATH, "value": "t"}),
        (helped("constraint", text="t"), {"op": "replace", "path": PATH, "value": "t"}),
        (
            helped("tolerate", to="k=v:NoSchedule"),
            {
                "op": "add", "path": f"{PATH}/-",
                "value": {"key": "k", "operator": "Equal", "value": "v", "effect": "NoSchedule"},
            },
        ),
        (
            helped("tolerate", to="k:NoExecute", note="first"),
            {
                "op": "add", "path": PATH,
                "value": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}],
            },
        ),
        (helped("wait"), None),
        (helped("count", mark=None), None),
    ],
)  # fmt: skip
def test_a_help_is_a_patch_of_its_object(found, patch):
    assert patch_of(found) == ([] if patch is None else [patch])


def test_a_pointer_escapes_what_it_has_to():
    assert pointer("a.b[c/d~e][0]") == "/a/b/c~1d~0e/0"


def commanded(found, templates=None):
    return command_of(found, templates or {})


def test_a_class_is_patched_and_a_claim_is_made_again():
    mark = replace(MARK, owner=("class", "gpu"))
    said = shlex.split(commanded(helped("count", number=2, mark=mark)))
    assert said[:-1] == ["kubectl", "patch", "deviceclass", "gpu", "--type=json", "-p"]
    assert json.loads(said[-1]) == [{"op": "replace", "path": PATH, "value": 2}]
    said = commanded(helped("count", number=2))
    assert said.startswith("kubectl get resourceclaim c -n ml -o yaml | kubectl patch --local")
    assert said.endswith("| kubectl replace --force -f -")
    default = replace(MARK, owner=("claim", "default/c"))
    assert " -n " not in commanded(helped("count", number=2, mark=default))
    bare = replace(MARK, owner=("pod", "p"))
    assert commanded(helped("count", number=2, mark=bare)).startswith("kubectl get pod p -o yaml")


def test_a_claim_that_was_made_from_a_template_is_changed_there():
    said = commanded(helped("count", number=2), {"ml/c": "ml/t"})
    assert said.startswith("kubectl get resourceclaimtemplate t -n ml ")
    assert f'"/spec{PATH}"' in said


def test_some_helps_have_a_command_of_their_own_or_none():
    assert commanded(helped("node", command="kubectl uncordon n")) == "kubectl uncordon n"
    assert commanded(helped("wait")) == ""
    assert commanded(helped("wait", mark=None)) == ""
