"""Policies choose among what is right, and never what is not."""

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from allocation import builders as b
from allocation.test_fleet import (
    CLASSES,
    Rebuilt,
    node,
    random_claim,
    random_fleet,
    slices_of,
    without_shares,
)
from dralab.allocation import v1
from dralab.allocation.allocator import allocate_on, numbered_shares
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.outcome import Allocated, ClaimAllocation, Unknown, Unsatisfiable
from dralab.allocation.policy.choosing import chosen_by, likely_requests, worth_on
from dralab.allocation.policy.policies import (
    FragmentationAware,
    NodeOutlook,
    Pack,
    Policy,
    Spread,
    policy_named,
)
from dralab.allocation.pools import PoolView, SliceCatalog
from dralab.allocation.problem import Node, Problem
from dralab.allocation.results import allocations
from dralab.allocation.search.backtracking import BudgetError, Effort
from dralab.allocation.search.node_devices import NodeDevices
from dralab.allocation.search.setup import prepare
from dralab.values.json_types import JsonDict


def ask(count: int = 1, size: str = "") -> JsonDict:
    request: JsonDict = {"deviceClassName": "any", "count": count}
    if size:
        request["selectors"] = [{"cel": {"expression": f'device.attributes["d"].size == "{size}"'}}]
    return {
        "metadata": {"name": "c"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}},
    }


def gpu(node: str, gpus: int = 1) -> list[JsonDict]:
    """GPUs of four units, cut into one half and two quarters each, or all four quarters."""
    devices, counters = [], {}
    for number in range(gpus):
        counters[f"g{number}"] = 4
        for name, size, amount in [
            ("q0", "quarter", 1),
            ("q1", "quarter", 1),
            ("q2", "quarter", 1),
            ("q3", "quarter", 1),
            ("h0", "half", 2),
            ("h1", "half", 2),
            ("f", "full", 4),
        ]:
            devices.append(
                {
                    "name": f"g{number}-{name}",
                    "attributes": {"size": {"string": size}},
                    "consumesCounters": [
                        {"counterSet": f"g{number}", "counters": {"m": {"value": str(amount)}}}
                    ],
                }
            )
    return slices_of(node, {"nodeName": node}, devices, counters)


def plain(node: str, count: int) -> list[JsonDict]:
    return slices_of(node, {"nodeName": node}, [{"name": f"d{i}"} for i in range(count)])


def where(fleet: Fleet, policy: Policy | None, *claims: JsonDict) -> list[str]:
    found = []
    for claim in claims:
        placed = fleet.allocate([claim], policy=policy)
        assert isinstance(placed, DevicePlacement)
        found.append(placed.node)
    return found


def test_packing_fills_the_fullest_node_and_spreading_the_emptiest() -> None:
    nodes = [node("a"), node("b"), node("c")]
    slices = [*plain("a", 4), *plain("b", 2), *plain("c", 3)]
    asks = [ask()] * 4
    assert where(Fleet(nodes, slices, CLASSES), None, *asks) == ["a", "a", "a", "a"]
    assert where(Fleet(nodes, slices, CLASSES), Pack(), *asks) == ["b", "b", "c", "c"]
    assert where(Fleet(nodes, slices, CLASSES), Spread(), *asks) == ["a", "a", "c", "a"]


def test_of_a_shared_device_the_part_that_is_left_counts() -> None:
    def shared(node: str, units: str) -> list[JsonDict]:
        capacity = {
            "m": {"value": units, "requestPolicy": {"default": "1", "validRange": {"min": "1"}}}
        }
        one = {"name": "d", "allowMultipleAllocations": True, "capacity": capacity}
        return slices_of(node, {"nodeName": node}, [one])

    def take(units: str) -> JsonDict:
        claim = ask()
        claim["spec"]["devices"]["requests"][0]["exactly"]["capacity"] = {"requests": {"m": units}}
        return claim

    def placed(policy: Policy, *units: str) -> list[str]:
        fleet = Fleet([node("a"), node("b")], [*shared("a", "8"), *shared("b", "4")], CLASSES)
        return where(fleet, policy, *map(take, units))

    assert placed(Pack(), *"11111") == ["b", "b", "b", "b", "a"]
    assert placed(Spread(), *"111111") == ["a", "a", "b", "a", "a", "b"]
    # With two units left, a would serve none that asks for three.
    demand = FragmentationAware(((take("3"), 1.0),), packing=0)
    assert placed(demand, *"111111") == ["a", "a", "a", "a", "a", "b"]


