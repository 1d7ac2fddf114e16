"""What is wrong with a text that is no JSON, in Go's words."""

import json
import sys
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.values import json_syntax
from dralab.values.json_syntax import duplicate_fields, go_error, may_have_duplicates, strict_errors

CASES = [
    ("", "unexpected end of JSON input"),
    ("  ", "unexpected end of JSON input"),
    ("{", "unexpected end of JSON input"),
    ("{nope", "invalid character 'n' looking for beginning of object key string"),
    ('{"a" 1}', "invalid character '1' after object key"),
    ('{"a":1 "b":2}', "invalid character '\"' after object key:value pair"),
    ("[1 2]", "invalid character '2' after array element"),
    ("[1,]", "invalid character ']' looking for beginning of value"),
    ("tru", "unexpected end of JSON input"),
    ("trux", "invalid character 'x' in literal true (expecting 'e')"),
    ("nil", "invalid character 'i' in literal null (expecting 'u')"),
    ("1.x", "invalid character 'x' after decimal point in numeric literal"),
    ("1e", "unexpected end of JSON input"),
    ("-", "unexpected end of JSON input"),
    ("-a", "invalid character 'a' in numeric literal"),
    ("{} x", "invalid character 'x' after top-level value"),
    ('"a\nb"', "invalid character '\\n' in string literal"),
    (r'"\x"', "invalid character 'x' in string escape code"),
    (r'"\u12g4"', r"invalid character 'g' in \u hexadecimal character escape"),
    ("'a'", r"invalid character '\'' looking for beginning of value"),
]


@pytest.mark.parametrize(("text", "told"), CASES)
def test_the_first_mistake_is_told_as_go_tells_it(text, told):
    assert go_error(text.encode()) == told


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@given(JSON, st.data())
def test_every_text_that_is_no_json_has_a_mistake_and_no_other(value, data):
    text = json.dumps(value)
    cut = data.draw(st.integers(0, len(text)))
    text = text[:cut] + data.draw(st.sampled_from(["", "x", '"', "{", ",", "0"])) + text[cut:]
    try:
        json.loads(text)
    except ValueError:
        assert go_error(text.encode()) != "invalid JSON"
    else:
        assert go_error(text.encode()) == "invalid JSON"


@given(
    st.recursive(
        st.integers(0, 3) | st.text('a":\\', max_size=3),
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(st.tuples(st.sampled_from(["a", "b", 'c"', "d:"]), inner), max_size=3).map(
                tuple
            )
        ),
        max_leaves=8,
    )
)
def test_repeated_keys_are_never_missed(value):
    def spelled(value):
        if isinstance(value, tuple):
            return "{" + ",".join(f"{json.dumps(key)}:{spelled(item)}" for key, item in value) + "}"
        if isinstance(value, list):
            return "[" + ",".join(map(spelled, value)) + "]"
        return json.dumps(value)

    text = spelled(value).encode()
    encoded = json.dumps(json.loads(text), separators=(",", ":")).encode()
    if duplicate_fields(text):
        assert may_have_duplicates(text, encoded)


def test_repeated_keys_are_told_with_their_place():
    text = b'{"a":{"b":1,"b":2},"c":[{"d":1},{"d":1,"d":2}],"a":{}}'
    assert duplicate_fields(text) == ["a.b", "c[1].d", "a"]


def test_strict_errors_know_keys_with_dots_and_what_is_in_lists():
    text = b'{"a.b": 1, "c": [{"d": 1, "d": 2, "x.y": {"d": 1, "d": 2}}], "d": 1, "a.b": 2}'
    assert strict_errors(text, ["a.b", "c[0].x.y"]) == [
        ("unknown", "a.b"),
        ("duplicate", "c[0].d"),
        ("unknown", "c[0].x.y"),
    ]


def test_other_threads_have_turns_while_repeated_keys_are_looked_for():
    data = b"[" + b",".join([b'{"a":1,"a":2}'] * 50_000) + b"]"
    before, turns, over = sys.getswitchinterval(), [0], threading.Event()

    def count():
        while not over.is_set():
            turns[0] += 1

    other = threading.Thread(target=count)
    sys.setswitchinterval(1e-6)
    try:
        other.start()
        began = turns[0]
        json.loads(data, object_pairs_hook=json_syntax._as_pairs)
        assert turns[0] - began > 10
    finally:
        sys.setswitchinterval(before)
        over.set()
        other.join()


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("[1, 2, 3, 4, 5]", 5),
        ('{"a": 1, "b": [{}, {}]}', 6),
        ('["a,b,c", "[[[", "{\\"{", "\\\\"]', 4),
        ('["' + "," * 50, 1),
        ('["\\', 1),
    ],
)
def test_values_are_counted_outside_of_texts(text, count):
    text += " " * 50
    assert json_syntax.has_more_values(text.encode(), count - 1)
    assert not json_syntax.has_more_values(text.encode(), count)
