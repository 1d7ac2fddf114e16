import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.allocation import v1
from dralab.runtime.resources import (
    CLAIMS,
    CLASSES,
    DISRUPTION_BUDGETS,
    EVENTS,
    NODES,
    PODS,
    SLICES,
)
from dralab.scheduling.demands import DemandReader
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import pod_info
from dralab.scheduling.preemption import eviction_for
from dralab.scheduling.state import ClusterState
from smallselectors import SmallEnvironment


def kill(lab):
    """Be the kubelet: let pods that are being deleted go."""
    for obj in lab.server.all(PODS):
        if "deletionTimestamp" in obj["metadata"]:
            lab.server.delete(
                PODS, obj["metadata"]["name"], "default", options={"gracePeriodSeconds": 0}
            )
    lab.wait(2)


def test_a_pod_of_higher_priority_pushes_the_least_away(lab):
    lab.server.add(NODES, worker("n0", cpu="2"), worker("n1", cpu="2"))
    lab.start()
    lab.add(PODS, pod("low", requests={"cpu": "2"}, priority=1))
    lab.add(PODS, pod("mid", requests={"cpu": "2"}, priority=5))
    lab.add(PODS, pod("high", requests={"cpu": "2"}, priority=9))
    victim = lab.get(PODS, "low")
    assert victim["metadata"]["deletionTimestamp"]
    [cause] = [c for c in victim["status"]["conditions"] if c["type"] == "DisruptionTarget"]
    assert cause["reason"] == "PreemptionByScheduler"
    assert lab.get(PODS, "high")["status"]["nominatedNodeName"] == lab.node_of("low")
    assert "Preempted" in [event["reason"] for event in lab.server.all(EVENTS)]
    kill(lab)
    assert lab.node_of("high")
    assert "mid" in lab.names(PODS)


def test_equals_and_those_who_may_not_preempt_wait(lab):
    lab.server.add(NODES, worker("n", cpu="1"))
    lab.start()
    lab.add(PODS, pod("first", requests={"cpu": "1"}, priority=5))
    lab.add(
        PODS,
        pod("equal", requests={"cpu": "1"}, priority=5),
        pod("polite", requests={"cpu": "1"}, priority=9, preemptionPolicy="Never"),
    )
    assert "deletionTimestamp" not in lab.get(PODS, "first")["metadata"]


def test_the_room_that_was_cleared_is_not_given_to_others(lab):
    lab.server.add(NODES, worker("n", cpu="2"))
    lab.start()
    lab.add(PODS, pod("low", requests={"cpu": "2"}, priority=1))
    lab.add(PODS, pod("high", requests={"cpu": "2"}, priority=9))
    lab.server.delete(PODS, "low", "default", options={"gracePeriodSeconds": 0})
    lab.server.add(PODS, pod("sneaky", requests={"cpu": "1"}, priority=2))
    lab.wait(3)
    assert (lab.node_of("high"), lab.node_of("sneaky")) == ("n", None)
    assert lab.why("sneaky").startswith("0/1 nodes are available: 1 Insufficient cpu.")
    lab.server.delete(PODS, "high", "default", options={"gracePeriodSeconds": 0})
    lab.wait(15)
    assert lab.node_of("sneaky") == "n"


def nominated_node(lab, name):
    return lab.get(PODS, name)["status"].get("nominatedNodeName")


def test_a_nomination_is_withdrawn_when_another_took_the_room(lab):
    """As kube-scheduler does: no preemption helps any more, so none is under way."""
    lab.server.add(NODES, worker("n", cpu="4"))
    lab.start()
    lab.add(PODS, pod("low", requests={"cpu": "4"}, priority=1))
    lab.add(PODS, pod("high", requests={"cpu": "4"}, priority=9))
    lab.wait(20)
    assert nominated_node(lab, "high") == "n"  # while its victim ends
    lab.server.add(PODS, pod("urgent", requests={"cpu": "3"}, priority=99))
    kill(lab)
    lab.wait(20)
    assert lab.node_of("urgent") == "n"
    assert nominated_node(lab, "high") is None
    # Nor is room kept for it.
    lab.add(PODS, pod("small", requests={"cpu": "1"}, priority=2))
    assert lab.node_of("small") == "n"


