"""One table of a file's fields gives the reader, its errors and the JSON schema."""

from pathlib import Path

import pytest

from dralab.scenarios.errors import InputError
from dralab.scenarios.fields import Fields, FieldSource
from dralab.scenarios.tables import (
    Table,
    by_name,
    choice,
    either,
    label,
    quantity,
    row,
    rows,
    texts,
    whole,
)

PART = Table({"name": label(required=True), "size": whole(least=1, default=1)})
THING = Table(
    {
        "colour": choice(["red", "blue"], "Of its paint.", default="red"),
        "count": whole("", 1, 9, default=1).checked(lambda n: "is odd" if n == 7 else ""),
        "parts": rows(PART),
        "spare": row(PART, always=False),
        "named": by_name(PART),
        "tags": texts(check=lambda text: "" if text else "is empty"),
        "either": either(whole(), row(PART), rows(PART), default=0),
        "file": label(needs="web"),
        "web": label(),
        "paper": label(),
        "cpu": quantity(scale=1000, default=0),
    },
    one_of=("web", "paper"),
)


def read(**value):
    return THING.read(Fields(FieldSource(Path("f.yaml")), "", value))


def test_what_is_not_given_has_its_default():
    given = read(web="w")
    assert (given.form, given.colour, given.count, given["parts"]) == ("web", "red", 1, [])
    assert (given.spare, given.named, given.tags, given.file, given.either) == (
        None,
        {},
        (),
        None,
        0,
    )


def test_an_object_a_list_or_a_plain_value_may_stand_in_one_field():
    assert read(web="w", either=3).either == 3
    assert read(web="w", either={"name": "a"}).either.name == "a"
    assert [each.size for each in read(web="w", either=[{"name": "a", "size": 2}]).either] == [2]


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ({}, "f.yaml: must have exactly one of web, paper"),
        ({"web": "w", "paper": "p"}, "f.yaml: must have exactly one of web, paper"),
        ({"paper": "p", "file": "f"}, "f.yaml: file: is unknown; known: colour, count, cpu"),
        ({"web": "w", "colour": "pink"}, "f.yaml: colour: 'pink' is not one of red, blue"),
        ({"web": "w", "count": 10}, "f.yaml: count: must be at most 9 and is 10"),
        ({"web": "w", "count": 10**20}, "f.yaml: count: must be a number, below 1e+18"),
        ({"web": "w", "count": 7}, "f.yaml: count: is odd"),
        ({"web": "w", "cpu": "1e30"}, "f.yaml: cpu: '1e30' is too much: at most 9223372036854775"),
        ({"web": "w", "parts": [{"size": 1}]}, "f.yaml: parts[0].name: must be given"),
        ({"web": "w", "parts": {}}, "f.yaml: parts: must be a list"),
        ({"web": "w", "named": {"a": {"name": "n", "size": 0}}}, "f.yaml: named.a.size: must be"),
        ({"web": "w", "tags": [""]}, "f.yaml: tags: is empty"),
        ({"web": "w", "spare": {"name": "n", "age": 3}}, "f.yaml: spare.age: is unknown; known"),
    ],
)
def test_an_error_names_the_file_the_field_and_what_would_be_right(value, told):
    with pytest.raises(InputError) as caught:
        read(**value)
    assert str(caught.value).startswith(told)


def test_the_schema_says_what_is_read():
    schema = THING.schema()
    assert schema["properties"]["colour"] == {
        "enum": ["red", "blue"],
        "description": "Of its paint.",
    }
    assert schema["properties"]["parts"]["items"]["required"] == ["name"]
    assert schema["oneOf"] == [{"required": ["web"]}, {"required": ["paper"]}]
    assert schema["dependentRequired"] == {"file": ["web"]}
    assert schema["additionalProperties"] is False
