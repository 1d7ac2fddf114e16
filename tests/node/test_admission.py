"""A node refuses pods that do not fit beside the others, whatever bound them there."""

import pytest

from dralab import SimulatedCluster
from dralab.objects.host_ports import TakenPort, host_ports
from dralab.runtime.resources import EVENTS, NODES, PODS
from rollouts import tainted

PORT = {"containerPort": 80, "hostPort": 8080}
ELSEWHERE = {"nodeSelector": {"disk": "ssd"}}
FAILED = "Pod was rejected: Predicate {} failed: {}"


def pod(name, *, cpu="", ports=(), labels=None, **spec):
    main = {"name": "m", "image": "i", "command": ["sleep", "infinity"], "ports": list(ports)}
    if cpu:
        main["resources"] = {"requests": {"cpu": cpu}}
    metadata = {"name": name, "namespace": "default", "labels": labels or {}}
    spec = {"nodeName": "n1", "terminationGracePeriodSeconds": 0, "containers": [main], **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


@pytest.fixture
def lab():
    made = SimulatedCluster(nodes=["n1"])
    node = made.client.get(NODES, "n1")
    for key in ("capacity", "allocatable"):
        node["status"][key] |= {"cpu": "2", "pods": "3"}
    made.client.update(NODES, node, subresource="status")
    made.create(pod("first", cpu="1500m", ports=[PORT]))
    return made


@pytest.mark.parametrize(
    ("second", "reason", "message"),
    [
        (
            {"cpu": "501m"},
            "OutOfcpu",
            "Pod was rejected: Node didn't have enough resource: cpu, requested: 501, "
            "used: 1500, capacity: 2000",
        ),
        (
            {"ports": [PORT]},
            "NodePorts",
            FAILED.format(
                "NodePorts", "node(s) didn't have free ports for the requested pod ports"
            ),
        ),
        (
            ELSEWHERE,
            "NodeAffinity",
            FAILED.format("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"),
        ),
        (
            {"os": {"name": "windows"}},
            "PodOSNotSupported",
            "Pod was rejected: Failed to admit pod as the OS field doesn't match node OS",
        ),
        (
            {"labels": {"kubernetes.io/os": "windows"}},
            "PodOSSelectorNodeLabelDoesNotMatch",
            "Pod was rejected: Failed to admit pod as the `kubernetes.io/os` label doesn't match "
            "node label",
        ),
    ],
)
def test_a_pod_that_does_not_fit_fails(lab, second, reason, message):
    lab.create(pod("second", **second))
    status = lab.pods("default")["second"]["status"]
    assert (status["phase"], status["reason"], status["message"]) == ("Failed", reason, message)
    assert "containerStatuses" not in status
    assert "podIP" not in status
    [event] = [e for e in lab.client.list(EVENTS).items if e["reason"] == reason]
    assert event["message"] == message.removeprefix("Pod was rejected: ")


@pytest.mark.parametrize(
    "second",
    [
        {"cpu": "500m"},
        {"ports": [PORT | {"protocol": "UDP"}]},
        {"ports": [{"containerPort": 80}]},
        {"os": {"name": "linux"}},
    ],
)
def test_a_pod_that_fits_runs(lab, second):
    lab.create(pod("second", **second))
    assert lab.pods("default")["second"]["status"]["phase"] == "Running"


def test_more_pods_than_the_node_takes_are_refused(lab):
    lab.create(pod("second"), pod("third"), pod("fourth"))
    status = lab.pods("default")["fourth"]["status"]
    assert status["reason"] == "OutOfpods"
    assert status["message"].endswith("pods, requested: 1, used: 3, capacity: 3")


def test_what_a_pod_that_has_gone_or_ended_took_is_free(lab):
    lab.delete("default", "first")
    lab.create(pod("brief", cpu="2", restartPolicy="Never", activeDeadlineSeconds=1))
    lab.create(pod("second", cpu="2", ports=[PORT]))
    found = lab.pods("default")
    assert (found["brief"]["status"]["phase"], found["second"]["status"]["phase"]) == (
        "Failed",
        "Running",
    )


def test_a_pod_that_does_not_tolerate_eviction_is_refused():
    lab = SimulatedCluster(nodes=["n1"], without=("controllers",))
    tainted("n1", "NoExecute")(lab)
    lab.create(pod("first"))
    status = lab.pods("default")["first"]["status"]
    assert status["message"] == FAILED.format(
        "TaintToleration", "node(s) had taints that the pod didn't tolerate"
    )


def test_a_pod_that_runs_stays_when_its_node_becomes_smaller(lab):
    node = lab.client.get(NODES, "n1")
    node["status"]["allocatable"]["cpu"] = "1"
    lab.client.update(NODES, node, subresource="status")
    lab.wait(60)
    assert lab.client.get(PODS, "first", "default")["status"]["phase"] == "Running"


def test_host_ports_are_those_of_containers_that_run_beside_each_other():
    init = {"name": "i", "ports": [PORT | {"hostIP": "10.0.0.1"}]}
    spec = {"initContainers": [init, init | {"restartPolicy": "Always"}], "containers": [{}]}
    assert host_ports(spec) == {TakenPort("10.0.0.1", "TCP", 8080)}
    assert not host_ports({"initContainers": [init], "containers": [{}]})
