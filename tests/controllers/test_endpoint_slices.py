import pytest

from builders import pod
from dralab.controllers import registry
from dralab.runtime.resources import (
    ENDPOINT_SLICES,
    NODES,
    PODS,
    REPLICATION_CONTROLLERS,
    SERVICES,
)
from labs import Lab

PARTS = (
    "endpointslice-controller",
    "replicationcontroller-controller",
    "garbage-collector-controller",
)


@pytest.fixture
def lab():
    made = Lab()
    for name in PARTS:
        registry.CONTROLLERS[name](made.manager)
    made.add_node("n0", labels={"topology.kubernetes.io/zone": "z"})
    made.start()
    return made


def service(name="s", *, app="x", ports=({"port": 80},), **spec):
    body = {"selector": {"app": app}, "ports": list(ports), **spec}
    return {"metadata": {"name": name, "namespace": "default"}, "spec": body}


def run(lab, name, ip, *, app="x", ready=True, **spec):
    lab.add(PODS, pod(name, labels={"app": app}, nodeName="n0", **spec))
    status = "True" if ready else "False"
    condition = {"type": "Ready", "status": status, "lastTransitionTime": lab.manager.now()}
    ips = {"podIP": ip, "podIPs": [{"ip": ip}]}
    lab.set_status(PODS, name, phase="Running", conditions=[condition], **ips)
    lab.wait(0.2)


def slices(lab):
    return lab.all(ENDPOINT_SLICES)


def test_a_service_lists_its_pods_and_whether_they_are_ready(lab):
    lab.add(SERVICES, service())
    run(lab, "a", "10.0.0.1")
    run(lab, "b", "10.0.0.2", ready=False)
    run(lab, "other", "10.0.0.3", app="y")
    [found] = slices(lab)
    assert found["metadata"]["labels"]["kubernetes.io/service-name"] == "s"
    assert found["metadata"]["name"].startswith("s-")
    assert found["ports"] == [{"name": "", "port": 80, "protocol": "TCP"}]
    shown = {
        item["targetRef"]["name"]: (item["addresses"], item["conditions"]["ready"])
        for item in found["endpoints"]
    }
    assert shown == {"a": (["10.0.0.1"], True), "b": (["10.0.0.2"], False)}
    assert {item["zone"] for item in found["endpoints"]} == {"z"}
    assert {item["nodeName"] for item in found["endpoints"]} == {"n0"}


def test_a_pod_that_goes_is_taken_off(lab):
    lab.add(SERVICES, service())
    run(lab, "a", "10.0.0.1")
    lab.delete(PODS, "a")
    lab.wait(0.2)
    [found] = slices(lab)
    conditions = {"ready": False, "serving": True, "terminating": True}
    assert found["endpoints"][0]["conditions"] == conditions
    lab.delete(PODS, "a", gracePeriodSeconds=0)
    lab.wait(0.2)
    [found] = slices(lab)
    assert not found.get("endpoints")


def test_ports_by_name_are_those_of_the_pod(lab):
    lab.add(SERVICES, service(ports=[{"name": "web", "port": 80, "targetPort": "http"}]))
    for name, ip, number in (("a", "10.0.0.1", 8080), ("b", "10.0.0.2", 9090)):
        made = pod(name, labels={"app": "x"}, nodeName="n0")
        made["spec"]["containers"][0]["ports"] = [{"name": "http", "containerPort": number}]
        lab.add(PODS, made)
        lab.set_status(PODS, name, podIP=ip, podIPs=[{"ip": ip}], phase="Running")
    lab.wait(0.2)
    found = {item["ports"][0]["port"]: item["endpoints"] for item in slices(lab)}
    assert {port: len(items) for port, items in found.items()} == {8080: 1, 9090: 1}


def test_ports_by_name_may_be_those_of_a_sidecar(lab):
    port = [{"name": "http", "containerPort": 8081}]
    inits = [
        {"name": "once", "image": "x", "ports": [{"name": "http", "containerPort": 8080}]},
        {"name": "side", "image": "x", "ports": port, "restartPolicy": "Always"},
    ]
    lab.add(SERVICES, service(ports=[{"name": "web", "port": 80, "targetPort": "http"}]))
    made = pod("a", labels={"app": "x"}, nodeName="n0")
    made["spec"]["initContainers"] = inits
    lab.add(PODS, made)
    lab.set_status(PODS, "a", podIP="10.0.0.1", podIPs=[{"ip": "10.0.0.1"}], phase="Running")
    lab.wait(0.2)
    [found] = slices(lab)
    assert found["ports"] == [{"name": "web", "port": 8081, "protocol": "TCP"}]


def test_a_slice_holds_a_hundred_and_what_is_there_stays(lab):
    lab.add(SERVICES, service())
    for number in range(105):
        run(lab, f"p{number:03}", f"10.0.1.{number}")
    assert sorted(len(item["endpoints"]) for item in slices(lab)) == [5, 100]
    first = max(slices(lab), key=lambda item: len(item["endpoints"]))
    lab.delete(PODS, "p000", gracePeriodSeconds=0)
    lab.wait(0.2)
    after = {item["metadata"]["name"]: len(item["endpoints"]) for item in slices(lab)}
    assert sorted(after.values()) == [5, 99]
    assert after[first["metadata"]["name"]] == 99


def test_services_without_selector_are_left_alone_and_slices_go_with_theirs(lab):
    made = service("bare")
    del made["spec"]["selector"]
    lab.add(SERVICES, made, service())
    run(lab, "a", "10.0.0.1")
    assert len(slices(lab)) == 1
    lab.delete(SERVICES, "s")
    lab.wait(2)
    assert slices(lab) == []


def test_a_service_may_name_pods_that_are_not_ready(lab):
    lab.add(SERVICES, service(publishNotReadyAddresses=True, clusterIP="None"))
    run(lab, "a", "10.0.0.1", ready=False, hostname="a", subdomain="s")
    [found] = slices(lab)
    assert found["endpoints"][0]["conditions"]["ready"]
    assert found["endpoints"][0]["hostname"] == "a"
    assert "service.kubernetes.io/headless" in found["metadata"]["labels"]


def test_a_replication_controller_keeps_its_number_of_pods(lab):
    template = pod("x")["spec"]
    lab.server.add(
        REPLICATION_CONTROLLERS,
        {
            "metadata": {"name": "rc", "namespace": "default"},
            "spec": {
                "replicas": 2,
                "selector": {"app": "x"},
                "template": {"metadata": {"labels": {"app": "x"}}, "spec": template},
            },
        },
    )
    lab.add(PODS, pod("orphan", labels={"app": "x"}))
    lab.wait(1)
    assert len(lab.all(PODS)) == 2
    assert "orphan" in lab.names(PODS)
    owner = lab.get(PODS, "orphan")["metadata"]["ownerReferences"][0]
    assert (owner["apiVersion"], owner["kind"]) == ("v1", "ReplicationController")
    status = lab.get(REPLICATION_CONTROLLERS, "rc")["status"]
    assert (status["replicas"], status["observedGeneration"]) == (2, 1)
    assert lab.get(NODES, "n0")
