"""A scheduler has the gates of its own release, whatever the server stores."""

import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.api.resource.features import default_of, off_in, with_gates
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, POD_GROUPS, PODS, SLICES
from dralab.scheduler.scheduler import Scheduler
from labs import Lab
from smallselectors import SmallEnvironment

GANGS = "GenericWorkload=true,GangScheduling=true"


def scheduled(lab, release, gates=""):
    """Let a scheduler of a release run beside the server of a lab."""
    off = off_in(release, with_gates(gates, default_of(release), release))
    Scheduler(lab.manager, SmallEnvironment(), off=off)
    lab.start()


@pytest.mark.parametrize(
    ("release", "gates", "node"),
    [
        ("1.36", GANGS, None),
        ("1.36", "", "n"),
        ("1.36", "GenericWorkload=true", "n"),
        ("1.33", "", "n"),
        ("1.37", "", "n"),
        ("1.37", "GenericWorkload=true", None),
    ],
)
def test_a_gang_is_one_where_the_gates_of_the_scheduler_are_on(release, gates, node):
    lab = Lab()
    lab.server.add(NODES, worker("n", cpu="4"))
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}}
    lab.server.add(POD_GROUPS, {"metadata": {"name": "g", "namespace": "default"}, "spec": spec})
    scheduled(lab, release, gates)
    lab.add(PODS, pod("a", schedulingGroup={"podGroupName": "g"}))
    lab.wait(2)
    assert lab.get(PODS, "a")["spec"].get("nodeName") == node


@pytest.mark.parametrize(("release", "node"), [("1.33", None), ("1.35", None), ("1.36", "n")])
def test_extended_resources_are_devices_as_of_the_release_that_has_the_gate_on(release, node):
    lab = Lab()
    lab.server.add(NODES, worker("n", cpu="4"))
    lab.server.add(CLASSES, device_class("gpu", extendedResourceName="example.com/gpu"))
    lab.server.add(SLICES, *pool("n", device("d0"), node="n"))
    scheduled(lab, release)
    container = {"name": "c", "image": "i", "resources": {"limits": {"example.com/gpu": "1"}}}
    lab.add(PODS, pod("a", containers=[container]))
    lab.wait(2)
    assert lab.get(PODS, "a")["spec"].get("nodeName") == node


@pytest.mark.parametrize(("release", "node"), [("1.33", "n"), ("1.36", None)])
def test_taints_of_devices_count_as_of_the_release_that_has_the_gate_on(release, node):
    lab = Lab()
    lab.server.add(NODES, worker("n", cpu="4"))
    lab.server.add(CLASSES, device_class("gpu"))
    tainted = device("d0", taints=[{"key": "k", "effect": "NoSchedule"}])
    lab.server.add(SLICES, *pool("n", tainted, node="n"))
    lab.server.add(CLAIMS, claim("c", request("r", "gpu"), namespace="default"))
    scheduled(lab, release, "DynamicResourceAllocation=true")
    lab.add(PODS, pod("a", resourceClaims=[{"name": "x", "resourceClaimName": "c"}]))
    lab.wait(2)
    assert lab.get(PODS, "a")["spec"].get("nodeName") == node


@pytest.mark.parametrize(("release", "got"), [("1.36", ["d1"]), ("1.37", [])])
def test_all_devices_are_those_with_room_left_until_1_37(release, got):
    lab = Lab()
    lab.server.add(NODES, worker("n", cpu="4"))
    lab.server.add(CLASSES, device_class("gpu"))
    shared = [device(f"d{n}", capacity={"memory": {"value": "4Gi"}}, shared=True) for n in (0, 1)]
    lab.server.add(SLICES, *pool("n", *shared, node="n"))
    asked = {"capacity": {"requests": {"memory": "4Gi"}}}
    everything = {"deviceClassName": "gpu", "allocationMode": "All", **asked}
    lab.server.add(
        CLAIMS,
        claim("one", request("r", "gpu", **asked), namespace="default"),
        claim("all", {"name": "r", "exactly": everything}, namespace="default"),
    )
    scheduled(lab, release)
    for name in ("one", "all"):
        lab.add(PODS, pod(name, resourceClaims=[{"name": "x", "resourceClaimName": name}]))
        lab.wait(2)
    status = lab.get(CLAIMS, "all").get("status") or {}
    results = (status.get("allocation") or {}).get("devices", {}).get("results", [])
    assert [each["device"] for each in results] == got
