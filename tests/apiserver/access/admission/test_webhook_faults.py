"""Admission webhooks that are down, lie, never end or patch what is not there."""

import base64
import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from admissions import GROUP, MAPS, ask, config_map, configure
from dralab.apiserver.http.messages import WAITING_LANE, HttpRequest
from dralab.apiserver.outgoing.client import CallAnswer
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from webhookserver import patch


def test_a_webhook_that_is_down_fails_a_write_or_is_ignored(server, hook):
    port = hook.port
    hook.close()
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v"), "timeoutSeconds": 2})
    code, found = ask(server, "POST", MAPS, config_map())
    assert (code, found["reason"]) == (500, "InternalError")
    assert found["message"] == (
        'Internal error occurred: failed calling webhook "h0.v.io": failed to call webhook: Post '
        f'"https://localhost:{port}/v?timeout=2s": dial tcp 127.0.0.1:{port}: connect: connection '
        "refused"
    )
    ask(server, "DELETE", f"{GROUP}/validatingwebhookconfigurations/v")
    ignoring = {"clientConfig": hook.client("/v"), "failurePolicy": "Ignore"}
    configure(server, "Validating", "w", ignoring)
    assert ask(server, "POST", MAPS, config_map())[0] == 201


def review(uid, **response):
    return json.dumps(
        {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "response": {"uid": uid, "allowed": True, **response},
        }
    ).encode()


LIES = {
    "an older review than it was asked in": (
        lambda r: review(r["uid"]).replace(b"admission.k8s.io/v1", b"admission.k8s.io/v1beta1"),
        "failed to call webhook: converting (v1beta1.AdmissionReview) to (v1.AdmissionReview): "
        "unknown conversion",
    ),
    "nothing at all": (
        lambda r: b"",
        "0-length response with status code: 200 and content type: application/json",
    ),
    "a field of another type": (
        lambda r: review(5),
        "json: cannot unmarshal number into Go struct field AdmissionResponse.response.uid of "
        "type types.UID",
    ),
    "another uid": (lambda r: review("x"), "expected response.uid="),
    "no response": (
        lambda r: b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}',
        "webhook response was absent",
    ),
    "no JSON": (
        lambda r: b"<html>",
        "failed to call webhook: couldn't get version/kind; json parse error: json: cannot "
        "unmarshal string into Go value of type struct { APIVersion string ",
    ),
    "an error with words": (
        lambda r: (500, b"boom", ("Content-Type", "text/plain")),
        'an error on the server ("boom") has prevented the request from succeeding',
    ),
    "another kind": (
        lambda r: review(r["uid"]).replace(b"AdmissionReview", b"Pod"),
        "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview, got "
        "admission.k8s.io/v1, Kind=Pod",
    ),
    "a patch from one that validates": (
        lambda r: review(r["uid"], patch="W10=", patchType="JSONPatch"),
        "validating webhook may not return response.patch",
    ),
    "an error": (
        lambda r: (500, b"boom"),
        'failed to call webhook: an error on the server ("unknown") has prevented the request from succeeding',
    ),
    "nothing there": (lambda r: (404, b""), "the server could not find the requested resource"),
    "a redirect": (lambda r: (302, b""), "redirects are not followed"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_webhook_that_lies_stores_nothing(server, hook, lie):
    hook.answers["/v"], words = LIES[lie]
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    code, found = ask(server, "POST", MAPS, config_map())
    assert (code, found["reason"]) == (500, "InternalError")
    assert 'failed calling webhook "h0.v.io": ' in found["message"]
    assert words in found["message"]
    assert ask(server, "GET", f"{MAPS}/a")[0] == 404


def test_a_body_that_never_ends_is_not_read_to_its_end(server, hook, monkeypatch):
    monkeypatch.setattr("dralab.apiserver.outgoing.client.LARGEST", 1000)
    hook.answers["/v"] = lambda request: review(request["uid"], auditAnnotations={"k": "x" * 2000})
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 500
    assert "the response body is larger than 1000 bytes" in found["message"]


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        (
            [{"op": "remove", "path": "/none/x"}],
            'remove operation does not apply: doc is missing path: "/none/x": missing value',
        ),
        ([{"op": "fly", "path": "/data"}], "Unexpected kind: fly"),
        ([{"op": "replace", "path": "", "value": []}], "not an object"),
        ([{"op": "replace", "path": "/data", "value": "x"}], "cannot unmarshal string"),
    ],
)
def test_a_bad_patch_fails_the_write_whatever_the_failure_policy(server, hook, operations, words):
    hook.answers["/m"] = lambda request: patch(*operations)
    ignoring = {"clientConfig": hook.client("/m"), "failurePolicy": "Ignore"}
    configure(server, "Mutating", "m", ignoring)
    code, found = ask(server, "POST", MAPS, config_map())
    assert (code, found["reason"]) == (500, "InternalError")
    assert words in found["message"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{]", "invalid character ']' looking for beginning of object key string"),
        ("{}", "json: cannot unmarshal object into Go value of type jsonpatch.Patch"),
        ("[5]", "json: cannot unmarshal number into Go value of type jsonpatch.Operation"),
    ],
)
def test_a_patch_that_cannot_be_read_is_a_failed_call(server, hook, text, words):
    encoded = base64.b64encode(text.encode()).decode()
    hook.answers["/m"] = lambda _: {"allowed": True, "patchType": "JSONPatch", "patch": encoded}
    client = {"clientConfig": hook.client("/m")}
    configure(server, "Mutating", "a", {**client, "failurePolicy": "Ignore"})
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    configure(server, "Mutating", "m", client)
    code, found = ask(server, "POST", MAPS, config_map())
    assert (code, found["reason"]) == (500, "InternalError")
    assert found["message"] == (
        'Internal error occurred: failed calling webhook "h0.m.io": received undecodable patch in '
        f"webhook response: {words}"
    )


