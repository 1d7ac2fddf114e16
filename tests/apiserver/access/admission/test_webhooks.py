"""Admission webhooks: who is asked, what they are told, and what their answers do."""

import json
import threading
from urllib.request import Request, urlopen

import pytest

from admissions import GROUP, MAPS, RULE, ask, config_map, configure, label
from dralab.api.core.policies import WebhookStrategy
from dralab.api.status import ApiError
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.cluster import Cluster
from dralab.kernel.randomness import Randomness
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import PODS
from webhookserver import allow, patch


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
    assert asked[1]["options"]["kind"] == "UpdateOptions"
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
    from dralab.apiserver.access.admission.selection import settings_of

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


def test_calls_are_measured_by_their_outcome(server, hook):
    answers = iter([{"allowed": True}, {"allowed": False, "status": {"code": 418}}])
    hook.answers["/w"] = lambda _: next(answers)
    configure(server, "Validating", "w", {"clientConfig": hook.client("/w")})
    down = {"clientConfig": {"url": "https://127.0.0.1:1/x"}, "failurePolicy": "Ignore"}
    configure(server, "Mutating", "down", down)
    ask(server, "POST", MAPS, config_map())
    ask(server, "POST", MAPS, config_map("b"))
    lines = server.resources.context.metrics.admission.requests.lines()
    counted = {line.partition("{")[2] for line in lines if line[0] != "#"}
    labels = 'name="h0.{}.io",operation="CREATE",rejected="{}",type="{}"}} {}'
    assert counted == {
        'code="200",' + labels.format("w", "false", "validating", 1),
        'code="418",' + labels.format("w", "true", "validating", 1),
        'code="503",' + labels.format("down", "false", "admit", 2),
    }
    (open_,) = list(server.resources.context.metrics.admission.open.lines())[2:]
    assert open_.endswith('{name="h0.down.io",type="admit"} 2')
