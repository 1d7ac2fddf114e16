"""The verifier, the oracle and the generator of problems are tested before they judge others."""

import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings

from builders import (
    SHARED,
    ask,
    claim,
    counter_set,
    device,
    first_of,
    pool,
    request,
    taint,
)
from dralab.allocation.check.verification import DeviceChoice, DeviceKey, HeldDevice, Verifier
from problems import Case, TooBigError, by_cel, cases, of_driver, of_kind, tried

PLAIN = pool(
    "p", device("d0", kind="x", label="l0"), device("d1", kind="y", label="l1"), driver="a"
)
TAINTED = pool("p", device("d0", taints=[taint("k")]), driver="a")
PARTED = pool(
    "p",
    device("big", consumes={"s": {"m": 2}}),
    device("half", consumes={"s": {"m": 1}}),
    driver="a",
    counters=[counter_set("s", m=2)],
)
SLICED = pool("p", device("d0", shared=True, capacity={"mem": "4"}), driver="a")


def result(request, name, **more):
    return {"request": request, "driver": "a", "pool": "p", "device": name} | more


def judged(slices, made, *results, others=()):
    case = Case(claims=[made], slices=slices, others=list(others))
    return case.verifier().violations([{"devices": {"results": list(results)}}])


TWO = claim("c", request("r", count=2))
SHARE = "00000000-0000-4000-8000-000000000001"
WRONG = {
    "a device that is not there": (
        PLAIN, claim("c", request("r")), [result("r", "d9")], "no such device",
    ),
    "a selector that refuses": (
        PLAIN, claim("c", request("r", "gpu", of_kind("x"))), [result("r", "d1")],
        "a selector does not accept it",
    ),
    "too few": (PLAIN, TWO, [result("r", "d0")], "1 devices instead of 2"),
    "none": (PLAIN, TWO, [], "0 alternatives are used"),
    "a device twice": (PLAIN, TWO, [result("r", "d0")] * 2, "a device is used twice"),
    "two alternatives": (
        PLAIN, claim("c", first_of("r", a=ask(), b=ask())),
        [result("r/a", "d0"), result("r/b", "d1")], "2 alternatives are used",
    ),
    "not all": (
        PLAIN, claim("c", request("r", count="All")), [result("r", "d0")],
        "these are not all devices",
    ),
    "a taint": (TAINTED, claim("c", request("r")), [result("r", "d0")], "taint k is not tolerated"),
    "counters": (
        PARTED, TWO, [result("r", "big"), result("r", "half")], "counter s/m is overdrawn",
    ),
    "a value that is not common": (
        PLAIN, claim("c", request("r", count=2), match="a/kind"),
        [result("r", "d0"), result("r", "d1")], "devices do not agree on a/kind",
    ),
    "a value that is not there": (
        PLAIN, claim("c", request("r"), match="a/none"), [result("r", "d0")],
        "a device lacks attribute a/none",
    ),
    "a share that is missing": (
        SLICED, claim("c", request("r")), [result("r", "d0")], "only shared devices have a share ID",
    ),
    "capacity": (
        SLICED, claim("c", request("r", capacity={"requests": {"mem": "5"}})),
        [result("r", "d0", shareID=SHARE, consumedCapacity={"mem": "5"})],
        "it lacks the capacity",
    ),
    "capacity of two": (
        SLICED, claim("c", *(request(n, capacity={"requests": {"mem": "3"}}) for n in "rs")),
        [result(n, "d0", shareID=SHARE, consumedCapacity={"mem": "3"}) for n in "rs"],
        "capacity mem is overdrawn",
    ),
    "another amount": (
        SLICED, claim("c", request("r", capacity={"requests": {"mem": "3"}})),
        [result("r", "d0", shareID=SHARE, consumedCapacity={"mem": "2"})],
        "consumed capacity differs from the request",
    ),
    "admin access unasked": (
        PLAIN, claim("c", request("r")), [result("r", "d0", adminAccess=True)],
        "admin access differs from the request",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_the_verifier_finds_what_is_wrong(name):
    slices, made, results, expected = WRONG[name]
    found = judged(slices, made, *results)
    assert any(expected in text for text in found), found


def test_the_verifier_finds_what_is_in_use():
    other = claim("o", status={"allocation": {"devices": {"results": [result("r", "d0")]}}})
    (text,) = judged(PLAIN, claim("c", request("r")), result("r", "d0"), others=[other])
    assert text == "device a/p/d0 is in use already"


def test_the_verifier_finds_values_that_are_not_distinct():
    same = pool("p", device("d0", kind="x"), device("d1", kind="x"), driver="a")
    made = claim("c", request("r", count=2), distinct="a/kind")
    assert judged(same, made, result("r", "d0"), result("r", "d1")) == [
        "devices share a value of a/kind"
    ]


def test_the_verifier_finds_nothing_wrong_with_what_is_right():
    assert judged(PLAIN, TWO, result("r", "d0"), result("r", "d1")) == []
    made = claim("c", *(request(n, capacity={"requests": {"mem": "2"}}) for n in "rs"))
    shares = [result(n, "d0", shareID=SHARE, consumedCapacity={"mem": "2"}) for n in "rs"]
    assert judged(SLICED, made, *shares) == []


def test_the_oracle_returns_the_first_solution_in_order():
    made = claim("c", request("r", "gpu", of_driver("a")), request("s", "gpu", of_kind("x")))
    found = tried(Case(claims=[made], slices=PLAIN))
    assert found.solution == [
        DeviceChoice(0, "r", DeviceKey("a", "p", "d1")),
        DeviceChoice(0, "s", DeviceKey("a", "p", "d0")),
    ]
    assert found.dead_ends == 1
    assert tried(Case(claims=[made, made], slices=PLAIN)).solution is None


def test_the_oracle_takes_the_first_alternative_that_works():
    made = claim("c", first_of("r", a=ask(count=3), b=ask(count=2)))
    found = tried(Case(claims=[made], slices=PLAIN)).solution
    assert [choice.request for choice in found] == ["r/b", "r/b"]


@pytest.mark.thorough
def test_the_generator_makes_feasible_infeasible_and_backtracking_problems():
    seen: Counter[str] = Counter()

    @seed(20260101)
    @settings(
        max_examples=150, database=None, deadline=None, phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(cases())
    def look(case):
        try:
            found = tried(case, limit=3000)
        except TooBigError:
            seen["too big"] += 1
            return
        text = str(case)
        seen["feasible" if found.solution else "infeasible"] += 1
        seen["feasible after going back"] += bool(found.solution and found.dead_ends)
        for word in ("firstAvailable", "consumesCounters", "distinctAttribute", "matchAttribute",
                     "allowMultipleAllocations", "adminAccess", "ints", "'All'", "taints"):  # fmt: skip
            seen[word] += word in text
        seen["in use"] += bool(case.others)
        seen["two claims"] += len(case.claims) > 1
        seen["a broken pool"] += "'resourceSliceCount': 7" in text

    look()
    assert seen["feasible"] > 20
    assert seen["infeasible"] > 30
    assert seen["feasible after going back"] > 1
    assert seen["too big"] < 10
    assert not [word for word, count in seen.items() if not count and word != "too big"], seen


CASES = SHARED / "cases" / "allocator-cases.json"


@pytest.mark.skipif(not CASES.exists(), reason="the case files are not beside the project")
def test_the_verifier_accepts_what_kubernetes_expects_of_its_own_allocator():
    judged_cases = 0
    for case in json.loads(CASES.read_text()):
        if not case["expectResults"] or case["expectErrorSubstring"]:
            continue
        held = [HeldDevice(_key(item)) for item in case["allocatedDevices"]]
        held += [HeldDevice(_key(item), share=True) for item in case["allocatedSharedDeviceIDs"]]
        held += [
            HeldDevice(_key(item), share=True, consumed=item["consumedCapacity"])
            for item in case["allocatedCapacity"]
        ]
        verifier = Verifier(
            claims=case["claims"],
            classes=case["classes"],
            slices=case["slices"],
            node=case["node"],
            matches=by_cel,
            held=held,
            gates=frozenset(case["features"]),
        )
        expected = [item["allocation"] for item in case["expectResults"]]
        assert verifier.violations(expected) == [], case["name"]
        judged_cases += 1
    assert judged_cases > 50


def _key(item):
    return DeviceKey(item["driver"], item["pool"], item["device"])
