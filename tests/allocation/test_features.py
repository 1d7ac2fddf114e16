"""What newer features of the device API mean, case by case, in resource.k8s.io/v1 mappings."""

from typing import Any

import pytest

from dralab.allocation import v1
from dralab.allocation.allocator import allocate
from dralab.allocation.outcome import Allocated, Unsatisfiable
from dralab.allocation.problem import AllocationFeatures, InUse, Node, Problem
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.values.json_types import JsonDict

NODE = Node("n", {"zone": "a"})


def device(
    name: str, *, draws: JsonDict | None = None, groups: list[str] | None = None, **more: Any
) -> JsonDict:
    attributes = dict(more.pop("attributes", {}))
    found: JsonDict = {"name": name, "attributes": attributes, **more}
    if draws:
        consumed: JsonDict = {
            "counterSet": "s",
            "counters": {key: {"value": str(value)} for key, value in draws.items()},
        }
        found["consumesCounters"] = [consumed | ({"compatibilityGroups": groups} if groups else {})]
    return found


def slices(
    devices: list[JsonDict], counters: JsonDict | None = None, name: str = "p", **spec: Any
) -> list[JsonDict]:
    node_scope = (
        {}
        if {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"} & spec.keys()
        else {"nodeName": "n"}
    )
    pool = {"name": name, "generation": 1, "resourceSliceCount": 2 if counters else 1}
    base = {"driver": "d", "pool": pool, **node_scope, **spec}
    found = [{"metadata": {"name": f"{name}-a"}, "spec": {**base, "devices": devices}}]
    if counters:
        sets = [
            {
                "name": "s",
                "counters": {key: {"value": str(value)} for key, value in counters.items()},
            }
        ]
        found.append({"metadata": {"name": f"{name}-b"}, "spec": {**base, "sharedCounters": sets}})
    return found


def claim(*requests: JsonDict, **more: Any) -> JsonDict:
    return {"metadata": {"name": "c"}, "spec": {"devices": {"requests": list(requests), **more}}}


def request(name: str = "r", **more: Any) -> JsonDict:
    return {"name": name, "exactly": {"deviceClassName": "any", **more}}


def solve(
    published: list[JsonDict],
    *claims: JsonDict,
    features: AllocationFeatures | None = None,
    in_use: InUse | None = None,
    rules: tuple[JsonDict, ...] = (),
    node: Node = NODE,
) -> Any:
    reader = v1.V1Reader(CelSelectorCompiler())
    problem = Problem(
        claims=tuple(reader.claim(each) for each in claims),
        classes={"any": reader.device_class({"metadata": {"name": "any"}, "spec": {}})},
        slices=tuple(reader.slice(each, rules) for each in published),
        features=features or AllocationFeatures(),
        in_use=in_use or InUse(),
    )
    return allocate(problem, node)


def chosen(outcome: Any) -> list[str] | str:
    if isinstance(outcome, Allocated):
        return [each.device.device for found in outcome.claims for each in found.chosen]
    assert isinstance(outcome, Unsatisfiable)
    return outcome.error


def text(value: str) -> JsonDict:
    return {"string": value}


def test_a_derived_attribute_is_matched_instead_of_the_devices_own() -> None:
    published = slices(
        [
            device("a", attributes={"id": text("rack1-7")}),
            device("b", attributes={"id": text("rack2-1")}),
            device("c", attributes={"id": text("rack1-9")}),
        ]
    )
    rack = {"name": "d/rack", "expression": 'device.attributes["d"].id.split("-")[0]'}
    asked = claim(
        request(count=2, derivedAttributes=[rack]), constraints=[{"matchAttribute": "d/rack"}]
    )
    assert chosen(solve(published, asked)) == ["a", "c"]
    own = claim(request(count=2), constraints=[{"matchAttribute": "d/rack"}])
    assert chosen(solve(published, own)) == ""


def test_a_derived_attribute_may_be_a_list() -> None:
    published = slices(
        [
            device("a", attributes={"n": {"int": 1}}),
            device("b", attributes={"n": {"int": 3}}),
            device("c", attributes={"n": {"int": 2}}),
        ]
    )
    near = {"name": "d/near", "expression": 'lists.range(2).map(i, device.attributes["d"].n + i)'}
    asked = claim(
        request(count=2, derivedAttributes=[near]), constraints=[{"matchAttribute": "d/near"}]
    )
    assert chosen(solve(published, asked)) == ["a", "c"]


def test_an_error_of_a_derived_attribute_stops_the_pod() -> None:
    bad = {"name": "d/x", "expression": 'device.attributes["d"].missing'}
    asked = claim(
        request(count=1, derivedAttributes=[bad]), constraints=[{"matchAttribute": "d/x"}]
    )
    outcome = solve(slices([device("a")]), asked)
    assert "no such key: missing" in outcome.error
    assert outcome.fatal


def test_derived_attributes_need_their_feature() -> None:
    asked = claim(
        request(derivedAttributes=[{"name": "d/x", "expression": "1"}]),
        constraints=[{"matchAttribute": "d/x"}],
    )
    outcome = solve(
        slices([device("a")]), asked, features=AllocationFeatures(derived_attributes=False)
    )
    assert "DRADerivedAttributes" in outcome.error


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([["x"], ["x"]], ["a", "b"]),
        ([["x"], ["y"]], ""),
        ([["x", "y"], ["y", "z"]], ["a", "b"]),
        ([[], []], ["a", "b"]),
        ([["x"], []], ""),
        # Pairwise they agree, all three together they do not: the intersection rules.
        ([["x", "y"], ["y", "z"], ["x", "z"]], ""),
        ([["x", "y"], ["y", "z"], ["y"]], ["a", "b", "c"]),
    ],
)
def test_devices_of_one_counter_set_need_a_common_compatibility_group(
    groups: list[list[str]], expected: Any
) -> None:
    devices = [
        device(name, draws={"m": 1}, groups=mine) for name, mine in zip("abc", groups, strict=False)
    ]
    asked = claim(request(count=len(devices)))
    assert chosen(solve(slices(devices, {"m": 9}), asked)) == expected


