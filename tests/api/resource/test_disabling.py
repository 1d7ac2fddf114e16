"""Fields of features that are off."""

import copy

import pytest

from builders import ask, claim, counter_set, device, device_class, first_of, pool, request, taint
from dralab.api.resource.features import ALL
from dralab.api.resource.rules import without_disabled

CASES = {
    "DRADeviceTaints": (pool("p", device("d", taints=[taint("k")]))[0], "taints"),
    "DRAPartitionableDevices": (
        pool("p", counters=[counter_set("c", m=1)])[1],
        "sharedCounters",
    ),
    "DRAConsumableCapacity": (pool("p", device("d", shared=True))[0], "allowMultipleAllocations"),
    "DRAListTypeAttributes": (pool("p", device("d", sizes=[1, 2]))[0], "ints"),
    "DRAAdminAccess": (claim("c", request("r", adminAccess=True)), "adminAccess"),
    "DRAPrioritizedList": (claim("c", first_of("r", a=ask())), "firstAvailable"),
    "DRAExtendedResource": (
        device_class("c", extendedResourceName="a/b"),
        "extendedResourceName",
    ),
    "DRAOptionalNodeOperations": (pool("p", skipNodeOperations=["*"])[0], "skipNodeOperations"),
    "DRADerivedAttributes": (
        claim("c", request("r", derivedAttributes=[{"name": "a"}])),
        "derivedAttributes",
    ),
    "DRANodeAllocatableResources": (
        pool("p", device("d", more={"nodeAllocatableResourceMappings": {"cpu": {}}}))[0],
        "nodeAllocatableResourceMappings",
    ),
    "DRAResourceClaimDeviceStatus": (
        claim("c", status={"devices": [{"bindingConditions": []}]}),
        "bindingConditions",
    ),
}


@pytest.mark.parametrize("gate", CASES)
def test_a_field_of_a_feature_that_is_off_is_dropped(gate):
    given, field = CASES[gate]
    before = copy.deepcopy(given)
    assert field in str(given)
    assert field not in str(without_disabled(given, ALL - {gate}))
    assert given == before


@pytest.mark.parametrize("gate", CASES)
def test_a_field_that_is_in_use_is_kept(gate):
    given, _ = CASES[gate]
    assert without_disabled(given, ALL - {gate}, given) == given


def test_with_everything_on_nothing_is_copied():
    given, _ = CASES["DRADeviceTaints"]
    assert without_disabled(given, ALL) is given
