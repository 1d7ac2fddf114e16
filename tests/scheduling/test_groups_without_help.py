"""A group that no eviction helps is not tried again until something that it cannot evict changes."""

from random import Random

import pytest

from builders import pod, worker
from dralab.scheduling import preemption
from dralab.scheduling.group_trees import by_group, tree_of
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.preemption import group_eviction_for
from dralab.scheduling.state import PodPlacement

RACK = "example.com/rack"


def cluster(racks, size, gang):
    """Nodes of 4 cpu, and a gang of priority 10 whose pods want 3 each in one rack."""
    topology = {"topology": [{"key": RACK}]}
    spec = {"schedulingPolicy": {"gang": {"minCount": gang}}, "schedulingConstraints": topology}
    nodes = [
        worker(f"r{rack}-{number}", cpu="4", labels={RACK: f"r{rack}"})
        for rack in range(racks)
        for number in range(size)
    ]
    members = [
        pod(f"g{i}", schedulingGroup={"podGroupName": "g"}, requests={"cpu": "3"}, priority=10)
        for i in range(gang)
    ]
    group = {"kind": "PodGroup", "metadata": {"name": "g", "namespace": "default"}, "spec": spec}
    model = ClusterModel(
        [group, *({"kind": "Node", **each} for each in nodes),
         *({"kind": "Pod", **each} for each in members)]
    )  # fmt: skip
    return model, tree_of(model.state, model.waiting[0], by_group(model.waiting))


def single(model, name, node, priority, cpu="2"):
    info = model.info(pod(name, requests={"cpu": cpu}, priority=priority))
    return PodPlacement(info, node)


@pytest.fixture
def tried(monkeypatch):
    """How often a group was tried as if all that it may evict had gone."""
    calls = []
    place = preemption.place_tree
    monkeypatch.setattr(
        preemption, "place_tree", lambda *each, **how: calls.append(1) or place(*each, **how)
    )
    return calls


def test_pods_that_it_could_evict_come_and_go_without_another_try(tried):
    model, tree = cluster(1, 2, 2)
    state = model.state
    state.assume_placement(single(model, "high", "r0-0", 50))
    low = single(model, "low", "r0-1", 0)
    for _ in range(3):
        state.assume_placement(low)
        assert group_eviction_for(state, tree) is None
        state.forget_placement(low)
    assert len(tried) == 1


@pytest.mark.parametrize("change", ["higher goes", "node comes", "promise ends"])
def test_what_it_cannot_evict_matters(tried, change):
    model, tree = cluster(1, 2, 2)
    state, high = model.state, single(model, "high", "r0-0", 50)
    state.assume_placement(single(model, "low", "r0-1", 0))
    if change == "promise ends":
        state.nominees["high"] = preemption.NominatedPod(high.pod, "r0-0", frozenset(), ())
    else:
        state.assume_placement(high)
    assert group_eviction_for(state, tree) is None
    match change:
        case "higher goes":
            state.forget_placement(high)
        case "node comes":
            node = worker("r0-2", cpu="4", labels={RACK: "r0"})
            state.table.put_node(node)
            assert state.table.allocatable("cpu")[2] == 4000
        case _:
            state.nominees.clear()
    found = group_eviction_for(state, tree)
    assert [each.key.name for each in found.victims][:1] == ["low"]
    assert len(tried) >= 2


def test_the_answer_is_that_of_a_state_that_remembers_nothing():
    helped = [_helped(seed) for seed in range(4)]
    assert sum(helped) in range(1, 4 * 40)


def _helped(seed):
    """Return how often an eviction helps while random pods come and go."""
    chance = Random(seed)
    model, tree = cluster(3, 3, 2)
    state, there, helped = model.state, [], 0
    for number in range(40):
        if there and chance.random() < 0.5:
            state.forget_placement(there.pop(chance.randrange(len(there))))
        else:
            node = f"r{chance.randrange(3)}-{chance.randrange(3)}"
            priority = chance.choice([0, 0, 5, 10, 50])
            there.append(single(model, f"p{number}", node, priority, chance.choice("12")))
            state.assume_placement(there[-1])
        found = _names(group_eviction_for(state, tree))
        remembered = state.without_help.copy()
        state.without_help.clear()
        assert _names(group_eviction_for(state, tree)) == found
        state.without_help = remembered
        helped += found is not None
    return helped


def _names(found):
    if found is None:
        return None
    return [(each.pod.key.name, each.node) for each in found.placements], [
        each.key.name for each in found.victims
    ]
