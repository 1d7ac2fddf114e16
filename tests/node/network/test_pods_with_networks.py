"""What a kubelet does with a network for its pods; the network itself is a stand-in."""

import pytest

from dralab import SimulatedCluster
from dralab.node.network.addresses import RangeError
from dralab.node.network.sandbox import Sandbox, SandboxError
from dralab.objects.metadata import uid_of
from dralab.runtime.resources import EVENTS, NODES, PODS


class Addresses:
    """Gives addresses, and refuses where it is told to."""

    ip = "10.244.0.3"

    def __init__(self):
        self.places = {}
        self.given = 0
        self.problem = ""
        self.routes = []

    def add_pod(self, pod):
        if self.problem:
            raise SandboxError(self.problem)
        self.given += 1
        return self.places.setdefault(uid_of(pod), Sandbox(f"10.244.1.{self.given + 1}"))

    def forget_pod(self, uid):
        self.places.pop(uid, None)

    def pod_cidr(self, node, others):
        assert [each["metadata"]["name"] for each in others] == ["n1"]
        return node["spec"].get("podCIDR") or "10.244.1.0/24"

    def route(self, pod_cidr):
        self.routes.append(pod_cidr)


@pytest.fixture
def network():
    return Addresses()


@pytest.fixture
def lab(network):
    found = SimulatedCluster(nodes=["n1"])
    found.kubelets.nodes["n1"].join(network, None)
    found.wait(30)
    return found


def pod(**spec):
    container = {"name": "c", "image": "x", "command": ["sh", "-c", "sleep 20"]}
    metadata = {"name": "p", "namespace": "default"}
    spec = {"containers": [container], "restartPolicy": "Never", **spec}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def shown(lab):
    return lab.client.get(PODS, "p", "default")["status"]


def reasons(lab):
    return [each["reason"] for each in lab.client.list(EVENTS).items]


def test_a_node_gets_a_range_and_keeps_it(lab, network):
    node = lab.client.get(NODES, "n1")
    assert node["spec"]["podCIDRs"] == [node["spec"]["podCIDR"]] == ["10.244.1.0/24"]
    assert node["status"]["addresses"][0] == {"type": "InternalIP", "address": "10.244.0.3"}
    lab.wait(60)
    assert set(network.routes) == {"10.244.1.0/24"}


def test_a_node_without_a_range_is_there_all_the_same(network, caplog):
    def none_left(_node, _others):
        raise RangeError("there is no range left")

    network.pod_cidr = none_left
    lab = SimulatedCluster(nodes=["n1"])
    lab.kubelets.nodes["n1"].join(network, None)
    lab.wait(30)
    assert "podCIDR" not in lab.client.get(NODES, "n1")["spec"]
    assert "node n1: its pods have no network: there is no range left" in caplog.text


def test_a_pod_has_its_address_until_it_ends(lab, network):
    lab.create(pod())
    assert shown(lab)["podIPs"] == [{"ip": "10.244.1.2"}]
    assert shown(lab)["hostIP"] == "10.244.0.3"
    assert len(network.places) == 1
    lab.wait(30)
    assert shown(lab)["phase"] == "Succeeded"
    assert network.places == {}
    assert shown(lab)["podIP"] == "10.244.1.2", "as on a real node"


def test_a_pod_waits_for_its_network(lab, network):
    network.problem = "no address"
    lab.create(pod())
    assert shown(lab)["containerStatuses"][0]["state"]["waiting"]["reason"] == "ContainerCreating"
    event = next(
        e for e in lab.client.list(EVENTS).items if e["reason"] == "FailedCreatePodSandBox"
    )
    assert event["message"] == "Failed to create pod sandbox: no address"
    network.problem = ""
    lab.wait(5)
    assert shown(lab)["podIP"] == "10.244.1.2"


def test_a_pod_that_wants_forbidden_parameters_fails(lab, network):
    sysctls = [{"name": "kernel.msgmax", "value": "65536"}]
    lab.create(pod(securityContext={"sysctls": sysctls}))
    why = 'forbidden sysctl: "kernel.msgmax" not allowlisted'
    assert shown(lab)["phase"] == "Failed"
    assert shown(lab)["reason"] == "SysctlForbidden"
    assert shown(lab)["message"] == f"Pod was rejected: {why}"
    assert "SysctlForbidden" in reasons(lab)
    assert network.given == 0
