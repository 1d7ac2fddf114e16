"""YAML bodies hold what JSON can hold, and nothing else."""

import pytest

from dralab.apiserver.http.encodings.yaml_text import NoYamlError, load


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b"a: 1", {"a": 1}),
        (b'{"a": 1}', {"a": 1}),
        (b"{a: b}", {"a": "b"}),
        (b"a: 18446744073709551615", {"a": 18446744073709551615.0}),
        (b"a: 1180591620717411303424", {"a": 1.1805916207174113e21}),
        (b"a: 2026-01-01", {"a": "2026-01-01"}),
        (b"1: true", {"1": True}),
        (b"a: " + b"9" * 400, {"a": "9" * 400}),
        (b"a: &a {b: 1}\nc: {<<: *a, d: 2}", {"a": {"b": 1}, "c": {"b": 1, "d": 2}}),
    ],
)
def test_a_text_is_read_as_json_would_have_it(text, value):
    assert load(text)[0] == value


@pytest.mark.parametrize(
    "text",
    [
        b"a: .nan",
        b"a: .inf",
        b"x: [" + b"a," * 400_000 + b"]",
        b"a: !!binary aGk=",
        b"a: !!set {b, c}",
        b"a: [",
        b"[" * 100_000,
        b"a: !!python/object:os.system x",
    ],
)
def test_a_text_with_anything_else_is_refused(text):
    with pytest.raises(NoYamlError):
        load(text)


def test_what_an_alias_stands_for_is_no_longer_shared():
    value, _ = load(b"a: &a {b: 1}\nc: *a")
    assert value["a"] == value["c"]
    assert value["a"] is not value["c"]


def levels(line):
    """A document of a few lines, each of which stands for the one before several times."""
    return "\n".join(["a0: &a0 {k: v}", *(line.format(at, at - 1) for at in range(1, 24))]).encode()


@pytest.mark.parametrize(
    "text",
    [
        levels("a{0}: &a{0} {{<<: [*a{1}, *a{1}, *a{1}, *a{1}]}}"),
        levels("a{0}: &a{0} [*a{1}, *a{1}, *a{1}, *a{1}]"),
        b"a: &a {" + b",".join(b"k%d: v" % at for at in range(1000)) + b"}\nb: ["
        + b",".join([b"{<<: *a}"] * 1000) + b"]",
    ],
    ids=["merges", "aliases", "one large mapping merged often"],
)  # fmt: skip
def test_a_few_lines_that_stand_for_gigabytes_are_refused(text):
    with pytest.raises(NoYamlError, match="aliases that expand to more than"):
        load(text)
