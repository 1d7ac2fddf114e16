"""What is read of slices, classes and claims, and what is written of an allocation."""

from dataclasses import fields
from fractions import Fraction

import pytest

from builders import ask, claim, counter_set, device, device_class, first_of, node, pool, request
from dralab.allocation import v1
from dralab.allocation.problem import (
    GATES,
    NO_NODE_SCOPE,
    NOTHING,
    AllocationFeatures,
    Attribute,
    Claim,
    Constraint,
    DeviceId,
    NodeScope,
    RequestPolicy,
    ShareId,
)
from dralab.allocation.results import Chosen, ClaimAllocation
from smallselectors import SmallEnvironment

DRIVER = "gpu.example.com"


@pytest.fixture(params=[False, True])
def reader(request):
    return v1.V1Reader(SmallEnvironment(), keeps=request.param)


def one(reader, wire):
    return reader.device(DRIVER, wire)


# --- devices ------------------------------------------------------------------------------------------


def test_a_device_that_says_nothing_has_nothing(reader):
    found = one(reader, {"name": "d"})
    assert (found.name, found.driver, found.attributes) == ("d", DRIVER, {})
    assert (found.capacity, found.capacity_names, found.consumes, found.taints) == ({}, {}, (), ())
    assert found.capacity is found.capacity_names is NOTHING
    assert (found.shareable, found.binds_to_node, found.problem) == (False, False, "")
    assert found.node_scope is NO_NODE_SCOPE
    assert (found.binding_conditions, found.binding_failure_conditions) == ((), ())


@pytest.mark.parametrize(
    ("wire", "attribute", "problem"),
    [
        ({"int": 1}, Attribute("int", (1,)), ""),
        ({"int": 0}, Attribute("int", (0,)), ""),
        ({"bool": True}, Attribute("bool", (True,)), ""),
        ({"bool": False}, Attribute("bool", (False,)), ""),
        ({"string": ""}, Attribute("string", ("",)), ""),
        ({"version": "1.2.3"}, Attribute("version", ("1.2.3",)), ""),
        ({"ints": [1, 2]}, Attribute("int", (1, 2), listed=True), ""),
        ({"strings": []}, Attribute("string", (), listed=True), ""),
        ({"bools": [True]}, Attribute("bool", (True,), listed=True), ""),
        ({"int": None, "string": "s"}, Attribute("string", ("s",)), ""),
        ({}, Attribute("", ()), "unsupported attribute value"),
        ({"int": None}, Attribute("", ()), "unsupported attribute value"),
        ({"new": 1}, Attribute("", ()), "unsupported attribute value"),
        ({"news": [1]}, Attribute("", ()), "unsupported attribute value"),
    ],
)
def test_attributes_have_a_type(reader, wire, attribute, problem):
    for _ in range(2):  # The second time it is known.
        found = one(reader, {"name": "d", "attributes": {"a": wire}})
        got = found.attributes[f"{DRIVER}/a"]
        assert (got.type, got.listed) == (attribute.type, attribute.listed)
        if attribute.type:
            assert got == attribute
            assert [type(each) for each in got.values] == [type(each) for each in attribute.values]
        assert found.problem == (problem and f"attribute a: {problem}")


def test_a_version_that_is_none_makes_a_device_useless_to_expressions(reader):
    for wire in ({"version": "1"}, {"versions": ["1.2.3", "x"]}):
        found = one(reader, {"name": "d", "attributes": {"ok": {"int": 1}, "v": wire}})
        assert found.problem.startswith("attribute v: parse semantic version: ")


def test_names_are_qualified_and_the_qualified_one_counts(reader):
    both = {"a": {"int": 1}, f"{DRIVER}/a": {"int": 2}, "other.com/a": {"int": 3}}
    for attributes in (both, dict(reversed(both.items()))):
        found = one(reader, {"name": "d", "attributes": attributes}).attributes
        assert {name: each.values for name, each in found.items()} == {
            f"{DRIVER}/a": (2,), "other.com/a": (3,)
        }  # fmt: skip
    sizes = {"m": {"value": "1"}, f"{DRIVER}/m": {"value": "2"}, "n": {"value": "3"}}
    for capacity in (sizes, dict(reversed(sizes.items()))):
        found = one(reader, {"name": "d", "capacity": capacity})
        assert {name: each.text for name, each in found.capacity.items()} == {
            f"{DRIVER}/m": "2", f"{DRIVER}/n": "3"
        }  # fmt: skip
        assert found.written(f"{DRIVER}/n") == "n"
        assert found.written("other.com/x") == "other.com/x"


