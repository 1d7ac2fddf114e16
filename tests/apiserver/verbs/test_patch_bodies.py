"""Patches that are not what their media type says, in the words of kube-apiserver 1.36.2."""

import pytest

from apiserver.verbs.asking import Asked

MAPS = "/api/v1/namespaces/default/configmaps"
LIST = "Go value of type []handlers.jsonPatchOp"
MAP = "Go value of type map[string]interface {}"


@pytest.fixture
def ask() -> Asked:
    asked = Asked()
    assert asked("POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})[0] == 201
    return asked


@pytest.mark.parametrize(
    ("media", "body", "message"),
    [
        ("json", b'{"a":1}', f"error decoding patch: json: cannot unmarshal object into {LIST}"),
        ("json", b'"x"', f"error decoding patch: json: cannot unmarshal string into {LIST}"),
        ("json", b"3", f"error decoding patch: json: cannot unmarshal number into {LIST}"),
        ("json", b"true", f"error decoding patch: json: cannot unmarshal bool into {LIST}"),
        ("merge", b"null", "Invalid JSON Patch"),
        ("merge", b'"x"', f"error decoding patch: json: cannot unmarshal string into {MAP}"),
        ("merge", b"[]", f"error decoding patch: json: cannot unmarshal array into {MAP}"),
        ("merge", b"false", f"error decoding patch: json: cannot unmarshal bool into {MAP}"),
        ("strategic-merge", b"[]", f"json: cannot unmarshal array into {MAP}"),
        ("strategic-merge", b"3", f"json: cannot unmarshal number into {MAP}"),
    ],
)
def test_a_body_of_another_type_is_refused(ask, media, body, message):
    answer, found = ask("PATCH", f"{MAPS}/a", body, content_type=f"application/{media}-patch+json")
    assert (answer, found["reason"], found["message"]) == (400, "BadRequest", message)


@pytest.mark.parametrize("media", ["json", "strategic-merge"])
def test_null_changes_nothing(ask, media):
    before = ask("GET", f"{MAPS}/a")
    answer = ask("PATCH", f"{MAPS}/a", b"null", content_type=f"application/{media}-patch+json")
    assert answer == before


@pytest.mark.parametrize(
    ("body", "shown", "why"),
    [
        ({"data": []}, "map[data:[]]", "cannot restore map from slice"),
        ({"data": "x"}, "map[data:x]", "cannot restore map from string"),
        ({"data": {"a": 1}}, "map[data:map[a:1]]", "cannot convert int64 to string"),
        ({"data": {"a": True}}, "map[data:map[a:true]]", "unrecognized type: string"),
        ({"data": {"a": {}}}, "map[data:map[a:map[]]]", "unrecognized type: string"),
        ({"data": {"a": []}}, "map[data:map[a:[]]]", "unrecognized type: string"),
        ({"immutable": "x"}, "map[immutable:x]", "unrecognized type: bool"),
        ({"immutable": 1}, "map[immutable:1]", "unrecognized type: bool"),
        ({"metadata": "x"}, "map[metadata:x]", "cannot restore struct from: string"),
        ({"metadata": []}, "map[metadata:[]]", "cannot restore struct from: slice"),
        (
            {"metadata": {"finalizers": "x"}},
            "map[metadata:map[finalizers:x]]",
            "cannot restore slice from string",
        ),
        (
            {"metadata": {"finalizers": {"a": 1}}},
            "map[metadata:map[finalizers:map[a:1]]]",
            "cannot restore slice from map",
        ),
        (
            {"metadata": {"finalizers": [1]}},
            "map[metadata:map[finalizers:[1]]]",
            "cannot convert int64 to string",
        ),
        (
            {"metadata": {"generation": True}},
            "map[metadata:map[generation:true]]",
            "unrecognized type: int64",
        ),
    ],
)
def test_what_a_strategic_patch_may_not_set_is_shown_as_go_has_it(ask, body, shown, why):
    media = "application/strategic-merge-patch+json"
    answer, found = ask("PATCH", f"{MAPS}/a", body, content_type=media)
    wanted = f'"" is invalid: patch: Invalid value: "{shown}": {why}'
    assert (answer, found["message"].strip()) == (422, wanted)


FIGS = "/apis/x.io/v1/namespaces/default/figs"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def custom(ask):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {
        "name": "v1",
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": schema},
    }
    spec = {
        "group": "x.io",
        "scope": "Namespaced",
        "names": {"plural": "figs", "kind": "Fig"},
        "versions": [version],
    }
    assert ask("POST", CRDS, {"metadata": {"name": "figs.x.io"}, "spec": spec})[0] == 201
    fig = {"apiVersion": "x.io/v1", "kind": "Fig", "metadata": {"name": "a"}}
    assert ask("POST", FIGS, fig)[0] == 201
    return ask


NO_VERSION = "Object 'apiVersion' is missing in 'object has no apiVersion field'"


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"kind": "Fig", "apiVersion": "x.io/v1"}, 200, ""),
        (
            {"kind": "Other"},
            422,
            'Other.x.io "a" is invalid: kind: Invalid value: "Other": must be Fig',
        ),
        (
            {"apiVersion": "x.io/v2"},
            422,
            'Fig.x.io "a" is invalid: apiVersion: Invalid value: "x.io/v2": must be x.io/v1',
        ),
        (
            {"kind": "Pod", "apiVersion": "v1"},
            422,
            'Pod "a" is invalid: [kind: Invalid value: "Pod": must be Fig, apiVersion: Invalid '
            'value: "v1": must be x.io/v1]',
        ),
        ({"apiVersion": ""}, 500, f"Internal error occurred: {NO_VERSION}"),
        ({"apiVersion": None}, 500, f"Internal error occurred: {NO_VERSION}"),
    ],
)
def test_no_patch_turns_a_custom_object_into_another_one(custom, body, code, words):
    before = custom("GET", f"{FIGS}/a")[1]
    status, found = custom.merge(f"{FIGS}/a", body)
    assert (status, found.get("message", "")) == (code, words)
    assert custom("GET", f"{FIGS}/a")[1] == before


@pytest.mark.parametrize("none", ["", None])
def test_a_custom_object_is_not_left_without_a_kind(custom, none):
    status, found = custom.merge(f"{FIGS}/a", {"kind": none})
    assert status == 422
    assert 'Object \'Kind\' is missing in \'{"apiVersion":"x.io/v1"' in found["message"]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"kind": "ConfigMap"}, ""),
        ({"kind": None}, ""),
        ({"kind": ""}, ""),
        ({"kind": "Pod"}, "converting (v1.Pod) to (core.ConfigMap): unknown conversion"),
        (
            {"kind": "Deployment", "apiVersion": "apps/v1"},
            "converting (v1.Deployment) to (core.ConfigMap): unknown conversion",
        ),
        ({"kind": "Other"}, 'no kind "Other" is registered for version "v1" in scheme "'),
        ({"apiVersion": "v2"}, 'no kind "ConfigMap" is registered for version "v2" in scheme "'),
    ],
)
def test_no_patch_turns_an_object_into_another_one(ask, body, words):
    before = ask("GET", f"{MAPS}/a")[1]
    status, found = ask.merge(f"{MAPS}/a", body)
    assert status == (422 if words else 200)
    assert words in found.get("message", "")
    strategic = "application/strategic-merge-patch+json"
    assert ask("PATCH", f"{MAPS}/a", body, content_type=strategic)[0] == 200
    assert ask("GET", f"{MAPS}/a")[1] == before
