"""What is kept of a kind of pods decides as a look at all nodes does."""

import random

import pytest

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.allocation import v1
from dralab.allocation.allocator import numbered_shares
from dralab.allocation.inventory.row_log import MOST_TOUCHED, RowLog
from dralab.objects.claims import results_of
from dralab.objects.metadata import key_of
from dralab.scheduling.cycle import _placed, kind_of, refusal, schedule
from dralab.scheduling.demands import DemandReader, PodDemand
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import changed, pod_info
from dralab.scheduling.shares import Shares, shared_gpus
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


class ChangingCluster:
    """Nodes, devices and claims, of all sorts, that come, change and go."""

    def __init__(self, seed):
        self.chance = random.Random(seed)
        self.claims = {}
        self.table = NodeTable()
        reader = v1.V1Reader(SmallEnvironment())
        self.devices = ClusterDevices(self.table, reader, share_ids=numbered_shares())
        demands = DemandReader(self.claims.get, lambda _: None, self.devices.in_flight)
        self.state = ClusterState(self.table, self.devices, demands)
        self.put_class()
        self.network = pool("network", device("d0"), node=None)
        for number in range(8):
            self.put_node(number)
            self.put_cards(number, 1)

    def put_class(self):
        self.state.demands.put_class("gpu", device_class("gpu"))
        self.devices.put_class("gpu", device_class("gpu"))

    def put_node(self, number):
        node = worker(f"n{number}", cpu=str(self.chance.choice([2, 4, 8])))
        if self.chance.random() < 0.2:
            node["spec"] = {"taints": [{"key": "a", "value": "", "effect": "NoSchedule"}]}
        self.table.put_node(node)

    def put_cards(self, number, generation):
        cards = [self.card(f"d{index}") for index in range(self.chance.randint(0, 3))]
        sets = [{"name": "set", "counters": {"slots": {"value": "1"}}}]
        name = f"n{number}"
        for wire in pool(name, *cards, node=name, counters=sets, generation=generation):
            self.devices.put_slice(wire["metadata"]["name"], wire)
        # Where an older slice is left, the state of the node does not say what it has.
        is_left = self.chance.random() < 0.2
        [old] = pool(name, device("d0"), node=name, generation=generation - 1)
        self.devices.put_slice(f"{name}-old", old if is_left else None)

    def card(self, name):
        kinds = (
            {"shared": True, "capacity": {"memory": "3"}},
            {"consumes": {"set": {"slots": 1}}},
            {"taints": [{"key": "broken", "effect": "NoSchedule"}]},
            {},
        )
        return device(name, **self.chance.choice(kinds))

    def change(self, step):
        match self.chance.randrange(24):
            case 0 | 1 | 2 | 3 | 4 | 5:
                self.put_cards(self.chance.randrange(8), step + 2)
            case 6 | 7 as there:
                # A pool of all nodes: what is taken from it changes the state of each of them.
                for wire in self.network:
                    name = wire["metadata"]["name"]
                    self.devices.put_slice(name, wire if there == 6 else None)
            case 8:
                self.put_class()
            case 9 | 10:
                self.put_node(self.chance.randrange(9))

    def pod(self, name):
        chance, count = self.chance, self.chance.choice([0, 0, 1, 2])
        given = pod(name, requests={"cpu": str(chance.choice([1, 2]))})
        if count:
            part = {"capacity": {"requests": {"memory": str(count)}}}
            wanted = request("r", "gpu", count=count, **(part if chance.random() < 0.3 else {}))
            made = claim(f"c-{name}", wanted, namespace="default")
            made["metadata"]["uid"] = f"c-{name}"
            self.claims[key_of(made)] = made
            given["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": f"c-{name}"}]
        if chance.random() < 0.2:
            given["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "n1"}
        given["metadata"]["uid"] = name
        return pod_info(given)


@pytest.mark.parametrize("seed", range(8))
def test_kept_scores_decide_as_a_look_at_all_nodes_does(seed):
    cluster = ChangingCluster(seed)
    state, placed, refused = cluster.state, [], 0
    for step in range(150):
        cluster.change(step)
        if placed and cluster.chance.random() < 0.4:
            state.forget_placement(placed.pop(cluster.chance.randrange(len(placed))))
        info = cluster.pod(f"p{step}")
        expected = described(plainly(state, info))
        found = schedule(state, info)
        assert described(found) == expected
        if isinstance(found, Refusal):
            refused += 1
            demand = state.demands.demand_of(info)
            assert found.reasons == refusal(state, info, demand, {}, {}).reasons
        else:
            state.assume_placement(found)
            placed.append(found)
    assert placed
    assert refused
    assert state.kinds._kept


@pytest.mark.parametrize("seed", range(3))
def test_amounts_that_follow_others_are_those_that_are_counted_anew(seed):
    chance, table, known = random.Random(seed), NodeTable(), {}
    for number in range(4):
        table.put_node(worker(f"n{number}", cpu="64"))
        table.gpus.put_node(number, 1, "")
    there = []
    for step in range(1_000):
        row = chance.randrange(4)
        if there and chance.random() < len(there) / 16:
            row, uid = there.pop(chance.randrange(len(there)))
            table.remove_pod(f"n{row}", uid)
        else:
            info = pod_info(pod(f"p{step}", requests={"cpu": "1"}))
            taken = chance.choice([(), (0,), (0, 0), (0, 0, 0)])
            shares = Shares(len(taken), chance.choice([100, 200]), "", taken) if taken else None
            table.add_pod(f"n{row}", changed(info, uid=f"p{step}", shares=shares))
            there.append((row, f"p{step}"))
        content = (
            table.free("cpu")[row], table.free("pods")[row], *table.scored_free()[:, row].tolist(),
            table.gpus.amounts(row),
        )  # fmt: skip
        # Equal amounts are one object, and one object stands for equal amounts.
        assert known.setdefault(content, table.amounts(row)) is table.amounts(row)
    assert len(set(known.values())) == len(known)


@pytest.mark.parametrize("seed", range(3))
def test_columns_that_are_written_late_hold_what_pods_have_left(seed):
    chance, table = random.Random(seed), NodeTable()
    left, there = {}, []
    for number in range(4):
        table.put_node(worker(f"n{number}", cpu="64", labels=shared_gpus(2, "A")))
        left[number] = [64_000, 1_000, 1_000]
    for step in range(600):
        row = chance.randrange(4)
        if there and chance.random() < len(there) / 16:
            row, uid, cpu, taken = there.pop(chance.randrange(len(there)))
            table.remove_pod(f"n{row}", uid)
            sign = 1
        else:
            cpu, uid, taken, sign = (
                chance.choice([1, 2]),
                f"p{step}",
                chance.choice([(0,), (1,)]),
                -1,
            )
            info = pod_info(pod(uid, requests={"cpu": str(cpu)}))
            info = changed(info, uid=uid, shares=Shares(1, 100, "", taken))
            table.add_pod(f"n{row}", info)
            there.append((row, uid, cpu, taken))
        table.amounts(row)
        left[row][0] += sign * 1_000 * cpu
        left[row][1 + taken[0]] += sign * 100
        if step == 300:
            table.put_node(
                worker("n1", cpu="65", extra={"example.com/other": "1"}, labels=shared_gpus(2, "A"))
            )
            left[1][0] += 1_000
        if chance.random() < 0.1:
            assert table.free("cpu").tolist() == [left[row][0] for row in range(4)]
            assert table.scored_free()[0].tolist() == table.free("cpu").tolist()
            assert table.gpus.left[:4].tolist() == [left[row][1:] for row in range(4)]
            kinds = [any(row == on for on, *_ in there) for row in range(4)]
            assert table.gpus.kinds[:4].tolist() == kinds
    assert table._known_amounts


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
