"""A fleet that changes claim by claim equals one that is worked out anew every time."""

from copy import deepcopy
from random import Random
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dralab.allocation import v1
from dralab.allocation.allocator import allocate
from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.holdings import HeldByClaim, Holdings
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.outcome import Allocated, Unknown, Unsatisfiable
from dralab.allocation.problem import Problem
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.objects.claims import allocation_of, holds
from dralab.values.json_types import JsonDict

CLASSES: list[JsonDict] = [
    {
        "metadata": {"name": "any"},
        "spec": {"config": [{"opaque": {"driver": "d", "parameters": {"a": 1}}}]},
    },
    {
        "metadata": {"name": "gpu"},
        "spec": {"selectors": [{"cel": {"expression": 'device.driver == "d"'}}]},
    },
]


def node(name: str) -> JsonDict:
    return {"metadata": {"name": name, "labels": {"zone": name[-1]}}}


def slices_of(
    pool: str, node_scope: JsonDict, devices: list[JsonDict], counters: JsonDict | None = None
) -> list[JsonDict]:
    count = 2 if counters else 1
    spec = {
        "driver": "d",
        "pool": {"name": pool, "generation": 1, "resourceSliceCount": count},
        **node_scope,
    }
    found = [{"metadata": {"name": f"{pool}-a"}, "spec": {**spec, "devices": devices}}]
    if counters:
        sets = [
            {"name": key, "counters": {"m": {"value": str(value)}}}
            for key, value in counters.items()
        ]
        found.append({"metadata": {"name": f"{pool}-b"}, "spec": {**spec, "sharedCounters": sets}})
    return found


def random_device(chance: Random, name: str, counters: JsonDict | None, pool: str) -> JsonDict:
    found: JsonDict = {
        "name": name,
        "attributes": {
            "t": {"string": chance.choice("xy")},
            "n": {"int": chance.randint(1, 2)},
            "uuid": {"string": f"{pool}-{name}"},
        },
    }
    if counters and chance.random() < 0.8:
        found["consumesCounters"] = [
            {
                "counterSet": chance.choice(sorted(counters)),
                "counters": {"m": {"value": str(chance.randint(1, 3))}},
            }
        ]
    if chance.random() < 0.2:
        found["taints"] = [{"key": "k", "effect": "NoSchedule"}]
    if chance.random() < 0.25:
        found |= {
            "allowMultipleAllocations": True,
            "capacity": {"c": {"value": str(chance.randint(1, 4))}},
        }
    if chance.random() < 0.1:
        found |= {"bindingConditions": ["ready"], "bindingFailureConditions": ["failed"]}
    return found


def random_fleet(chance: Random) -> tuple[list[JsonDict], list[JsonDict]]:
    nodes = [node(f"node-{i}") for i in range(chance.randint(1, 4))]
    slices: list[JsonDict] = []
    for each in nodes:
        if chance.random() < 0.9:
            counters = (
                {f"s{i}": chance.randint(2, 5) for i in range(2)} if chance.random() < 0.6 else None
            )
            name = each["metadata"]["name"]
            devices = [
                random_device(chance, f"d{i}", counters, name) for i in range(chance.randint(1, 5))
            ]
            slices += slices_of(name, {"nodeName": name}, devices, counters)
    if chance.random() < 0.5:
        devices = [random_device(chance, f"d{i}", None, "net") for i in range(chance.randint(1, 4))]
        node_scope: JsonDict = {"allNodes": True}
        if chance.random() < 0.5:
            term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["0", "2"]}]}
            node_scope = {"nodeSelector": {"nodeSelectorTerms": [term]}}
        slices += slices_of("net", node_scope, devices)
    if chance.random() < 0.3:
        counters = {"s0": 3}
        devices = [
            random_device(chance, f"d{i}", counters, "split") | {"nodeName": f"node-{i % 3}"}
            for i in range(4)
        ]
        slices += slices_of("split", {"perDeviceNodeSelection": True}, devices, counters)
    if chance.random() < 0.2:
        # A pool that is being replaced: one slice of two is there.
        half = slices_of("half", {"nodeName": "node-0"}, [{"name": "d0"}])
        half[0]["spec"]["pool"]["resourceSliceCount"] = 2
        slices += half
    return nodes, slices