def test_devices_in_use_decide_the_compatibility_group() -> None:
    devices = [
        device("a", draws={"m": 1}, groups=["x"]),
        device("b", draws={"m": 1}, groups=["y"]),
        device("c", draws={"m": 1}, groups=["x", "y"]),
    ]
    published = slices(devices, {"m": 9})
    taken = v1.in_use(
        [
            {
                "metadata": {"name": "o"},
                "status": {
                    "allocation": {
                        "devices": {
                            "results": [{"request": "r", "driver": "d", "pool": "p", "device": "b"}]
                        }
                    }
                },
            }
        ]
    )
    assert chosen(solve(published, claim(request()), in_use=taken)) == ["c"]


def test_without_their_feature_slices_with_groups_are_not_there() -> None:
    devices = [device("a", draws={"m": 1}, groups=["x"])]
    outcome = solve(
        slices(devices, {"m": 9}),
        claim(request()),
        features=AllocationFeatures(compatibility_groups=False),
    )
    assert chosen(outcome) == ""


def shared(value: str, **policy: Any) -> JsonDict:
    return device(
        "a",
        allowMultipleAllocations=True,
        capacity={"c": {"value": value, "requestPolicy": policy}},
    )


@pytest.mark.parametrize(
    ("policy", "asked", "consumed"),
    [
        ({"default": "1", "validRange": {"min": "1", "step": "2"}}, "2", "3"),
        ({"default": "500m", "validRange": {"min": "250m", "step": "250m"}}, "600m", "750m"),
        ({"default": "500m", "validRange": {"min": "250m", "step": "250m"}}, None, "500m"),
        ({"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}}, "5", None),
        ({"default": "1", "validValues": ["1", "4", "8"]}, "5", "8"),
        ({"default": "1", "validValues": ["1", "4"]}, "5", None),
        ({}, "3", "3"),
        ({}, None, "10"),
        ({}, "11", None),
    ],
)
def test_amounts_are_rounded_by_the_policy_of_the_device(
    policy: JsonDict, asked: str | None, consumed: str | None
) -> None:
    more = {"capacity": {"requests": {"c": asked}}} if asked else {}
    outcome = solve(slices([shared("10", **policy)]), claim(request(**more)))
    if consumed is None:
        assert chosen(outcome) == ""
        return
    (result,) = v1.status_allocation(outcome.claims[0])["devices"]["results"]
    assert result["consumedCapacity"] == {"c": consumed}
    assert result["shareID"]


def test_a_negative_amount_is_never_taken() -> None:
    asked = claim(request(capacity={"requests": {"c": "-5"}}))
    assert chosen(solve(slices([shared("10")]), asked)) == ""


def test_without_fractional_ranges_amounts_are_counted_in_whole_numbers() -> None:
    tenths = {"default": "200m", "validRange": {"min": "200m", "max": "1", "step": "100m"}}
    outcome = solve(
        slices([shared("1", **tenths)]),
        claim(request(capacity={"requests": {"c": "200m"}})),
        features=AllocationFeatures(fractional_ranges=False),
    )
    (result,) = v1.status_allocation(outcome.claims[0])["devices"]["results"]
    assert result["consumedCapacity"] == {"c": "1"}


def test_an_alternative_with_an_absurd_count_gives_way_to_the_next() -> None:
    asked = claim(
        {
            "name": "r",
            "firstAvailable": [
                {"name": name, "deviceClassName": "any", "allocationMode": "ExactCount", "count": n}
                for name, n in (("many", 2**63 - 1), ("one", 1))
            ],
        }
    )
    assert chosen(solve(slices([device("a")]), asked)) == ["a"]


def test_results_copy_what_drivers_and_users_wrote() -> None:
    made = device(
        "a",
        bindingConditions=["ready"],
        bindingFailureConditions=["broken"],
        taints=[{"key": "k", "effect": "NoExecute"}],
    )
    tolerated = {"key": "k", "operator": "Exists", "tolerationSeconds": 30}
    outcome = solve(
        slices([made], skipNodeOperations=["*"]), claim(request(tolerations=[tolerated]))
    )
    (result,) = v1.status_allocation(outcome.claims[0])["devices"]["results"]
    assert result == {
        "request": "r",
        "driver": "d",
        "pool": "p",
        "device": "a",
        "tolerations": [tolerated],
        "bindingConditions": ["ready"],
        "bindingFailureConditions": ["broken"],
        "skipNodeOperations": ["*"],
    }


@pytest.mark.parametrize("declared", [True, False])
def test_nodes_declare_that_they_leave_out_operations(*, declared: bool) -> None:
    published = slices([device("a")], skipNodeOperations=["*"])
    node = v1.node(
        {
            "metadata": {"name": "n"},
            "status": {"declaredFeatures": ["DRAOptionalNodeOperations"] if declared else []},
        }
    )
    assert chosen(solve(published, claim(request()), node=node)) == (["a"] if declared else "")


def test_slices_that_skip_node_operations_need_their_feature() -> None:
    published = slices([device("a")], skipNodeOperations=["*"])
    assert (
        chosen(
            solve(
                published,
                claim(request()),
                features=AllocationFeatures(optional_node_operations=False),
            )
        )
        == ""
    )


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        (None, ["a"]),
        ({}, ""),
        ({"driver": "d"}, ""),
        ({"driver": "e"}, ["a"]),
        ({"pool": "p", "device": "a"}, ["b"]),
        ({"device": "b"}, ["a"]),
    ],
)
def test_taint_rules_repel_what_they_select(selector: JsonDict | None, expected: Any) -> None:
    spec: JsonDict = {"taint": {"key": "k", "effect": "NoSchedule"}} | (
        {} if selector is None else {"deviceSelector": selector}
    )
    rules = ({"metadata": {"name": "rule"}, "spec": spec},)
    assert (
        chosen(solve(slices([device("a"), device("b")]), claim(request()), rules=rules)) == expected
    )


