"""JSON patch and merge patch: the cases of their RFCs, and what must always hold."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.values import patches
from dralab.values.json_patches import json_patch
from dralab.values.patches import PatchError, merge_patch, same

names = st.sampled_from(["a", "b", "c", "d/e", "f~g", ""])
scalars = st.none() | st.booleans() | st.integers(-3, 3) | st.text("xy", max_size=2)
documents = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=8,
)

MERGE_CASES = [
    ({"a": "b"}, {"a": "c"}, {"a": "c"}),
    ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
    ({"a": "b"}, {"a": None}, {}),
    ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
    ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
    ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
    ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
    (["a", "b"], ["c", "d"], ["c", "d"]),
    ({"a": "foo"}, None, None),
    ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
    ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
]


@pytest.mark.parametrize(("document", "patch", "expected"), MERGE_CASES)
def test_a_merge_patch_does_what_rfc_7386_says(document, patch, expected):
    assert merge_patch(document, patch) == expected


@given(documents, documents)
def test_a_merge_patch_twice_is_a_merge_patch_once_and_changes_no_input(document, patch):
    before = copy.deepcopy((document, patch))
    once = merge_patch(document, patch)
    assert same(merge_patch(once, patch), once)
    assert same([document, patch], list(before))


@given(documents, documents)
def test_the_difference_of_two_documents_as_a_merge_patch_leads_from_one_to_the_other(left, right):
    def without_nulls(value):
        if isinstance(value, dict):
            return {k: without_nulls(v) for k, v in value.items() if v is not None}
        return value

    def difference(old, new):
        if not isinstance(old, dict) or not isinstance(new, dict):
            return new
        gone = {key: None for key in old if key not in new}
        return gone | {key: difference(old.get(key), value) for key, value in new.items()}

    left, right = without_nulls(left), without_nulls(right)
    assert same(merge_patch(left, difference(left, right)), right)


JSON_CASES = [
    ({"a": 1}, [{"op": "add", "path": "/b", "value": 2}], {"a": 1, "b": 2}),
    ({"l": [1, 3]}, [{"op": "add", "path": "/l/1", "value": 2}], {"l": [1, 2, 3]}),
    ({"l": [1]}, [{"op": "add", "path": "/l/-", "value": [2]}], {"l": [1, [2]]}),
    ({"a": 1, "b": 2}, [{"op": "remove", "path": "/a"}], {"b": 2}),
    ({"l": [1, 2, 3]}, [{"op": "remove", "path": "/l/1"}], {"l": [1, 3]}),
    ({"a": 1}, [{"op": "replace", "path": "/a", "value": None}], {"a": None}),
    (
        {"a": {"x": 1}, "b": {}},
        [{"op": "move", "from": "/a/x", "path": "/b/y"}],
        {"a": {}, "b": {"y": 1}},
    ),
    ({"l": [1, 2, 3]}, [{"op": "move", "from": "/l/0", "path": "/l/2"}], {"l": [2, 3, 1]}),
    ({"a": [1]}, [{"op": "copy", "from": "/a", "path": "/b"}], {"a": [1], "b": [1]}),
    ({"a~b/c": 1}, [{"op": "replace", "path": "/a~0b~1c", "value": 2}], {"a~b/c": 2}),
    ({"~1": 1}, [{"op": "test", "path": "/~01", "value": 1}], {"~1": 1}),
    ({"a": 1}, [{"op": "replace", "path": "", "value": [1]}], [1]),
    ({"": 1}, [{"op": "test", "path": "/", "value": 1}], {"": 1}),
    ({"a": 1}, [{"op": "test", "path": "/none", "value": None}], {"a": 1}),
    (
        {"a": [1]},
        [
            {"op": "copy", "from": "/a", "path": "/b"},
            {"op": "add", "path": "/b/-", "value": 2},
        ],
        {"a": [1], "b": [1, 2]},
    ),
]


@pytest.mark.parametrize(("document", "patch", "expected"), JSON_CASES)
def test_a_json_patch_does_what_rfc_6902_says(document, patch, expected):
    assert json_patch(document, patch) == expected


def test_a_json_patch_may_replace_what_is_not_there_and_leave_out_a_value():
    # As the library of kube-apiserver has it.
    assert json_patch({}, [{"op": "replace", "path": "/b", "value": 1}]) == {"b": 1}
    assert json_patch({}, [{"op": "add", "path": "/b"}]) == {"b": None}
    assert json_patch({}, [{"op": "copy", "from": "/a", "path": "/b"}]) == {"b": None}
    assert json_patch({"l": [1, 2]}, [{"op": "remove", "path": "/l/-1"}]) == {"l": [1]}
    assert json_patch({"l": [1]}, [{"op": "add", "path": "/l/-1", "value": 2}]) == {"l": [1, 2]}
    assert json_patch({"a": 1}, [{"op": "replace", "path": "x/a", "value": 2}]) == {"a": 2}


# Most of these words were recorded from kube-apiserver 1.36.2, as it says them of a webhook's patch.
REFUSED = [
    ({"a": 1}, {"op": "test", "path": "/a", "value": "1"}, "testing value /a failed: test failed"),
    ({"a": 1}, {"op": "test", "path": "/a", "value": True}, "testing value /a failed: test failed"),
    (
        {"a": 1},
        {"op": "test", "path": "/b/c", "value": 1},
        "test operation does not apply: is missing path: /b/c: missing value",
    ),
    (
        {"a": 1},
        {"op": "remove", "path": "/b"},
        "error in remove for path: '/b': Unable to remove nonexistent key: b: missing value",
    ),
    (
        {"a": 1},
        {"op": "remove", "path": ""},
        'remove operation does not apply: doc is missing path: "": missing value',
    ),
    (
        {"l": [1]},
        {"op": "remove", "path": "/l/7"},
        "error in remove for path: '/l/7': Unable to access invalid index: 7: invalid index "
        "referenced",
    ),
    (
        {"l": [1]},
        {"op": "remove", "path": "/l/-"},
        "error in remove for path: '/l/-': strconv.Atoi: parsing \"-\": invalid syntax",
    ),
    (
        {"l": [1]},
        {"op": "replace", "path": "/l/1", "value": 1},
        "replace operation does not apply: doc is missing key: /l/1: missing value",
    ),
    (
        {"a": 1},
        {"op": "replace", "path": "/b/c", "value": 1},
        "replace operation does not apply: doc is missing path: /b/c: missing value",
    ),
    (
        {"a": 1},
        {"op": "replace", "path": "", "value": 5},
        "replace operation value must be object or array: %!w(<nil>)",
    ),
    (
        {"a": 1},
        {"op": "add", "path": "", "value": {}},
        'add operation does not apply: doc is missing path: "": missing value',
    ),
    (
        {"a": 1},
        {"op": "add", "path": "/a/c", "value": 1},
        'add operation does not apply: doc is missing path: "/a/c": missing value',
    ),
    (
        {"a": 1},
        {"op": "add", "path": "b", "value": 1},
        'add operation does not apply: doc is missing path: "b": missing value',
    ),
    (
        {"l": [1]},
        {"op": "add", "path": "/l/2", "value": 1},
        "error in add for path: '/l/2': Unable to access invalid index: 2: invalid index "
        "referenced",
    ),
    (
        {"l": [1]},
        {"op": "add", "path": "/l/²", "value": 1},
        "error in add for path: '/l/²': value was not a proper array index: '²': strconv.Atoi: "
        'parsing "²": invalid syntax',
    ),
    ({"a": 1}, {"op": "add", "value": 1}, "add operation failed to decode path: missing value"),
    ({"a": 1}, {"op": "move", "path": "/b"}, "move operation failed to decode from: missing value"),
    (
        {"a": 1},
        {"op": "test", "path": 5},
        "test operation failed to decode path: json: cannot unmarshal number into Go value of type "
        "string",
    ),
    (
        {"a": {}},
        {"op": "move", "from": "/a/z", "path": "/a/y"},
        "error in move for path: 'z': Unable to remove nonexistent key: z: missing value",
    ),
    (
        {"a": {"b": 1}},
        {"op": "move", "from": "/a", "path": "/a/b"},
        "move operation does not apply: doc is missing destination path: /a/b: missing value",
    ),
    (
        {"a": 1},
        {"op": "copy", "from": "/b/c", "path": "/a"},
        "copy operation does not apply: doc is missing from path: /b/c: missing value",
    ),
    ({"a": 1}, {"op": "frob", "path": "/a"}, "Unexpected kind: frob"),
    ({"a": 1}, {"path": "/a"}, "Unexpected kind: unknown"),
    ({"a": 1}, "frob", "json: cannot unmarshal string into Go value of type jsonpatch.Operation"),
]


@pytest.mark.parametrize(("document", "patch", "message"), REFUSED)
def test_a_json_patch_that_does_not_fit_is_refused_with_the_reason(document, patch, message):
    with pytest.raises(PatchError) as refusal:
        json_patch(document, [patch])
    assert str(refusal.value) == message


def test_what_is_not_a_list_is_not_a_json_patch():
    with pytest.raises(PatchError, match=r"cannot unmarshal object .* of type jsonpatch\.Patch$"):
        json_patch({"a": 1}, {"a": 2})


def test_more_operations_than_allowed_are_refused_in_the_words_of_the_real_server():
    with pytest.raises(
        patches.TooManyOperations,
        match=r"^The allowed maximum operations in a JSON patch is 2, got 3$",
    ):
        json_patch({}, [{"op": "test", "path": "", "value": {}}] * 3, limit=2)


def test_a_patch_that_doubles_a_document_with_every_copy_is_stopped():
    bomb = [
        {"op": "copy", "from": "/x", "path": "/x/-"},
        *({"op": "copy", "from": "/x", "path": f"/x/{number}"} for number in range(40)),
    ]
    with pytest.raises(PatchError, match="exceeding the limit"):
        json_patch({"x": [1, 2, 3]}, bomb)


def pointers(value, path=""):
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            escaped = key.replace("~", "~0").replace("/", "~1")
            yield from pointers(item, f"{path}/{escaped}")
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield from pointers(item, f"{path}/{at}")


@given(documents, st.data())
def test_removing_and_adding_back_gives_the_same_document(document, data):
    path = data.draw(st.sampled_from(list(pointers(document))))
    if not path:
        return
    before = copy.deepcopy(document)
    parent = document
    for step in path.split("/")[1:]:
        name = step.replace("~1", "/").replace("~0", "~")
        parent = parent[int(name)] if isinstance(parent, list) else parent[name]
    patched = json_patch(
        document, [{"op": "remove", "path": path}, {"op": "add", "path": path, "value": parent}]
    )
    assert same(patched, document)
    assert same(document, before)


@given(documents, documents)
def test_two_values_are_the_same_exactly_where_their_json_is(left, right):
    import json

    def text(value):
        return json.dumps(value, sort_keys=True)

    assert same(left, right) == (text(left) == text(right))
