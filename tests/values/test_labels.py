import pytest

from dralab.values import labels


@pytest.mark.parametrize(
    ("text", "accepted", "refused"),
    [
        ("a=b", {"a": "b"}, {"a": "c"}),
        ("a==b", {"a": "b"}, {}),
        ("a!=b", {}, {"a": "b"}),
        ("a in (b, c)", {"a": "c"}, {"a": "d"}),
        ("a notin (b,c)", {}, {"a": "b"}),
        ("a", {"a": ""}, {}),
        ("!a", {}, {"a": ""}),
        ("a=b,c", {"a": "b", "c": ""}, {"a": "b"}),
        ("a=", {"a": ""}, {"a": "b"}),
        ("a>3", {"a": "4"}, {"a": "3"}),
    ],
)
def test_a_selector_accepts_and_refuses(text, accepted, refused):
    assert labels.parse(text).accepts(accepted)
    assert not labels.parse(text).accepts(refused)


@pytest.mark.parametrize("text", ["a in", "a=b=c", ",", "a,", "a in (b", "(a)", "!"])
def test_a_malformed_selector_is_refused(text):
    with pytest.raises(labels.SelectorError):
        labels.parse(text)


def test_a_node_selector_needs_one_term_with_conditions():
    assert not labels.node_selector_accepts({"nodeSelectorTerms": [{}]}, {}, "n")
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    assert labels.node_selector_accepts({"nodeSelectorTerms": [{}, term]}, {}, "n")
