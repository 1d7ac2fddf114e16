"""The rules of the verifier one by one: what it finds wrong, and what it lets pass."""

import pytest

from builders import ask, claim, counter_set, device, first_of, node, pool, request, taint
from dralab.allocation.check.verification import (
    DeviceChoice,
    DeviceKey,
    HeldDevice,
    Verifier,
)
from problems import matches

SHARE = "00000000-0000-4000-8000-000000000001"


def result(name, request_="r", *, pool_="p", **more):
    return {"request": request_, "driver": "a", "pool": pool_, "device": name} | more


def slices_of(*devices, **more):
    return pool("p", *devices, driver="a", **more)


def verifier(slices, *claims, held=(), gates=None, node_=None, classes=None):
    return Verifier(
        claims=claims,
        classes=classes or [{"metadata": {"name": "gpu"}}],
        slices=slices,
        node=node_ or node("node-1", zone="z"),
        matches=matches,
        held=held,
        gates=gates,
    )


def problems(slices, asked, *results, allocation=None, **options):
    """Return what is wrong with results, without the words for which claim and device."""
    given = {"devices": {"results": list(results)}} | (allocation or {})
    found = verifier(slices, asked, **options).violations([given])
    return [text.rpartition(": ")[2] for text in found]


ONE = claim("c", request("r"))
PLAIN = slices_of(device("d0"), device("d1"))


def test_each_claim_has_an_allocation():
    assert verifier(PLAIN, ONE, ONE).violations([{}]) == ["2 claims have 1 allocations"]
    assert verifier(PLAIN).violations([]) == []


def test_a_node_selector_has_to_accept_the_node():
    def asked(zone):
        terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
        chosen = {"nodeSelector": {"nodeSelectorTerms": terms}}
        return problems(PLAIN, ONE, result("d0"), allocation=chosen)

    assert asked("z") == []
    assert asked("y") == ["its node selector does not accept the node"]


def test_at_most_32_devices_are_of_one_claim():
    many = slices_of(*(device(f"d{number}") for number in range(33)))

    def asked(count):
        made = claim("c", request("r", count=count))
        return problems(many, made, *(result(f"d{number}") for number in range(count)))

    assert asked(32) == []
    assert asked(33) == ["33 devices are more than 32"]


@pytest.mark.parametrize(
    ("where", "there"),
    [
        ({"nodeName": "node-1"}, True),
        ({"nodeName": "node-2"}, False),
        ({"allNodes": True}, True),
        ({"allNodes": False}, False),
        ({}, False),
        (
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["z"]}]}
                    ]
                }
            },
            True,
        ),
    ],
)
@pytest.mark.parametrize("each", [False, True])
def test_a_device_has_to_reach_the_node(where, there, each):
    own = device("d0", more=where if each else {})
    [made] = slices_of(own, device("d1", more={"nodeName": "node-1"}), node=None)
    del made["spec"]["allNodes"]
    made["spec"] |= {"perDeviceNodeSelection": True} if each else where
    found = problems([made], ONE, result("d0"))
    assert found == ([] if there else ["the node has no such device"])


def test_a_pool_is_used_where_it_is_whole_and_newest():
    def parts(*generations, count=2):
        made = []
        for number, generation in enumerate(generations):
            [part] = slices_of(device(f"d{number}"), generation=generation)
            part["metadata"]["name"] = f"p-{number}"
            part["spec"]["pool"]["resourceSliceCount"] = count
            made.append(part)
        return made

    missing = ["the node has no such device"]
    assert problems(parts(1, 1), ONE, result("d0")) == []
    assert problems(parts(1), ONE, result("d0")) == missing
    assert problems(parts(1, 2, 2), ONE, result("d0")) == missing
    assert problems(parts(1, 2, 2), ONE, result("d1")) == []
    assert problems(parts(1, 2), ONE, result("d1")) == missing
    elsewhere = parts(1, 1)
    elsewhere[1]["spec"]["nodeName"] = "node-2"
    assert problems(elsewhere, ONE, result("d0")) == []
    assert problems(elsewhere, ONE, result("d1")) == missing
    newer = parts(1, 2)
    newer[1]["spec"]["nodeName"] = "node-2"
    assert problems(newer, ONE, result("d0")) == missing
    every = claim("c", request("r", count="All"))
    assert verifier(parts(1), every).everything(0, "r") is None
    assert verifier(newer, every).everything(0, "r") == []
    assert verifier(parts(1, 1), every).everything(0, "r") == [
        DeviceKey("a", "p", "d0"), DeviceKey("a", "p", "d1")
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("devices", "counters"),
    [
        ([device("d0"), device("d0")], None),
        ([device("d0", consumes={"s": {"n": 1}})], [counter_set("s", m=1)]),
        ([device("d0", consumes={"t": {"m": 1}})], [counter_set("s", m=1)]),
        ([device("d0")], [counter_set("s", m=1), counter_set("s", m=2)]),
    ],
)
def test_a_pool_that_contradicts_itself_has_no_devices(devices, counters):
    slices = slices_of(*devices, counters=counters)
    assert problems(slices, ONE, result("d0")) == ["the node has no such device"]


