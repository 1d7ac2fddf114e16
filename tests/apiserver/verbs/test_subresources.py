"""Scale, binding, eviction, tokens, approval, finalizers: the paths below an object."""

from copy import deepcopy

import pytest

from apiserver.verbs.asking import Asked
from authorities import request

PODS = "/api/v1/namespaces/default/pods"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
BUDGETS = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
POD_SPEC = {"containers": [{"name": "c", "image": "i"}]}


@pytest.fixture
def ask() -> Asked:
    return Asked()


STRATEGIC = "application/strategic-merge-patch+json"


def pod(name="p", labels=None, **spec):
    return {"metadata": {"name": name, "labels": labels or {}}, "spec": deepcopy(POD_SPEC) | spec}


def deployment(replicas=2):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": POD_SPEC}
    selector = {"matchLabels": {"a": "b"}}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    return {"metadata": {"name": "d"}, "spec": spec}


def bind(ask, name="p", node="n1", path=None):
    body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": node}}
    return ask("POST", path or f"{PODS}/{name}/binding", body)


@pytest.mark.parametrize(
    "path",
    [
        f"{PODS}/p/binding",
        f"{PODS}/p/binding/",
        "/api/v1/namespaces/default/bindings",
        "/api/v1/namespaces/default/bindings/",
    ],
)
def test_a_pod_is_bound_by_either_path_with_or_without_a_slash_at_its_end(ask, path):
    ask("POST", PODS, pod())
    status, answer = bind(ask, path=path)
    assert (status, answer["status"]) == (201, "Success")
    _, found = ask("GET", f"{PODS}/p")
    assert found["spec"]["nodeName"] == "n1"
    assert found["metadata"]["generation"] == 1
    assert [each["type"] for each in found["status"]["conditions"]] == ["PodScheduled"]


def test_a_pod_is_bound_once(ask):
    ask("POST", PODS, pod())
    bind(ask)
    status, refused = bind(ask, node="n2")
    assert status == 409
    assert refused["message"].endswith('pod p is already assigned to node "n1"')


@pytest.mark.parametrize(
    ("field", "text"),
    [
        ("uid", "UID in precondition: other, UID in object meta: {uid}"),
        (
            "resourceVersion",
            "ResourceVersion in precondition: other, ResourceVersion in object meta: "
            "{resourceVersion}",
        ),
    ],
)
def test_a_binding_is_refused_that_is_for_another_pod_or_another_version_of_it(ask, field, text):
    _, made = ask("POST", PODS, pod())
    target = {"kind": "Node", "name": "n1"}
    body = {"metadata": {"name": "p", field: "other"}, "target": target}
    status, refused = ask("POST", f"{PODS}/p/binding", body)
    assert (status, refused["reason"]) == (409, "Conflict")
    assert refused["message"] == (  # kube-apiserver 1.36
        'Operation cannot be fulfilled on pods "p": StorageError: invalid object, Code: 4, Key: '
        "/registry/pods/default/p, ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: "
        + text.format_map(made["metadata"])
    )
    body["metadata"][field] = made["metadata"][field]
    assert ask("POST", f"{PODS}/p/binding", body)[0] == 201


def test_a_gated_pod_is_not_bound(ask):
    ask("POST", PODS, pod(schedulingGates=[{"name": "x.io/g"}]))
    assert bind(ask)[0] == 409


def test_a_scale_is_the_replicas_of_a_workload(ask):
    ask("POST", DEPLOYMENTS, deployment())
    _, scale = ask("GET", f"{DEPLOYMENTS}/d/scale")
    assert (scale["spec"], scale["status"]) == ({"replicas": 2}, {"replicas": 0, "selector": "a=b"})
    scale["spec"]["replicas"] = 5
    assert ask("PUT", f"{DEPLOYMENTS}/d/scale", scale)[1]["spec"] == {"replicas": 5}
    status, refused = ask("PUT", f"{DEPLOYMENTS}/d/scale", scale)
    assert (status, refused["reason"]) == (409, "Conflict"), "its revision is that of before"
    _, found = ask("GET", f"{DEPLOYMENTS}/d")
    assert (found["spec"]["replicas"], found["metadata"]["generation"]) == (5, 2)
    status, refused = ask.merge(f"{DEPLOYMENTS}/d/scale", {"spec": {"replicas": -1}})
    assert (status, "greater than or equal to 0" in refused["message"]) == (422, True)


