"""Rules of custom resources: what a broken one says, and what all of them together may cost."""

import pytest

from dralab.apiserver.verbs.kinds.custom_expressions import PER_WRITE, broken_rules

# About a thousand times a thousand steps, and then some.
DEAR = "self.items.all(a, self.items.all(b, a + b >= 0))"
NUMBERS = {"type": "array", "items": {"type": "integer"}}
OVERLOAD = "call arguments did not match a supported operator, function or macro signature for rule"


def told(schema, value, old=None, budget=PER_WRITE):
    return [str(error) for error in broken_rules(schema, value, old, "spec", budget)]


def rules(*rules, **more):
    return {"type": "object", "x-kubernetes-validations": list(rules)} | more


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        ({"rule": "self.n > 1"}, "spec: Invalid value: failed rule: self.n > 1"),
        ({"rule": "self.n > 1", "message": " too few "}, "spec: Invalid value: too few"),
        (
            {"rule": "self.n > 1", "fieldPath": ".n", "reason": "FieldValueRequired"},
            "spec.n: Required value: failed rule: self.n > 1",
        ),
        (
            {"rule": "self.n > 1", "reason": "FieldValueForbidden", "message": "no"},
            "spec: Forbidden: no",
        ),
        ({"rule": "self.n > 1", "reason": "FieldValueDuplicate"}, "spec: Duplicate value"),
        (
            {"rule": "self.n > 1", "messageExpression": "'only ' + string(self.n)"},
            "spec: Invalid value: only 1",
        ),
        (
            {"rule": "self.n > 1", "messageExpression": "string(self.m)", "message": "few"},
            "spec: Invalid value: few",
        ),
        (
            {"rule": "self.n / 0 == 1", "message": "halves"},
            'spec: Invalid value: "object": division by zero evaluating rule: halves',
        ),
        (
            {"rule": "self.n + 'a' == 'a'"},
            f"spec: Invalid value: \"object\": 'no such overload': {OVERLOAD}: self.n + 'a' == 'a'",
        ),
    ],
)
def test_a_broken_rule_is_told_in_the_words_of_a_server(rule, says):
    assert told(rules(rule), {"n": 1}) == [says]


def test_the_path_to_a_key_of_a_map_is_in_brackets():
    number = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]}
    holder = {"type": "object", "properties": {"n": number}}
    schema = {
        "type": "object",
        "properties": {"m": {"type": "object", "additionalProperties": holder}},
    }
    assert told(schema, {"m": {"k": {"n": 1}}}) == [
        "spec.m[k].n: Invalid value: 1: failed rule: self > 1"
    ]


def test_a_rule_of_a_scalar_shows_its_value():
    schema = {"type": "integer", "x-kubernetes-validations": [{"rule": "self > 1"}]}
    assert told(schema, 1) == ["spec: Invalid value: 1: failed rule: self > 1"]


@pytest.mark.thorough
def test_a_rule_that_costs_too_much_is_the_last_one():
    schema = rules(
        {"rule": "self.items.size() < 1", "message": "first"},
        {"rule": DEAR, "message": "dear"},
        {"rule": "false", "message": "never asked"},
        properties={"items": NUMBERS | {"x-kubernetes-validations": [{"rule": "false"}]}},
    )
    assert told(schema, {"items": [1] * 600}) == [
        "spec: Invalid value: first",
        "spec: Invalid value: \"object\": 'operation cancelled: actual cost limit exceeded': no "
        "further validation rules will be run due to call cost exceeds limit for rule: dear",
    ]


def test_all_rules_of_a_write_share_one_budget():
    schema = rules(*({"rule": "self.items.all(a, a < 5)", "message": str(n)} for n in range(9)))
    value = {"items": [1] * 100}
    assert told(schema, value) == []
    (error,) = told(schema, value, budget=2_000)
    assert error == (
        'spec: Invalid value: "object": validation failed due to running out of cost budget, no '
        "further validation rules will be run"
    )


@pytest.mark.thorough
def test_a_message_counts_as_well():
    schema = rules({"rule": "false", "messageExpression": f"string({DEAR})"}, {"rule": "false"})
    (error,) = told(schema, {"items": [1] * 600})
    assert "call cost exceeds limit for messageExpression" in error


def test_a_field_that_is_named_as_a_keyword_is_read_with_or_without_escape():
    schema = rules(
        {"rule": "self.namespace == 'a' && self.__namespace__ == 'a'", "message": "one"},
        {"rule": "has(self.namespace) && has(self.__namespace__) && !has(self.package)"},
        properties={"namespace": {"type": "string"}, "package": {"type": "string"}},
    )
    assert told(schema, {"namespace": "a"}) == []
    assert told(schema, {"namespace": "b"}) == ["spec: Invalid value: one"]
