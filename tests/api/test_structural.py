import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.api import structural

SCHEMA = {
    "type": "object",
    "required": ["name"],
    "properties": {
        "name": {"type": "string", "maxLength": 5, "pattern": "^[a-z]+$"},
        "count": {"type": "integer", "minimum": 1, "maximum": 9, "default": 1},
        "mode": {"type": "string", "enum": ["a", "b"]},
        "port": {"x-kubernetes-int-or-string": True},
        "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "items": {
            "type": "array",
            "maxItems": 2,
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["k"],
            "items": {
                "type": "object",
                "properties": {"k": {"type": "string"}, "v": {"type": "number", "default": 2}},
            },
        },
        "one": {
            "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            "type": "object",
            "properties": {"a": {"type": "string"}, "b": {"type": "string"}},
        },
        "when": {"type": "string", "format": "date-time", "nullable": True},
    },
}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"name": "ok"}, []),
        ({}, ["name: Required value"]),
        (
            {"name": 1},
            ['name: Invalid value: "integer": name in body must be of type string: "integer"'],
        ),
        ({"name": "toolong"}, ["name: Too long: may not be more than 5 bytes"]),
        ({"name": "A"}, ["name: Invalid value: \"A\": name in body should match '^[a-z]+$'"]),
        (
            {"name": "a", "count": 0},
            ["count: Invalid value: 0: count in body should be greater than or equal to 1"],
        ),
        ({"name": "a", "mode": "c"}, ['mode: Unsupported value: "c": supported values: "a", "b"']),
        (
            {"name": "a", "port": 1.5},
            [
                'port: Invalid value: "number": port in body must be of type integer,string: "number"'
            ],
        ),
        (
            {"name": "a", "labels": {"x": 1}},
            [
                'labels.x: Invalid value: "integer": labels.x in body must be of type string: "integer"'
            ],
        ),
        (
            {"name": "a", "items": [{"k": "a"}, {"k": "a"}]},
            ['items[1]: Duplicate value: {"k":"a"}'],
        ),
        ({"name": "a", "items": [{}, {}, {}]}, ["items: Too many: 3: must have at most 2 items"]),
        (
            {"name": "a", "one": {"a": "x", "b": "y"}},
            [
                'one: Invalid value: "object": one in body must validate one and only one schema (oneOf). Found 2 valid alternatives'
            ],
        ),
        (
            {"name": "a", "when": "yesterday"},
            [
                'when: Invalid value: "yesterday": when in body must be of type date-time: "yesterday"'
            ],
        ),
        ({"name": "a", "when": None, "count": None}, []),
    ],
)
def test_a_value_is_checked_in_the_words_of_the_server(value, expected):
    assert [str(error) for error in structural.errors(SCHEMA, value)] == expected


def test_unknown_fields_are_named_and_pruned():
    value = {
        "name": "a",
        "bogus": 1,
        "free": {"x": 1},
        "items": [{"k": "a", "z": 0}],
        "labels": {"l": "v"},
    }
    assert structural.prune(SCHEMA, value) == ["bogus", "items[0].z"]
    assert value == {"name": "a", "free": {"x": 1}, "items": [{"k": "a"}], "labels": {"l": "v"}}


def test_the_metadata_of_an_embedded_object_has_the_fields_of_all_objects():
    metadata = {"type": "object", "properties": {"name": {"type": "string"}}}
    schema = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "properties": {"metadata": metadata, "spec": {"type": "object"}},
    }
    value = {
        "apiVersion": "v1", "kind": "Foo", "spec": {},
        "metadata": {"name": "a", "namespace": "b", "labels": {"c": "d"}, "extra": 1},
    }  # fmt: skip
    assert structural.prune(schema, value) == ["metadata.extra"]
    assert value["metadata"] == {"name": "a", "namespace": "b", "labels": {"c": "d"}}


def test_nulls_that_are_neither_allowed_nor_defaulted_are_dropped():
    # As kube-apiserver 1.36.2 stores them.
    schema = {
        "type": "object",
        "properties": {
            "names": {"type": "array", "items": {"type": "object", "properties": {"n": {}}}},
            "when": {"type": "string", "nullable": True},
            "count": {"type": "integer", "default": 1},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
            "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        },
    }
    value = {"names": None, "when": None, "count": None, "free": {"a": None}, "labels": {"l": None}}
    assert structural.prune(schema, value) == []
    assert value == {"when": None, "count": None, "free": {"a": None}, "labels": {}}
    value = {"names": [{"n": None}]}
    structural.prune(schema, value)
    assert value == {"names": [{}]}


def test_defaults_fill_what_is_absent_or_null():
    value = {"name": "a", "count": None, "items": [{"k": "x"}, {"k": "y", "v": 3}]}
    structural.apply_defaults(SCHEMA, value)
    assert value["count"] == 1
    assert [item["v"] for item in value["items"]] == [2, 3]


def test_a_hostile_pattern_cannot_hang():
    schema = {"type": "string", "pattern": "^(a+)+$"}
    assert structural.errors(schema, "a" * 5000 + "b")


def test_a_deep_value_is_refused_and_not_followed():
    schema = {"type": "object"}
    schema["properties"] = {"x": schema}
    value = {}
    for _ in range(500):
        value = {"x": value}
    assert "nested deeper" in str(structural.errors(schema, value)[0])


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "items", "k", "free", "zzz"]), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(json_values)
def test_what_was_pruned_has_no_unknown_fields_left(value):
    structural.prune(SCHEMA, value)
    assert structural.prune(SCHEMA, value) == []


class Compared(str):
    """A text that counts how often it was compared."""

    __slots__ = ()
    count = 0
    __hash__ = str.__hash__

    def __eq__(self, other):
        Compared.count += 1
        return str.__eq__(self, other)


@pytest.mark.parametrize("kind", ["set", "map"])
def test_twins_in_a_long_list_are_found_without_comparing_all_with_all(kind):
    items = [*(Compared(f"v{at}") for at in range(1000)), Compared("v0"), True, 1, 1.0]
    schema = {"x-kubernetes-list-type": kind, "x-kubernetes-list-map-keys": ["k"]}
    value = items if kind == "set" else [{"k": item} for item in items]
    Compared.count = 0
    assert [error.field for error in structural.errors(schema, value, "l")] == [
        "l[1000]",
        "l[1003]",
    ]
    assert Compared.count < 5_000


def test_values_of_all_shapes_have_twins():
    value = [{"a": [1, {"b": None}]}, {"a": [1, {"b": False}]}, {"a": [1, {"b": None}]}]
    found = structural.errors({"x-kubernetes-list-type": "set"}, value, "l")
    assert [error.field for error in found] == ["l[2]"]