def test_a_slow_webhook_is_waited_for_as_long_as_it_says(server, hook):
    released = threading.Event()
    hook.answers["/v"] = lambda _: {"allowed": released.wait(150)}
    slow = {"clientConfig": hook.client("/v"), "timeoutSeconds": 1}
    configure(server, "Validating", "v", slow)
    code, found = ask(server, "POST", MAPS, config_map())
    released.set()
    assert (code, found["reason"]) == (500, "InternalError")
    assert found["message"] == (
        'Internal error occurred: failed calling webhook "h0.v.io": failed to call webhook: Post '
        f'"https://localhost:{hook.port}/v?timeout=1s": context deadline exceeded'
    )
    assert ask(server, "GET", f"{MAPS}/a")[0] == 404


class SlowForSome:
    """Calls of webhooks, which are not answered for objects named `slow…` until they may go on."""

    def __init__(self):
        self.go_on, self.waiting = threading.Event(), threading.Semaphore(0)

    def call(self, _target, body, **_):
        request = json.loads(body)["request"]
        if request["name"].startswith("slow"):
            self.waiting.release()
            assert self.go_on.wait(150)
        response = {"uid": request["uid"], "allowed": True}
        review = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview"}
        content = json.dumps({**review, "response": response}).encode()
        return CallAnswer(200, {"content-type": "application/json"}, content)

    def close(self):
        pass


def test_writes_that_wait_for_slow_webhooks_leave_those_of_others_threads():
    server, calls = ApiServer(MemoryStore()), SlowForSome()
    vars(server.resources.context.outgoing)["client"] = calls
    hooks = [{"clientConfig": {"url": f"https://127.0.0.1:9/{number}"}} for number in range(2)]
    configure(server, "Validating", "two", *hooks)

    def write(name):
        body = json.dumps(config_map(name)).encode()
        head = {"content-type": "application/json"}
        asked = HttpRequest(method="POST", path=MAPS, headers=head, body=body, lane=WAITING_LANE)
        return server.handle_apart(asked).status

    with ThreadPoolExecutor(40) as threads:
        slow = [threads.submit(write, f"slow{number}") for number in range(40)]
        for _ in range(80):
            assert calls.waiting.acquire(timeout=30)
        assert write("quick") == 201
        calls.go_on.set()
        assert {each.result() for each in slow} == {201}
    server.close()