def test_a_policy_is_a_class_of_a_few_lines() -> None:
    class Even:
        def cost(self, before: NodeOutlook, after: NodeOutlook) -> float:
            return after.free % 2

    nodes = [node("a"), node("b")]
    assert isinstance(Even(), Policy)
    assert where(Fleet(nodes, [*plain("a", 2), *plain("b", 3)], CLASSES), Even(), ask()) == ["b"]


def test_the_fragmentation_aware_policy_breaks_no_whole_gpu_without_need() -> None:
    demand = ((ask(size="quarter"), 1.0), (ask(size="half"), 2.0), (ask(size="full"), 4.0))
    policy = FragmentationAware(demand)
    nodes = [node("a"), node("b")]
    whole = [ask(size="full")]
    fresh = Fleet(nodes, [*gpu("a", 2), *gpu("b", 2)], CLASSES)
    assert (
        len(set(where(fresh, policy, ask(size="quarter"), ask(size="quarter"), ask(size="half"))))
        == 1
    )
    assert len(where(fresh, policy, *(whole * 3))) == 3


def judged(
    problem: Problem, view: PoolView, policy: Policy
) -> tuple[float, tuple[ClaimAllocation, ...]] | None:
    """Return what a policy chooses on a node by the search itself, without plans; its cost first."""
    setup = prepare(
        NodeDevices(view, problem.features),
        problem.claims,
        problem.classes,
        problem.features,
        problem.in_use,
    )
    demand = likely_requests(policy, problem.classes, problem.features)
    worth = worth_on(setup.node_devices, setup.eligibility, demand, setup.requests)
    found = chosen_by(policy, setup, Effort(100_000), worth)
    return None if found is None else (found[1], allocations(setup, found[0], numbered_shares()))


def cheapest(
    problem: Problem, nodes: Sequence[Node], policy: Policy
) -> tuple[str, tuple[ClaimAllocation, ...]] | None:
    """Return the node whose choice costs least, the first of equal ones, and the choice."""
    catalog = SliceCatalog(problem.slices)
    views = ((each.name, catalog.view(each, problem.features)) for each in nodes)
    found = [(name, made) for name, view in views if (made := judged(problem, view, policy))]
    if not found:
        return None
    name, (_, chosen) = min(found, key=lambda each: each[1][0])
    return name, chosen


@pytest.mark.parametrize(
    "policy", [Pack(), Spread(), FragmentationAware(), FragmentationAware(((ask(), 1.0),))]
)
@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_policy_finds_something_exactly_where_there_is_something(
    policy: Policy, seed: int
) -> None:
    problem = b.random_problem(seed, size=6)
    view = SliceCatalog(problem.slices).view(b.NODE, problem.features)
    kubernetes = allocate_on(problem, view, budget=100_000, share_ids=numbered_shares())
    if isinstance(kubernetes, Unknown) or (
        isinstance(kubernetes, Unsatisfiable) and kubernetes.fatal
    ):
        return
    try:
        chosen = judged(problem, view, policy)
    except BudgetError:
        return
    assert (chosen is not None) == isinstance(kubernetes, Allocated)


@pytest.mark.parametrize("policy", [Pack(), Spread(), FragmentationAware()])
@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 10**9))
def test_a_fleet_ranks_nodes_as_if_it_judged_each_of_them(policy: Policy, seed: int) -> None:
    chance = Random(seed)
    nodes, slices = random_fleet(chance)
    slices = [each for each in slices if each["metadata"]["name"] != "half-a"]
    fleet, rebuilt = Fleet(nodes, slices, CLASSES), Rebuilt(nodes, slices)
    kinds = [random_claim(chance, i) for i in range(3)]
    living: list[JsonDict] = []
    for number in range(8):
        if living and chance.random() < 0.3:
            fleet.release(living.pop(chance.randrange(len(living)))["status"]["allocation"])
            continue
        claim = chance.choice(kinds) | {"metadata": {"name": f"c{number}"}}
        problem = Problem(
            claims=(rebuilt.reader.claim(claim),),
            classes=rebuilt.classes,
            slices=rebuilt.slices,
            in_use=v1.in_use(living),
        )
        expected = cheapest(problem, rebuilt.nodes, policy)
        found = fleet.allocate([claim], policy=policy)
        if isinstance(found, Unsatisfiable):
            assert expected is None
            continue
        assert isinstance(found, DevicePlacement)
        assert expected is not None
        node_name, chosen = expected
        assert found.node == node_name
        assert [without_shares(each) for each in found.allocations] == [
            without_shares(v1.status_allocation(each)) for each in chosen
        ]
        living.append(claim | {"status": {"allocation": found.allocations[0]}})


def test_policies_are_known_by_name() -> None:
    assert policy_named("kubernetes") is None
    assert isinstance(policy_named("pack"), Pack)
    with pytest.raises(KeyError):
        policy_named("best")