def test_a_pod_that_may_not_preempt_keeps_the_nomination_that_others_gave_it(lab):
    lab.server.add(NODES, worker("n", cpu="1"))
    lab.start()
    lab.add(PODS, pod("first", requests={"cpu": "1"}, priority=5))
    for name, policy in (("polite", "Never"), ("equal", "PreemptLowerPriority")):
        lab.add(PODS, pod(name, requests={"cpu": "1"}, priority=5, preemptionPolicy=policy))
        lab.set_status(PODS, name, nominatedNodeName="coming")
    lab.server.add(NODES, worker("m", cpu="100m"))
    lab.wait(20)
    assert nominated_node(lab, "polite") == "coming"
    assert nominated_node(lab, "equal") is None


def test_a_pod_that_the_nominated_one_keeps_away_does_not_come_back_first(lab):
    """Room is left for both, but not for both on one node."""
    lab.server.add(NODES, worker("n", cpu="4"))
    lab.start()
    selects = {"labelSelector": {"matchLabels": {"app": "one"}}}
    term = {**selects, "topologyKey": "kubernetes.io/hostname"}
    apart = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    lab.add(PODS, pod("low", labels={"app": "one"}, affinity=apart, priority=1))
    lab.add(PODS, pod("high", labels={"app": "one"}, affinity=apart, priority=9))
    lab.server.delete(PODS, "low", "default", options={"gracePeriodSeconds": 0})
    lab.server.add(PODS, pod("back", labels={"app": "one"}, affinity=apart, priority=1))
    lab.wait(3)
    assert (lab.node_of("high"), lab.node_of("back")) == ("n", None)


def test_a_protected_pod_is_spared_where_another_will_do(lab):
    lab.server.add(NODES, worker("n0", cpu="1"), worker("n1", cpu="1"))
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 0},
    }
    lab.server.add(DISRUPTION_BUDGETS, budget)
    lab.start()
    lab.add(PODS, pod("db", labels={"app": "db"}, requests={"cpu": "1"}, priority=1))
    lab.add(PODS, pod("web", requests={"cpu": "1"}, priority=2))
    lab.add(PODS, pod("high", requests={"cpu": "1"}, priority=9))
    assert "deletionTimestamp" in lab.get(PODS, "web")["metadata"]
    assert "deletionTimestamp" not in lab.get(PODS, "db")["metadata"]


def test_a_budget_with_room_for_one_protects_nobody_yet(lab):
    lab.server.add(NODES, worker("n", cpu="2"))
    budget = {
        "metadata": {"name": "b", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "db"}}},
        "status": {"disruptionsAllowed": 1},
    }
    lab.server.add(DISRUPTION_BUDGETS, budget)
    lab.start()
    lab.add(PODS, pod("db", labels={"app": "db"}, requests={"cpu": "1"}, priority=1))
    lab.add(PODS, pod("web", requests={"cpu": "1"}, priority=2))
    lab.add(PODS, pod("high", requests={"cpu": "1"}, priority=9))
    assert "deletionTimestamp" in lab.get(PODS, "db")["metadata"]
    assert "deletionTimestamp" not in lab.get(PODS, "web")["metadata"]


