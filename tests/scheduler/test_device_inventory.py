"""The devices that the scheduler keeps up to date equal those read anew from all objects."""

from copy import deepcopy
from random import Random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.test_fleet import CLASSES, changed, random_claim, random_fleet, without_shares
from builders import worker
from dralab.allocation import v1
from dralab.allocation.allocator import allocate
from dralab.allocation.outcome import Allocated, Unsatisfiable
from dralab.allocation.problem import Problem
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.scheduling.claims import ClaimDemand
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.devices import ClusterDevices
from dralab.scheduling.nodes import NodeTable


class Cluster:
    """A scheduler's devices, and beside them all objects as they are."""

    def __init__(self, seed):
        self.chance = Random(seed)
        self.reader = v1.V1Reader(CelSelectorCompiler())
        self.table = NodeTable()
        self.devices = ClusterDevices(self.table, self.reader)
        self.classes = {}
        self.slices, self.claims = {}, {}
        nodes, slices = random_fleet(self.chance)
        self.names = [node["metadata"]["name"] for node in nodes]
        for wire in CLASSES:
            self.devices.put_class(wire["metadata"]["name"], wire)
            self.classes[wire["metadata"]["name"]] = self.reader.device_class(wire)
        for step in self.chance.sample(
            [
                *((self.put_node, name) for name in self.names),
                *((self.put_slice, x) for x in slices),
            ],
            len(nodes) + len(slices),
        ):
            step[0](step[1])

    def put_node(self, name):
        zone = self.chance.choice("012")
        self.table.put_node(worker(name, labels={"zone": zone}))

    def put_slice(self, wire):
        name = wire["metadata"]["name"]
        self.slices[name] = wire
        self.devices.put_slice(name, wire)

    def change_something(self):
        kind = self.chance.randrange(8)
        if kind == 0:
            self.put_node(self.chance.choice(self.names))
        elif kind == 1:
            self.table.remove_node(self.chance.choice(self.names))
        elif kind == 2:
            for wire in changed(self.chance, [self.slices[name] for name in sorted(self.slices)]):
                self.put_slice(wire)
        elif kind == 3 and self.slices:
            name = self.chance.choice(sorted(self.slices))
            del self.slices[name]
            self.devices.put_slice(name, None)
        elif kind in {4, 5} and self.claims:
            self.devices.remove_claim(self.claims.pop(self.chance.choice(sorted(self.claims))))

        elif kind == 6:
            self.restart()

    def restart(self):
        """Hear of everything again, of claims before the slices with their devices."""
        self.devices = ClusterDevices(self.table, self.reader)
        for wire in CLASSES:
            self.devices.put_class(wire["metadata"]["name"], wire)
        for uid in sorted(self.claims):
            self.devices.put_claim(self.claims[uid])
        for name in sorted(self.slices):
            self.devices.put_slice(name, self.slices[name])

    def find(self, claim, row):
        wanted = ClaimDemand(claim, {"resource": "pods", "name": "p", "uid": "p"}, None)
        demand = PodDemand(claims=(wanted,), signature=orjson.dumps(claim["spec"]))
        worth_asking = self.devices.feasible(demand)[row]
        found = self.devices.plans(None, demand, row)
        problem = Problem(
            claims=(self.reader.claim(claim),),
            classes=self.classes,
            slices=tuple(self.reader.slice(self.slices[name]) for name in sorted(self.slices)),
            in_use=v1.in_use(self.claims.values()),
        )
        expected = allocate(problem, self.devices.node(row))
        if isinstance(expected, Allocated):
            assert worth_asking
            [plan] = found.plans
            [made] = [v1.status_allocation(each) for each in expected.claims]
            assert without_shares(plan.allocation) == without_shares(made)
            return plan.allocation
        assert isinstance(found.refused, Unsatisfiable)
        assert (found.refused.error, found.refused.fatal, found.refused.facts) == (
            expected.error, expected.fatal, expected.facts,
        )  # fmt: skip
        # Where a selector fails, the pod has to be told again.
        assert found.refused.fatal or not self.devices.feasible(demand)[row]
        return None


@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(st.integers(0, 10**9))
def test_devices_are_found_as_if_everything_were_read_anew(seed):
    cluster = Cluster(seed)
    chance = cluster.chance
    kinds = [random_claim(chance, i) for i in range(4)]
    for number in range(16):
        cluster.change_something()
        if not cluster.table.row_of:
            continue
        row = cluster.table.row_of[chance.choice(sorted(cluster.table.row_of))]
        metadata = {"name": f"c{number}", "namespace": "ns", "uid": f"u{number}"}
        claim = deepcopy(chance.choice(kinds)) | {"metadata": metadata}
        found = cluster.find(claim, row)
        if found is not None:
            claim["status"] = {"allocation": found}
            cluster.claims[f"u{number}"] = claim
            cluster.devices.put_claim(claim)


def test_a_claim_frees_devices_when_it_loses_its_allocation_or_goes():
    devices = ClusterDevices(NodeTable(), v1.V1Reader(CelSelectorCompiler()))
    result = {"request": "r", "driver": "d", "pool": "p", "device": "d0"}
    free = {"metadata": {"name": "c", "namespace": "ns", "uid": "u"}, "spec": {}}
    held = {**free, "status": {"allocation": {"devices": {"results": [result]}}}}
    assert [devices.put_claim(each) for each in (free, held, held, free, free)] == [
        False, False, False, True, False
    ]  # fmt: skip
    devices.put_claim(held)
    assert [devices.remove_claim(held) for _ in range(2)] == [True, False]