def test_without_partitions_counters_are_not_read():
    slices = slices_of(device("d0", consumes={"s": {"n": 1}}), device("d1"))
    off = frozenset({"DRADeviceTaints"})
    assert problems(slices, ONE, result("d1"), gates=off) == []
    assert problems(slices, ONE, result("d0"), gates=off) == ["partitions are disabled"]
    [apart] = slices_of(device("d0", more={"allNodes": True}))
    apart["spec"]["perDeviceNodeSelection"] = True
    assert problems([apart], ONE, result("d0"), gates=off) == ["the node has no such device"]


@pytest.mark.parametrize(
    ("tolerations", "tolerated"),
    [
        ([], False),
        ([{"operator": "Exists"}], True),
        ([{"key": "k", "operator": "Exists"}], True),
        ([{"key": "l", "operator": "Exists"}], False),
        ([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], True),
        ([{"key": "k", "operator": "Exists", "effect": "NoExecute"}], False),
        ([{"key": "k", "value": "v"}], True),
        ([{"key": "k", "operator": "Equal", "value": "w"}], False),
        ([{"key": "k"}], False),
        ([{"key": "k", "operator": "New", "value": "v"}], False),
        ([{"key": "l"}, {"key": "k", "value": "v"}], True),
    ],
)
def test_taints_have_to_be_tolerated(tolerations, tolerated):
    slices = slices_of(device("d0", taints=[taint("k", value="v")]))
    asked = claim("c", request("r", tolerations=tolerations))
    found = problems(slices, asked, result("d0", tolerations=tolerations))
    assert found == ([] if tolerated else ["taint k is not tolerated"])
    off = frozenset({"DRAPartitionableDevices"})
    assert problems(slices, asked, result("d0", tolerations=tolerations), gates=off) == []
    noted = slices_of(device("d0", taints=[taint("k", "None", "v")]))
    assert problems(noted, asked, result("d0", tolerations=tolerations)) == []


def test_selectors_of_class_and_request_have_to_accept():
    refuses = [{"metadata": {"name": "gpu"}, "spec": {"selectors": [cel("false")]}}]
    accepts = [{"metadata": {"name": "gpu"}, "spec": {"selectors": [cel("true")]}}]
    wrong = ["a selector does not accept it"]
    assert problems(PLAIN, ONE, result("d0"), classes=refuses) == wrong
    assert problems(PLAIN, ONE, result("d0"), classes=accepts) == []
    mine = claim("c", request("r", "gpu", "true", "false"))
    assert problems(PLAIN, mine, result("d0"), classes=accepts) == wrong


def cel(text):
    return {"cel": {"expression": text}}


