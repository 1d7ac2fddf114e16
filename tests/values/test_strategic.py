"""Strategic merge: what kube-apiserver does with lists by key, sets, orders and markers."""

import copy
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.values.patches import PatchError, merge_patch, same
from dralab.values.strategic import strategic_merge


@dataclass
class Facts:
    patch_strategy: tuple[str, ...] = ()
    patch_merge_key: str = ""
    fields: dict[str, "Facts"] = field(default_factory=dict)
    item: "Facts | None" = None

    def field(self, name):
        return self.fields.get(name)


port = Facts(("merge",), "port", item=Facts())
container = Facts(fields={"args": Facts(), "ports": port})
SPEC = Facts(
    fields={
        "containers": Facts(("merge",), "name", item=container),
        "finalizers": Facts(("merge",)),
        "strategy": Facts(("retainKeys",)),
        "whole": Facts(("replace",)),
        "labels": Facts(),
        "plain": Facts(),
        "keyless": Facts(("merge",), item=Facts()),
    }
)


def names(spec):
    return [item["name"] for item in spec["containers"]]


def of(*names):
    return [{"name": name} for name in names]


CASES = {
    "maps of a list merge by key": (
        {"containers": [{"name": "c", "image": "1", "args": ["x"]}, {"name": "d"}]},
        {"containers": [{"name": "d", "image": "2"}]},
        {"containers": [{"name": "c", "image": "1", "args": ["x"]}, {"name": "d", "image": "2"}]},
    ),
    "a list without a strategy is replaced": (
        {"plain": [1, 2], "containers": [{"name": "c", "args": ["x", "y"]}]},
        {"plain": [3], "containers": [{"name": "c", "args": ["z"]}]},
        {"plain": [3], "containers": [{"name": "c", "args": ["z"]}]},
    ),
    "null deletes": ({"plain": [1], "labels": {"a": "1"}}, {"plain": None}, {"labels": {"a": "1"}}),
    "an element can be deleted": (
        {"containers": of("c", "d")},
        {"containers": [{"name": "d", "$patch": "delete"}]},
        {"containers": of("c")},
    ),
    "new elements come before the ones the patch leaves alone": (
        {"containers": of("c", "d")},
        {"containers": of("e")},
        {"containers": of("e", "c", "d")},
    ),
    "new primitive values come before the old ones": (
        {"finalizers": ["x/1"]},
        {"finalizers": ["x/2"]},
        {"finalizers": ["x/2", "x/1"]},
    ),
    "a value that is there already is not there twice": (
        {"finalizers": ["x/1", "x/3"]},
        {"finalizers": ["x/3", "x/2"]},
        {"finalizers": ["x/1", "x/3", "x/2"]},
    ),
    "primitive values can be deleted": (
        {"finalizers": ["x/1", "x/2"]},
        {"$deleteFromPrimitiveList/finalizers": ["x/1", "x/9"]},
        {"finalizers": ["x/2"]},
    ),
    "an order is obeyed": (
        {"containers": [{"name": "c", "image": "1"}, {"name": "d"}]},
        {
            "$setElementOrder/containers": of("e", "c", "d"),
            "containers": [{"name": "e"}, {"name": "c", "image": "2"}],
        },
        {"containers": [{"name": "e"}, {"name": "c", "image": "2"}, {"name": "d"}]},
    ),
    "an order alone moves elements": (
        {"containers": of("a", "b", "c")},
        {"$setElementOrder/containers": of("c", "a", "b")},
        {"containers": of("c", "a", "b")},
    ),
    "what the order does not name keeps its place": (
        {"containers": of("a", "x", "b")},
        {"$setElementOrder/containers": of("a", "b")},
        {"containers": of("a", "x", "b")},
    ),
    "an order of primitives is obeyed": (
        {"finalizers": ["1", "2"]},
        {"$setElementOrder/finalizers": ["3", "2", "1"], "finalizers": ["3"]},
        {"finalizers": ["3", "2", "1"]},
    ),
    "an order for a list that nobody has says nothing": (
        {},
        {"$setElementOrder/containers": of("a")},
        {},
    ),
    "other keys than the retained ones go": (
        {"strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1}}},
        {"strategy": {"$retainKeys": ["type"], "type": "Recreate"}},
        {"strategy": {"type": "Recreate"}},
    ),
    "a map can be replaced": (
        {"labels": {"a": "1", "b": "2"}},
        {"labels": {"$patch": "replace", "only": "1"}},
        {"labels": {"only": "1"}},
    ),
    "a map can be emptied": (
        {"labels": {"a": "1"}},
        {"labels": {"$patch": "delete"}},
        {"labels": {}},
    ),
    "a marker in a map that nobody has says nothing": (
        {},
        {"labels": {"$patch": "bogus", "only": "1"}},
        {},
    ),
    "a field whose strategy is replace is replaced": (
        {"whole": {"a": 1, "b": 2}},
        {"whole": {"a": 3}},
        {"whole": {"a": 3}},
    ),
    "a list can be replaced": (
        {"containers": of("c", "d")},
        {"containers": [{"$patch": "replace"}, {"name": "e"}]},
        {"containers": of("e")},
    ),
    "lists inside elements merge by their own keys": (
        {"containers": [{"name": "c", "ports": [{"port": 1, "a": 1}, {"port": 2}]}]},
        {"containers": [{"name": "c", "ports": [{"port": 1, "b": 2}]}]},
        {"containers": [{"name": "c", "ports": [{"port": 1, "a": 1, "b": 2}, {"port": 2}]}]},
    ),
    "an element put in the place of a deleted one comes after what stays": (
        {"containers": of("a", "old", "z")},
        {
            "$setElementOrder/containers": of("new", "a"),
            "containers": [{"name": "new"}, {"name": "old", "$patch": "delete"}],
        },
        {"containers": of("z", "new", "a")},
    ),
    "a new element is taken whole, whatever it orders below": (
        {"containers": of("a")},
        {"containers": [{"name": "n", "ports": [{"port": 1, "$patch": "delete"}]}]},
        {"containers": [{"name": "n", "ports": [{"port": 1, "$patch": "delete"}]}, {"name": "a"}]},
    ),
    "nulls in a new part go, and orders are unknown fields to who decodes it": (
        {},
        {
            "labels": {"a": None, "b": "1"},
            "containers": [{"name": "x", "$setElementOrder/ports": [], "image": None}],
        },
        {"labels": {"b": "1"}, "containers": [{"name": "x", "$setElementOrder/ports": []}]},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_strategic_merge(case):
    original, patch, expected = CASES[case]
    before = copy.deepcopy((original, patch))
    assert strategic_merge(original, patch, SPEC) == expected
    assert (original, patch) == before


REFUSED = {
    "an element without its key": (
        {"containers": of("c")},
        {"containers": [{"image": "i"}]},
        "does not contain declared merge key: name",
    ),
    "an unknown marker": (
        {"labels": {"a": "1"}},
        {"labels": {"$patch": "bogus"}},
        "unknown patch type: bogus",
    ),
    "an unknown marker of an element": (
        {"containers": of("c")},
        {"containers": [{"name": "c", "$patch": "merge"}]},
        "merging lists cannot yet be specified in the patch",
    ),
    "retained keys that leave out the patch's own": (
        {"strategy": {"type": "a"}},
        {"strategy": {"$retainKeys": ["type"], "other": 1}},
        "invalid patch format of retainKeys",
    ),
    "an order that leaves out the patch's own": (
        {"containers": of("c")},
        {"$setElementOrder/containers": of("c"), "containers": of("d")},
        "doesn't match",
    ),
    "an order that is not a list": (
        {"containers": of("c")},
        {"$setElementOrder/containers": "c"},
        "setElementOrder",
    ),
    "lists of lists": ({"finalizers": [["a"]]}, {"finalizers": ["b"]}, "lists of lists"),
    "maps without a key": (
        {"keyless": [{"a": 1}]},
        {"keyless": [{"a": 2}]},
        "without merge key for struct",
    ),
    "maps mixed with others": (
        {"containers": of("c")},
        {"containers": ["c"]},
        r"element types are not identical: \[\[map\[name:c\]\] \[c\]\]",
    ),
    "a key that is a map": (
        {"containers": of("c")},
        {"containers": [{"name": {}}]},
        "plain value",
    ),
    "something that is not an object": ({}, [], "must be objects"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_patch_that_cannot_be_read_is_refused(case):
    original, patch, message = REFUSED[case]
    with pytest.raises(PatchError, match=message):
        strategic_merge(original, patch, SPEC)


keys = st.lists(st.sampled_from("abcdef"), unique=True)
plain = st.dictionaries(
    st.sampled_from(["labels", "strategy", "x"]),
    st.none() | st.integers(0, 2) | st.dictionaries(st.sampled_from("pq"), st.integers(0, 2)),
)


@given(plain, plain)
def test_without_lists_and_orders_it_is_a_merge_patch(original, patch):
    original = {key: value for key, value in original.items() if value is not None}
    assert same(strategic_merge(original, patch, SPEC), merge_patch(original, patch))


@given(keys, keys, st.data())
def test_the_result_holds_both_sides_and_keeps_each_order(original, patch, data):
    deleted = data.draw(st.sets(st.sampled_from(original))) if original else set()
    patch = [name for name in patch if name not in deleted]
    merged = strategic_merge(
        {"containers": of(*original)},
        {"containers": [*of(*patch), *({"name": n, "$patch": "delete"} for n in sorted(deleted))]},
        SPEC,
    )
    found = names(merged)
    assert set(found) == (set(original) - deleted) | set(patch)
    assert len(found) == len(set(found))
    assert [name for name in found if name in patch] == patch
    untouched = [name for name in original if name not in patch and name not in deleted]
    assert [name for name in found if name in untouched] == untouched


@given(keys, keys)
def test_a_complete_order_is_the_order(original, patch):
    wanted = sorted({*original, *patch}, reverse=True)
    patch = sorted(patch, reverse=True)
    merged = strategic_merge(
        {"containers": of(*original)},
        {"$setElementOrder/containers": of(*wanted), "containers": of(*patch)},
        SPEC,
    )
    assert names(merged) == wanted