def random_claim(chance: Random, number: int) -> JsonDict:
    requests: list[JsonDict] = []
    for i in range(chance.choice((1, 1, 2))):
        asked: JsonDict = {
            "deviceClassName": chance.choice(("any", "gpu")),
            "count": chance.choice((1, 1, 2, 3)),
        }
        if chance.random() < 0.5:
            asked["selectors"] = [
                {
                    "cel": {
                        "expression": chance.choice(
                            (
                                'device.attributes["d"].t == "x"',
                                'device.attributes["d"].n == 2',
                                'device.attributes["d"].uuid.endsWith("d1")',
                                "!device.allowMultipleAllocations",
                            )
                        )
                    }
                }
            ]
        if chance.random() < 0.3:
            asked["tolerations"] = [{"key": "k", "operator": "Exists"}]
        if chance.random() < 0.2:
            asked["capacity"] = {"requests": {"c": "1"}}
        if chance.random() < 0.1:
            asked = {key: value for key, value in asked.items() if key != "count"} | {
                "allocationMode": "All"
            }
        if chance.random() < 0.2:
            second = {"name": "b", "deviceClassName": "any"}
            requests.append({"name": f"r{i}", "firstAvailable": [{"name": "a", **asked}, second]})
        else:
            if chance.random() < 0.1:
                asked["adminAccess"] = True
            requests.append({"name": f"r{i}", "exactly": asked})
    devices: JsonDict = {"requests": requests}
    if chance.random() < 0.3:
        devices["constraints"] = [{"matchAttribute": chance.choice(("d/n", "d/t"))}]
    return {"metadata": {"name": f"c{number}", "namespace": "ns"}, "spec": {"devices": devices}}


def changed(chance: Random, slices: list[JsonDict]) -> list[JsonDict]:
    """One pool published anew: a device more, another attribute, or half of a new generation."""
    if not slices:
        return []
    found = deepcopy(chance.choice(slices))
    pool = found["spec"]["pool"]["name"]
    generation = found["spec"]["pool"]["generation"] + 1
    if chance.random() < 0.3:
        found["spec"]["pool"]["generation"] = generation
        return [found]
    if "devices" in found["spec"]:
        devices = found["spec"]["devices"]
        if chance.random() < 0.5:
            more = random_device(chance, f"d{len(devices)}", None, pool)
            node_scope = (
                {"nodeName": "node-1"} if found["spec"].get("perDeviceNodeSelection") else {}
            )
            devices.append(more | node_scope)
        else:
            devices[-1].setdefault("attributes", {})["t"] = {"string": chance.choice("xyz")}
    return [found]


def pool_of(wire: JsonDict) -> tuple[str, str]:
    return wire["spec"]["driver"], wire["spec"]["pool"]["name"]


def publish(
    fleet: Fleet, slices: list[JsonDict], living: list[JsonDict], pools: set[tuple[str, str]]
) -> None:
    """Let these pools be made of those of the slices that are theirs; the living claims hold on."""
    holdings = Holdings()
    for number, claim in enumerate(living):
        holdings.add_claim(str(number), HeldByClaim("", holds(allocation_of(claim))))
    parts = {
        pool: [fleet.reader.slice(each) for each in slices if pool_of(each) == pool]
        for pool in sorted(pools)
    }
    fleet.replace_pools((pool, made, holdings.pool_use(pool)) for pool, made in parts.items())


class Rebuilt:
    """The same fleet, worked out from the objects for every claim."""

    def __init__(self, nodes: list[JsonDict], slices: list[JsonDict]) -> None:
        self.reader = v1.V1Reader(CelSelectorCompiler())
        self.nodes = [v1.node(each) for each in nodes]
        self.read(slices)
        self.classes = {
            each["metadata"]["name"]: self.reader.device_class(each) for each in CLASSES
        }
        self.allocated: list[JsonDict] = []

    def read(self, slices: list[JsonDict]) -> None:
        self.slices = tuple(self.reader.slice(each) for each in slices)

    def allocate(self, claims: list[JsonDict]) -> tuple[str, list[JsonDict]] | str:
        problem = Problem(
            claims=tuple(self.reader.claim(each) for each in claims),
            classes=self.classes,
            slices=self.slices,
            in_use=v1.in_use(self.allocated),
        )
        for each in self.nodes:
            outcome = allocate(problem, each)
            if isinstance(outcome, Allocated):
                return each.name, [v1.status_allocation(found) for found in outcome.claims]
            if isinstance(outcome, Unsatisfiable) and outcome.fatal:
                return outcome.error
        return ""


def without_shares(allocation: JsonDict) -> JsonDict:
    results = [
        dict(each) | ({"shareID": "some"} if each.get("shareID") else {})
        for each in allocation["devices"].get("results", [])
    ]
    return allocation | {
        "devices": allocation["devices"] | ({"results": results} if results else {})
    }