def test_what_a_result_should_copy_is_copied():
    binding = {"bindingConditions": ["b"], "bindingFailureConditions": ["f"]}
    slices = slices_of(device("d0", more=binding))
    assert problems(slices, ONE, result("d0", **binding)) == []
    assert problems(slices, ONE, result("d0", bindingConditions=["b"])) == [
        "bindingFailureConditions are not copied"
    ]
    off = frozenset({"DRAAdminAccess"})
    assert problems(slices, ONE, result("d0"), gates=off) == ["a selector does not accept it"]
    patient = claim("c", request("r", tolerations=[{"operator": "Exists"}]))
    assert problems(PLAIN, patient, result("d0")) == ["tolerations are not copied"]
    admin = claim("c", request("r", adminAccess=True))
    assert problems(PLAIN, admin, result("d0")) == ["admin access differs from the request"]
    assert problems(PLAIN, admin, result("d0", adminAccess=True)) == []
    assert problems(PLAIN, ONE, result("d0", shareID=SHARE)) == [
        "only shared devices have a share ID"
    ]


# --- several devices --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "complete", "expected"),
    [
        (["d0", "d1"], True, []),
        (["d0"], True, ["1 devices instead of 2"]),
        (["d0"], False, []),
        ([], False, []),
        ([], True, ["0 alternatives are used"]),
        (["d0", "d1", "d2"], False, ["3 devices instead of 2"]),
        (["d0", "d0"], True, ["a device is used twice", "device a/p/d0 is used twice"]),
    ],
)
def test_as_many_devices_as_asked_are_chosen(names, complete, expected):
    slices = slices_of(*(device(f"d{number}") for number in range(3)))
    judge = verifier(slices, claim("c", request("r", count=2)))
    chosen = [DeviceChoice(0, "r", DeviceKey("a", "p", name)) for name in names]
    found = list(judge.problems(chosen, complete=complete))
    assert [text.rpartition(": ")[2] for text in found] == expected


def test_one_alternative_is_used():
    asked = claim("c", first_of("f", a=ask(), b=ask(count=2)), request("r"))
    slices = slices_of(*(device(f"d{number}") for number in range(4)))
    fine = [result("d0", "f/b"), result("d1", "f/b"), result("d2")]
    assert problems(slices, asked, *fine) == []
    mixed = [result("d0", "f/a"), result("d1", "f/b"), result("d2")]
    assert sorted(problems(slices, asked, *mixed)) == [
        "1 devices instead of 2", "2 alternatives are used"
    ]  # fmt: skip


def test_all_means_all_that_would_do():
    every = claim("c", request("r", "gpu", 'device.driver == "a"', count="All"))
    both = [result("d0"), result("d1")]
    assert problems(PLAIN, every, *both) == []
    assert problems(PLAIN, every, both[0]) == ["these are not all devices"]
    far = slices_of(device("x"), node="node-2")
    far[0]["spec"]["pool"]["name"] = "q"
    assert problems([*PLAIN, *far], every, *both) == []
    shared = slices_of(
        device("d0", shared=True, capacity={"m": "4"}),
        device("d1", shared=True, capacity={"m": "8"}),
    )
    some = claim("c", request("r", count="All", capacity={"requests": {"m": "4"}}))
    held = [HeldDevice(DeviceKey("a", "p", "d0"), True, {"m": "1"})]

    def taken(*names):
        return [result(name, shareID=SHARE, consumedCapacity={"m": "4"}) for name in names]

    assert problems(shared, some, *taken("d0", "d1")) == []
    assert problems(shared, some, *taken("d1")) == ["these are not all devices"]
    assert problems(shared, some, *taken("d1"), held=held) == []
    full = [HeldDevice(DeviceKey("a", "p", "d1"), True, {"m": "4"})]
    assert problems(shared, some, *taken("d0", "d1"), held=full) == []
    large = claim("c", request("r", count="All", capacity={"requests": {"m": "5"}}))
    assert verifier(shared, large).everything(0, "r") == [DeviceKey("a", "p", "d1")]
    assert verifier(shared, large).candidates(0, "r") == [DeviceKey("a", "p", "d1")]


