"""Moves that make room: the fewest, in an order that works, and proved."""

import random

import pytest

from capacity.everysequence import Ask, fewest, place
from crowded import flat, gpu_node, holder, waiter
from dralab.capacity.departures import Departures
from dralab.capacity.move_costs import MoveCosts
from dralab.capacity.moves import clear_for
from dralab.scheduling.model import ClusterModel

MOST = 3


def random_cluster(seed):
    """A cluster where enough GPUs are free for the pod that waits, and it fits nowhere."""
    chance = random.Random(seed)
    while True:
        nodes, state, asks, objects = any_cluster(chance)
        free = sum(gpus for gpus, _ in nodes.values()) - sum(len(on) for _, on in state.values())
        direct = any(place(nodes, state, asks, "x", node) is not None for node in nodes)
        if free >= asks["x"].count and not direct:
            return nodes, state, asks, objects


def any_cluster(chance):
    """Nodes, pods on them with their devices, what each asks for, and objects of the same."""
    nodes = {f"n{number}": (4, chance.choice((8, 4))) for number in range(chance.choice((2, 3, 4)))}
    asks, state, objects = {}, {}, []
    for number in range(chance.randint(4, 9)):
        name = f"p{number}"
        asks[name] = Ask(chance.choice((1, 1, 2, 2)), chance.random() < 0.5, chance.choice((0, 1)))
        free = [node for node in nodes if place(nodes, state, asks, name, node) is not None]
        if not free:
            del asks[name]
            continue
        node = chance.choice(free)
        devices = place(nodes, state, asks, name, node)
        # Not where the allocator would put it now: others have left since.
        spare = [
            n for n in range(4) if all(n not in held for w, held in state.values() if w == node)
        ]
        if not asks[name].together and chance.random() < 0.7:
            devices = tuple(sorted(chance.sample(spare, len(devices))))
        state[name] = node, devices
    asks["x"] = Ask(chance.choice((2, 2, 3, 4)), together=False, cpu=chance.choice((0, 1, 3)))
    if asks["x"].count == 2:
        asks["x"].together = True
    for node, (gpus, cpu) in nodes.items():
        objects.append(gpu_node(node, gpus, cpu=str(cpu)))
    for name, (node, devices) in state.items():
        pod, claim = holder(name, node, *devices)
        objects.append(with_ask(pod, claim, asks[name]))
    objects.append(with_ask(*waiter("x", asks["x"].count), asks["x"]))
    return nodes, state, asks, flat(*objects)


def with_ask(pod, claim, ask):
    if ask.together:
        claim["spec"]["devices"]["constraints"] = [{"matchAttribute": "gpu.example.com/numa"}]
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(ask.cpu)}}
    return [pod, claim]


def check_one(seed):
    nodes, state, asks, objects = random_cluster(seed)
    model = ClusterModel(objects)
    (waiting,) = model.waiting
    found = clear_for(Departures(model, MoveCosts(model)), waiting)
    expected = fewest(nodes, state, asks, "x", MOST)
    if expected is None:
        assert found.placement is None or found.cost > MOST, (seed, found)
        return False
    assert found.placement is not None, (seed, expected)
    assert found.cost == expected, (seed, found.cost, expected)
    assert found.is_proved, (seed, found.bound)
    now = dict(state)
    for move in found.moves:
        name = move.pod.key.name
        assert now.pop(name)[0] == move.origin.node
        devices = place(nodes, now, asks, name, move.placement.node)
        assert devices is not None
        now[name] = move.placement.node, devices
    assert place(nodes, now, asks, "x", found.placement.node) is not None
    return expected > 0


def test_no_sequence_of_moves_is_shorter():
    assert sum(check_one(seed) for seed in range(40)) == 40


@pytest.mark.conformance
def test_no_sequence_of_moves_is_shorter_on_300_fleets():
    assert sum(check_one(seed) for seed in range(300)) == 300
