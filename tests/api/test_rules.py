"""Tables of rules: what is checked of which field, in which order."""

from itertools import permutations

import pytest

from dralab.api import fields, rules
from dralab.api.rules import (
    Ruleset,
    at_least,
    field,
    filled,
    forbidden_if,
    immutable,
    invalid_if,
    items,
    needs,
    one_of,
    present,
    required_if,
    where,
)

TABLE = Ruleset(
    "core.validateThing",
    needs("name", rules.label),
    field("mode", one_of("A", "B")),
    field("count", at_least(1), absent=0),
    filled("also", one_of("A"), shown="as"),
    present("part", why="must be set"),
    items("ports", Ruleset("core.validatePort", needs("number")), unique="number"),
    where("count", required_if("mode", lambda thing: (thing["count"] or 0) > 8, "of many")),
    forbidden_if("name", lambda thing: thing.get("mode") == "B", "no name"),
    invalid_if("", lambda thing: thing.get("mode") == "B", "B", value=len),
)


def told(value, path="spec"):
    return [str(error) for error in TABLE(value, path)]


def test_errors_come_in_the_order_of_the_table_whatever_that_of_the_fields():
    given = {"name": "A b", "mode": "C", "count": -1, "also": "D", "ports": [{}]}
    orders = {tuple(told(dict(order))) for order in permutations(given.items())}
    assert len(orders) == 1
    (found,) = orders
    assert [error.partition(":")[0] for error in found] == [
        "spec.name", "spec.mode", "spec.count", "spec.as", "spec.part", "spec.ports[0].number",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": ""}, "spec.name: Required value"),
        ({"count": None}, "spec.count: Invalid value: 0: must be greater than or equal to 1"),
        ({"part": None}, "spec.part: Required value: must be set"),
        ({"ports": [{"number": 1}] * 2}, "spec.ports[1].number: Duplicate value: 1"),
        ({"count": 9}, "spec.mode: Required value: of many"),
    ],
)
def test_a_rule_finds_what_breaks_it_and_nothing_else(given, error):
    good = {"name": "a", "count": 1, "part": {}}
    assert told(good) == []
    assert told(good | given) == [error]


def test_rules_of_the_struct_itself_show_what_they_are_told_to():
    given = {"name": "a", "count": 1, "part": {}, "mode": "B"}
    assert told(given) == ["spec.name: Forbidden: no name", "spec: Invalid value: 4: B"]


def test_a_rule_gets_the_object_before_a_change():
    table = Ruleset("core.validateThingUpdate", immutable("spec.kind", "data"))
    new, old = {"spec": {"kind": "A"}, "data": 1}, {"spec": {"kind": "B"}, "data": 1}
    assert table(old, "", old) == []
    assert [str(error) for error in table(new, "", old)] == [
        'spec.kind: Invalid value: "A": field is immutable'
    ]


def test_structs_of_many_forms_do_not_fill_the_memory():
    for number in range(5 * rules.MOST_PLANS):
        assert TABLE({f"f{number}": 1}, "spec")
    assert len(TABLE._plans) <= rules.MOST_PLANS
    assert fields.required("spec.name") in TABLE({}, "spec")


def test_each_rule_has_an_address():
    found = [address for address, _ in TABLE.addresses()]
    assert found[:3] == [
        "core.validateThing/name/required",
        "core.validateThing/name/label",
        "core.validateThing/mode/one-of-A-B",
    ]
    assert len(found) == len(set(found))