ALLOWED = {"disruptionsAllowed": 1, "observedGeneration": 1}


def evict(ask, name="p"):
    return ask("POST", f"{PODS}/{name}/eviction", {"metadata": {"name": name}})


def running(ask, name, **labels):
    ask("POST", PODS, pod(name, labels, nodeName="n1"))
    ask.merge(f"{PODS}/{name}/status", {"status": {"phase": "Running"}})


def test_an_eviction_spends_the_budget_and_is_refused_without_one(ask):
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
    ask("POST", BUDGETS, budget)
    ask.merge(f"{BUDGETS}/b/status", {"status": ALLOWED})
    for name in ("p", "q"):
        running(ask, name, app="x")
    assert evict(ask, "p")[0] == 201
    assert ask("GET", f"{PODS}/p")[1]["metadata"]["deletionGracePeriodSeconds"] == 30
    _, left = ask("GET", f"{BUDGETS}/b")
    assert left["status"]["disruptionsAllowed"] == 0
    assert list(left["status"]["disruptedPods"]) == ["p"]
    assert left["status"]["conditions"][0]["reason"] == "InsufficientPods"
    status, refused = evict(ask, "q")
    assert (status, refused["reason"]) == (429, "TooManyRequests")
    assert refused["details"]["causes"][0]["reason"] == "DisruptionBudget"


def test_a_dry_run_in_the_query_evicts_nothing(ask):
    running(ask, "p")
    before = ask("GET", f"{PODS}/p")
    assert ask("POST", f"{PODS}/p/eviction?dryRun=All", {"metadata": {"name": "p"}})[0] == 201
    assert ask("GET", f"{PODS}/p") == before


def test_an_eviction_of_another_state_of_the_pod_changes_nothing(ask):
    running(ask, "p")
    _, before = ask("GET", f"{PODS}/p")
    revision = before["metadata"]["resourceVersion"]

    def with_revision(wanted):
        meta = {"name": "p"}
        body = {"metadata": meta, "deleteOptions": {"preconditions": {"resourceVersion": wanted}}}
        return ask("POST", f"{PODS}/p/eviction", body)

    status, refused = with_revision("1")
    assert (status, "the ResourceVersion in the precondition (1)" in refused["message"]) == (
        409,
        True,
    )
    assert ask("GET", f"{PODS}/p")[1] == before
    assert with_revision(revision)[0] == 201, "the condition that it adds is not another state"
    assert "deletionTimestamp" in ask("GET", f"{PODS}/p")[1]["metadata"]


def test_a_subresource_refuses_objects_of_other_kinds(ask):
    running(ask, "p")
    pod_ = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}}
    status, refused = ask("POST", f"{PODS}/p/eviction", pod_)
    assert (status, refused["message"]) == (
        400,
        'Pod in version "v1" cannot be handled as a Eviction: converting (v1.Pod) to '
        "(policy.Eviction): unknown conversion",
    )
    older = {"apiVersion": "policy/v1beta1", "kind": "Eviction", "metadata": {"name": "p"}}
    assert ask("POST", f"{PODS}/p/eviction?dryRun=All", older)[0] == 201


def test_pods_that_do_not_run_need_no_budget(ask):
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
    ask("POST", BUDGETS, budget)
    ask("POST", PODS, pod("p", {"app": "x"}))
    assert evict(ask)[0] == 201
    assert ask("GET", f"{PODS}/p")[0] == 404, "it had no node"


def test_tokens_are_known_again_until_they_end(ask):
    accounts = "/api/v1/namespaces/default/serviceaccounts"
    ask("POST", accounts, {"metadata": {"name": "robot"}})
    status, answer = ask("POST", f"{accounts}/robot/token", {"spec": {"expirationSeconds": 600}})
    assert status == 201
    token = answer["status"]["token"]
    review = {"spec": {"token": token}}
    _, known = ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert known["status"]["user"]["username"] == "system:serviceaccount:default:robot"
    ask.clock.advance(661 * 10**9)
    _, known = ask("POST", "/apis/authentication.k8s.io/v1/tokenreviews", review)
    assert "authenticated" not in known["status"]
    assert ask("POST", f"{accounts}/nobody/token", {"spec": {}})[0] == 404
    assert ask("POST", f"{accounts}/robot/token", {"spec": {"expirationSeconds": 5}})[0] == 422