def test_a_device_is_held_once_except_by_who_looks_on():
    two = [claim("c", request("r")), claim("d", request("r"))]
    judge = verifier(PLAIN, *two)
    same = [{"devices": {"results": [result("d0")]}}] * 2
    assert judge.violations(same) == ["device a/p/d0 is used twice"]
    looks = claim("e", request("r", adminAccess=True))
    seen = {"devices": {"results": [result("d0", adminAccess=True)]}}
    assert verifier(PLAIN, two[0], looks).violations([same[0], seen]) == []
    assert verifier(PLAIN, looks, two[0]).violations([seen, same[0]]) == [
        "device a/p/d0 is used twice"
    ]
    held = [HeldDevice(DeviceKey("a", "p", "d0"), False, {})]
    assert verifier(PLAIN, looks, held=held).violations([seen]) == []
    assert problems(PLAIN, ONE, result("d0"), held=held) == ["device a/p/d0 is in use already"]
    both = claim("c", request("r"), request("s", adminAccess=True))
    twice = [result("d0"), result("d0", "s", adminAccess=True)]
    assert problems(PLAIN, both, *twice) == [
        "device a/p/d0 is used for admin access by a claim that holds it",
        "device a/p/d0 is used twice",
    ]


def test_a_shared_device_is_held_whole_or_in_parts():
    slices = slices_of(device("d0", shared=True, capacity={"m": "4"}))
    whole = [HeldDevice(DeviceKey("a", "p", "d0"), False, {})]
    part = [HeldDevice(DeviceKey("a", "p", "d0"), True, {"m": "1"})]
    asked = claim("c", request("r", capacity={"requests": {"m": "3"}}))
    taken = result("d0", shareID=SHARE, consumedCapacity={"m": "3"})
    assert problems(slices, asked, taken, held=whole) == ["device a/p/d0 is held whole"]
    assert problems(slices, asked, taken, held=part) == []
    assert problems(slices, asked, taken, held=part * 2) == ["capacity m is overdrawn"]
    off = frozenset({"DRAPartitionableDevices"})
    assert problems(slices, asked, result("d0"), gates=off) == []
    plain = claim("c", request("r"))
    assert problems(slices, plain, result("d0", shareID=SHARE, consumedCapacity={"m": "4"})) == []
    assert problems(slices, plain, taken) == ["consumed capacity differs from the request"]


def test_counters_last_for_all_that_draw_on_them():
    devices = [device("big", consumes={"s": {"m": 3}}), device("d0", consumes={"s": {"m": 1}})]
    devices += [device("d1", consumes={"s": {"m": 2}}), device("free")]
    slices = slices_of(*devices, counters=[counter_set("s", m=3)])
    two = claim("c", request("r", count=2))
    assert problems(slices, two, result("d0"), result("d1")) == []
    assert problems(slices, two, result("d0"), result("big")) == ["counter s/m is overdrawn"]
    held = [HeldDevice(DeviceKey("a", "p", "d0"), False, {})]
    assert problems(slices, ONE, result("d1"), held=held) == []
    assert problems(slices, ONE, result("big"), held=held) == ["counter s/m is overdrawn"]
    over = [HeldDevice(DeviceKey("a", "p", name), False, {}) for name in ("d0", "big")]
    assert problems(slices, ONE, result("free"), held=over) == []
    looks = claim("c", request("r", adminAccess=True))
    assert problems(slices, looks, result("d1", adminAccess=True), held=over) == []


@pytest.mark.parametrize(
    ("groups", "expected"),
    [
        ([["g"], ["g", "h"]], []),
        ([["g"], ["h"]], ["s has incompatible devices"]),
        ([["g"], []], ["s has incompatible devices"]),
        ([[], []], []),
    ],
)
def test_devices_on_one_counter_set_have_a_group_in_common(groups, expected):
    devices = []
    for number, each in enumerate(groups):
        made = device(f"d{number}", consumes={"s": {"m": 1}})
        made["consumesCounters"][0]["compatibilityGroups"] = each
        devices.append(made)
    slices = slices_of(*devices, counters=[counter_set("s", m=9)])
    two = claim("c", request("r", count=2))
    assert problems(slices, two, result("d0"), result("d1")) == expected


