"""Selectors of named resources: the maps they see, and what a server says of broken ones."""

import pytest

from dralab.prototypes.classic.selectors import ClassicSelectorError, accepts, problem
from dralab.prototypes.classic.structured import held_by, normalize

ATTRIBUTES = [
    {"name": "model", "string": "A100"},
    {"name": "memory", "quantity": "40Gi"},
    {"name": "ecc", "bool": True},
    {"name": "slices", "int": 7},
    {"name": "numa", "intSlice": {"ints": [0, 1]}},
    {"name": "modes", "stringSlice": {"strings": ["a", "b"]}},
    {"name": "driver", "version": "1.2.3"},
]


@pytest.mark.parametrize(
    ("selector", "answer"),
    [
        ("true", True),
        ('attributes.string["model"] == "A100"', True),
        ('attributes.string["model"] == "H100"', False),
        ('attributes.quantity["memory"].isGreaterThan(quantity("39Gi"))', True),
        ('attributes.bool["ecc"] && attributes.int["slices"] > 6', True),
        ('1 in attributes.intslice["numa"]', True),
        ('attributes.stringslice["modes"].isSorted()', True),
        ('attributes.version["driver"].isLessThan(semver("2.0.0"))', True),
        ('"model" in attributes.bool', False),
    ],
)
def test_each_type_of_attribute_has_a_map(selector, answer):
    assert problem(selector) == ""
    assert accepts(selector, ATTRIBUTES) is answer


@pytest.mark.parametrize(
    ("selector", "why"),
    [
        ("()", "Syntax error"),
        ("1", "must evaluate to bool, not int"),
        ("device.driver == 'x'", "undeclared reference to 'device'"),
        ('attributes.string["model"] == 1', "no matching overload"),
    ],
)
def test_what_is_no_selector_is_told(selector, why):
    assert why in problem(selector)
    with pytest.raises(ClassicSelectorError, match=why[:12]):
        accepts(selector, ATTRIBUTES)


@pytest.mark.parametrize(
    ("attributes", "why"),
    [
        ([], "no such key: model"),
        ([{"name": "model", "int": 1}], "no such key: model"),
        ([{"name": "v", "version": "one"}], 'attribute "v"'),
        ([{"name": "q", "quantity": "many"}], 'attribute "q"'),
    ],
)
def test_a_device_for_which_there_is_no_answer(attributes, why):
    with pytest.raises(ClassicSelectorError, match=why):
        accepts('attributes.string["model"] == "A"', attributes)


def request(**more):
    return {"driverRequests": [{"driverName": "d", "requests": [more]}]}


@pytest.mark.parametrize(
    ("value", "field"),
    [
        ({}, None),
        (request(namedResources={"selector": "true"}), None),
        (
            request(namedResources={"selector": "()"}),
            "driverRequests[0].requests[0].namedResources.selector",
        ),
        (request(vendorParameters={}), "driverRequests[0].requests[0]"),
        (
            {"filters": [{"driverName": "d", "namedResources": {"selector": "2"}}]},
            "filters[0].namedResources.selector",
        ),
    ],
)
def test_parameters_are_valid_when_their_selectors_are(value, field):
    found = normalize(value).findings
    assert [each.field for each in found] == ([] if field is None else [field])


def test_the_devices_of_a_claim_are_those_of_its_structured_handles():
    handles = [
        {"driverName": "old", "data": "opaque"},
        {
            "driverName": "d",
            "structuredData": {
                "nodeName": "n",
                "results": [{"namedResources": {"name": "x"}}, {}],
            },
        },
    ]
    claim = {"status": {"allocation": {"resourceHandles": handles}}}
    assert list(held_by(claim)) == [("n", "d", "x")]
    assert list(held_by({"status": {}})) == []