def test_amounts_are_in_the_order_of_the_capacities(reader):
    capacity = {"m": {"value": "1"}, "n": {"value": "3"}, "x.com/o": {"value": "3"}}
    found = one(reader, {"name": "d", "capacity": capacity})
    assert found.amounts_of({"n": 2, f"{DRIVER}/m": 1}) == (1, 2, 0)
    assert found.amounts_of({"m": 5, f"{DRIVER}/m": 1, "x.com/o": 7}) == (5, 0, 7)


def test_equal_parts_are_one_object(reader):
    wires = [device("d", a=1, consumes={"s": {"m": 1}}, capacity={"c": "1Gi"})]
    [first] = reader.slice(pool("p", *wires)[0]).devices
    [same] = reader.slice(pool("q", *wires)[0]).devices
    assert first is same
    alike = device("e", a=1, consumes={"s": {"m": 1}}, capacity={"c": "1Gi"})
    [other] = reader.slice(pool("q", alike)[0]).devices
    assert other is not first
    assert other.attributes[f"{DRIVER}/a"] is first.attributes[f"{DRIVER}/a"]
    assert other.capacity[f"{DRIVER}/c"] is first.capacity[f"{DRIVER}/c"]
    assert other.consumes is first.consumes
    assert reader.slice(pool("p", *wires, driver="x")[0]).devices[0] is not first
    apart = one(reader, {"name": "d", "attributes": {"a": {"bool": True}, "b": {"int": 1}}})
    assert [each.values[0] for each in apart.attributes.values()] == [True, 1]
    assert [each.type for each in apart.attributes.values()] == ["bool", "int"]


def test_lists_that_share_devices_are_read_once():
    kept = v1.V1Reader(SmallEnvironment(), keeps=True)
    wires = [device(name) for name in "abc"]
    first = kept.slice(pool("p", *wires)[0]).devices
    more = kept.slice(pool("p", *wires[1:], device("d"))[0]).devices
    assert more[:2] == first[1:]
    assert [each.name for each in more] == ["b", "c", "d"]
    again = pool("p", *wires)[0]
    assert kept.slice(again).devices is kept.slice(again).devices


def test_all_of_a_device_is_read(reader):
    found = one(
        reader,
        {
            "name": "d",
            "allowMultipleAllocations": True,
            "bindsToNode": True,
            "bindingConditions": ["a"],
            "bindingFailureConditions": ["b"],
            "allNodes": True,
            "taints": [{"key": "k", "effect": "NoSchedule"}],
            "consumesCounters": [
                {
                    "counterSet": "s", "counters": {"m": {"value": "2"}},
                    "compatibilityGroups": ["g"],
                }
            ],
        },
    )  # fmt: skip
    assert found.shareable
    assert found.binds_to_node
    assert (found.binding_conditions, found.binding_failure_conditions) == (("a",), ("b",))
    assert found.node_scope == NodeScope(everywhere=True)
    assert [each.key for each in found.taints] == ["k"]
    [consumed] = found.consumes
    assert (consumed.counter_set, consumed.counters, consumed.groups) == ("s", {"m": 2}, {"g"})


def test_policies_of_capacities_are_read(reader):
    policy = {"default": "1", "validRange": {"min": "1", "max": "9", "step": "2"}}
    wire = {"m": {"value": "9", "requestPolicy": policy}, "n": {"value": "9"}}
    found = one(reader, {"name": "d", "capacity": wire}).capacity
    assert found[f"{DRIVER}/m"].policy == RequestPolicy(default=1, least=1, most=9, step=2)
    assert found[f"{DRIVER}/n"].policy == RequestPolicy()
    wire["m"]["requestPolicy"] = {"validValues": ["1", "2"], "validRange": {"min": "0"}}
    found = one(reader, {"name": "d", "capacity": wire}).capacity
    assert found[f"{DRIVER}/m"].policy == RequestPolicy(valid_values=(1, 2), least=0)