@pytest.mark.thorough
@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9))
@example(29886217)  # what a search remembers of devices was of those with room at its time
def test_a_fleet_equals_one_that_is_rebuilt_for_every_claim(seed: int) -> None:
    chance = Random(seed)
    nodes, slices = random_fleet(chance)
    fleet, rebuilt = Fleet(nodes, slices, CLASSES), Rebuilt(nodes, slices)
    kinds = [random_claim(chance, i) for i in range(4)]
    living: list[JsonDict] = []
    for number in range(14):
        if living and chance.random() < 0.35:
            gone = living.pop(chance.randrange(len(living)))
            fleet.release(gone["status"]["allocation"])
            rebuilt.allocated = living
            continue
        if chance.random() < 0.1:
            fleet = fleet.copied()
        if chance.random() < 0.15:
            changes = changed(chance, slices)
            slices = [
                *(
                    each
                    for each in slices
                    if each["metadata"]["name"] not in {x["metadata"]["name"] for x in changes}
                ),
                *changes,
            ]
            rebuilt.read(slices)
            publish(fleet, slices, living, {pool_of(each) for each in changes})
        claims = [
            chance.choice(kinds) | {"metadata": {"name": f"c{number}-{i}", "namespace": "ns"}}
            for i in range(chance.choice((1, 1, 1, 2)))
        ]
        found, expected = fleet.allocate(claims), rebuilt.allocate(claims)
        if isinstance(found, DevicePlacement):
            assert not isinstance(expected, str), (expected, found)
            assert found.node == expected[0]
            assert [without_shares(x) for x in found.allocations] == [
                without_shares(x) for x in expected[1]
            ]
            for claim, allocation in zip(claims, found.allocations, strict=True):
                living.append(claim | {"status": {"allocation": allocation}})
            rebuilt.allocated = living
        else:
            assert not isinstance(found, Unknown)
            assert (found.error if found.fatal else "") == expected


def gpus(*names: str, generation: int = 1) -> list[JsonDict]:
    devices = [
        {"name": each, "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": "2"}}}]}
        for each in names
    ]
    found = slices_of("p", {"nodeName": "node-0"}, devices, {"s": 4})
    for each in found:
        each["spec"]["pool"]["generation"] = generation
    return found


def ask(count: int = 1, **more: Any) -> JsonDict:
    request = {"name": "r", "exactly": {"deviceClassName": "any", "count": count, **more}}
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}


def test_a_device_in_use_that_is_not_published_any_more_holds_nothing_as_on_kubernetes() -> None:
    fleet = Fleet([node("node-0")], gpus("a", "b"), CLASSES)
    first = fleet.allocate([ask()])
    assert isinstance(first, DevicePlacement)
    held = ask() | {"status": {"allocation": first.allocations[0]}}
    publish(fleet, gpus("a", "y", generation=2), [held], {("d", "p")})
    assert isinstance(fleet.copied().allocate([ask(2)]), Unsatisfiable)
    publish(fleet, gpus("x", "y", generation=3), [held], {("d", "p")})
    assert isinstance(fleet.copied().allocate([ask(2)]), DevicePlacement)
    fleet.release(first.allocations[0])
    assert isinstance(fleet.allocate([ask(2)]), DevicePlacement)


def test_devices_of_slices_that_are_gone_cannot_be_had() -> None:
    fleet = Fleet([node("node-0")], gpus("a", "b"), CLASSES)
    publish(fleet, [], [], {("d", "p")})
    assert isinstance(fleet.allocate([ask()]), Unsatisfiable)
    publish(fleet, gpus("a"), [], {("d", "p")})
    assert isinstance(fleet.allocate([ask()]), DevicePlacement)


def test_pools_that_change_together_are_ordered_once_for_each_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fleet = Fleet([node("n-a"), node("n-b")], [])
    ordered: list[int] = []
    seen_by = fleet.pools.seen_by
    monkeypatch.setattr(
        fleet.pools, "seen_by", lambda number, of: ordered.append(number) or seen_by(number, of)
    )
    slices = [
        each
        for number in range(5)
        for each in slices_of(f"pool-{number}", {"allNodes": True}, [{"name": "g"}])
    ]
    publish(fleet, slices, [], {pool_of(each) for each in slices})
    assert ordered == [0, 1]
    assert [len(seen) for seen in fleet.sees] == [5, 5]


