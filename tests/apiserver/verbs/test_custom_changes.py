"""Custom resources: what a change has to mend, old values in rules, and embedded objects."""

import pytest

from admissions import MERGE, ask
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.randomness import Randomness

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
APPLES = "/apis/x.io/v1/namespaces/default/apples"


@pytest.fixture
def server():
    return ApiServer(MemoryStore(), randomness=Randomness(1))


def define(server, spec, method="POST", **more):
    schema = {"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}}
    version = {"name": "v1", "served": True, "storage": True, "schema": schema, **more}
    body = {
        "metadata": {"name": "apples.x.io"},
        "spec": {
            "group": "x.io",
            "scope": "Namespaced",
            "names": {"plural": "apples", "singular": "apple", "kind": "Apple"},
            "versions": [version],
        },
    }
    if method == "PUT":
        body["metadata"] = ask(server, "GET", f"{CRDS}/apples.x.io")[1]["metadata"]
        code, found = ask(server, "PUT", f"{CRDS}/apples.x.io", body)
    else:
        code, found = ask(server, "POST", CRDS, body)
    assert code in {200, 201}, found


def apple(**spec):
    return {"apiVersion": "x.io/v1", "kind": "Apple", "metadata": {"name": "a"}, "spec": spec}


def fields(**properties):
    return {"type": "object", "properties": properties}


def test_what_was_wrong_before_need_not_be_mended(server):
    free = {"type": "string"}
    define(server, fields(a=free, b=free, c={"type": "array", "items": free}))
    assert ask(server, "POST", APPLES, apple(a="long", b="x", c=["long"]))[0] == 201
    short = {"type": "string", "maxLength": 2}
    rule = {"x-kubernetes-validations": [{"rule": "self.a != 'long'", "message": "too long"}]}
    ruled = fields(a=short, b=short, c={"type": "array", "items": short})
    define(server, ruled, "PUT")
    assert ask(server, "PATCH", f"{APPLES}/a", {"spec": {"b": "y"}}, MERGE)[0] == 200
    code, found = ask(server, "PATCH", f"{APPLES}/a", {"spec": {"b": "long"}}, MERGE)
    assert (code, [cause["field"] for cause in found["details"]["causes"]]) == (422, ["spec.b"])
    code, found = ask(server, "PATCH", f"{APPLES}/a", {"spec": {"c": ["other"]}}, MERGE)
    assert code == 422
    listed = {"type": "array", "items": free}
    define(server, {**fields(a=free, b=free, c=listed), **rule}, "PUT")
    assert (
        ask(server, "PATCH", f"{APPLES}/a", {"metadata": {"labels": {"a": "b"}}}, MERGE)[0] == 200
    )
    assert ask(server, "PATCH", f"{APPLES}/a", {"spec": {"b": "z"}}, MERGE)[0] == 422


def test_an_old_value_may_be_optional(server):
    rule = {
        "rule": "!oldSelf.hasValue() || self == oldSelf.value()",
        "optionalOldSelf": True,
        "messageExpression": "'was %s'.format([oldSelf.orValue('none')])",
    }
    define(server, fields(o={"type": "string", "x-kubernetes-validations": [rule]}))
    assert ask(server, "POST", APPLES, apple(o="x"))[0] == 201
    code, found = ask(server, "PATCH", f"{APPLES}/a", {"spec": {"o": "y"}}, MERGE)
    assert (code, found["message"][-5:]) == (422, "was x")


def test_an_embedded_object_says_what_it_is(server):
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    define(server, fields(e=embedded))
    code, found = ask(server, "POST", APPLES, apple(e={"a": 1}))
    assert code == 422
    assert found["message"].endswith(
        "[spec.e.apiVersion: Required value, spec.e.kind: Required value]"
    )
    assert ask(server, "POST", APPLES, apple(e={"apiVersion": "v1", "kind": "Pod"}))[0] == 201


def test_the_keys_of_a_custom_object_are_sorted(server):
    define(server, fields(b={"type": "string"}, a={"type": "string"}))
    _, found = ask(server, "POST", APPLES, apple(b="2", a="1"))
    assert list(found["spec"]) == ["a", "b"]


def test_an_unknown_field_is_not_selected_by(server):
    selectable = [{"jsonPath": ".spec.a"}]
    define(server, fields(a={"type": "string"}), selectableFields=selectable)
    code, found = ask(server, "GET", f"{APPLES}?fieldSelector=spec.b=1")
    assert (code, found["message"]) == (400, "field label not supported: spec.b")


def test_objects_get_the_defaults_of_todays_schema_when_they_are_read(server):
    free = {"type": "string"}
    define(server, fields(a=free, gone=free))
    made = ask(server, "POST", APPLES, apple(a="x", gone="y"))[1]
    define(server, fields(a=free, b={"type": "string", "default": "new"}), "PUT")
    found = ask(server, "GET", f"{APPLES}/a")[1]
    assert found["spec"] == {"a": "x", "b": "new"}
    assert found["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
    (listed,) = ask(server, "GET", APPLES)[1]["items"]
    assert listed["spec"] == found["spec"]
    # Stored only with the next write.
    again = ApiServer(server.store, randomness=Randomness(2))
    assert ask(again, "GET", f"{APPLES}/a")[1]["spec"] == found["spec"]
    changed = ask(again, "PATCH", f"{APPLES}/a", {"spec": {"a": "z"}}, MERGE)[1]
    assert changed["spec"] == {"a": "z", "b": "new"}


def test_what_a_group_of_custom_resources_does_not_have_is_an_unknown_path(server):
    define(server, fields())
    request = HttpRequest(method="GET", path="/apis/x.io/v1/namespaces/default/pears")
    assert server.handle(request).body == b"404 page not found\n"
    request = HttpRequest(method="GET", path="/apis/x.io/v2")
    assert server.handle(request).body == b"404 page not found\n"
    assert ask(server, "GET", "/apis/apps/v1/namespaces/default/pears")[1]["reason"] == "NotFound"


@pytest.mark.parametrize(
    ("method", "path"),
    [
        # An operator deletes all objects of a kind so, and goes on when there is no such path.
        ("DELETE", "/apis/x.io/v1/apples"),
        ("POST", "/apis/x.io/v1/apples"),
        ("PUT", "/apis/x.io/v1/apples"),
        ("PATCH", "/apis/x.io/v1/apples"),
        ("GET", "/apis/x.io/v1/apples/a"),
        ("DELETE", "/apis/x.io/v1/apples/a"),
        ("GET", "/apis/x.io/v1/apples/a/status"),
    ],
)
def test_custom_resources_without_their_namespace_are_an_unknown_path(server, method, path):
    define(server, fields())
    assert ask(server, "GET", "/apis/x.io/v1/apples")[0] == 200
    headers = {"content-type": "application/json"}
    answer = server.handle(HttpRequest(method=method, path=path, headers=headers, body=b"{}"))
    assert (answer.status, answer.body) == (404, b"404 page not found\n")
    builtin = path.replace("/apis/x.io/v1/apples", "/api/v1/pods")
    expected = 404 if "/a" in builtin.removeprefix("/api") else 405
    assert ask(server, method, builtin, {})[0] == expected
