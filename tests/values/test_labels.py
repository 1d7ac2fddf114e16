import pytest
from hypothesis import given
from hypothesis import strategies as st

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


KEYS = st.sampled_from("abcdefghijkl")
TERMS = st.one_of(
    KEYS,
    st.builds("!{}".format, KEYS),
    st.builds("{}{}{}".format, KEYS, st.sampled_from(["=", "!=", ">", "<"]), st.integers(0, 3)),
    st.builds(
        lambda key, operator, values: f"{key} {operator} ({','.join(map(str, values))})",
        KEYS, st.sampled_from(["in", "notin"]), st.lists(st.integers(0, 12), min_size=1),
    ),
)  # fmt: skip


@given(st.lists(TERMS, min_size=9), st.dictionaries(KEYS, st.integers(0, 12).map(str)))
def test_a_large_selector_accepts_what_all_its_conditions_accept(terms, shown):
    selector = labels.parse(",".join(terms))
    assert type(selector) is labels.LargeSelector
    plain = labels.Selector(selector.requirements)
    assert selector.accepts(shown) == plain.accepts(shown)


def test_the_operators_that_queries_cannot_write_are_the_same_in_large():
    many = tuple(labels.Requirement(f"k{n}", "DoesNotExist") for n in range(20))
    for each in (labels.Requirement("a", "NotIn"), labels.Requirement("a", "In")):
        for shown in ({"a": "1"}, {}, {"k3": "x"}):
            plain, large = labels.Selector((*many, each)), labels.LargeSelector((*many, each))
            assert large.accepts(shown) == plain.accepts(shown)


NAMED = {"key": "metadata.name", "operator": "In", "values": ["a", "b"]}


@pytest.mark.parametrize(
    ("term", "names"),
    [
        ({"matchFields": [NAMED]}, ["a", "b"]),
        ({"matchFields": [NAMED], "matchExpressions": [{"key": "k", "operator": "Exists"}]}, ["a", "b"]),
        ({"matchFields": [{**NAMED, "operator": "NotIn"}]}, None),
        ({"matchFields": [{**NAMED, "operator": "NotIn"}, NAMED]}, ["a", "b"]),
        ({"matchExpressions": [NAMED]}, None),
        ({"matchFields": None}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_term_names_nodes_by_their_field(term, names):
    assert labels.nodes_named_by(term) == names
    accepted = [name for name in "abc" if labels.node_term_accepts(term, {"k": "v"}, name)]
    assert names is None or set(accepted) <= set(names)