def test_a_namespace_goes_when_its_finalizers_are_gone(ask):
    ask("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    assert ask("DELETE", "/api/v1/namespaces/n")[1]["status"]["phase"] == "Terminating"
    inside = "/api/v1/namespaces/n/configmaps"
    assert ask("POST", inside, {"metadata": {"name": "a"}})[0] == 403
    _, found = ask("GET", "/api/v1/namespaces/n")
    found["spec"]["finalizers"] = []
    assert ask("PUT", "/api/v1/namespaces/n/finalize", found)[0] == 200
    assert ask("GET", "/api/v1/namespaces/n")[0] == 404


def test_approval_writes_conditions_and_nothing_else(ask):
    url = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": request(), "signerName": "x.io/s", "usages": ["digital signature"]}
    ask("POST", url, {"metadata": {"name": "c"}, "spec": spec})
    _, found = ask("GET", f"{url}/c")
    found["spec"]["signerName"] = "y.io/s"
    found["status"]["conditions"] = [{"type": "Approved", "status": "True"}]
    status, approved = ask("PUT", f"{url}/c/approval", found)
    assert status == 200
    assert approved["spec"]["signerName"] == "x.io/s"
    assert approved["status"]["conditions"][0]["type"] == "Approved"


def test_approval_and_finalize_write_metadata_and_a_resize_does_not(ask):
    url = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
    spec = {"request": request(), "signerName": "x.io/s", "usages": ["digital signature"]}
    _, made = ask("POST", url, {"metadata": {"name": "c", "labels": {"a": "b"}}, "spec": spec})
    wanted = {"metadata": {"annotations": {"x": "y"}, "uid": made["metadata"]["uid"]}}
    status, found = ask.merge(f"{url}/c/approval", wanted)
    assert (status, found["metadata"]["annotations"]) == (200, {"x": "y"})
    assert found["metadata"]["labels"] == {"a": "b"}
    assert found["metadata"]["creationTimestamp"] == made["metadata"]["creationTimestamp"]
    _, namespace = ask("POST", "/api/v1/namespaces", {"metadata": {"name": "n"}})
    namespace["metadata"]["annotations"] = {"x": "y"}
    ask("PUT", "/api/v1/namespaces/n/finalize", namespace)
    assert ask("GET", "/api/v1/namespaces/n")[1]["metadata"]["annotations"] == {"x": "y"}
    ask("POST", PODS, pod())
    ask.merge(f"{PODS}/p/resize", {"metadata": {"annotations": {"x": "y"}}})
    assert "annotations" not in ask("GET", f"{PODS}/p")[1]["metadata"]


def test_a_budget_that_no_controller_has_seen_lets_nothing_go_yet(ask):
    budget = {"metadata": {"name": "b"}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
    ask("POST", BUDGETS, budget)
    running(ask, "p", app="x")
    answer = ask.full("POST", f"{PODS}/p/eviction", {"metadata": {"name": "p"}})
    assert (answer.status, dict(answer.headers)["Retry-After"]) == (429, "10")
    assert b"The disruption budget b is still being processed by the server." in answer.content


@pytest.mark.parametrize(
    ("container", "message"),
    [
        (
            {"resources": {"requests": None}},
            "spec.containers[0].resources.requests: Forbidden: resource requests cannot be removed",
        ),
        (
            {"resources": {"requests": {"x.io/gpu": "1"}, "limits": {"x.io/gpu": "1"}}},
            "spec: Forbidden: only cpu and memory resources are mutable",
        ),
        (
            {"resizePolicy": [{"resourceName": "cpu", "restartPolicy": "RestartContainer"}]},
            "spec: Forbidden: only cpu and memory resources are mutable",
        ),
        (
            {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}},
            "must be less than or equal to cpu limit",
        ),
    ],
)
def test_a_resize_changes_processors_and_memory_alone(ask, container, message):
    asking = {"name": "c", "image": "i", "resources": {"requests": {"cpu": "1"}}}
    ask("POST", PODS, pod(containers=[asking]))
    change = {"spec": {"containers": [{"name": "c", **container}]}}
    media = "application/strategic-merge-patch+json"
    code, refused = ask("PATCH", f"{PODS}/p/resize", change, content_type=media)
    assert (code, message in refused["message"]) == (422, True), refused["message"]


def test_a_resize_keeps_the_class_of_service(ask):
    ask("POST", PODS, pod())
    change = {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}}
    media = "application/strategic-merge-patch+json"
    code, refused = ask("PATCH", f"{PODS}/p/resize", change, content_type=media)
    assert (code, refused["message"]) == (
        422,
        'Pod "p" is invalid: spec: Invalid value: "BestEffort": Pod QOS Class may not change as a '
        "result of resizing",
    )