@pytest.mark.parametrize(
    ("first", "second", "match", "distinct"),
    [
        ("x", "x", True, False),
        ("x", "y", False, True),
        (1, 1, True, False),
        (1, True, False, True),
        ("1.0.0", {"string": "1.0.0"}, False, True),
        (["x", "y"], ["y", "z"], True, False),
        (["x", "y"], ["z"], False, True),
        (["x"], "x", True, False),
    ],
)
def test_values_are_common_or_distinct(first, second, match, distinct):
    slices = slices_of(device("d0", k=first), device("d1", k=second))
    both = [result("d0"), result("d1")]
    for name in ("a/k",):
        asked = claim("c", request("r", count=2), match=name)
        assert problems(slices, asked, *both) == (
            [] if match else [f"devices do not agree on {name}"]
        )
        asked = claim("c", request("r", count=2), distinct=name)
        assert problems(slices, asked, *both) == (
            [] if distinct else [f"devices share a value of {name}"]
        )


def test_a_constraint_binds_the_requests_that_it_names():
    slices = slices_of(device("d0", k="x"), device("d1", k="y"), device("d2"))

    def asked(*names):
        rule = {"matchAttribute": "a/k", "requests": list(names)}
        return claim("c", request("r"), first_of("f", a=ask(), b=ask()), constraints=[rule])

    chosen = [result("d0"), result("d1", "f/a")]
    apart = ["devices do not agree on a/k"]
    assert problems(slices, asked("r"), *chosen) == []
    assert problems(slices, asked("r", "f"), *chosen) == apart
    assert problems(slices, asked("r", "f/a"), *chosen) == apart
    assert problems(slices, asked("r", "f/b"), *chosen) == []
    lacking = [result("d0"), result("d2", "f/a")]
    assert problems(slices, asked("r"), *lacking) == []
    assert problems(slices, asked(), *lacking) == ["a device lacks attribute a/k"]


def test_attributes_belong_to_a_domain():
    slices = slices_of(device("d0", more={"attributes": {"k": {"int": 1}, "b/k": {"int": 2}}}))
    for name, there in (("a/k", True), ("b/k", True), ("c/k", False), ("a/b", False)):
        found = problems(slices, claim("c", request("r"), match=name), result("d0"))
        assert (found == []) is there
    [made] = slices_of(device("d0", k=["x"]))
    off = frozenset({"DRADeviceTaints"})
    listed = claim("c", request("r"), match="a/k")
    assert problems([made], listed, result("d0"), gates=off) == ["a device lacks attribute a/k"]
    assert problems([made], listed, result("d0")) == []


# --- amounts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "asked", "taken"),
    [
        ({}, None, "9"),
        ({}, "4", "4"),
        ({}, "9", "9"),
        ({}, "10", None),
        ({"default": "2"}, None, "2"),
        ({"validValues": ["2", "6"]}, "3", "6"),
        ({"validValues": ["2", "6"]}, "6", "6"),
        ({"validValues": ["2", "6"]}, "7", None),
        ({"validRange": {"min": "2"}}, "1", "2"),
        ({"validRange": {"min": "2", "max": "5"}}, "5", "5"),
        ({"validRange": {"min": "2", "max": "5"}}, "6", None),
        ({"validRange": {"min": "2", "step": "3"}}, "3", "5"),
        ({"validRange": {"min": "2", "step": "3"}}, "5", "5"),
        ({"validRange": {"min": "2", "max": "6", "step": "3"}}, "6", None),
        ({"validValues": ["12"]}, "3", None),
    ],
)
def test_what_is_taken_is_what_the_policy_says(policy, asked, taken):
    capacity = {"m": {"value": "9", "requestPolicy": policy}}
    slices = slices_of(device("d0", shared=True, capacity=capacity))
    more = {"capacity": {"requests": {"m": asked}}} if asked else {}
    made = claim("c", request("r", **more))

    def judged(amount):
        consumed = {"m": amount} if amount else {}
        return problems(slices, made, result("d0", shareID=SHARE, consumedCapacity=consumed))

    if taken is None:
        assert judged(None) == ["it lacks the capacity"]
    else:
        assert judged(taken) == []
        assert judged("7") == ["consumed capacity differs from the request"]


def test_a_device_that_is_not_shared_has_to_have_the_capacity_alone():
    slices = slices_of(device("d0", capacity={"m": "4"}))
    for wanted, fine in (({"m": "4"}, True), ({"m": "5"}, False), ({"n": "1"}, False)):
        made = claim("c", request("r", capacity={"requests": wanted}))
        assert (problems(slices, made, result("d0")) == []) is fine
