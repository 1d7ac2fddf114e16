"""Groups that make room for themselves, and groups that only end as a whole.

The rules are those of kube-scheduler 1.37 (workload-aware preemption, KEP-5710).
"""

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, POD_GROUPS, PODS, SLICES

LOW, HIGH = 10, 1000


def group(name, least=None, **spec):
    policy = {"basic": {}} if least is None else {"gang": {"minCount": least}}
    return {
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"schedulingPolicy": policy, **spec},
    }


def member(name, gang, cpu="1", **more):
    return pod(name, schedulingGroup={"podGroupName": gang}, requests={"cpu": cpu}, **more)


def single(name, node="", cpu="1", priority=LOW, **more):
    where = {"nodeName": node} if node else {}
    return pod(name, requests={"cpu": cpu}, priority=priority, **where, **more)


def left(lab):
    lab.wait(2)
    return sorted(
        each["metadata"]["name"]
        for each in lab.server.list(PODS, "default").items
        if "deletionTimestamp" not in each["metadata"]
    )


def test_a_gang_evicts_only_those_on_its_nodes_and_then_starts(lab):
    lab.server.add(NODES, *(worker(f"n{i}", cpu="2") for i in range(3)))
    lab.server.add(POD_GROUPS, group("g", 2))
    lab.server.add(PODS, single("low0", "n0", cpu="2"), single("low1", "n1", cpu="2"))
    lab.start()
    for name, node in (("g0", "n1"), ("g1", "n2")):
        there = {"kubernetes.io/hostname": node}
        lab.add(PODS, member(name, "g", cpu="2", priority=HIGH, nodeSelector=there))
    assert left(lab) == ["g0", "g1", "low0"]
    assert lab.get(PODS, "g0")["status"]["nominatedNodeName"] == "n1"
    lab.server.delete(PODS, "low1", "default", options={"gracePeriodSeconds": 0})
    lab.wait(5)
    assert (lab.node_of("g0"), lab.node_of("g1")) == ("n1", "n2")


def test_a_gang_that_would_not_fit_anyway_evicts_nobody(lab):
    lab.server.add(NODES, worker("n", cpu="2"))
    lab.server.add(POD_GROUPS, group("g", 3))
    lab.server.add(PODS, single("low", "n", cpu="2"))
    lab.start()
    lab.add(PODS, *(member(f"g{i}", "g", priority=HIGH) for i in range(3)))
    assert "low" in left(lab)


def test_pods_of_a_group_without_any_rule_evict_one_other_each(lab):
    lab.server.add(NODES, *(worker(f"n{i}", cpu="1") for i in range(3)))
    lab.server.add(POD_GROUPS, group("g"))
    lab.server.add(PODS, *(single(f"low{i}", f"n{i}") for i in range(3)))
    lab.start()
    lab.add(PODS, *(member(f"g{i}", "g", priority=HIGH) for i in range(2)))
    assert len(left(lab)) == 2 + 1
    nominated = {lab.get(PODS, f"g{i}")["status"]["nominatedNodeName"] for i in range(2)}
    assert len(nominated) == 2


def test_a_group_that_ends_as_one_goes_as_a_whole(lab):
    lab.server.add(NODES, *(worker(f"n{i}", cpu="2") for i in range(2)))
    lab.server.add(POD_GROUPS, group("whole", 2, disruptionMode="PodGroup"))
    lab.server.add(
        PODS,
        *(member(f"w{i}", "whole", cpu="2", priority=LOW, nodeName=f"n{i}") for i in range(2)),
    )
    lab.start()
    lab.add(PODS, single("high", cpu="1", priority=HIGH))
    assert left(lab) == ["high"]


def test_pods_of_a_group_end_one_by_one_otherwise(lab):
    lab.server.add(NODES, *(worker(f"n{i}", cpu="2") for i in range(2)))
    lab.server.add(POD_GROUPS, group("loose", 2))
    lab.server.add(
        PODS,
        *(member(f"w{i}", "loose", cpu="2", priority=LOW, nodeName=f"n{i}") for i in range(2)),
    )
    lab.start()
    lab.add(PODS, single("high", cpu="1", priority=HIGH))
    assert len(left(lab)) == 2


def test_single_pods_are_evicted_before_a_group_of_the_same_priority(lab):
    lab.server.add(NODES, worker("n", cpu="4"))
    lab.server.add(POD_GROUPS, group("whole", 1, disruptionMode="PodGroup"), group("g", 1))
    lab.server.add(
        PODS,
        single("low", "n", cpu="2"),
        member("w", "whole", cpu="2", priority=LOW, nodeName="n"),
    )
    lab.start()
    lab.add(PODS, member("g0", "g", cpu="2", priority=HIGH))
    assert left(lab) == ["g0", "w"]


def test_the_policy_never_holds_for_the_whole_gang(lab):
    lab.server.add(NODES, worker("n", cpu="2"))
    lab.server.add(POD_GROUPS, group("g", 2))
    lab.server.add(PODS, single("low", "n", cpu="2"))
    lab.start()
    lab.add(
        PODS,
        member("g0", "g", priority=HIGH),
        member("g1", "g", priority=HIGH, preemptionPolicy="Never"),
    )
    assert "low" in left(lab)


def test_a_gang_takes_the_devices_of_its_victims(lab):
    lab.server.add(NODES, worker("n", cpu="8"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *pool("n", device("d0"), device("d1"), node="n"))
    lab.server.add(POD_GROUPS, group("g", 2))
    names = ("low", "c0", "c1")
    lab.server.add(CLAIMS, *(claim(name, request("r"), namespace="default") for name in names))
    lab.start()
    lab.add(PODS, single("low", claims={"c": "low"}))
    assert lab.node_of("low") == "n"
    lab.add(PODS, *(member(f"g{i}", "g", priority=HIGH, claims={"c": f"c{i}"}) for i in range(2)))
    assert "low" not in left(lab)
