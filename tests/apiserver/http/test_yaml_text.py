"""YAML bodies hold what JSON can hold, and nothing else."""

import pytest

from dralab.apiserver.http.yaml_text import NoYamlError, load


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
    ],
)
def test_a_text_is_read_as_json_would_have_it(text, value):
    assert load(text) == value


@pytest.mark.parametrize(
    "text",
    [
        b"a: .nan",
        b"a: .inf",
        b"a: !!binary aGk=",
        b"a: !!set {b, c}",
        b"a: " + b"9" * 400,
        b"a: [",
        b"[" * 100_000,
        b"a: !!python/object:os.system x",
    ],
)
def test_a_text_with_anything_else_is_refused(text):
    with pytest.raises(NoYamlError):
        load(text)