TENTHS = RequestPolicy(least=Fraction(1, 5), most=1, step=Fraction(1, 10))


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        (RequestPolicy(), None, 10),
        (RequestPolicy(default=2), None, 2),
        (RequestPolicy(default=0), None, 0),
        (RequestPolicy(), 3, 3),
        (RequestPolicy(valid_values=(2, 4)), 2, 2),
        (RequestPolicy(valid_values=(2, 4)), 3, 4),
        (RequestPolicy(valid_values=(2, 4)), 5, None),
        (RequestPolicy(least=2), 1, 2),
        (RequestPolicy(least=2), 3, 3),
        (RequestPolicy(least=0, most=4), 4, 4),
        (RequestPolicy(least=0, most=4), 5, None),
        (RequestPolicy(least=1, most=7, step=3), 1, 1),
        (RequestPolicy(least=1, most=7, step=3), 2, 4),
        (RequestPolicy(least=1, most=7, step=3), 4, 4),
        (RequestPolicy(least=1, most=6, step=3), 5, None),
        (RequestPolicy(least=1, step=1), 2**64, None),
        (RequestPolicy(least=2, step=2), 2**63 - 1, None),
        (TENTHS, Fraction(1, 5), Fraction(1, 5)),
        (TENTHS, Fraction(21, 100), Fraction(3, 10)),
        (TENTHS, Fraction(21001, 100_000), None),
    ],
)
def test_a_policy_says_what_is_taken(policy, asked, taken):
    assert policy.amount(asked, 10) == taken


@pytest.mark.parametrize(("asked", "taken"), [(Fraction(1, 10), Fraction(1, 5)), (1, 1)])
def test_steps_are_whole_numbers_without_fractional_ranges(asked, taken):
    assert TENTHS.amount(asked, 1, fractional=False) == taken
    assert TENTHS.amount(Fraction(3, 10), 2, fractional=False) == 1


# --- slices, classes, nodes ---------------------------------------------------------------------------


def test_a_slice_is_read_whole(reader):
    [first, second] = pool("p", device("d"), counters=[counter_set("s", m=2)], generation=3)
    first["spec"]["perDeviceNodeSelection"] = True
    first["spec"]["skipNodeOperations"] = ["Prepare"]
    found = reader.slice(first)
    assert (found.name, found.driver, found.pool) == ("p", DRIVER, "p")
    assert (found.generation, found.slice_count) == (3, 2)
    assert (found.per_device_scope, found.skip_node_operations) == (True, ("Prepare",))
    assert found.node_scope == NodeScope(node="node-1")
    assert found.scope_of(found.devices[0]) is NO_NODE_SCOPE
    counters = reader.slice(second)
    assert [(each.name, each.counters) for each in counters.counter_sets] == [("s", {"m": 2})]
    assert (counters.devices, counters.per_device_scope) == ((), False)
    assert counters.scope_of(found.devices[0]) is counters.node_scope
    bare = reader.slice({"spec": {"driver": "d", "pool": {"name": "p"}}})
    assert (bare.name, bare.generation, bare.slice_count) == ("", 0, 1)
    assert (bare.devices, bare.counter_sets, bare.skip_node_operations) == ((), (), ())


def test_rules_taint_the_devices_that_they_select(reader):
    def rule(**selector):
        taint = {"key": "k", "effect": "NoSchedule"}
        return {"spec": {"deviceSelector": selector, "taint": taint}}

    def tainted(*rules):
        [wire] = pool("p", device("a"), device("b", taints=[{"key": "own", "effect": "NoExecute"}]))
        return [[each.key for each in one.taints] for one in reader.slice(wire, rules).devices]

    assert tainted() == [[], ["own"]]
    assert tainted(rule()) == [["k"], ["own", "k"]]
    assert tainted(rule(device="a", pool="p", driver=DRIVER)) == [["k"], ["own"]]
    assert tainted(rule(pool="q")) == tainted(rule(driver="x")) == [[], ["own"]]
    assert tainted(rule(device="b"), rule()) == [["k"], ["own", "k", "k"]]


