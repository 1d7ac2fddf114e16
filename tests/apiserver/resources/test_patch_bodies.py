"""Patches that are not what their media type says, in the words of kube-apiserver 1.36.2."""

import pytest

from apiserver.resources.asking import Asked

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
