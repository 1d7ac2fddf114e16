"""Addresses of load balancers."""

from ipaddress import IPv4Network

import pytest

from dralab.controllers import registry
from dralab.controllers.load_balancers import FINALIZER, LoadBalancers
from dralab.runtime.resources import EVENTS, SERVICES
from labs import Lab


@pytest.fixture
def lab():
    made = Lab()
    registry.assemble(made.manager)
    LoadBalancers(made.manager, IPv4Network("192.0.2.0/30"))
    made.start()
    made.wait(1)
    return made


def add(lab, name, **spec):
    wanted = {"type": "LoadBalancer", "ports": [{"port": 80}], **spec}
    lab.add(SERVICES, {"metadata": {"name": name, "namespace": "default"}, "spec": wanted})
    lab.wait(2)


def address(lab, name):
    ingress = lab.get(SERVICES, name)["status"]["loadBalancer"].get("ingress")
    return ingress and ingress[0]["ip"]


def said(lab, reason):
    return [event["message"] for event in lab.all(EVENTS) if event["reason"] == reason]


def test_each_service_gets_an_address_of_its_own(lab):
    for name in ("a", "b", "c"):
        add(lab, name)
    assert [address(lab, name) for name in ("a", "b", "c")] == ["192.0.2.1", "192.0.2.2", None]
    assert len(said(lab, "EnsuredLoadBalancer")) == 2
    failed = "failed to ensure load balancer: all addresses of 192.0.2.0/30 are taken"
    assert said(lab, "SyncLoadBalancerFailed") == [f"Error syncing load balancer: {failed}"]
    lab.client.delete(SERVICES, "a", "default")
    lab.wait(2)
    assert "a" not in lab.names(SERVICES)
    assert address(lab, "c") == "192.0.2.1"


def test_a_service_that_is_no_load_balancer_any_more_gives_its_address_back(lab):
    add(lab, "a")
    assert lab.get(SERVICES, "a")["metadata"]["finalizers"] == [FINALIZER]
    lab.patch(SERVICES, "a", {"spec": {"type": "ClusterIP"}})
    lab.wait(2)
    assert address(lab, "a") is None
    assert "finalizers" not in lab.get(SERVICES, "a")["metadata"]
    assert said(lab, "DeletedLoadBalancer") == ["Deleted load balancer"]


@pytest.mark.parametrize(
    ("asked", "given", "why"),
    [
        ("192.0.2.2", "192.0.2.2", ""),
        ("192.0.2.1", None, "192.0.2.1 belongs to service default/first"),
        ("192.0.2.9", None, "192.0.2.9 is not in 192.0.2.0/30"),
    ],
)
def test_a_service_may_ask_for_an_address(lab, asked, given, why):
    add(lab, "first")
    add(lab, "s", loadBalancerIP=asked)
    assert address(lab, "s") == given
    assert [text.partition(": failed to ensure load balancer: ")[2] for text in
            said(lab, "SyncLoadBalancerFailed")] == ([why] if why else [])  # fmt: skip


def test_a_service_with_a_class_is_left_to_its_controller(lab):
    add(lab, "s", loadBalancerClass="example.com/other")
    assert address(lab, "s") is None
    assert "finalizers" not in lab.get(SERVICES, "s")["metadata"]