def test_a_pod_is_pushed_away_for_its_device_and_its_claim_is_awaited(lab):
    lab.server.add(NODES, worker("n", cpu="4"), worker("other", cpu="1"))
    lab.server.add(CLASSES, device_class("gpu"))
    lab.server.add(SLICES, *pool("n", device("d"), node="n"))
    lab.start()
    lab.add(
        CLAIMS,
        claim("c0", request("r"), namespace="default"),
        claim("c1", request("r"), namespace="default"),
    )
    lab.add(PODS, pod("low", requests={"cpu": "1"}, claims={"c": "c0"}, priority=1))
    lab.add(PODS, pod("bystander", requests={"cpu": "1"}, priority=1))
    lab.add(PODS, pod("high", requests={"cpu": "1"}, claims={"c": "c1"}, priority=9))
    assert "deletionTimestamp" in lab.get(PODS, "low")["metadata"]
    assert lab.get(PODS, "high")["status"]["nominatedNodeName"] == "n"
    kill(lab)
    lab.wait(30)
    # Nobody else goes while the claim of the victim waits to be released.
    assert set(lab.names(PODS)) == {"bystander", "high"}
    assert not lab.node_of("high")
    held = lab.get(CLAIMS, "c0")
    lab.server.update(CLAIMS, {**held, "status": {}}, subresource="status")
    lab.wait(2)
    assert lab.node_of("high") == "n"


def test_a_pod_is_pushed_away_for_the_devices_of_its_extended_resources(lab):
    gpu = "example.com/gpu"
    lab.server.add(NODES, worker("n", cpu="4"))
    lab.server.add(CLASSES, device_class("gpu", extendedResourceName=gpu))
    lab.server.add(SLICES, *pool("n-gpus", device("a"), device("b"), node="n"))
    lab.start()
    lab.add(PODS, pod("low", requests={gpu: "1"}, priority=1))
    lab.add(PODS, pod("lower", requests={gpu: "1"}))
    assert lab.node_of("low") == lab.node_of("lower") == "n"
    lab.add(PODS, pod("high", requests={gpu: "1"}, priority=9))
    assert "deletionTimestamp" in lab.get(PODS, "lower")["metadata"]
    assert "deletionTimestamp" not in lab.get(PODS, "low")["metadata"]
    assert lab.get(PODS, "high")["status"]["nominatedNodeName"] == "n"
    # Those who hold the devices are named, not a claim in the making.
    assert "lower-extended-resources" in lab.why("high")
    kill(lab)
    for held in lab.server.all(CLAIMS):
        if held["metadata"]["ownerReferences"][0]["name"] == "lower":
            lab.server.delete(CLAIMS, held["metadata"]["name"], "default")
            lab.server.patch(
                CLAIMS, held["metadata"]["name"], {"metadata": {"finalizers": None}}, "default"
            )
    lab.wait(2)
    assert lab.node_of("high") == "n"


@settings(deadline=None)
@given(
    st.lists(
        st.lists(st.tuples(st.integers(0, 3), st.integers(1, 3)), max_size=4),
        min_size=1,
        max_size=3,
    ),
    st.integers(1, 4),
    st.integers(1, 3),
)
def test_victims_are_fewer_or_less_important_than_any_other_choice(nodes, cpu, priority):
    table = NodeTable()
    state = ClusterState(
        table,
        ClusterDevices(table, v1.V1Reader(SmallEnvironment())),
        DemandReader(lambda _: None, lambda _: None, lambda _: None),
    )
    for number, there in enumerate(nodes):
        name = f"n{number}"
        table.put_node(worker(name, cpu=str(sum(size for _, size in there))))
        for index, (importance, size) in enumerate(there):
            made = pod(f"{name}-{index}", requests={"cpu": str(size)}, priority=importance)
            made["metadata"]["uid"] = f"{name}-{index}"
            table.add_pod(name, pod_info(made))
    asked = pod_info(pod("new", requests={"cpu": str(cpu)}, priority=priority))
    found = eviction_for(state, asked)
    possible = [
        [there[i][0] for i in chosen]
        for there in nodes
        for count in range(1, len(there) + 1)
        for chosen in itertools.combinations(range(len(there)), count)
        if all(there[i][0] < priority for i in chosen) and sum(there[i][1] for i in chosen) >= cpu
    ]
    if found is None:
        assert not possible
        return
    victims = [victim.priority for victim in found.victims]
    assert all(victim < priority for victim in victims)
    assert max(victims) == min(max(choice) for choice in possible)
    for victim in found.victims:
        rest = sum(v.requests["cpu"] for v in found.victims if v is not victim)
        assert rest < cpu * 1000, "a victim could have been spared"


