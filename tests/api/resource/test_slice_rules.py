"""ResourceSlice: one row for each rule, with the words of a real server."""

import copy

import pytest

from builders import counter_set, device, pool, taint
from dralab.api.resource.features import ALL, DEFAULT_1_36, default_of, with_gates
from dralab.api.resource.rules import default, validate_create, validate_update

NOW = "2026-01-01T00:00:00Z"
FRACTIONAL = with_gates("DRAFractionalCapacityRange=true", release="1.37")
LABEL = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
LONG = "a" * 64
DRAWN = {"counterSet": "c", "counters": {"m": {"value": 1}}}


def slice_(*devices, **more):
    return pool("p", *devices, **more)[0]


def without(made, *names):
    for name in names:
        del made["spec"][name]
    return made


def having(made, **spec):
    made["spec"] |= spec
    return made


def errors(made, features=ALL):
    return [str(item) for item in validate_create(default(made, now=NOW), features)]


def capacity(value, **policy):
    made = {"memory": {"value": value, "requestPolicy": policy}}
    return slice_(device("d", capacity=made, shared=True))


def in_range(value="10", default="2", **bounds):
    return capacity(value, default=default, validRange=bounds)


POLICY = "spec.devices[0].capacity[memory].requestPolicy"
ONE = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required"
ONE_OF_DEVICE = (
    "exactly one of `nodeName`, `nodeSelector`, or `allNodes` is required when "
    "`perDeviceNodeSelection` is set to true in the ResourceSlice spec"
)
HERE = {
    "nodeSelectorTerms": [
        {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    ]
}

GOOD = {
    "devices": slice_(device("d0", model="a", size=1, fast=True, driver="1.2.3")),
    "no devices": slice_(),
    "counters": pool("p", counters=[counter_set("c", m=1)])[1],
    "128 devices": slice_(*(device(f"d{i}") for i in range(128))),
    "64 tainted devices": slice_(*(device(f"d{i}", taints=[taint("k")]) for i in range(64))),
    "a pool of several parts": pool("a.example/b", device("d"))[0],
    "capital letters in the driver": having(slice_(), driver="GPU.example.com"),
    "per-device nodes": having(
        without(slice_(device("d", more={"nodeName": "n"})), "nodeName"),
        perDeviceNodeSelection=True,
    ),
    "a node selector": having(without(slice_(), "nodeName"), nodeSelector=HERE),
    "valid values": capacity("10", default="2", validValues=["1", "2", "10"]),
    "a range": in_range(min="2", max="8", step="2"),
    "a default alone": capacity("10", default="2"),
    "a fractional range": in_range(value="1", default="500m", min="250m", step="250m"),
    "binding": slice_(
        device("d", more={"bindingConditions": ["a"], "bindingFailureConditions": ["b"]})
    ),
    "an unsorted taint": slice_(device("d", taints=[taint("k", "None")])),
    "skipped operations": having(
        slice_(), skipNodeOperations=["NodePrepareResources", "NodeUnprepareResources"]
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_a_good_slice_is_accepted(name):
    assert errors(GOOD[name]) == []


BAD = {
    "no driver": (having(slice_(), driver=""), ["spec.driver: Required value"]),
    "a long driver": (
        having(slice_(), driver=f"{LONG}.com"),
        ["spec.driver: Too long: may not be more than 63 bytes"],
    ),
    "no pool name": (
        having(slice_(), pool={"resourceSliceCount": 1}),
        ["spec.pool.name: Required value"],
    ),
    "no slices and a negative generation": (
        having(slice_(), pool={"name": "p", "generation": -1}),
        [
            "spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero",
            "spec.pool.generation: Invalid value: -1: must be greater than or equal to zero",
        ],
    ),
    "no node": (without(slice_(), "nodeName"), [f"spec: Required value: {ONE}"]),
    "two ways to choose nodes": (
        having(slice_(), allNodes=True),
        [
            'spec: Invalid value: "{`nodeName`, `allNodes`}": '
            f"{ONE}, but multiple fields are set"
        ],
    ),
    "an empty node name": (
        having(slice_(), nodeName=""),
        [
            'spec.nodeName: Invalid value: "": must be either unset or set to a non-empty string',
            f"spec: Required value: {ONE}",
        ],
    ),
    "all nodes false": (
        having(slice_(), allNodes=False),
        ["spec.allNodes: Invalid value: false: must be either unset or set to true"],
    ),
    "a selector of two terms": (
        having(without(slice_(), "nodeName"), nodeSelector={"nodeSelectorTerms": [{}, {}]}),
        [
            "spec.nodeSelector.nodeSelectorTerms: Invalid value: "
            '[{"MatchExpressions":null,"MatchFields":null},'
            '{"MatchExpressions":null,"MatchFields":null}]: '
            "must have exactly one node selector term"
        ],
    ),
    "devices beside counters": (
        having(slice_(device("d")), sharedCounters=[counter_set("c", m=1)]),
        ['spec: Invalid value: "": only one of `sharedCounters` or `devices` is allowed'],
    ),
    "129 devices": (
        slice_(*(device(f"D{i}") for i in range(129))),
        ["spec.devices: Too many: 129: must have at most 128 items"],
    ),
    "65 devices, one tainted": (
        slice_(*(device(f"d{i}") for i in range(64)), device("x", taints=[taint("k")])),
        ["spec.devices: Too many: 65: must have at most 64 items"],
    ),
    "65 devices, one with a list": (
        slice_(*(device(f"d{i}") for i in range(64)), device("x", sizes=[1])),
        ["spec.devices: Too many: 65: must have at most 64 items"],
    ),
    "65 devices, one draws counters": (
        slice_(*(device(f"d{i}") for i in range(64)), device("x", consumes={"c": {"m": 1}})),
        ["spec.devices: Too many: 65: must have at most 64 items"],
    ),
    "a device twice": (
        slice_(device("d"), device("d")),
        ['spec.devices[1]: Duplicate value: "d"'],
    ),
    "a bad device name": (
        slice_(device("D_0")),
        [f'spec.devices[0].name: Invalid value: "D_0": {LABEL}'],
    ),
    "an attribute with two values": (
        slice_(device("d", more={"attributes": {"a": {"int": 1, "bool": True}}})),
        [
            'spec.devices[0].attributes[a]: Invalid value: {"IntValue":1,"BoolValue":true,'
            '"StringValue":null,"VersionValue":null,"IntValues":null,"BoolValues":null,'
            '"StringValues":null,"VersionValues":null}: exactly one value must be specified'
        ],
    ),
    "an attribute without value": (
        slice_(device("d", more={"attributes": {"a": {}}})),
        ['spec.devices[0].attributes[a]: Invalid value: "": exactly one value must be specified'],
    ),
    "a long text": (
        slice_(device("d", a="ä" * 33)),
        ["spec.devices[0].attributes[a].string: Too long: may not be more than 64 bytes"],
    ),
    "a bad version": (
        slice_(device("d", a={"version": "1.2"})),
        [
            'spec.devices[0].attributes[a].version: Invalid value: "1.2": '
            "must be a string compatible with semver.org spec 2.0.0"
        ],
    ),
    "a bad version in a list": (
        slice_(device("d", a={"versions": ["1.2.3", "v1"]})),
        [
            'spec.devices[0].attributes[a].versions[1]: Invalid value: "v1": '
            "must be a string compatible with semver.org spec 2.0.0"
        ],
    ),
    "an attribute with two slashes": (
        slice_(device("d", **{"a/b/c": 1})),
        [
            'spec.devices[0].attributes: Invalid value: "a/b/c": '
            "must not contain more than one slash"
        ],
    ),
    "an attribute without domain": (
        slice_(device("d", **{"/a": 1})),
        ['spec.devices[0].attributes: Invalid value: "": the domain must not be empty'],
    ),
    "a long identifier": (
        slice_(device("d", **{"a" * 33: 1})),
        ["spec.devices[0].attributes: Too long: may not be more than 32 bytes"],
    ),
    "33 attributes and capacities": (
        slice_(device("d", capacity={"c": "1"}, **{f"a{i}": i for i in range(32)})),
        [
            "spec.devices[0]: Invalid value: 33: "
            "the total number of attributes and capacities must not exceed 32"
        ],
    ),
    "49 values": (
        slice_(device("d", a=list(range(47)), b=1, c=True)),
        [
            "spec.devices[0]: Invalid value: 49: "
            "the total number of attribute values must not exceed 48"
        ],
    ),
    "a policy of an exclusive device": (
        slice_(device("d", capacity={"m": {"value": "1", "requestPolicy": {"default": "1"}}})),
        [
            "spec.devices[0].capacity[m].requestPolicy: Forbidden: "
            "allowMultipleAllocations must be true"
        ],
    ),
    "two policies": (
        capacity("10", default="2", validValues=["2"], validRange={"min": "1"}),
        [
            f"{POLICY}: Forbidden: exactly one policy can be specified, "
            'cannot specify "validValues" and "validRange" at the same time'
        ],
    ),
    "values without default": (
        capacity("10", validValues=["2"]),
        [f"{POLICY}.default: Required value: required when validValues is defined"],
    ),
    "values out of order, too large, without the default": (
        capacity("10", default="3", validValues=["4", "2", "11"]),
        [
            f'{POLICY}.validValues[1]: Invalid value: "2": values must be sorted in ascending order',
            f'{POLICY}.validValues[2]: Invalid value: "11": '
            "option is larger than capacity value: 10",
            f'{POLICY}.validValues: Invalid value: "3": '
            "default value is not valid according to the requestPolicy",
        ],
    ),
    "a value twice": (
        capacity("10", default="2", validValues=["2", "2000m"]),
        [f'{POLICY}.validValues[1]: Duplicate value: "2"'],
    ),
    "eleven values": (
        capacity("99", default="0", validValues=[str(i) for i in range(11)]),
        [
            f"{POLICY}.validValues: Too many: 11: must have at most 10 items",
            f'{POLICY}.validValues: Invalid value: "0": '
            "default value is not valid according to the requestPolicy",
        ],
    ),
    "a range without default": (
        capacity("10", validRange={"min": "1"}),
        [f"{POLICY}.default: Required value: required when validRange is defined"],
    ),
    "a range without least": (
        in_range(max="2"),
        [f"{POLICY}.validRange.min: Required value: required when validRange is defined"],
    ),
    "a range beyond the capacity": (
        in_range(default="20", min="11", max="30"),
        [
            f'{POLICY}.validRange.min: Invalid value: "11": min is larger than capacity value: 10',
            f'{POLICY}.validRange.max: Invalid value: "30": max is larger than capacity value: 10',
        ],
    ),
    "a range upside down": (
        in_range(default="3", min="4", max="2"),
        [
            f'{POLICY}.validRange.default: Invalid value: "3": default is less than min: 4',
            f'{POLICY}.validRange.max: Invalid value: "4": min is larger than max: 2',
            f'{POLICY}.validRange.default: Invalid value: "3": default is more than max: 2',
        ],
    ),
    "a step that misses default and most": (
        in_range(default="3", min="2", max="9", step="4"),
        [
            f'{POLICY}.validRange.step: Invalid value: "3": '
            "value is not a multiple of a given step (4) from (2)",
            f'{POLICY}.validRange.step: Invalid value: "9": '
            "value is not a multiple of a given step (4) from (2)",
        ],
    ),
    "a step of nothing": (
        in_range(min="2", step="0"),
        [f'{POLICY}.validRange.step: Invalid value: "0": must be greater than zero'],
    ),
    "a step beyond the capacity": (
        in_range(min="2", step="9"),
        [
            f'{POLICY}.validRange.step: Invalid value: "9": '
            "one step 11 is larger than capacity value: 10"
        ],
    ),
    "a fraction finer than a thousandth": (
        in_range(min="1u", step="1"),
        [
            f'{POLICY}.validRange.min: Invalid value: "1u": '
            "value cannot be represented as a milli value"
        ],
    ),
    "17 taints": (
        slice_(device("d", taints=[taint(f"k{i}") for i in range(17)])),
        ["spec.devices[0].taints: Too many: 17: must have at most 16 items"],
    ),
    "a taint without effect": (
        slice_(device("d", taints=[{"key": "k"}])),
        ["spec.devices[0].taints[0].effect: Required value"],
    ),
    "an unknown effect": (
        slice_(device("d", taints=[taint("k", "Never")])),
        [
            'spec.devices[0].taints[0].effect: Unsupported value: "Never": '
            'supported values: "NoExecute", "NoSchedule", "None"'
        ],
    ),
    "three counter sets for a device": (
        slice_(device("d", consumes={f"c{i}": {"m": 1} for i in range(3)})),
        ["spec.devices[0].consumesCounters: Too many: 3: must have at most 2 items"],
    ),
    "a counter set twice": (
        slice_(
            device("d", more={"consumesCounters": [DRAWN] * 2})
        ),
        ['spec.devices[0].consumesCounters[1]: Duplicate value: "c"'],
    ),
    "three compatibility groups": (
        slice_(device("d", more={"consumesCounters": [{**DRAWN, "compatibilityGroups": [*"abc"]}]})),
        [
            "spec.devices[0].consumesCounters[0].compatibilityGroups: Too many: 3: must have at "
            "most 2 items"
        ],
    ),
    "a compatibility group that is not a label": (
        slice_(device("d", more={"consumesCounters": [{**DRAWN, "compatibilityGroups": ["M"]}]})),
        [
            'spec.devices[0].consumesCounters[0].compatibilityGroups[0]: Invalid value: "M": '
            + LABEL
        ],
    ),
    "nothing consumed": (
        slice_(device("d", more={"consumesCounters": [{}]})),
        [
            "spec.devices[0].consumesCounters[0].counterSet: Required value",
            "spec.devices[0].consumesCounters[0].counters: Required value",
        ],
    ),
    "nine counter sets": (
        pool("p", counters=[counter_set(f"c{i}", m=1) for i in range(9)])[1],
        ["spec.sharedCounters: Too many: 9: must have at most 8 items"],
    ),
    "33 counters": (
        pool("p", counters=[counter_set("c", **{f"m{i}": 1 for i in range(33)})])[1],
        ["spec.sharedCounters[0].counters: Too many: 33: must have at most 32 items"],
    ),
    "a nameless counter set": (
        pool("p", counters=[{"counters": {}}])[1],
        [
            "spec.sharedCounters[0].name: Required value",
            "spec.sharedCounters[0].counters: Required value",
        ],
    ),
    "a counter set that is there": (
        pool("p", counters=[counter_set("c", m=1), counter_set("c", m=2)])[1],
        ['spec.sharedCounters[1]: Duplicate value: "c"'],
    ),
    "a device that selects nodes by itself": (
        slice_(device("d", more={"nodeName": "n"})),
        [
            "spec.devices[0]: Invalid value: null: `nodeName`, `nodeSelector` and `allNodes` can "
            "only be set if `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        ],
    ),
    "a device that must select nodes": (
        having(without(slice_(device("d")), "nodeName"), perDeviceNodeSelection=True),
        [f"spec.devices[0]: Required value: {ONE_OF_DEVICE}"],
    ),
    "a device that selects nodes twice": (
        having(
            without(slice_(device("d", more={"nodeName": "n", "allNodes": True})), "nodeName"),
            perDeviceNodeSelection=True,
        ),
        [f'spec.devices[0]: Invalid value: "{{`nodeName`, `allNodes`}}": {ONE_OF_DEVICE}'],
    ),
    "binding without failure": (
        slice_(device("d", more={"bindingConditions": ["a"]})),
        [
            "spec.devices[0].bindingFailureConditions: Invalid value: null: "
            "bindingFailureConditions are required to use bindingConditions"
        ],
    ),
    "failure without binding": (
        slice_(device("d", more={"bindingFailureConditions": ["a"]})),
        [
            "spec.devices[0].bindingConditions: Invalid value: null: "
            "bindingConditions are required to use bindingFailureConditions"
        ],
    ),
    "overlapping and repeated conditions": (
        slice_(
            device("d", more={"bindingConditions": ["a", "a"], "bindingFailureConditions": ["a"]})
        ),
        [
            'spec.devices[0].bindingConditions[1]: Duplicate value: "a"',
            'spec.devices[0].bindingFailureConditions[0]: Invalid value: "a": '
            "bindingFailureConditions must not overlap with bindingConditions",
        ],
    ),
    "five conditions": (
        slice_(
            device(
                "d",
                more={
                    "bindingConditions": [f"a{i}" for i in range(5)],
                    "bindingFailureConditions": ["b"],
                },
            )
        ),
        ["spec.devices[0].bindingConditions: Too many: 5: must have at most 4 items"],
    ),
    "prepare skipped alone": (
        having(slice_(), skipNodeOperations=["NodePrepareResources"]),
        [
            'spec.skipNodeOperations: Invalid value: ["NodePrepareResources"]: '
            "NodePrepareResources cannot be skipped unless NodeUnprepareResources is also skipped"
        ],
    ),
    "an unknown operation": (
        having(slice_(), skipNodeOperations=["Sleep", "Sleep"]),
        [
            'spec.skipNodeOperations[0]: Unsupported value: "Sleep": '
            'supported values: "*", "NodePrepareResources", "NodeUnprepareResources"',
            'spec.skipNodeOperations[1]: Unsupported value: "Sleep": '
            'supported values: "*", "NodePrepareResources", "NodeUnprepareResources"',
            'spec.skipNodeOperations[1]: Duplicate value: "Sleep"',
        ],
    ),
    "a type of partitions without partitions": (
        having(slice_(device("d")), partitionTypeAttribute="gpu.example.com/profile"),
        [
            'spec.partitionTypeAttribute: Invalid value: "gpu.example.com/profile": '
            "may only be set on a slice which declares devices that consume counters"
        ],
    ),
    "a partition without type": (
        having(
            slice_(
                device("d", consumes={"c": {"m": 1}}), device("e", consumes={"c": {"m": 1}}, profile=1)
            ),
            partitionTypeAttribute="gpu.example.com/profile",
        ),
        [
            "spec.devices[0].attributes[gpu.example.com/profile]: Required value: device consumes "
            "counters and `partitionTypeAttribute` names this attribute, so it must be set",
            'spec.devices[1].attributes[gpu.example.com/profile]: Invalid value: {"IntValue":1,'
            '"BoolValue":null,"StringValue":null,"VersionValue":null,"IntValues":null,'
            '"BoolValues":null,"StringValues":null,"VersionValues":null}: must be a string value '
            "because `partitionTypeAttribute` names this attribute",
        ],
    ),
    "partitions of one type and two costs": (
        having(
            slice_(
                device("d", consumes={"c": {"m": 1}}, profile="a"),
                device("e", consumes={"c": {"m": 2}}, profile="a"),
            ),
            partitionTypeAttribute="gpu.example.com/profile",
        ),
        [
            'spec.devices[1].consumesCounters: Invalid value: "a": '
            "devices of partition type 'a' must consume the same counters"
        ],
    ),
    "a resource that nodes do not allocate": (
        slice_(device("d", more={"nodeAllocatableResources": {"gpus": {}}})),
        [
            'spec.devices[0].nodeAllocatableResources[gpus]: Invalid value: "gpus": '
            "must be a node allocatable resource name",
            "spec.devices[0].nodeAllocatableResources[gpus]: Required value: "
            "at least one of mapping or overhead must be set",
        ],
    ),
    "a mapping of what is not there": (
        slice_(
            device(
                "d",
                more={
                    "nodeAllocatableResources": {
                        "cpu": {
                            "mapping": {"capacityKey": "cores", "deviceMultiplier": "0"},
                            "overhead": {"perPod": "-1"},
                        }
                    }
                },
            )
        ),
        [
            "spec.devices[0].nodeAllocatableResources[cpu].mapping.capacityKey: "
            'Not found: "cores"',
            "spec.devices[0].nodeAllocatableResources[cpu].mapping.capacityMultiplier: "
            "Required value: capacityMultiplier is required when capacityKey is set",
            "spec.devices[0].nodeAllocatableResources[cpu].mapping.deviceMultiplier: "
            'Invalid value: "0": must be positive',
            "spec.devices[0].nodeAllocatableResources[cpu].overhead.perPod: "
            'Invalid value: "-1": must be non-negative',
        ],
    ),
    "a mapping of 1.36 of what is not there": (
        slice_(
            device(
                "d",
                more={
                    "nodeAllocatableResourceMappings": {
                        "cpu": {"capacityKey": "cores", "allocationMultiplier": "0"},
                        "gpus": {},
                    }
                },
            )
        ),
        [
            "spec.devices[0].nodeAllocatableResourceMappings[cpu].capacityKey: "
            'Not found: "cores"',
            "spec.devices[0].nodeAllocatableResourceMappings[cpu].allocationMultiplier: "
            'Invalid value: "0": must be positive',
            'spec.devices[0].nodeAllocatableResourceMappings[gpus]: Invalid value: "gpus": '
            "must be a node allocatable resource name",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_slice_is_refused_in_the_words_of_a_server(name):
    made, expected = BAD[name]
    assert errors(made) == expected


def test_without_fractional_ranges_bounds_are_rounded_up_to_integers():
    made = in_range(value="1", default="500m", min="250m", step="250m")
    assert errors(made, DEFAULT_1_36) == []
    assert errors(in_range(default="2500m", min="1", step="1"), DEFAULT_1_36) == []
    (error,) = errors(in_range(default="2500m", min="1", step="1"), FRACTIONAL)
    assert error.endswith("value is not a multiple of a given step (1) from (1)")


@pytest.mark.parametrize(
    ("change", "path"),
    [
        ({"driver": "other.example.com"}, "driver"),
        ({"nodeName": "node-2"}, "nodeName"),
        ({"pool": {"name": "q", "generation": 1, "resourceSliceCount": 1}}, "pool.name"),
    ],
)
def test_what_names_a_slice_stays(change, path):
    old = default(slice_(), now=NOW)
    new = having(copy.deepcopy(old), **change)
    (error,) = validate_update(new, old)
    assert str(error).startswith(f"spec.{path}: Invalid value: ")
    assert error.detail == "field is immutable"


def test_a_taint_that_was_stored_stays_valid():
    old = slice_(device("d", taints=[taint("k", "FromTheFuture")]))
    new = having(copy.deepcopy(old), pool={"name": "p", "generation": 2, "resourceSliceCount": 1})
    assert errors(new)
    assert validate_update(new, old) == []


def test_a_type_of_partitions_needs_its_feature():
    made = having(slice_(device("d")), partitionTypeAttribute="a/b")
    assert errors(made, default_of("1.37")) == ["spec.partitionTypeAttribute: Forbidden"]
