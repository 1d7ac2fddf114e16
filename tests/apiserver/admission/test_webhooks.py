"""Admission webhooks: who is asked, what they are told, and what their answers do."""

import json
import threading
from base64 import b64encode
from urllib.request import Request, urlopen

import pytest

from admissions import GROUP, MAPS, ask, config_map
from authorities import Authority
from dralab.api.core.policies import WebhookStrategy
from dralab.api.status import ApiError
from dralab.apiserver.outgoing.client import HEAD, _Pieces, _Reading
from dralab.apiserver.outgoing.targets import Unreachable, read_service
from dralab.apiserver.resources.outgoing_calls import OutgoingSettings
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.cluster import Cluster
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import PODS
from webhookserver import WebhookServer, allow, patch

RULE = {
    "operations": ["*"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps", "pods", "pods/*"],
}


@pytest.fixture
def hook():
    server = WebhookServer()
    yield server
    server.close()


@pytest.fixture
def server(hook):
    services = [read_service(f"default/hook:8443=127.0.0.1:{hook.port}")]
    found = ApiServer(
        MemoryStore(),
        clock=ManualClock(1_800_000_000 * 10**9),
        randomness=Randomness(1),
        outgoing=OutgoingSettings(services=services),
    )
    yield found
    found.close()


def configure(server, kind, name, *hooks):
    """Store a configuration of webhooks: `Mutating` or `Validating`."""
    body = {
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"h{number}.{name}.io",
                "rules": [RULE],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                **each,
            }
            for number, each in enumerate(hooks)
        ],
    }
    status, found = ask(server, "POST", f"{GROUP}/{kind.lower()}webhookconfigurations", body)
    assert status == 201, found
    return found


def label(name, value="yes"):
    def answer(request):
        operations = [{"op": "add", "path": f"/metadata/labels/{name}", "value": value}]
        if "labels" not in request["object"]["metadata"]:
            operations.insert(0, {"op": "add", "path": "/metadata/labels", "value": {}})
        return patch(*operations)

    return answer


def test_a_validating_webhook_refuses_in_its_own_words(server, hook):
    status = {"message": "not on a Monday", "reason": "Forbidden", "code": 403}
    hook.answers["/v"] = lambda request: {"allowed": False, "status": status}
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    code, found = ask(server, "POST", MAPS, config_map())
    assert (code, found["reason"]) == (403, "Forbidden")
    assert found["message"] == 'admission webhook "h0.v.io" denied the request: not on a Monday'
    assert ask(server, "GET", f"{MAPS}/a")[0] == 404


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (None, 400, "denied the request without explanation"),
        ({"reason": "Conflict", "code": 409}, 409, "denied the request: Conflict"),
        ({"code": 200, "status": "Success"}, 400, "denied the request without explanation"),
    ],
)
def test_a_denial_without_words_is_one_all_the_same(server, hook, status, code, message):
    hook.answers["/v"] = lambda request: {"allowed": False, "status": status}
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    found, body = ask(server, "POST", MAPS, config_map())
    assert (found, body["message"]) == (code, f'admission webhook "h0.v.io" {message}')


def test_a_validating_webhook_sees_what_would_be_stored(server, hook):
    hook.answers["/v"] = allow
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    body = {"metadata": {"generateName": "a-"}, "data": {"k": "v"}}
    code, made = ask(server, "POST", f"{MAPS}?fieldManager=me", body)
    assert code == 201
    ((_, asked),) = hook.asked
    assert asked["operation"] == "CREATE"
    assert (
        asked["kind"] == asked["requestKind"] == {"group": "", "version": "v1", "kind": "ConfigMap"}
    )
    assert asked["resource"] == {"group": "", "version": "v1", "resource": "configmaps"}
    assert (asked["name"], asked["namespace"]) == (made["metadata"]["name"], "default")
    assert asked["userInfo"]["username"] == "admin"
    assert asked["oldObject"] is None
    assert asked["dryRun"] is False
    assert asked["options"] == {
        "kind": "CreateOptions",
        "apiVersion": "meta.k8s.io/v1",
        "fieldManager": "me",
        "fieldValidation": "Warn",
    }
    assert asked["object"]["metadata"]["uid"] == made["metadata"]["uid"]
    assert (asked["object"]["kind"], asked["object"]["apiVersion"]) == ("ConfigMap", "v1")


def test_updates_and_deletions_show_the_object_that_is_there(server, hook):
    hook.answers["/v"] = allow
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    ask(server, "POST", MAPS, config_map())
    ask(server, "PATCH", f"{MAPS}/a", {"data": {"k": "w"}}, "application/merge-patch+json")
    assert ask(server, "DELETE", f"{MAPS}/a")[0] == 200
    asked = [request for _, request in hook.asked]
    assert [each["operation"] for each in asked] == ["CREATE", "UPDATE", "DELETE"]
    assert [(each["object"] or {}).get("data") for each in asked[1:]] == [{"k": "w"}, None]
    assert [each["oldObject"]["data"] for each in asked[1:]] == [{"k": "v"}, {"k": "w"}]
    assert asked[1]["options"]["kind"] == "PatchOptions"
    assert asked[2]["options"]["kind"] == "DeleteOptions"


def test_mutating_webhooks_patch_one_after_the_other_by_name(server, hook):
    hook.answers["/one"], hook.answers["/two"] = label("one"), label("two")
    configure(server, "Mutating", "b", {"clientConfig": hook.client("/two")})
    configure(server, "Mutating", "a", {"clientConfig": hook.client("/one")})
    code, made = ask(server, "POST", MAPS, config_map())
    assert (code, made["metadata"]["labels"]) == (201, {"one": "yes", "two": "yes"})
    assert [path for path, _ in hook.asked] == ["/one", "/two"]
    assert hook.asked[1][1]["object"]["metadata"]["labels"] == {"one": "yes"}


def test_a_webhook_that_wants_it_is_asked_again_after_others_have_changed_the_object(server, hook):
    hook.answers["/one"], hook.answers["/two"] = label("one"), label("two")
    again = {"clientConfig": hook.client("/one"), "reinvocationPolicy": "IfNeeded"}
    configure(server, "Mutating", "a", again, {"clientConfig": hook.client("/two")})
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    assert [path for path, _ in hook.asked] == ["/one", "/two", "/one"]


def test_what_a_webhook_adds_is_defaulted_and_validated(server, hook):
    added = {"name": "extra", "image": "x", "ports": [{"containerPort": 80}]}
    hook.answers["/m"] = lambda request: patch(
        {"op": "add", "path": "/spec/containers/-", "value": added},
        {"op": "add", "path": "/spec/nonsense", "value": 1},
    )
    configure(server, "Mutating", "m", {"clientConfig": hook.client("/m")})
    pods = "/api/v1/namespaces/default/pods"
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "x"}]}}
    code, made = ask(server, "POST", pods, pod)
    assert code == 201
    container = made["spec"]["containers"][1]
    assert (container["imagePullPolicy"], container["ports"][0]["protocol"]) == ("Always", "TCP")
    assert "nonsense" not in made["spec"]
    added["name"] = "Not A Name"
    pod["metadata"]["name"] = "q"
    code, found = ask(server, "POST", pods, pod)
    assert (code, found["reason"]) == (422, "Invalid")


def test_a_webhook_cannot_change_what_a_path_may_not_change(server, hook):
    ask(server, "POST", MAPS, config_map())
    hook.answers["/m"] = lambda request: patch(
        {"op": "add", "path": "/metadata/creationTimestamp", "value": "2001-01-01T00:00:00Z"},
        {"op": "add", "path": "/data/x", "value": "y"},
    )
    configure(server, "Mutating", "m", {"clientConfig": hook.client("/m")})
    before = ask(server, "GET", f"{MAPS}/a")[1]
    code, after = ask(server, "PUT", f"{MAPS}/a", config_map())
    assert (code, after["data"]) == (200, {"k": "v", "x": "y"})
    created = "creationTimestamp"
    assert after["metadata"][created] == before["metadata"][created]
    hook.answers["/m"] = lambda request: patch(
        {"op": "replace", "path": "/metadata/uid", "value": "another"}
    )
    code, found = ask(server, "PUT", f"{MAPS}/a", config_map())
    assert (code, found["details"]["causes"][0]["field"]) == (422, "metadata.uid")
    hook.answers["/m"] = lambda request: patch(
        {"op": "replace", "path": "/metadata/namespace", "value": "kube-system"}
    )
    code, found = ask(server, "POST", MAPS, config_map("b"))
    assert (code, found["reason"]) == (400, "BadRequest")


def test_an_equivalent_version_is_what_the_rule_names(server, hook):
    hook.answers["/m"] = lambda request: patch(
        {"op": "replace", "path": "/spec/targetCPUUtilizationPercentage", "value": 70}
    )
    rule = {
        "operations": ["CREATE"],
        "apiGroups": ["autoscaling"],
        "apiVersions": ["v1"],
        "resources": ["horizontalpodautoscalers"],
    }
    configure(server, "Mutating", "m", {"clientConfig": hook.client("/m"), "rules": [rule]})
    metric = {
        "type": "Resource",
        "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 50}},
    }
    target = {"kind": "Deployment", "name": "d", "apiVersion": "apps/v1"}
    scaler = {
        "metadata": {"name": "a"},
        "spec": {"maxReplicas": 3, "scaleTargetRef": target, "metrics": [metric]},
    }
    scalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    code, made = ask(server, "POST", scalers, scaler)
    assert code == 201
    ((_, asked),) = hook.asked
    assert (asked["kind"]["version"], asked["requestKind"]["version"]) == ("v1", "v2")
    assert asked["object"]["apiVersion"] == "autoscaling/v1"
    assert made["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 70
    exact = {"clientConfig": hook.client("/none"), "rules": [rule], "matchPolicy": "Exact"}
    configure(server, "Mutating", "n", exact)
    scaler["metadata"]["name"] = "b"
    assert ask(server, "POST", scalers, scaler)[0] == 201, "an exact rule is about v1 alone"


def test_selectors_and_conditions_say_who_is_asked(server, hook):
    hook.answers["/v"] = allow
    configure(
        server,
        "Validating",
        "v",
        {
            "clientConfig": hook.client("/v"),
            "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            "objectSelector": {"matchLabels": {"look": "here"}},
            "matchConditions": [
                {"name": "not-dry", "expression": "!has(object.data.dry)"},
                {"name": "people", "expression": "request.userInfo.username == 'admin'"},
            ],
        },
    )
    ask(server, "POST", MAPS, config_map("plain"))
    ask(server, "POST", MAPS, config_map("seen", labels={"look": "here"}))
    other = config_map("other", labels={"look": "here"})
    assert ask(server, "POST", MAPS.replace("default", "kube-system"), other)[0] == 201
    dry = {"metadata": {"name": "dry", "labels": {"look": "here"}}, "data": {"dry": "1"}}
    ask(server, "POST", MAPS, dry)
    assert [request["name"] for _, request in hook.asked] == ["seen"]


def test_a_condition_without_an_answer_counts_as_the_failure_policy_says(server, hook):
    hook.answers["/v"] = allow
    wrong = [{"name": "wrong", "expression": "object.data.nothing == 'x'"}]
    configure(
        server, "Validating", "v", {"clientConfig": hook.client("/v"), "matchConditions": wrong}
    )
    code, found = ask(server, "POST", MAPS, config_map())
    assert (code, found["reason"]) == (403, "Forbidden")
    assert "no such key: nothing" in found["message"]
    ask(server, "DELETE", f"{GROUP}/validatingwebhookconfigurations/v")
    ignoring = {
        "clientConfig": hook.client("/v"),
        "matchConditions": wrong,
        "failurePolicy": "Ignore",
    }
    configure(server, "Validating", "w", ignoring)
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    assert hook.asked == []
    server.close()


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
    "another uid": (lambda r: review("x"), "expected response.uid="),
    "no response": (
        lambda r: b'{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}',
        "webhook response was absent",
    ),
    "no JSON": (lambda r: b"<html>", "couldn't get version/kind; json parse error"),
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
        'an error on the server ("boom") has prevented the request from succeeding',
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


@pytest.mark.parametrize("kind", [_Reading, _Pieces])
@pytest.mark.parametrize(
    ("before", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n", b"X-A: b\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nX", b"a" * 100),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;", b"a" * 100),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
    ids=["headers", "trailers", "one trailer", "an extension", "no answer yet"],
)
def test_nothing_endless_beside_the_body_is_read(kind, before, piece):
    reading = kind()
    reading.feed(before)
    with pytest.raises(Unreachable, match=r"exceeded|malformed"):  # noqa: PT012 - any of them
        for _ in range(2 * HEAD // len(piece)):
            reading.feed(piece)


@pytest.mark.parametrize(
    ("operations", "words"),
    [
        ([{"op": "remove", "path": "/data/none"}], "operation 0"),
        (["x"], "operation 0 is not an object"),
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


def test_a_webhook_with_side_effects_is_not_asked_about_a_dry_run(server, hook):
    hook.answers["/v"] = allow
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    assert ask(server, "POST", f"{MAPS}?dryRun=All", config_map())[0] == 201
    assert hook.asked[0][1]["dryRun"] is True
    with_effects = {"clientConfig": hook.client("/v"), "sideEffects": "Some"}
    # Today's servers store none of these; older ones did.
    hub = "admissionregistration.k8s.io/validatingwebhookconfigurations"
    server.resources.context.rules.strategies[hub] = WebhookStrategy(mutating=False)
    configure(server, "Validating", "w", with_effects)
    code, found = ask(server, "POST", f"{MAPS}?dryRun=All", config_map())
    assert code == 400
    assert found["message"] == 'admission webhook "h0.w.io" does not support dry run'


def test_warnings_reach_the_client_once_also_with_a_refusal(server, hook):
    hook.answers["/v"] = lambda request: {"allowed": True, "warnings": ["careful", "careful"]}
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    assert ask(server, "POST", MAPS, config_map())[1]["warnings"] == ['299 - "careful"']
    hook.answers["/v"] = lambda request: {"allowed": False, "warnings": ["careful"]}
    code, found = ask(server, "POST", MAPS, config_map("b"))
    assert (code, found["warnings"]) == (400, ['299 - "careful"'])


def test_a_service_is_where_the_operator_says(server, hook):
    hook.answers["/v"] = allow
    service = {"name": "hook", "namespace": "default", "port": 8443, "path": "/v"}
    configure(
        server, "Validating", "v", {"clientConfig": {"service": service, "caBundle": hook.ca}}
    )
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    assert len(hook.asked) == 1
    other = {"name": "other", "namespace": "default"}
    configure(server, "Validating", "w", {"clientConfig": {"service": other, "caBundle": hook.ca}})
    code, found = ask(server, "POST", MAPS, config_map("b"))
    assert code == 500
    assert found["message"].endswith(
        'Post "https://other.default.svc:443/?timeout=10s": service "other" not found'
    )


def test_a_service_is_found_by_its_endpoints_on_the_loopback(server, hook):
    hook.answers["/v"] = allow
    port = {"name": "https", "port": 443}
    spec = {"selector": {"app": "hook"}, "ports": [port]}
    services = "/api/v1/namespaces/default/services"
    assert ask(server, "POST", services, {"metadata": {"name": "hook"}, "spec": spec})[0] == 201
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    labels = {"kubernetes.io/service-name": "hook"}
    slice_ = {
        "metadata": {"name": "hook-1", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": hook.port}],
    }
    assert ask(server, "POST", slices, slice_)[0] == 201
    service = {"name": "hook", "namespace": "default", "path": "/v"}
    configure(
        server, "Validating", "v", {"clientConfig": {"service": service, "caBundle": hook.ca}}
    )
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    slice_["endpoints"][0]["addresses"] = ["10.1.2.3"]
    assert ask(server, "PUT", f"{slices}/hook-1", slice_)[0] == 200
    code, found = ask(server, "POST", MAPS, config_map("b"))
    assert code == 500
    assert (
        "this server may not connect to 10.1.2.3: --service default/hook=HOST:PORT"
        in (found["message"])
    )


@pytest.mark.parametrize(
    "host", ["10.0.0.5", "169.254.169.254", "[::ffff:10.0.0.5]", "example.com"]
)
def test_the_server_connects_only_where_the_operator_allows(server, hook, host):
    client = {"url": f"https://{host}/v", "caBundle": hook.ca}
    found = configure(server, "Validating", "v", {"clientConfig": client})
    (warning,) = found["warnings"]
    assert "webhook h0.v.io cannot be called: this server may not connect to" in warning
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 500
    assert "--webhook-network" in found["message"]


def test_an_unknown_authority_is_not_trusted(server, hook):
    hook.answers["/v"] = allow
    client = hook.client("/v") | {"caBundle": b64encode(Authority().pem).decode()}
    configure(server, "Validating", "v", {"clientConfig": client})
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 500
    assert found["message"].endswith(
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    )


def test_the_configurations_themselves_are_never_shown_to_webhooks(server, hook):
    rule = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    hook.answers["/v"] = lambda request: {"allowed": False}
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v"), "rules": [rule]})
    assert ask(server, "POST", MAPS, config_map())[0] == 400
    assert ask(server, "DELETE", f"{GROUP}/validatingwebhookconfigurations/v")[0] == 200
    assert ask(server, "POST", MAPS, config_map())[0] == 201


def test_subresources_are_shown_as_what_they_are(server, hook):
    deployments = "/apis/apps/v1/namespaces/default/deployments"
    hook.answers["/v"] = allow
    hook.answers["/m"] = lambda request: patch(
        {"op": "replace", "path": "/spec/replicas", "value": 7}
    )
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "x"}]},
    }
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    ask(server, "POST", deployments, {"metadata": {"name": "d"}, "spec": spec})
    pod = {"metadata": {"name": "p"}, "spec": template["spec"]}
    ask(server, "POST", "/api/v1/namespaces/default/pods", pod)
    rules = [
        {**RULE, "resources": ["deployments/scale"], "apiGroups": ["apps"]},
        {**RULE, "resources": ["pods/binding", "pods/eviction", "pods/status"]},
    ]
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v"), "rules": rules})
    configure(server, "Mutating", "m", {"clientConfig": hook.client("/m"), "rules": rules[:1]})
    merge = "application/merge-patch+json"
    code, scale = ask(server, "PATCH", f"{deployments}/d/scale", {"spec": {"replicas": 3}}, merge)
    assert (code, scale["spec"]["replicas"]) == (200, 7)
    pods = "/api/v1/namespaces/default/pods/p"
    target = {"target": {"kind": "Node", "name": "n"}, "metadata": {"name": "p"}}
    assert ask(server, "POST", f"{pods}/binding", target)[0] == 201
    assert ask(server, "PATCH", f"{pods}/status", {"status": {"phase": "Running"}}, merge)[0] == 200
    assert ask(server, "POST", f"{pods}/eviction", {"metadata": {"name": "p"}})[0] == 201
    seen = [
        (path, each["subResource"], each["operation"], each["object"]["kind"])
        for path, each in hook.asked
    ]
    assert seen == [
        ("/m", "scale", "UPDATE", "Scale"),
        ("/v", "scale", "UPDATE", "Scale"),
        ("/v", "binding", "CREATE", "Binding"),
        ("/v", "status", "UPDATE", "Pod"),
        ("/v", "eviction", "CREATE", "Eviction"),
    ]
    assert hook.asked[-1][1]["kind"] == {"group": "policy", "version": "v1", "kind": "Eviction"}
    shown = {each["object"]["kind"]: each["object"]["apiVersion"] for _, each in hook.asked}
    assert shown == {
        "Scale": "autoscaling/v1",
        "Binding": "v1",
        "Pod": "v1",
        "Eviction": "policy/v1",
    }, "though the last three were sent without one"


def test_programs_in_the_servers_process_are_asked_about_too(server, hook):
    hook.answers["/m"] = label("seen")
    configure(server, "Mutating", "m", {"clientConfig": hook.client("/m")})
    client = LocalClient(server.resources, server.hub)
    spec = {"containers": [{"name": "c", "image": "x"}]}
    made = client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")
    assert made["metadata"]["labels"] == {"seen": "yes"}
    hook.answers["/m"] = lambda request: {"allowed": False}
    with pytest.raises(ApiError, match="denied the request"):
        client.delete(PODS, "p", "default")


def test_a_whole_collection_is_deleted_once_all_may_be(server, hook):
    for name in ("a", "b"):
        ask(server, "POST", MAPS, config_map(name))
    hook.answers["/v"] = lambda request: {"allowed": request["name"] == "a"}
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    assert ask(server, "DELETE", MAPS)[0] == 400
    assert len(ask(server, "GET", MAPS)[1]["items"]) == 2
    hook.answers["/v"] = allow
    assert ask(server, "DELETE", MAPS)[0] == 200
    assert ask(server, "GET", MAPS)[1]["items"] == []


def test_a_webhook_may_write_to_the_server_while_it_is_asked(server, hook):
    def answer(request):
        assert ask(server, "POST", MAPS, config_map("other"))[0] == 201
        return {"allowed": True}

    hook.answers["/v"] = answer
    conditions = [{"name": "first", "expression": "request.name != 'other'"}]
    configure(
        server,
        "Validating",
        "v",
        {"clientConfig": hook.client("/v"), "matchConditions": conditions},
    )
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    assert len(ask(server, "GET", MAPS)[1]["items"]) == 2


def test_a_plugin_that_is_switched_off_asks_nobody(hook):
    from dralab.apiserver.admission.selection import settings_of

    admission = settings_of(disabled=["ValidatingAdmissionWebhook"])
    server = ApiServer(MemoryStore(), randomness=Randomness(1), admission=admission)
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    assert hook.asked == []
    server.close()


def test_others_are_answered_while_a_webhook_takes_its_time(hook):
    begun, released = threading.Event(), threading.Event()

    def slow(request):
        begun.set()
        assert released.wait(150)
        return {"allowed": True}

    hook.answers["/v"] = slow
    with Cluster(seed=1) as cluster:
        configure(cluster.server, "Validating", "v", {"clientConfig": hook.client("/v")})

        def create():
            body = json.dumps(config_map()).encode()
            headers = {"Content-Type": "application/json", "User-Agent": "test"}
            url = f"{cluster.url}{MAPS}"
            with urlopen(Request(url, body, headers)) as answer:
                created.append(answer.status)

        created = []
        writer = threading.Thread(target=create)
        writer.start()
        assert begun.wait(150)
        with urlopen(f"{cluster.url}/api/v1/namespaces/default") as answer:
            assert answer.status == 200
        client = cluster.client
        assert client.list(PODS).items == []
        assert created == []
        released.set()
        writer.join()
        assert created == [201]


def test_a_webhook_is_asked_about_connections_to_pods(server, hook):
    containers = [{"name": "c", "image": "x"}]
    pods = "/api/v1/namespaces/default/pods"
    assert ask(
        server, "POST", pods, {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    )
    denied = {"message": "attaching is not allowed", "code": 403, "reason": "Forbidden"}
    hook.answers["/v"] = lambda request: {
        "allowed": request["subResource"] != "attach", "status": denied,
    }  # fmt: skip
    rule = {**RULE, "operations": ["CONNECT"], "resources": ["pods/attach", "pods/exec"]}
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v"), "rules": [rule]})
    code, found = ask(server, "GET", f"{pods}/p/attach?stdin=true&container=c")
    assert (code, found["message"].partition(": ")[2]) == (403, "attaching is not allowed")
    asked = hook.asked[-1][1]
    assert (asked["operation"], asked["name"], asked["subResource"]) == ("CONNECT", "p", "attach")
    assert asked["kind"] == {"group": "", "version": "v1", "kind": "PodAttachOptions"}
    assert asked["object"] == {
        "kind": "PodAttachOptions", "apiVersion": "v1", "stdin": True, "container": "c",
    }  # fmt: skip
    assert asked["oldObject"] is None
    # Allowed by the webhook, and refused for another reason.
    code, found = ask(server, "POST", f"{pods}/p/exec?command=ls")
    assert (code, found["message"]) == (400, "pod p does not have a host assigned")
    assert hook.asked[-1][1]["object"]["command"] == ["ls"]


SERVICE = {"name": "s", "namespace": "n"}


@pytest.mark.parametrize(
    ("service", "wanted"),
    [
        (SERVICE, []),
        # So says kube-apiserver 1.36.2, which confuses the two.
        ({"name": "s"}, ["name: Required value"]),
        ({"namespace": "n"}, ["namespace: Required value"]),
        ({}, ["name: Required value", "namespace: Required value"]),
        (SERVICE | {"path": "/a/b/"}, []),
        (
            SERVICE | {"path": "a"},
            [
                "path: Invalid value: \"a\": must start with a '/'",
                'path: Invalid value: "a": segment[0] may not be empty',
            ],
        ),
        (SERVICE | {"path": "//"}, ['path: Invalid value: "//": segment[0] may not be empty']),
        (
            SERVICE | {"path": "/a//b"},
            ['path: Invalid value: "/a//b": segment[1] may not be empty'],
        ),
        (SERVICE | {"port": 65535}, []),
        (
            SERVICE | {"port": 65536},
            [
                "port: Invalid value: 65536: port is not valid: must be between 1 and 65535, "
                "inclusive"
            ],
        ),
    ],
)
def test_the_service_of_a_webhook_is_named_whole(server, hook, service, wanted):
    client = {"caBundle": hook.client("/x")["caBundle"], "service": service}
    body = {
        "metadata": {"name": "c"},
        "webhooks": [
            {
                "name": "h.c.io",
                "rules": [RULE],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": client,
            }
        ],
    }
    status, found = ask(server, "POST", f"{GROUP}/validatingwebhookconfigurations", body)
    assert status == (422 if wanted else 201)
    causes = found.get("details", {}).get("causes", ())
    at = "webhooks[0].clientConfig.service."
    told = [f"{each['field'].removeprefix(at)}: {each['message']}" for each in causes]
    assert told == wanted