@pytest.mark.parametrize(
    ("container", "message"),
    [
        ({"name": "e"}, "image: Required value"),
        ({"name": "c", "image": "x"}, 'name: Duplicate value: "c"'),
        (
            {"name": "e", "image": "x", "ports": [{"containerPort": 80}]},
            "ports: Forbidden: cannot be set for an Ephemeral Container",
        ),
    ],
)
def test_ephemeral_containers_are_checked_as_containers_are(ask, container, message):
    ask("POST", PODS, pod())
    change = {"spec": {"ephemeralContainers": [container]}}
    media = "application/strategic-merge-patch+json"
    code, refused = ask("PATCH", f"{PODS}/p/ephemeralcontainers", change, content_type=media)
    where = "spec.ephemeralContainers[0]"
    assert (code, refused["message"]) == (422, f'Pod "p" is invalid: {where}.{message}')


def test_a_resize_changes_resources_alone(ask):
    created = pod()
    created["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    ask("POST", PODS, created)
    containers = [{"name": "c", "image": "other", "resources": {"requests": {"cpu": "2"}}}]
    body = {"spec": {"containers": containers}}
    status, found = ask("PATCH", f"{PODS}/p/resize", body, content_type=STRATEGIC)
    assert status == 200
    assert found["spec"]["containers"][0]["image"] == "i"
    assert found["spec"]["containers"][0]["resources"] == {"requests": {"cpu": "2"}}
    body = {"spec": {"containers": [{"name": "c", "resources": {"limits": {"x.y/z": "1"}}}]}}
    status, found = ask("PATCH", f"{PODS}/p/resize", body, content_type=STRATEGIC)
    assert (status, found["reason"]) == (422, "Invalid")


def test_the_status_is_written_by_its_own_path_alone(ask):
    ask("POST", DEPLOYMENTS, deployment())
    ask.merge(f"{DEPLOYMENTS}/d", {"status": {"replicas": 7}})
    assert ask("GET", f"{DEPLOYMENTS}/d")[1]["status"] == {}
    ask.merge(f"{DEPLOYMENTS}/d/status", {"status": {"replicas": 7}, "spec": {"replicas": 9}})
    _, found = ask("GET", f"{DEPLOYMENTS}/d")
    assert (found["status"]["replicas"], found["spec"]["replicas"]) == (7, 2)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("pods/p/binding", {"target": {"name": 1}}),
        ("pods/p/binding", {"target": []}),
        ("pods/p/binding", {"target": {"name": "n"}, "metadata": {"annotations": {"a": 1}}}),
        ("pods/p/eviction", {"deleteOptions": []}),
        ("pods/p/eviction", {"deleteOptions": {"gracePeriodSeconds": "x"}}),
        ("serviceaccounts/robot/token", {"spec": {"audiences": "x"}}),
        ("serviceaccounts/robot/token", {"spec": []}),
        ("bindings", {"metadata": []}),
    ],
)
def test_bodies_of_subresources_are_read_as_strictly_as_objects(ask, path, body):
    core = "/api/v1/namespaces/default"
    ask("POST", PODS, pod())
    ask("POST", f"{core}/serviceaccounts", {"metadata": {"name": "robot"}})
    status, refused = ask("POST", f"{core}/{path}", body)
    assert (status, refused["reason"]) == (400, "BadRequest")


def test_a_pod_of_two_budgets_is_not_evicted(ask):
    for name in ("b", "c"):
        budget = {"metadata": {"name": name}, "spec": {"selector": {"matchLabels": {"app": "x"}}}}
        ask("POST", BUDGETS, budget)
        ask.merge(f"{BUDGETS}/{name}/status", {"status": ALLOWED})
    running(ask, "p", app="x")
    status, found = evict(ask, "p")
    assert (status, "reason" in found, found["code"]) == (500, False, 500)
    assert "more than one PodDisruptionBudget" in found["message"]
    assert "deletionTimestamp" not in ask("GET", f"{PODS}/p")[1]["metadata"]
