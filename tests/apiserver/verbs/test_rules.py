"""What the server makes of objects, and what it refuses: one line per rule."""

import pytest

from apiserver.verbs.asking import Asked

CORE = "/api/v1/namespaces/default"
APPS = "/apis/apps/v1/namespaces/default"
C = {"name": "c", "image": "i"}


def pod(**spec):
    return {"metadata": {"name": "x"}, "spec": {"containers": [C], **spec}}


def container(**parts):
    return pod(containers=[C | parts])


def workload(**spec):
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [C]}}
    base = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    return {"metadata": {"name": "x"}, "spec": base | spec}


def claim(**spec):
    return {"metadata": {"name": "x"}, "spec": spec}


REFUSED = [
    # (collection, object, what the message must say)
    (f"{CORE}/pods", pod(containers=[]), "spec.containers: Required value"),
    (f"{CORE}/pods", pod(containers=[C, C]), 'spec.containers[1].name: Duplicate value: "c"'),
    (f"{CORE}/pods", container(name="C"), 'spec.containers[0].name: Invalid value: "C"'),
    (f"{CORE}/pods", container(image=""), "spec.containers[0].image: Required value"),
    (
        f"{CORE}/pods",
        container(imagePullPolicy="Sometimes"),
        'spec.containers[0].imagePullPolicy: Unsupported value: "Sometimes": supported values: '
        '"Always", "IfNotPresent", "Never"',
    ),
    (f"{CORE}/pods", pod(restartPolicy="Once"), "spec.restartPolicy: Unsupported value"),
    (
        f"{CORE}/pods",
        container(ports=[{"containerPort": 70000}]),
        "spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535",
    ),
    (
        f"{CORE}/pods",
        container(volumeMounts=[{"name": "v", "mountPath": "/v"}]),
        'spec.containers[0].volumeMounts[0].name: Not found: "v"',
    ),
    (
        f"{CORE}/pods",
        container(resources={"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}),
        'spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1',
    ),
    (
        f"{CORE}/pods",
        container(resources={"claims": [{"name": "g"}]}),
        'spec.containers[0].resources.claims[0]: Not found: "g"',
    ),
    (
        f"{CORE}/pods",
        pod(resourceClaims=[{"name": "g"}]),
        "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`",
    ),
    (
        f"{CORE}/pods",
        pod(tolerations=[{"key": "k", "operator": "Exists", "value": "v"}]),
        "value must be empty when `operator` is 'Exists'",
    ),
    (
        f"{CORE}/pods",
        pod(schedulingGates=[{"name": "x.io/g"}], nodeName="n"),
        "spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared",
    ),
    (f"{CORE}/pods", container(livenessProbe={}), "must specify a handler type"),
    (
        f"{CORE}/pods",
        pod(priorityClassName="nope"),
        "no PriorityClass with name nope was found",
    ),
    (
        f"{APPS}/deployments",
        workload(selector={"matchLabels": {"a": "z"}}),
        "`selector` does not match template `labels`",
    ),
    (f"{APPS}/deployments", workload(replicas=-1), "spec.replicas: Invalid value: -1"),
    (
        f"{APPS}/deployments",
        workload(strategy={"type": "Recreate", "rollingUpdate": {}}),
        "may not be specified when strategy `type` is 'Recreate'",
    ),
    (
        "/apis/batch/v1/namespaces/default/jobs",
        {"metadata": {"name": "x"}, "spec": {"template": {"spec": {"containers": [C]}}}},
        "spec.template.spec.restartPolicy: Required value",
    ),
    (
        f"{CORE}/configmaps",
        {"metadata": {"name": "x"}, "data": {"a b": ""}},
        'data[a b]: Invalid value: "a b": a valid config key',
    ),
    (
        f"{CORE}/secrets",
        {"metadata": {"name": "x"}, "type": "kubernetes.io/tls"},
        "data[tls.crt]: Required value",
    ),
    (
        f"{CORE}/services",
        {"metadata": {"name": "x"}, "spec": {}},
        "spec.ports: Required value",
    ),
    (
        f"{CORE}/services",
        {"metadata": {"name": "x-"}, "spec": {"ports": [{"port": 1}]}},
        "a lowercase RFC 1123 label must",
    ),
    (
        "/apis/coordination.k8s.io/v1/namespaces/default/leases",
        {"metadata": {"name": "x"}, "spec": {"leaseDurationSeconds": 0}},
        "spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0",
    ),
    (
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "x"}, "value": 2_000_000_000},
        "maximum allowed value of a user defined priority is 1000000000",
    ),
    (
        "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims",
        claim(
            devices={
                "requests": [
                    {"name": "r", "exactly": {"deviceClassName": "g", "adminAccess": True}}
                ]
            }
        ),
        "admin access to devices requires the `resource.kubernetes.io/admin-access: true` label",
    ),
    (
        f"{CORE}/configmaps",
        {"metadata": {"name": "x", "labels": {"-": "y"}}},
        'metadata.labels: Invalid value: "-"',
    ),
    (
        f"{CORE}/configmaps",
        {"metadata": {"name": "x", "finalizers": ["plain"]}},
        "name is neither a standard finalizer name nor is it fully qualified",
    ),
]


