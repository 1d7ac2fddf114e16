"""What a real server adds to an object, and how it writes it."""

import json

import pytest

from builders import SHARED, claim, device, first_of, obj, pool, request, taint
from dralab.api.resource.rules import convert, default, default_update, hub_version
from dralab.api.resource.types import KINDS

NOW = "2026-01-01T00:00:00Z"
RECORDED = SHARED / "testdata" / "apiserver" / "defaults.json"


def exact(of):
    return of["spec"]["devices"]["requests"][0]["exactly"]


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"allocationMode": "ExactCount", "count": 1}),
        ({"count": 3}, {"allocationMode": "ExactCount", "count": 3}),
        ({"allocationMode": "ExactCount", "count": 0}, {"count": 1}),
        ({"allocationMode": "All"}, {"allocationMode": "All", "count": None}),
        ({"allocationMode": ""}, {"allocationMode": "ExactCount"}),
    ],
)
def test_a_request_without_mode_or_count_asks_for_one_device(given, expected):
    found = exact(
        default(claim("c", {"name": "r", "exactly": {"deviceClassName": "gpu"} | given}), now=NOW)
    )
    assert {name: found.get(name) for name in expected} == expected


def test_alternatives_get_the_same_defaults():
    made = default(claim("c", first_of("r", a={"deviceClassName": "gpu"})), now=NOW)
    (request,) = made["spec"]["devices"]["requests"]
    assert request["firstAvailable"] == [
        {"name": "a", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
    ]


def test_a_toleration_without_operator_compares_for_equality():
    asked = {"deviceClassName": "gpu", "tolerations": [{"key": "k", "effect": "NoSchedule"}]}
    made = default(claim("c", {"name": "r", "exactly": asked}), now=NOW)
    assert exact(made)["tolerations"] == [{"key": "k", "operator": "Equal", "effect": "NoSchedule"}]


def test_a_taint_without_time_was_added_now():
    (made,) = pool("p", device("d", taints=[taint("k"), taint("l") | {"timeAdded": "x"}]))
    taints = default(made, now=NOW)["spec"]["devices"][0]["taints"]
    assert [item["timeAdded"] for item in taints] == [NOW, "x"]


@pytest.mark.parametrize(
    ("effect", "given", "expected"),
    [
        ("NoExecute", "2025-01-01T00:00:00Z", NOW),
        ("NoExecute", "2025-06-06T00:00:00Z", "2025-06-06T00:00:00Z"),
        ("NoSchedule", "2025-01-01T00:00:00Z", "2025-01-01T00:00:00Z"),
    ],
)
def test_a_rule_whose_effect_changes_tells_when(effect, given, expected):
    def rule(effect, time):
        return obj("DeviceTaintRule", "r", spec={"taint": taint("k", effect) | {"timeAdded": time}})

    old = rule("NoSchedule", "2025-01-01T00:00:00Z")
    new = default_update(rule(effect, given), old, now=NOW)
    assert new["spec"]["taint"]["timeAdded"] == expected


@pytest.mark.parametrize(
    ("before", "after", "told", "kept"),
    [
        (["a", "b"], [], ["a", "b"], None),
        (["a", "b"], ["b"], ["a", "b"], ["b"]),
        (["a"], ["a"], ["a"], ["a"]),
        # Never allocated: for validation to refuse.
        (["a"], [], ["a", "z"], ["z"]),
        ([], [], ["z"], ["z"]),
        # The same device, another share of it.
        (["a/1", "a/2"], ["a/2"], ["a/1", "a/2"], ["a/2"]),
    ],
)
def test_what_is_told_of_a_device_goes_with_the_device(before, after, told, kept):
    def entries(names):
        parts = [name.partition("/") for name in names]
        found = [{"driver": "d", "pool": "p", "device": name} for name, _, _ in parts]
        shares = [{"shareID": share} if share else {} for _, _, share in parts]
        return [entry | share for entry, share in zip(found, shares, strict=True)]

    def status(names):
        results = [{"request": "r"} | entry for entry in entries(names)]
        return {"allocation": {"devices": {"results": results}}} if names else {}

    old = claim("c", request("r", count=2), status=status(before))
    new = claim("c", request("r", count=2), status=status(after) | {"devices": entries(told)})
    found = default_update(new, old, now=NOW)["status"].get("devices")
    assert found == (entries(kept) if kept else None)


def test_a_pool_status_request_asks_for_a_hundred_pools():
    made = obj("ResourcePoolStatusRequest", "q", spec={"driver": "d"})
    assert default(made, now=NOW)["spec"] == {"driver": "d", "limit": 100}


def test_quantities_are_stored_in_their_canonical_form():
    (made,) = pool("p", device("d", capacity={"memory": "1024Mi", "cores": 1.5}))
    capacity = default(made, now=NOW)["spec"]["devices"][0]["capacity"]
    assert capacity == {"memory": {"value": "1Gi"}, "cores": {"value": "1500m"}}


def test_nulls_and_empty_optional_fields_are_dropped():
    given = claim("c", {"name": "r", "exactly": {"deviceClassName": "g", "selectors": None}})
    given["spec"]["devices"]["constraints"] = []
    made = default(given, now=NOW)
    assert "selectors" not in exact(made)
    assert "constraints" not in made["spec"]["devices"]
    assert made["status"] == {}


def test_defaulting_twice_changes_nothing_more():
    given = claim("c", {"name": "r", "exactly": {"deviceClassName": "g"}})
    once = default(given, now=NOW)
    assert default(once, now="later") == once


@pytest.mark.skipif(not RECORDED.exists(), reason="recorded answers of a real server are not here")
def test_defaults_are_those_of_a_recorded_server():
    cases = [
        case
        for case in json.loads(RECORDED.read_text())["cases"]
        if "/resource.k8s.io/" in case["path"] and case["status"] == 201
    ]
    assert cases
    kinds = {kind.lower().rstrip("s") + "s": kind for kind in KINDS}
    kinds["deviceclasses"] = "DeviceClass"
    for case in cases:
        version, plural = case["path"].split("/")[3], case["path"].split("?")[0].split("/")[-1]
        kind = kinds[plural]
        api = f"resource.k8s.io/{version}"
        given = convert({"apiVersion": api, "kind": kind} | case["body"], hub_version(kind))
        made = convert(default(given, now="TIME"), version)
        answer = {name: part for name, part in case["answer"].items() if name != "metadata"}
        made.pop("metadata")
        assert json.dumps(made, sort_keys=True) == json.dumps(answer, sort_keys=True), case["case"]