def plainly(nodes, cpu, priority, budgets):
    """Return the node and the victims as DefaultPreemption chooses them, for cpu alone."""
    found = []
    for name, (room, there) in nodes.items():
        lower = [each for each in there if each["priority"] < priority]
        taken = sum(each["cpu"] for each in there if each not in lower)
        if not lower or taken + cpu > room:
            continue
        lower.sort(key=lambda each: (-each["priority"], each["since"]))
        left, broken = dict(budgets), []
        for each in lower:
            if each["app"] in left:
                left[each["app"]] -= 1
                broken += [each] if left[each["app"]] < 0 else []
        victims = []
        for each in broken + [each for each in lower if each not in broken]:
            if taken + each["cpu"] + cpu <= room:
                taken += each["cpu"]
            else:
                victims.append(each)
        if victims:
            highest = max(each["priority"] for each in victims)
            price = (
                sum(each in broken for each in victims),
                highest,
                sum(each["priority"] + 2**31 for each in victims),
                len(victims),
                -min(each["since"] for each in victims if each["priority"] == highest),
            )
            found.append((price, name, {each["name"] for each in victims}))
    return min(found, key=lambda each: each[0])[1:] if found else None


@pytest.mark.parametrize("seed", range(60))
def test_victims_are_those_that_are_found_plainly(seed):
    chance, table = random.Random(seed), NodeTable()
    state = ClusterState(
        table,
        ClusterDevices(table, v1.V1Reader(SmallEnvironment())),
        DemandReader(lambda _: None, lambda _: None, lambda _: None),
    )
    nodes, times = {}, random.Random(seed).sample(range(10, 60), 25)
    for number in range(chance.randrange(1, 5)):
        name, there = f"n{number}", []
        for index in range(chance.randrange(6)):
            each = {
                "name": f"{name}-{index}",
                "priority": chance.randrange(-2, 3),
                "cpu": chance.randrange(1, 4),
                "app": chance.choice("abc"),
                "since": times.pop(),
            }
            made = pod(
                each["name"], requests={"cpu": str(each["cpu"])}, priority=each["priority"],
                labels={"app": each["app"]},
                status={"startTime": f"2026-01-01T00:00:{each['since']}Z"},
            )  # fmt: skip
            made["metadata"]["uid"] = each["name"]
            there.append((each, pod_info(made)))
        room = sum(each["cpu"] for each, _ in there) + chance.randrange(2)
        nodes[name] = (room, [each for each, _ in there])
        table.put_node(worker(name, cpu=str(room)))
        for _, info in there:
            table.add_pod(name, info)
    cpu, priority = chance.randrange(1, 6), chance.randrange(-1, 4)
    budgets = {app: chance.randrange(3) for app in "ab"}
    found = eviction_for(
        state,
        pod_info(pod("new", requests={"cpu": str(cpu)}, priority=priority)),
        [
            {
                "metadata": {"name": app, "namespace": "default"},
                "spec": {"selector": {"matchLabels": {"app": app}}},
                "status": {"disruptionsAllowed": allowed},
            }
            for app, allowed in budgets.items()
        ],
    )
    before = table.free("cpu").tolist()
    told = found and (found.node, {victim.uid for victim in found.victims})
    assert told == plainly(nodes, cpu, priority, budgets)
    assert table.free("cpu").tolist() == before
    assert before == [
        1000 * (room - sum(each["cpu"] for each in there)) for room, there in nodes.values()
    ]
