"""v1 is the hub: what goes to another version and back is what it was."""

import copy
import json

import pytest

from builders import SHARED, claim, device, first_of, obj, pool, request
from dralab.api.fields import FieldError
from dralab.api.resource.conversion import ConversionError, convert, errors_in
from dralab.api.resource.structure import problems
from dralab.api.resource.types import KINDS

CASES = SHARED / "cases"


def every_object_of_the_case_files():
    for name in ("allocator-cases", "fuzz-cases", "known-defects"):
        for case in json.loads((CASES / f"{name}.json").read_text()):
            for kind, key in (
                ("ResourceClaim", "claims"),
                ("DeviceClass", "classes"),
                ("ResourceSlice", "slices"),
            ):
                for item in case[key]:
                    yield case["name"], {"apiVersion": "resource.k8s.io/v1", "kind": kind} | item


@pytest.mark.skipif(not CASES.exists(), reason="the case files are not beside the project")
def test_every_object_of_the_cases_survives_a_round_trip():
    seen = 0
    for name, given in every_object_of_the_case_files():
        before = copy.deepcopy(given)
        for version in KINDS[given["kind"]]:
            there = convert(given, version)
            assert convert(there, "v1") == given, (name, version)
            if name not in {"unknown-selector", "no-cel"}:
                shape = problems(version, given["kind"], there)
                assert not shape, (name, version, [str(item) for item in shape])
        assert given == before
        seen += 1
    assert seen > 1000


def test_v1beta1_nests_devices_in_basic():
    (made,) = pool("p", device("d", model="a"), node=None)
    old = convert(made, "v1beta1")
    assert old["spec"]["devices"] == [
        {"name": "d", "basic": {"attributes": {"model": {"string": "a"}}}}
    ]
    assert old["apiVersion"] == "resource.k8s.io/v1beta1"


def test_v1beta1_writes_requests_flat():
    old = convert(claim("c", request("r", "gpu", count=2), first_of("s", a={})), "v1beta1")
    assert old["spec"]["devices"]["requests"] == [
        {"name": "r", "deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 2},
        {"name": "s", "firstAvailable": [{"name": "a"}]},
    ]


def test_any_main_field_of_a_v1beta1_request_makes_it_exact_even_if_that_is_wrong():
    old = claim("c", {"name": "r", "adminAccess": False, "firstAvailable": [{"name": "a"}]})
    new = convert(old | {"apiVersion": "resource.k8s.io/v1beta1"}, "v1")
    assert new["spec"]["devices"]["requests"] == [
        {"name": "r", "exactly": {"adminAccess": False}, "firstAvailable": [{"name": "a"}]}
    ]


def test_an_empty_node_name_of_v1beta1_is_none():
    spec = {"nodeName": "", "allNodes": False, "perDeviceNodeSelection": True}
    old = obj("ResourceSlice", "s", api="resource.k8s.io/v1beta1", spec=spec)
    assert convert(old, "v1")["spec"] == {"perDeviceNodeSelection": True}


def test_templates_are_converted_inside():
    made = obj("ResourceClaimTemplate", "t", spec={"spec": claim("c", request("r"))["spec"]})
    old = convert(made, "v1beta1")
    assert old["spec"]["spec"]["devices"]["requests"][0]["deviceClassName"] == "gpu"
    assert convert(old, "v1") == made


@pytest.mark.parametrize(
    ("kind", "path", "expected"),
    [
        (
            "ResourceClaim",
            "spec.devices.requests[1].exactly.count",
            "spec.devices.requests[1].count",
        ),
        (
            "ResourceClaimTemplate",
            "spec.spec.devices.requests[0].exactly.selectors[2].cel",
            "spec.spec.devices.requests[0].selectors[2].cel",
        ),
        ("ResourceSlice", "spec.devices[3].taints[0]", "spec.devices[3].basic.taints[0]"),
        ("ResourceSlice", "spec.devices[3].name", "spec.devices[3].name"),
        ("ResourceSlice", "spec.devices[3]", "spec.devices[3]"),
    ],
)
def test_errors_are_told_in_the_shape_that_was_written(kind, path, expected):
    error = FieldError("FieldValueInvalid", path, "", "")
    assert [item.field for item in errors_in("v1beta1", kind, [error])] == [expected]
    assert errors_in("v1beta2", kind, [error]) == [error]


def test_a_version_without_the_kind_is_refused():
    with pytest.raises(ConversionError, match="v1alpha3 has no ResourceSlice"):
        convert(obj("ResourceSlice", "s"), "v1alpha3")