@pytest.mark.parametrize(
    ("wire", "nodes"),
    [
        ({}, []),
        ({"allNodes": False}, []),
        ({"allNodes": True}, ["n1", "n2"]),
        ({"nodeName": "n1"}, ["n1"]),
        ({"nodeName": "n3", "allNodes": True}, []),
        (
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "a", "operator": "In", "values": ["2"]}]}
                    ]
                }
            },
            ["n2"],
        ),
    ],
)
def test_devices_are_used_from_the_nodes_of_their_scope(reader, wire, nodes):
    scope = one(reader, {"name": "d", **wire}).node_scope
    known = [v1.node(node("n1", a="1")), v1.node(node("n2", a="2"))]
    assert [each.name for each in known if scope.accepts(each)] == nodes
    assert v1.node({"metadata": {"name": "n"}}).labels == {}


def test_a_class_is_read_whole(reader):
    config = [{"opaque": {"driver": "d"}}, {"other": 1}]
    wire = device_class("c", "true", config=config, extendedResourceName="x.com/r")
    wire["spec"]["selectors"].append({"new": {}})
    found = reader.device_class(wire)
    assert found.name == "c"
    assert found.configs == ({"opaque": {"driver": "d"}},)
    assert [each and each.text for each in found.selectors] == ["true", None]
    bare = reader.device_class({"metadata": {"name": "c"}})
    assert (bare.selectors, bare.configs) == ((), ())


# --- claims -------------------------------------------------------------------------------------------


def test_a_claim_is_read_whole(reader):
    requests = [
        request("r", "gpu", "true", count=3),
        first_of("f", big=ask(count="All"), few=ask()),
    ]
    config = [{"requests": ["r"], "opaque": {"driver": "d"}}, {"opaque": {}}, {"other": 1}]
    found = reader.claim(
        claim("c", *requests, match="a", distinct="b", config=config, namespace="ns")
    )
    assert (str(found), found.uid, found.limit) == ("ns/c", "", 32)
    first, listed = found.requests
    assert (first.name, first.prioritized, listed.name, listed.prioritized) == (
        "r", False, "f", True
    )  # fmt: skip
    [exact] = first.subrequests
    assert (exact.name, exact.class_name, exact.mode, exact.count) == ("r", "gpu", "ExactCount", 3)
    assert [each.text for each in exact.selectors] == ["true"]
    assert exact.admin is None
    every, few = listed.subrequests
    assert (every.name, every.mode, every.count) == ("f/big", "All", 0)
    assert (few.name, few.mode, few.count) == ("f/few", "ExactCount", 1)
    assert [(each.kind, each.name) for each in found.constraints] == [
        ("match", "a"), ("distinct", "b")
    ]  # fmt: skip
    assert [(each.requests, each.body) for each in found.configs] == [
        (("r",), {"opaque": {"driver": "d"}}), ((), {"opaque": {}})
    ]  # fmt: skip


def test_a_claim_that_says_nothing_asks_for_nothing(reader):
    for spec in ({}, {"spec": {}}, {"spec": {"devices": {}}}):
        found = reader.claim({"metadata": {"name": "c"}, **spec})
        assert (str(found), found.requests, found.constraints, found.configs) == ("c", (), (), ())
    [asked] = reader.claim(
        {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [{"name": "r"}]}}}
    ).requests
    [only] = asked.subrequests
    assert (only.class_name, only.mode, only.count, only.capacity) == ("", "ExactCount", 1, {})
    assert (only.selectors, only.tolerations, only.derived) == ((), (), {})


def test_the_rarer_fields_of_a_request_are_read(reader):
    asked = request(
        "r", adminAccess=False, allocationMode="New", tolerations=[{"operator": "Exists"}],
        capacity={"requests": {"m": "2Gi"}},
    )  # fmt: skip
    [[only]] = [each.subrequests for each in reader.claim(claim("c", asked)).requests]
    assert (only.admin, only.mode, only.count, only.capacity) == (False, "New", 0, {"m": 2**31})
    assert [each.operator for each in only.tolerations] == ["Exists"]