def test_a_copy_changes_on_its_own() -> None:
    fleet = Fleet([node("node-0")], gpus("a", "b"), CLASSES)
    copy = fleet.copied()
    assert isinstance(copy.allocate([ask(2)]), DevicePlacement)
    assert isinstance(copy.allocate([ask()]), Unsatisfiable)
    assert isinstance(fleet.allocate([ask(2)]), DevicePlacement)


def test_only_candidates_are_chosen() -> None:
    fleet = Fleet(
        [node("node-0"), node("node-1")],
        [*gpus("a"), *slices_of("q", {"nodeName": "node-1"}, [{"name": "b"}])],
        CLASSES,
    )
    found = fleet.allocate([ask()], fleet.candidates_of(["node-1"]))
    assert isinstance(found, DevicePlacement)
    assert found.node == "node-1"
    assert found.allocations == [
        {
            "devices": {
                "results": [{"request": "r", "driver": "d", "pool": "q", "device": "b"}],
                "config": [
                    {"source": "FromClass", "opaque": {"driver": "d", "parameters": {"a": 1}}}
                ],
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {
                        "matchFields": [
                            {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
                        ]
                    }
                ]
            },
        }
    ]


def test_beyond_the_budget_a_fleet_does_not_know() -> None:
    # Halves and quarters of four units: going straight leads into a dead end, and one step more
    # than the straight way is not granted.
    sets = {"s": 4}
    devices = [
        {
            "name": f"d{i}",
            "consumesCounters": [{"counterSet": "s", "counters": {"m": {"value": str(size)}}}],
        }
        for i, size in enumerate((3, 2, 2))
    ]
    slices = slices_of("p", {"nodeName": "node-0"}, devices, sets)
    assert isinstance(
        Fleet([node("node-0")], slices, CLASSES, budget=4).allocate([ask(2)]), Unknown
    )
    assert isinstance(Fleet([node("node-0")], slices, CLASSES).allocate([ask(2)]), DevicePlacement)


def test_a_dead_end_under_a_match_rule_costs_no_step_for_devices_of_other_values() -> None:
    slices = [
        each
        for number in range(50)
        for each in slices_of(
            f"p{number:02}",
            {"allNodes": True},
            [{"name": name, "attributes": {"card": {"int": number}}} for name in ("a", "b")],
        )
    ]
    fleet = Fleet([node("n")], slices, CLASSES, budget=40)
    first = {"request": "r", "driver": "d", "pool": "p00", "device": "a"}
    fleet.mark_in_use({"devices": {"results": [first]}})
    claim = ask(2)
    claim["spec"]["devices"]["constraints"] = [{"matchAttribute": "d/card"}]
    found = fleet.allocate([claim])
    assert isinstance(found, DevicePlacement)
    devices = found.allocations[0]["devices"]["results"]
    assert [(each["pool"], each["device"]) for each in devices] == [("p01", "a"), ("p01", "b")]


@pytest.mark.parametrize("count", [1, 2])
def test_equal_nodes_share_their_plans(count: int) -> None:
    nodes = [node(f"node-{i}") for i in range(50)]
    slices = [
        each
        for i in range(50)
        for each in slices_of(
            f"p{i}", {"nodeName": f"node-{i}"}, [{"name": f"d{n}"} for n in range(4)]
        )
    ]
    fleet = Fleet(nodes, slices, CLASSES)
    for _ in range(50 * 4 // count):
        assert isinstance(fleet.allocate([ask(count)]), DevicePlacement)
    assert isinstance(fleet.allocate([ask(count)]), Unsatisfiable)
    shape = fleet.shape_of[0]
    assert shape is not None
    assert all(each is shape for each in fleet.shape_of)
    assert [len(planner.plans) for planner in shape.planners.values()] == [4 // count + 1]


def test_what_a_fleet_forgets_it_works_out_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dralab.allocation.fleet.MOST_KINDS", 2)
    monkeypatch.setattr("dralab.allocation.inventory.pool_states.MOST_STATES", 2)
    monkeypatch.setattr("dralab.allocation.inventory.plans.MOST_PLANS", 1)
    devices = [{"name": f"d{i}"} for i in range(8)]
    fleet = Fleet([node("node-0")], slices_of("p", {"nodeName": "node-0"}, devices), CLASSES)
    taken = []
    for count in (1, 2, 1, 3, 1):
        placed = fleet.allocate([ask(count)])
        assert isinstance(placed, DevicePlacement)
        taken += [each["device"] for each in placed.allocations[0]["devices"]["results"]]
    assert taken == [each["name"] for each in devices]
    assert isinstance(fleet.allocate([ask(1)]), Unsatisfiable)
