"""Schemas of definitions: rules, defaults and formats, in the words of kube-apiserver 1.36.2."""

import pytest

from apiserver.verbs.asking import Asked

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC = "spec.validation.openAPIV3Schema.properties[spec]"


def definition(spec):
    schema = {"type": "object", "properties": {"spec": {"type": "object", **spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "metadata": {"name": "bads.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Namespaced",
            "names": {"plural": "bads", "kind": "Bad"},
            "versions": [version],
        },
    }


def told(spec):
    code, found = Asked()("POST", CRDS, definition(spec))
    if code == 201:
        return []
    assert code == 422, found
    return [f"{each['field']}: {each['message']}" for each in found["details"]["causes"]]


def ruled(rule, **more):
    rule = rule if isinstance(rule, dict) else {"rule": rule}
    properties = {"a": {"type": "string", "maxLength": 10}}
    return {"properties": properties, "x-kubernetes-validations": [rule], **more}


RULE = f"{SPEC}.x-kubernetes-validations[0]"


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (
            "1",
            'rule: Invalid value: {"Rule":"1","Message":"","MessageExpression":"","Reason":null,'
            '"FieldPath":"","OptionalOldSelf":null}: cel expression must evaluate to a bool',
        ),
        (
            {"rule": "true", "messageExpression": "1"},
            'messageExpression: Invalid value: {"Rule":"true","Message":"","MessageExpression":"1",'
            '"Reason":null,"FieldPath":"","OptionalOldSelf":null}: messageExpression must evaluate '
            "to a string",
        ),
        (
            {"rule": "true", "message": " "},
            'message: Invalid value: " ": must be non-empty if specified',
        ),
        (
            {"rule": "true", "message": "a\nb"},
            'message: Invalid value: "a\\nb": must not contain line breaks',
        ),
        (
            {"rule": "true", "reason": "X"},
            'reason: Unsupported value: "X": supported values: "FieldValueDuplicate", '
            '"FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired"',
        ),
        (
            {"rule": "true", "fieldPath": ".zz"},
            'fieldPath: Invalid value: ".zz": must be a valid path',
        ),
        (
            {"rule": "true", "optionalOldSelf": True},
            "optionalOldSelf: Invalid value: true: may not be set if oldSelf is not used in rule",
        ),
        ("", "rule: Required value: rule is not specified"),
    ],
)
def test_the_parts_of_a_rule_are_checked(rule, words):
    assert told(ruled(rule)) == [f"{RULE}.{words}"]


@pytest.mark.parametrize(
    "rule",
    [
        "oldSelf.a == self.a",
        {"rule": "true", "fieldPath": ".a"},
        {"rule": "true", "reason": "FieldValueInvalid"},
    ],
)
def test_good_rules_are_taken(rule):
    assert told(ruled(rule)) == []


def test_items_of_a_list_without_keys_have_no_old_value():
    rule = {"rule": "self == oldSelf"}
    items = {"type": "string", "maxLength": 5, "x-kubernetes-validations": [rule]}
    found = told({"properties": {"l": {"type": "array", "maxItems": 3, "items": items}}})
    where = f"{SPEC}.properties[l]"
    assert found == [
        f'{where}.items.x-kubernetes-validations[0].rule: Invalid value: "self == oldSelf": oldSelf '
        f"cannot be used on the uncorrelatable portion of the schema within {where}"
    ]


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (
            {"type": "string", "default": 5},
            'Invalid value: "integer":  in body must be of type string: "integer"',
        ),
        (
            {"type": "integer", "minimum": 5, "default": 1},
            "Invalid value: 1:  in body should be greater than or equal to 5",
        ),
        (
            {"type": "object", "properties": {"y": {"type": "string"}}, "default": {"z": 1}},
            'Invalid value: {"z":1}: must not have unknown fields',
        ),
    ],
)
def test_a_default_is_a_value_of_its_own_schema(part, words):
    assert told({"properties": {"a": part}}) == [f"{SPEC}.properties[a].default: {words}"]


def test_a_pattern_that_cannot_be_read_is_told_of_in_the_words_of_go():
    assert told({"properties": {"a": {"type": "string", "pattern": "("}}}) == [
        f'{SPEC}.properties[a].pattern: Invalid value: "(": must be a valid regular expression, but '
        "isn't: error parsing regexp: missing closing ): `(`"
    ]


def test_formats_that_nothing_is_held_against_are_warned_of():
    schema = {"properties": {"a": {"type": "string", "format": "bogus"}}}
    answer = Asked().full("POST", CRDS, definition(schema))
    assert answer.status == 201
    assert dict(answer.headers)["Warning"] == '299 - "unrecognized format \\"bogus\\""'
