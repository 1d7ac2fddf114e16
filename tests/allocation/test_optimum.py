"""The optimum of a batch: never below any policy, never above what brute force can do."""

from itertools import combinations
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation.policy.test_policies import ask, gpu, plain
from allocation.test_fleet import CLASSES, node, slices_of
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.optimum import allocate_batch
from dralab.values.json_types import JsonDict

pytest.importorskip("ortools", reason="the optimum needs OR-Tools")


def numa(count: int) -> JsonDict:
    claim = ask(count)
    claim["spec"]["devices"]["constraints"] = [{"matchAttribute": "d/numa"}]
    return claim


def machine(name: str, devices: int) -> list[JsonDict]:
    content = [
        {"name": f"d{i}", "attributes": {"numa": {"int": i * 2 // devices}}} for i in range(devices)
    ]
    return slices_of(name, {"nodeName": name}, content)


def most(nodes: list[JsonDict], slices: list[JsonDict], claims: list[JsonDict]) -> int:
    """How many claims can be served, by trying which of them on which node."""
    names = [each["metadata"]["name"] for each in nodes]

    def serves(name: str, chosen: tuple[int, ...]) -> bool:
        fleet = Fleet(nodes, slices, CLASSES)
        return not chosen or isinstance(
            fleet.allocate([claims[i] for i in chosen], fleet.candidates_of([name])),
            DevicePlacement,
        )

    def best(index: int, rest: frozenset[int]) -> int:
        if index == len(names):
            return 0
        found = 0
        for size in range(len(rest) + 1):
            for chosen in combinations(sorted(rest), size):
                if serves(names[index], chosen):
                    found = max(found, size + best(index + 1, rest - set(chosen)))
        return found

    return best(0, frozenset(range(len(claims))))


@pytest.mark.thorough
@settings(max_examples=8, deadline=None)
@given(st.integers(0, 10**9))
def test_the_optimum_serves_as_many_as_brute_force(seed: int) -> None:
    chance = Random(seed)
    nodes = [node("a"), node("b")]
    kinds = chance.choice(
        (
            [ask(1), ask(2), numa(2)],
            [ask(size="quarter"), ask(size="half"), ask(size="full")],
            [ask(1), ask(3)],
        )
    )
    slices = (
        [*gpu("a"), *gpu("b")]
        if "selectors" in str(kinds)
        else [*machine("a", 4), *machine("b", 2)]
    )
    claims = [chance.choice(kinds) for _ in range(chance.randint(3, 5))]
    fleet = Fleet(nodes, slices, CLASSES)
    optimum = allocate_batch(fleet, [[each] for each in claims])
    assert optimum.served == optimum.value == most(nodes, slices, claims)
    assert optimum.bound == optimum.value
    devices = [
        tuple(result[key] for key in ("driver", "pool", "device"))
        for each in optimum.placements
        if each
        for result in each.allocations[0]["devices"]["results"]
    ]
    assert len(set(devices)) == len(devices)


def test_the_optimum_beats_going_straight() -> None:
    # First fit puts the single devices first and leaves no node whole.
    nodes = [node("a"), node("b")]
    claims = [ask(1), ask(1), ask(4)]
    straight = Fleet(nodes, [*plain("a", 4), *plain("b", 4)], CLASSES)
    spread = Fleet(nodes, [*plain("a", 3), *plain("b", 4)], CLASSES)
    assert sum(isinstance(straight.allocate([each]), DevicePlacement) for each in claims) == 3
    best = allocate_batch(spread, [[each] for each in [ask(2), ask(2), ask(4)]])
    assert best.served == 2
    assert best.bound == 2


def test_what_is_worth_more_is_served_first() -> None:
    fleet = Fleet([node("a")], plain("a", 2), CLASSES)
    best = allocate_batch(fleet, [[ask(1)], [ask(1)], [ask(2)]], worth=[1, 1, 5])
    assert [each is not None for each in best.placements] == [False, False, True]
    assert best.value == best.bound == 5


def test_what_is_in_use_stays_in_use() -> None:
    fleet = Fleet([node("a")], plain("a", 3), CLASSES)
    assert isinstance(fleet.allocate([ask(2)]), DevicePlacement)
    best = allocate_batch(fleet, [[ask(1)], [ask(1)]])
    assert best.served == 1
    assert not isinstance(fleet.allocate([ask(1)]), DevicePlacement)


def test_pods_with_several_claims_are_served_whole() -> None:
    fleet = Fleet([node("a")], plain("a", 3), CLASSES)
    best = allocate_batch(fleet, [[ask(1), ask(1)], [ask(2)]])
    assert best.served == 1
    assert best.bound == 1


def test_nodes_that_share_a_pool_are_left_out_and_counted() -> None:
    shared = slices_of("net", {"allNodes": True}, [{"name": "d0"}])
    fleet = Fleet([node("a"), node("b")], shared, CLASSES)
    assert allocate_batch(fleet, [[ask(1)]]).apart == 2