def test_the_node_selector_of_a_result_unites_what_its_devices_require() -> None:
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a", "b"]}]}
    both = {
        "matchExpressions": [*term["matchExpressions"], {"key": "rack", "operator": "DoesNotExist"}]
    }
    published = [
        *slices([device("a")], name="one", nodeSelector={"nodeSelectorTerms": [term]}),
        *slices([device("b")], name="two", nodeSelector={"nodeSelectorTerms": [both]}),
        *slices([device("c")], name="three", allNodes=True),
    ]
    outcome = solve(published, claim(request(count=3)))
    assert v1.status_allocation(outcome.claims[0])["nodeSelector"] == {"nodeSelectorTerms": [both]}
    bound = [*published, *slices([device("x", bindsToNode=True)], name="zero", allNodes=True)]
    assert v1.status_allocation(solve(bound, claim(request(count=4))).claims[0])[
        "nodeSelector"
    ] == {
        "nodeSelectorTerms": [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
        ]
    }
    everywhere = solve(slices([device("c")], allNodes=True), claim(request()))
    assert "nodeSelector" not in v1.status_allocation(everywhere.claims[0])


def test_counters_of_a_pool_count_on_every_node() -> None:
    devices = [
        device("a", draws={"m": 2}, nodeName="n"),
        device("b", draws={"m": 2}, nodeName="other"),
    ]
    published = slices(devices, {"m": 3}, perDeviceNodeSelection=True)
    assert chosen(solve(published, claim(request()))) == ["a"]
    taken = v1.in_use(
        [
            {
                "metadata": {"name": "o"},
                "status": {
                    "allocation": {
                        "devices": {
                            "results": [{"request": "r", "driver": "d", "pool": "p", "device": "b"}]
                        }
                    }
                },
            }
        ]
    )
    assert chosen(solve(published, claim(request()), in_use=taken)) == ""