@pytest.mark.parametrize(
    ("url", "value", "told"), REFUSED, ids=[told[:60] for _, _, told in REFUSED]
)
def test_bad_objects_are_refused_in_a_servers_words(url, value, told):
    status, refused = Asked()("POST", url, value)
    assert status in {403, 422}
    assert told in refused["message"]
    if status == 422:
        assert refused["details"]["causes"]


UNREADABLE = [
    ({"spec": {"containers": [{"name": 1}]}}, "json: cannot unmarshal number into Go struct field Container.spec.containers.name of type string"),
    ({"spec": {"containers": {}}}, "json: cannot unmarshal object into Go struct field PodSpec.spec.containers of type []v1.Container"),
    ({"spec": {"hostNetwork": "yes"}}, "json: cannot unmarshal string into Go struct field PodSpec.spec.hostNetwork of type bool"),
    ({"spec": {"priority": 1.5}}, "json: cannot unmarshal number 1.5 into Go struct field PodSpec.spec.priority of type int32"),
    ({"metadata": {"labels": {"a": 1}}}, "json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "told"), UNREADABLE, ids=[told[-40:] for _, told in UNREADABLE])
def test_wrong_types_are_refused_in_gos_words(value, told):
    status, refused = Asked()("POST", f"{CORE}/pods", value)
    assert status == 400
    assert refused["message"] == f'Pod in version "v1" cannot be handled as a Pod: {told}'


CHANGES = [
    # (collection, object, merge patch, what the message must say; nothing where it is fine)
    (f"{CORE}/pods", pod(), {"spec": {"containers": [C | {"image": "j"}]}}, ""),
    (f"{CORE}/pods", pod(), {"spec": {"activeDeadlineSeconds": 5}}, ""),
    (f"{CORE}/pods", pod(), {"spec": {"nodeSelector": {"a": "b"}}}, "pod updates may not change fields"),
    (f"{CORE}/pods", pod(), {"spec": {"containers": [C, C | {"name": "d"}]}}, "may not add or remove containers"),
    (f"{CORE}/pods", pod(schedulingGates=[{"name": "x.io/g"}]), {"spec": {"schedulingGates": None}}, ""),
    (f"{CORE}/pods", pod(), {"spec": {"schedulingGates": [{"name": "x.io/g"}]}}, "only deletion is allowed"),
    (f"{APPS}/deployments", workload(), {"spec": {"replicas": 3}}, ""),
    (f"{APPS}/deployments", workload(), {"spec": {"selector": {"matchLabels": {"a": "b", "c": "d"}}}}, "spec.selector: Invalid value"),
    (f"{CORE}/configmaps", {"metadata": {"name": "x"}, "immutable": True}, {"immutable": None}, "immutable: Forbidden"),
    (f"{CORE}/secrets", {"metadata": {"name": "x"}}, {"type": "other"}, "type: Invalid value"),
    (f"{CORE}/services", {"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1}]}}, {"spec": {"clusterIP": "10.0.0.9"}}, "may not change once set"),
    ("/apis/storage.k8s.io/v1/storageclasses", {"metadata": {"name": "x"}, "provisioner": "p"}, {"provisioner": "q"}, "provisioner: Invalid value: \"q\": field is immutable"),
    (f"{CORE}/configmaps", {"metadata": {"name": "x"}}, {"metadata": {"uid": "other"}}, 'metadata.uid: Invalid value: "other": field is immutable'),
]  # fmt: skip


@pytest.mark.parametrize(("url", "value", "change", "told"), CHANGES)
def test_what_may_change_changes_and_what_may_not_is_told(url, value, change, told):
    ask = Asked()
    assert ask("POST", url, value)[0] == 201
    status, answer = ask.merge(f"{url}/x", change)
    if told:
        assert status in {409, 422}
        assert told in answer["message"]
    else:
        assert status == 200, answer


def test_services_get_addresses_and_ports_that_nobody_else_has():
    ask = Asked()
    seen = []
    for number in range(20):
        spec = {"type": "NodePort", "ports": [{"port": 80}]}
        _, made = ask(
            "POST", f"{CORE}/services", {"metadata": {"name": f"s{number}"}, "spec": spec}
        )
        seen.append((made["spec"]["clusterIP"], made["spec"]["ports"][0]["nodePort"]))
    assert len({address for address, _ in seen}) == len({port for _, port in seen}) == 20
    taken = {"clusterIP": seen[0][0], "ports": [{"port": 80}]}
    body = {"metadata": {"name": "t"}, "spec": taken}
    status, refused = ask("POST", f"{CORE}/services", body)
    assert (status, "provided IP is already allocated" in refused["message"]) == (422, True)
    ask("DELETE", f"{CORE}/services/s0")
    assert ask("POST", f"{CORE}/services", body)[0] == 201, "it is free again"


def test_priorities_and_tolerations_come_from_admission():
    ask = Asked()
    ask(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"},
    )
    _, made = ask(
        "POST", f"{CORE}/pods", pod(priorityClassName="high", tolerations=[{"operator": "Exists"}])
    )
    assert (made["spec"]["priority"], made["spec"]["preemptionPolicy"]) == (7, "Never")
    assert made["spec"]["tolerations"] == [{"operator": "Exists"}]
    assert made["spec"]["serviceAccountName"] == "default"


def test_a_pod_without_a_class_has_the_only_one_for_all_others():
    ask = Asked()
    url = "/apis/scheduling.k8s.io/v1/priorityclasses"
    ask("POST", url, {"metadata": {"name": "usual"}, "value": 11, "globalDefault": True})
    spec = ask("POST", f"{CORE}/pods", pod())[1]["spec"]
    assert (spec["priorityClassName"], spec["priority"]) == ("usual", 11)
    code, told = ask("POST", url, {"metadata": {"name": "more"}, "value": 1, "globalDefault": True})
    assert (code, told["reason"]) == (403, "Forbidden")
    assert "PriorityClass usual is already marked as default" in told["message"]
    again = ask.merge(f"{url}/usual", {"description": "for most"})
    assert again[0] == 200, "the default itself may change"


def test_a_labelled_namespace_may_have_admin_access():
    ask = Asked()
    ask.merge(
        "/api/v1/namespaces/default",
        {"metadata": {"labels": {"resource.kubernetes.io/admin-access": "true"}}},
    )
    requests = [{"name": "r", "exactly": {"deviceClassName": "g", "adminAccess": True}}]
    url = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims"
    assert ask("POST", url, claim(devices={"requests": requests}))[0] == 201


def test_the_two_event_apis_show_the_same_objects():
    ask = Asked()
    new = "/apis/events.k8s.io/v1/namespaces/default/events"
    event = {
        "metadata": {"name": "e"},
        "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "hello",
        "reason": "R",
        "type": "Normal",
        "action": "A",
        "eventTime": "2026-01-01T00:00:00.000000Z",
        "reportingController": "x.io/c",
        "reportingInstance": "i",
    }
    assert ask("POST", new, event)[0] == 201
    _, old = ask("GET", f"{CORE}/events?fieldSelector=involvedObject.name%3Dp")
    (item,) = old["items"]
    assert (item["message"], item["involvedObject"]["name"]) == ("hello", "p")
    _, again = ask("GET", f"{new}/e")
    assert again["note"] == "hello"
    assert again["regarding"]["name"] == "p"
    assert ask("GET", f"{new}?fieldSelector=regarding.name%3Dq")[1]["items"] == []


def test_an_autoscaler_of_v1_is_one_of_v2():
    ask = Asked()
    old = "/apis/autoscaling/v1/namespaces/default/horizontalpodautoscalers"
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"}
    spec = {"maxReplicas": 3, "scaleTargetRef": target, "targetCPUUtilizationPercentage": 50}
    assert ask("POST", old, {"metadata": {"name": "h"}, "spec": spec})[0] == 201
    _, new = ask("GET", f"{old.replace('/v1/', '/v2/')}/h")
    assert new["spec"]["metrics"][0]["resource"]["target"]["averageUtilization"] == 50
    assert ask("GET", f"{old}/h")[1]["spec"]["targetCPUUtilizationPercentage"] == 50


@pytest.mark.parametrize(
    ("kind", "version", "why"),
    [
        ("ReplicationController", "v1", ""),
        ("ReplicationController", "", ""),
        ("ReplicationController", "a/b/c", "unexpected GroupVersion string: a/b/c"),
        ("Deployment", "v1", "apiVersion must specify API group"),
        ("Deployment", "apps/v1", ""),
    ],
)
def test_an_autoscaler_names_the_group_of_what_it_scales(kind, version, why):
    ask = Asked()
    url = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers"
    target = {"apiVersion": version, "kind": kind, "name": "t"}
    body = {"metadata": {"name": "h"}, "spec": {"maxReplicas": 3, "scaleTargetRef": target}}
    status, answer = ask("POST", url, body)
    assert (status, why in answer.get("message", "")) == (422 if why else 201, True)
    if not why:
        answer["spec"]["maxReplicas"] = 5
        status, answer = ask("PUT", f"{url}/h", answer)
        assert status == 200
        answer["spec"]["scaleTargetRef"] = {"apiVersion": "v1", "kind": "Deployment", "name": "t"}
        assert ask("PUT", f"{url}/h", answer)[0] == 422


def test_line_breaks_in_the_data_of_a_secret_are_dropped():
    body = {"metadata": {"name": "s"}, "data": {"a": "c2Vj\ncmV0\r\n"}}
    status, answer = Asked()("POST", f"{CORE}/secrets", body)
    assert (status, answer["data"]) == (201, {"a": "c2VjcmV0"})


def test_older_versions_of_device_kinds_show_the_same_claims():
    ask = Asked()
    url = "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims"
    requests = [{"name": "r", "deviceClassName": "gpu"}]
    assert ask("POST", url, claim(devices={"requests": requests}))[0] == 201
    _, hub = ask("GET", f"{url.replace('v1beta1', 'v1')}/x")
    assert hub["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] == "gpu"
    _, old = ask("GET", f"{url}/x")
    assert old["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu"


def test_some_kinds_must_be_read_before_they_are_replaced():
    ask = Asked()
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = {"metadata": {"name": "l"}, "spec": {"holderIdentity": "me"}}
    assert ask("PUT", f"{leases}/l", lease)[0] == 201, "a missing lease is made"
    status, refused = ask("PUT", f"{leases}/l", lease)
    assert (status, "must be specified for an update" in refused["message"]) == (422, True)
    _, found = ask("GET", f"{leases}/l")
    found["spec"]["holderIdentity"] = "you"
    assert ask("PUT", f"{leases}/l", found)[0] == 200
    config = {"metadata": {"name": "c"}, "data": {"a": "b"}}
    ask("POST", f"{CORE}/configmaps", config)
    assert ask("PUT", f"{CORE}/configmaps/c", config)[0] == 200, "others are simply replaced"


def test_a_limit_range_fills_in_and_bounds_what_containers_may_use():
    ask = Asked()
    limit = {"type": "Container", "max": {"cpu": "2"}, "defaultRequest": {"memory": "1Gi"}}
    ask("POST", f"{CORE}/limitranges", {"metadata": {"name": "l"}, "spec": {"limits": [limit]}})
    _, made = ask("POST", f"{CORE}/pods", pod())
    assert made["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "2"},
        "requests": {"cpu": "2", "memory": "1Gi"},
    }
    assert made["status"]["qosClass"] == "Burstable"
    greedy = container(resources={"limits": {"cpu": "3"}})
    status, refused = ask("POST", f"{CORE}/pods", greedy)
    assert (status, refused["message"]) == (
        403,
        'pods "x" is forbidden: maximum cpu usage per Container is 2, but limit is 3',
    )
    _, elsewhere = ask("POST", "/api/v1/namespaces/kube-public/pods", pod())
    assert elsewhere["spec"]["containers"][0]["resources"] == {}
