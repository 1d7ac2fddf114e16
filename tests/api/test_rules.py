"""Tables of rules: what is checked of which field, in which order."""

import importlib
from itertools import permutations
from pathlib import Path

import pytest

import dralab.api
from dralab.api import fields, rules
from dralab.api.rules import RuleError, RuleTables

API = Path(dralab.api.__file__).parent
FILES = sorted(API.rglob("*.rules"))
TEXT = """group core: pkg/apis/core/validation

# The whole.
[validateThing]
name      required, label
mode      one of A B
count     or 0, at least 1
also      filled, one of A, as other
part      present: must be set
ports     each by number, validatePort
mode      required if (count or 0) > 8: of many
name      forbidden if mode == "B": no name
.         invalid if mode == "B" and name.startswith("a"), showing len(it): B
deep.end  required: needed
level     0 to 3: must be: low
text      at most 3 bytes, holds it != "no": not no
total     invalid if total != length(ports or ()), given total:
          must be the number of ports

[validatePort]
number  required, _odd

[validateThingUpdate]
spec.kind  immutable
data       immutable, as payload, showing _shown: stays

[validateNothing]
a  no_such_check

[validateLess]
a  at lowest 3
"""


def _odd(number, path, more):
    assert more in {None, "more"}
    return [] if number % 2 else [fields.invalid_value(path, number, "odd")]


def _shown(value):
    return f"<{value}>"


@pytest.fixture
def tables(tmp_path):
    (tmp_path / "things.rules").write_text(TEXT)
    scope = {"__file__": str(tmp_path / "things.py"), "__name__": "things", "_odd": _odd}
    return RuleTables({**scope, "_shown": _shown, "length": len})


@pytest.fixture
def told(tables):
    def told(value):
        found = tables["validateThing"]({"deep": {"end": 1}, **value}, "spec", "more")
        return [str(error) for error in found]

    return told


def test_errors_come_in_the_order_of_the_table_whatever_that_of_the_fields(told):
    given = {"name": "A b", "mode": "C", "count": -1, "also": "D", "ports": [{}]}
    orders = {tuple(told(dict(order))) for order in permutations(given.items())}
    assert len(orders) == 1
    (found,) = orders
    assert [error.partition(":")[0] for error in found] == [
        "spec.name", "spec.mode", "spec.count", "spec.other", "spec.part", "spec.ports[0].number",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"name": ""}, "spec.name: Required value"),
        ({"name": "-"}, 'spec.name: Invalid value: "-": a lowercase RFC 1123 label must'),
        ({"mode": "C"}, 'spec.mode: Unsupported value: "C": supported values: "A", "B"'),
        ({"count": None}, "spec.count: Invalid value: 0: must be greater than or equal to 1"),
        ({"part": None}, "spec.part: Required value: must be set"),
        ({"ports": [{"number": 1}] * 2}, "spec.ports[1].number: Duplicate value: 1"),
        ({"ports": [{"number": 2}]}, "spec.ports[0].number: Invalid value: 2: odd"),
        ({"count": 9}, "spec.mode: Required value: of many"),
        ({"deep": None}, "spec.deep.end: Required value: needed"),
        ({"level": 4}, "spec.level: Invalid value: 4: must be: low"),
        ({"text": "long"}, "spec.text: Too long: may not be more than 3 bytes"),
        ({"text": "no"}, 'spec.text: Invalid value: "no": not no'),
        ({"total": 1}, "spec.total: Invalid value: 1: must be the number of ports"),
    ],
)
def test_a_rule_finds_what_breaks_it_and_nothing_else(told, given, error):
    good = {"name": "a", "count": 1, "part": {}}
    assert told(good) == []
    (found,) = told(good | given)
    assert found.startswith(error)


def test_rules_of_the_struct_itself_show_what_they_are_told_to(told):
    given = {"name": "a", "count": 1, "part": {}, "mode": "B"}
    assert told(given) == ["spec.name: Forbidden: no name", "spec: Invalid value: 5: B"]


def test_a_rule_gets_the_object_before_a_change(tables):
    table = tables["validateThingUpdate"]
    new, old = {"spec": {"kind": "A"}, "data": 1}, {"spec": {"kind": "B"}, "data": 2}
    assert table(old, "", old) == []
    assert [str(error) for error in table(new, "", old)] == [
        'spec.kind: Invalid value: "A": field is immutable',
        'payload: Invalid value: "<1>": stays',
    ]


def test_not_all_items_of_a_list_are_looked_at(tables):
    found = tables["validateThing"]({"ports": [{}] * 5 * fields.MAX_ERRORS}, "spec")
    assert len(found) < fields.MAX_ERRORS + 9


def test_structs_of_many_forms_do_not_fill_the_memory(tables):
    table = tables["validateThing"]
    for number in range(5 * rules.MOST_PLANS):
        assert table({f"f{number}": 1}, "spec")
    assert len(table._plans) <= rules.MOST_PLANS


def test_each_rule_has_an_address(tables):
    found = [address for address, _ in tables["validateThing"].addresses()]
    assert found[:4] == [
        "core.validateThing/name/required",
        "core.validateThing/name/label",
        "core.validateThing/mode/one-of-A-B",
        "core.validateThing/count/at-least-1",
    ]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("name", ["validateNothing", "validateLess"])
def test_a_line_that_is_no_rule_is_refused_with_its_table(tables, name):
    with pytest.raises(RuleError, match=f"things: {name}: "):
        _ = tables[name].rules


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(API)))
def test_all_tables_of_a_file_can_be_read(file):
    module = importlib.import_module(
        "dralab.api." + ".".join(file.relative_to(API).with_suffix("").parts)
    )
    (tables,) = {
        found
        for found in (
            value if isinstance(value, RuleTables) else getattr(value, "tables", None)
            for value in vars(module).values()
        )
        if isinstance(found, RuleTables) and found.module == module.__name__
    }
    assert len(list(tables)) > 0
    for name in tables:
        assert tables[name].rules


def test_there_are_tables():
    assert len(FILES) > 10