def test_admin_access_watches_what_is_in_use_and_takes_nothing() -> None:
    published = slices([device("a", draws={"m": 2}), shared("1") | {"name": "b"}], {"m": 2})
    taken = v1.in_use(
        [
            {
                "metadata": {"name": "o"},
                "status": {
                    "allocation": {
                        "devices": {
                            "results": [
                                {"request": "r", "driver": "d", "pool": "p", "device": "a"},
                                {
                                    "request": "r",
                                    "driver": "d",
                                    "pool": "p",
                                    "device": "b",
                                    "shareID": "x",
                                    "consumedCapacity": {"c": "1"},
                                },
                            ]
                        }
                    }
                },
            }
        ]
    )
    watching = claim(request(allocationMode="All", adminAccess=True))
    outcome = solve(published, watching, in_use=taken)
    assert chosen(outcome) == ["a", "b"]
    assert all(
        each["adminAccess"]
        for each in v1.status_allocation(outcome.claims[0])["devices"]["results"]
    )
    after = v1.in_use(
        [watching | {"status": {"allocation": v1.status_allocation(outcome.claims[0])}}]
    )
    assert not after.devices()


def test_the_first_alternative_that_works_is_taken_and_its_rank_told() -> None:
    first = {"name": "big", "deviceClassName": "any", "count": 3}
    second = {"name": "small", "deviceClassName": "any", "count": 1}
    outcome = solve(
        slices([device("a"), device("b")]), claim({"name": "r", "firstAvailable": [first, second]})
    )
    assert [each.request for each in outcome.claims[0].chosen] == ["r/small"]
