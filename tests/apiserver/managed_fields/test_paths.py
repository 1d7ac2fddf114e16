"""Sets of fields against plain sets of paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.apiserver.managed_fields import paths

STEPS = ["f:a", "f:b", 'k:{"name":"c"}', "v:1"]
members = st.frozensets(
    st.lists(st.sampled_from(STEPS), min_size=1, max_size=3).map(tuple), max_size=6
)


def nested(found):
    """Build a set of fields from paths, as slowly as one likes."""
    root = {}
    for path in found:
        node = root
        for step in path:
            node = node.setdefault(step, {})
        node["."] = {}

    def tidied(node):
        below = {step: tidied(item) for step, item in node.items() if step != "."}
        if not below:
            return {}
        return {".": {}, **below} if "." in node else below

    return {step: tidied(node) for step, node in root.items()}


def flat(fields, prefix=()):
    found = set()
    for step, node in fields.items():
        if step == ".":
            continue
        if not node or "." in node:
            found.add((*prefix, step))
        found |= flat(node, (*prefix, step))
    return found


@given(members)
def test_the_written_form_is_read_back(found):
    assert flat(nested(found)) == found


@given(members, members)
def test_sets_of_fields_are_sets_of_paths(left, right):
    assert flat(paths.union(nested(left), nested(right))) == left | right
    assert flat(paths.difference(nested(left), nested(right))) == left - right
    assert flat(paths.intersection(nested(left), nested(right))) == left & right


@given(members, members)
def test_a_recursive_difference_takes_all_that_is_below(left, right):
    expected = {
        path for path in left if not any(path[:n] in right for n in range(1, len(path) + 1))
    }
    assert flat(paths.difference(nested(left), nested(right), recursive=True)) == expected


@given(members, members)
def test_nothing_changes_its_operands_and_results_keep_their_form(left, right):
    one, other = nested(left), nested(right)
    for operation in (paths.union, paths.difference, paths.intersection):
        found = operation(one, other)
        assert found == nested(flat(found))
    assert (one, other) == (nested(left), nested(right))


def test_paths_read_as_in_conflicts():
    fields = {
        "f:spec": {
            "f:ports": {'k:{"containerPort":80,"protocol":"TCP"}': {".": {}, "f:name": {}}},
            "f:finalizers": {'v:"x/1"': {}},
        }
    }
    assert list(paths.each(fields)) == [
        '.spec.finalizers[="x/1"]',
        '.spec.ports[containerPort=80,protocol="TCP"]',
        '.spec.ports[containerPort=80,protocol="TCP"].name',
    ]


@pytest.mark.parametrize(
    "wrong", [[], {"x": {}}, {"f:a": 1}, {"k:{": {}}, {"k:[1]": {}}, {"f:a": {"g": {}}}]
)
def test_what_is_no_set_of_fields_is_known(wrong):
    assert not paths.is_field_set(wrong)
