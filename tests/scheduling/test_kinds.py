"""What is kept of a kind of pods decides as a look at all nodes does."""

import random

import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.allocation import v1
from dralab.allocation.allocator import numbered_shares
from dralab.objects.claims import results_of
from dralab.objects.metadata import key_of
from dralab.scheduling.cycle import _placed, kind_of, refusal, schedule
from dralab.scheduling.demands import DemandReader, PodDemand
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.nodes import MOST_TOUCHED, NodeTable, RowLog
from dralab.scheduling.pods import pod_info
from dralab.scheduling.state import ClusterState, PodPlacement, Refusal
from smallselectors import SmallEnvironment


def described(found):
    """Return the node and the devices of a placement."""
    if not isinstance(found, PodPlacement):
        return None
    devices = [
        (result["pool"], result["device"])
        for plan in found.plans
        for result in results_of(plan.allocation)
    ]
    return found.node, devices


def plainly(state, info):
    return _placed(state, info, state.demands.demand_of(info), {}, {})


@pytest.mark.parametrize("seed", range(3))
def test_kept_scores_decide_as_a_look_at_all_nodes_does(seed):
    chance = random.Random(seed)
    claims = {}
    table = NodeTable()
    devices = ClusterDevices(table, v1.V1Reader(SmallEnvironment()), share_ids=numbered_shares())
    demands = DemandReader(claims.get, lambda _: None, devices.in_flight)
    state = ClusterState(table, devices, demands)
    gpu = device_class("gpu")
    demands.put_class("gpu", gpu)
    devices.put_class("gpu", gpu)

    def put_node(number):
        node = worker(f"n{number}", cpu=str(chance.choice([2, 4, 8])))
        if chance.random() < 0.2:
            node["spec"] = {"taints": [{"key": "a", "value": "", "effect": "NoSchedule"}]}
        table.put_node(node)

    for number in range(8):
        put_node(number)
        cards = [device(f"d{index}") for index in range(chance.randint(0, 3))]
        for wire in pool(f"n{number}", *cards, node=f"n{number}"):
            devices.put_slice(wire["metadata"]["name"], wire)
    placed, refused = [], 0
    for step in range(70):
        if placed and chance.random() < 0.4:
            state.forget_placement(placed.pop(chance.randrange(len(placed))))
        elif chance.random() < 0.1:
            put_node(chance.randrange(9))
        name, count = f"p{step}", chance.choice([0, 0, 1, 2])
        given = pod(name, requests={"cpu": str(chance.choice([1, 2]))})
        if count:
            made = claim(f"c{step}", request("r", "gpu", count=count), namespace="default")
            made["metadata"]["uid"] = f"c{step}"
            claims[key_of(made)] = made
            given["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": f"c{step}"}]
        if chance.random() < 0.2:
            given["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
        given["metadata"]["uid"] = name
        info = pod_info(given)
        expected = described(plainly(state, info))
        found = schedule(state, info)
        assert described(found) == expected
        if isinstance(found, Refusal):
            refused += 1
            assert (
                found.reasons == refusal(state, info, state.demands.demand_of(info), {}, {}).reasons
            )
        else:
            state.assume_placement(found)
            placed.append(found)
    assert placed
    assert refused
    assert state.kinds._kept


def test_a_log_of_rows_forgets_the_oldest_and_says_so():
    log = RowLog()
    for row in range(MOST_TOUCHED + 3):
        log.add_row(row)
    assert log.since(log.position - 2) == [MOST_TOUCHED + 1, MOST_TOUCHED + 2]
    assert log.since(0) is None
    assert log.since(log.position) == []


def test_pods_that_count_differently_in_scores_are_of_two_kinds():
    def info(*cpus):
        containers = [
            {"name": f"c{number}", "resources": {"requests": {"cpu": cpu} if cpu else {}}}
            for number, cpu in enumerate(cpus)
        ]
        return pod_info({"metadata": {"name": "p"}, "spec": {"containers": containers}})

    assert kind_of(info("2"), PodDemand()) == kind_of(info("2"), PodDemand())
    # A container that asks for nothing counts a little where emptiness is judged.
    assert kind_of(info("2"), PodDemand()) != kind_of(info("2", ""), PodDemand())
