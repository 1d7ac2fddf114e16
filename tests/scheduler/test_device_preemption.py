"""Who is evicted for devices: as few as can be, of lower priority, and nobody in vain."""

import itertools
import random

import pytest

from builders import obj
from crowded import flat, gpu_node, holder, waiter
from dralab.scheduling.model import ClusterModel
from dralab.scheduling.preemption import eviction_for
from dralab.scheduling.reasons import NO_DEVICES, Reason
from dralab.scheduling.state import NominatedPod


def evicted(objects, **more):
    model = ClusterModel(objects)
    (waiting,) = model.waiting
    before = model.devices.version
    found = eviction_for(model.state, waiting, **more)
    assert model.devices.version == before
    assert model.try_pod(waiting).reasons == {Reason(NO_DEVICES): model.state.table.count}
    return None if found is None else (found.node, sorted(v.key.name for v in found.victims))


def test_only_those_whose_devices_are_needed_go():
    objects = flat(
        gpu_node("a"), holder("one", "a", 0), holder("two", "a", 1, 2), waiter("x", 3, priority=5)
    )
    assert evicted(objects) == ("a", ["two"])


def test_the_least_important_victims_are_chosen_among_nodes():
    objects = flat(
        gpu_node("a", 2),
        gpu_node("b", 2),
        holder("one", "a", 0, 1, priority=3),
        holder("two", "b", 0, priority=1),
        holder("three", "b", 1, priority=1),
        waiter("x", 2, priority=5),
    )
    assert evicted(objects) == ("b", ["three", "two"])


def test_devices_of_equals_are_not_taken():
    objects = flat(gpu_node("a", 1), holder("one", "a", 0, priority=5), waiter("x", priority=5))
    assert evicted(objects) is None


def test_nobody_goes_where_even_all_of_them_would_not_do():
    objects = flat(
        gpu_node("a", 2),
        holder("one", "a", 0),
        holder("grand", "a", 1, priority=9),
        waiter("x", 2, priority=5),
    )
    assert evicted(objects) is None


def test_a_claim_that_others_use_too_is_not_freed():
    one, claim = holder("one", "a", 0)
    claim["status"]["reservedFor"].append({"resource": "pods", "name": "else", "uid": "else"})
    objects = [*flat(gpu_node("a", 1), waiter("x", priority=5)), one, claim]
    assert evicted(objects) is None


def test_a_claim_of_two_victims_is_freed_by_both():
    one, claim = holder("one", "a", 0)
    two, _ = holder("two", "a", 0)
    two["spec"]["resourceClaims"] = one["spec"]["resourceClaims"]
    user = {"resource": "pods", "name": "two", "uid": two["metadata"]["uid"]}
    claim["status"]["reservedFor"].append(user)
    objects = [*flat(gpu_node("a", 1), waiter("x", priority=5)), one, two, claim]
    assert evicted(objects) == ("a", ["one", "two"])


def test_a_budget_is_spared_where_others_will_do():
    budget = obj("PodDisruptionBudget", "b", namespace="default", api="policy/v1")
    budget |= {"spec": {"selector": {"matchLabels": {"app": "db"}}}}
    budget |= {"status": {"disruptionsAllowed": 0}}
    objects = flat(
        gpu_node("a", 2),
        holder("db", "a", 0, labels={"app": "db"}),
        holder("web", "a", 1, priority=1),
        waiter("x", priority=5),
    )
    assert evicted(objects, budgets=[budget]) == ("a", ["web"])


def test_devices_that_are_cleared_for_a_pod_are_left_to_it():
    objects = flat(gpu_node("a", 2), holder("one", "a", 0), waiter("x", 2), waiter("y", 1))
    model = ClusterModel(objects)
    large, small = model.waiting
    key = next(iter(model.claims))
    nominee = NominatedPod(large, "a", frozenset(), (key,))
    model.state.nominees[large.uid] = nominee
    assert model.find_place(small) is None
    del model.state.nominees[large.uid]
    assert model.find_place(small) is not None


@pytest.mark.parametrize("seed", range(30))
def test_no_victim_could_have_been_spared(seed):
    chance = random.Random(seed)
    nodes, holders = {}, []
    for name in ("a", "b"):
        free = chance.sample(range(4), 4)
        while len(free) > chance.randint(0, 1):
            taken, free = free[: chance.choice((1, 2))], free[2:]
            pod = f"{name}{len(holders)}"
            nodes.setdefault(name, []).append((pod, len(taken), chance.choice((1, 2, 3))))
            holders.append(holder(pod, name, *taken, priority=nodes[name][-1][2]))
    count, priority = chance.choice((3, 4)), chance.choice((2, 3, 4))
    objects = flat(gpu_node("a"), gpu_node("b"), *holders, waiter("x", count, priority=priority))
    free = {name: 4 - sum(size for _, size, _ in there) for name, there in nodes.items()}
    if max(free.values()) >= count:
        return
    possible = {
        (name, frozenset(pod for pod, _, _ in chosen)): max(p for _, _, p in chosen)
        for name, there in nodes.items()
        for number in range(1, len(there) + 1)
        for chosen in itertools.combinations(there, number)
        if all(p < priority for _, _, p in chosen)
        and free[name] + sum(size for _, size, _ in chosen) >= count
    }
    found = evicted(objects)
    if found is None:
        assert not possible
        return
    node, victims = found
    assert possible[node, frozenset(victims)] == min(possible.values())
    assert not any(set(victims) > other for where, other in possible if where == node)