@pytest.mark.parametrize(
    ("requests", "covered"),
    [((), ["r", "f/a", "f/b"]), (("r",), ["r"]), (("f",), ["f/a", "f/b"]), (("f/a",), ["f/a"])],
)
def test_a_constraint_covers_requests_and_their_alternatives(requests, covered):
    rule = Constraint("match", "a", requests)
    assert [name for name in ("r", "f/a", "f/b") if rule.covers(name)] == covered


def test_a_constraint_that_is_not_known_has_no_kind(reader):
    wire = claim("c", constraints=[{"requests": ["r"], "new": 1}, {"matchAttribute": "m"}])
    assert reader.claim(wire).constraints == (
        Constraint("", "", ("r",)), Constraint("match", "m", ())
    )  # fmt: skip


# --- what is held and what is written -------------------------------------------------------------------


def held(name, *results, namespace="ns"):
    devices = {"results": [{"request": "r", "driver": "d", "pool": "p"} | each for each in results]}
    return claim(name, namespace=namespace, status={"allocation": {"devices": devices}})


def test_what_claims_hold_is_whole_or_shared():
    found = v1.in_use(
        [
            held("a", {"device": "x"}, {"device": "w", "adminAccess": True}),
            held("b", {"device": "s", "shareID": "1", "consumedCapacity": {"m": "1Gi"}}),
            held("c", {"device": "s", "shareID": "2", "consumedCapacity": {"m": "1Gi", "n": "1"}}),
            held("e", {"device": "t", "shareID": "1"}, namespace=""),
            claim("none"),
        ]
    )
    whole, shared, other = (DeviceId("d", "p", name) for name in "xst")
    assert found.exclusive == {whole}
    assert found.shares == {ShareId(shared, "1"), ShareId(shared, "2"), ShareId(other, "1")}
    assert found.consumed == {shared: {"m": 2 * 2**30, "n": 1}, other: {}}
    assert found.holders == {whole: ("ns/a",), shared: ("ns/b", "ns/c"), other: ("e",)}
    assert found.devices() == {whole, shared, other}


def chosen(**fields_):
    return Chosen(**({"request": "r", "device": DeviceId("d", "p", "x")} | fields_))


def test_an_allocation_is_written_with_what_it_has():
    plain = {"request": "r", "driver": "d", "pool": "p", "device": "x"}
    asked = Claim(name="c")
    found = v1.status_allocation(ClaimAllocation(claim=asked, chosen=(chosen(),)))
    assert found == {"devices": {"results": [plain]}}
    assert v1.status_allocation(ClaimAllocation(claim=asked, chosen=())) == {"devices": {}}
    selected = ClaimAllocation(claim=asked, chosen=(), node_selector={"nodeSelectorTerms": []})
    assert v1.status_allocation(selected)["nodeSelector"] == {"nodeSelectorTerms": []}
    rich = chosen(
        admin=True, share="s", consumed=(("m", 2**30, "3Gi"), ("n", 1500, "")),
        binding_conditions=("b",), binding_failure_conditions=("f",),
        skip_node_operations=("Prepare",),
    )  # fmt: skip
    assert v1.status_result(rich, rich.device, rich.share) == plain | {
        "adminAccess": True,
        "shareID": "s",
        "consumedCapacity": {"m": "1Gi", "n": "1500"},
        "bindingConditions": ["b"],
        "bindingFailureConditions": ["f"],
        "skipNodeOperations": ["Prepare"],
    }
    assert v1.status_result(rich, rich.device, None).keys().isdisjoint(
        {"shareID", "consumedCapacity"}
    )  # fmt: skip


def test_features_are_those_of_the_gates():
    everything = {item.name for item in fields(AllocationFeatures)}
    assert set(GATES.values()) == everything
    # The rule of 1.37 for all devices is no gate: it counts where a release is named.
    assert AllocationFeatures() == AllocationFeatures.named(GATES.keys() - {"AllCountsFullDevices"})
    for gate, name in GATES.items():
        found = AllocationFeatures.named([gate, "Unknown"])
        assert [item for item in sorted(everything) if getattr(found, item)] == [name]
    both = AllocationFeatures.named(["DRAAdminAccess+DRADeviceTaints"])
    assert both.admin_access
    assert both.device_taints
    assert not both.consumable_capacity
