"""Kinds that are held against the tags of their types: one row for each rule."""

import copy

import pytest

from dralab.api.core.declared import DeclaredStrategy, GroupStrategy, WorkloadStrategy
from dralab.api.resource.features import OF_GROUPS, default_of

GROUP = "scheduling.k8s.io"
ALL_ON = default_of("1.37") | {
    "CompositePodGroup", "TopologyAwareWorkloadScheduling", "PodGroupPreemptionPolicy",
}  # fmt: skip
UID = "11111111-2222-3333-4444-555555555555"


def obj(kind, version="v1beta1", group=GROUP, status=None, **spec):
    made = {"apiVersion": f"{group}/{version}", "kind": kind, "spec": spec}
    return made | ({"status": status} if status is not None else {})


def pod_group(**spec):
    return obj("PodGroup", schedulingPolicy={"gang": {"minCount": 2}}, **spec)


def workload(*templates, **spec):
    return obj("Workload", podGroupTemplates=list(templates), **spec)


def template(name="t", least=1, **more):
    return {"name": name, "schedulingPolicy": {"gang": {"minCount": least}}, **more}


def tree(name, *composites, leaves=()):
    return {
        "name": name,
        "schedulingPolicy": {"basic": {}},
        "podGroupTemplates": [template(leaf) for leaf in leaves],
        "compositePodGroupTemplates": list(composites),
    }


def request(**spec):
    target = {"pod": {"name": "p", "uid": UID}}
    whole = {"target": target, "requester": "a.io/b", "intent": "Eviction", **spec}
    return obj("EvictionRequest", "v1alpha1", "lifecycle.k8s.io", **whole)


BAD = {
    "a number that is too small": (
        obj("PodGroup", schedulingPolicy={"gang": {"minCount": -1}}),
        [
            "spec.schedulingPolicy.gang.minCount: Invalid value: -1: must be greater than or equal to 1"
        ],
    ),
    "a number that is too large": (
        pod_group(priority=2_000_000_000),
        ["spec.priority: Invalid value: 2000000000: must be less than or equal to 1000000000"],
    ),
    "no member of a union": (
        obj("PodGroup"),
        ['spec.schedulingPolicy: Invalid value: "": must specify one of: `basic`, `gang`'],
    ),
    "a name that is not one": (
        workload(template("A")),
        ["spec.podGroupTemplates[0].name: Invalid value"],
    ),
    "a list that is too long": (
        pod_group(resourceClaims=[{"name": f"c{i}", "resourceClaimName": "x"} for i in range(5)]),
        ["spec.resourceClaims: Too many: 5: must have at most 4 items"],
    ),
    "two items of one name": (
        workload(template(), template()),
        [
            'spec.podGroupTemplates[1]: Duplicate value: {"name":"t","schedulingPolicy":'
            '{"gang":{"minCount":1}}}'
        ],
    ),
    "a parent without a workload": (
        pod_group(parentCompositePodGroupName="c"),
        ["spec.workloadRef: Required value: must be set when parentCompositePodGroupName is set"],
    ),
    "a word that is not known": (
        request(intent="Go"),
        ['spec.intent: Unsupported value: "Go": supported values: "Eviction", "Withdrawn"'],
    ),
    "a UID that is none": (
        request(target={"pod": {"name": "p", "uid": "x"}}),
        ["must be a lowercase UUID in 8-4-4-4-12 format"],
    ),
    "a field that must be there": (request(requester=""), ["spec.requester: Required value"]),
    "two priorities": (
        workload(template("a", priority=1), template("b")),
        ["spec: Invalid value: null: detected multiple priority configurations"],
    ),
    "a composite without groups": (
        obj("Workload", compositePodGroupTemplates=[tree("c")]),
        ["must have at least one child PodGroupTemplate or CompositePodGroupTemplate"],
    ),
    "a name that is used below": (
        obj("Workload", compositePodGroupTemplates=[tree("c", leaves=["c"])]),
        ['spec.compositePodGroupTemplates[0].podGroupTemplates[0].name: Duplicate value: "c"'],
    ),
    "too many levels": (
        obj(
            "Workload",
            compositePodGroupTemplates=[tree("1", tree("2", tree("3", tree("4", leaves=["5"]))))],
        ),
        ["maximum template hierarchy depth is 4"],
    ),
}


def strategy_of(made, features=ALL_ON):
    kinds = {"Workload": WorkloadStrategy, "PodGroup": GroupStrategy}
    return kinds.get(made["kind"], DeclaredStrategy)(features)


@pytest.mark.parametrize("name", BAD)
def test_what_breaks_a_tag_is_refused(name):
    made, expected = BAD[name]
    found = list(map(str, strategy_of(made).validate(made)))
    assert len(found) == len(expected), found
    assert all(text in each for text, each in zip(expected, found, strict=True)), found


@pytest.mark.parametrize(
    "made",
    [
        pod_group(),
        pod_group(schedulingConstraints={"topology": [{"key": "example.com/rack"}]}),
        pod_group(disruptionMode={"all": {}}, preemptionPolicy="Never"),
        workload(template(), controllerRef={"apiGroup": "batch", "kind": "Job", "name": "j"}),
        obj("Workload", compositePodGroupTemplates=[tree("1", tree("2", leaves=["3"]))]),
        request(),
    ],
)
def test_good_objects_pass(made):
    strategy = strategy_of(made)
    assert strategy.validate(made) == []
    assert strategy.validate_update(made, copy.deepcopy(made)) == []


def changed(made, **spec):
    return {**made, "spec": {**made["spec"], **spec}}


CHANGES = {
    "the number of a gang": (
        pod_group(), {"schedulingPolicy": {"gang": {"minCount": 1}}}, [],
    ),
    "the policy": (
        pod_group(),
        {"schedulingPolicy": {"basic": {}}},
        ["spec.schedulingPolicy.basic: Invalid value: null: field is immutable",
         "spec.schedulingPolicy.gang: Invalid value: null: field cannot be cleared once set"],
    ),
    "the priority": (
        pod_group(priority=1), {"priority": 2},
        ["spec.priority: Invalid value: null: field is immutable"],
    ),
    "another template": (
        workload(template("a")), {"podGroupTemplates": [template("a"), template("b")]},
        ["spec.podGroupTemplates[1]: Forbidden: item may not be added"],
    ),
    "a template less": (
        workload(template("a"), template("b")), {"podGroupTemplates": [template("a")]},
        ["spec.podGroupTemplates: Forbidden: item may not be removed"],
    ),
    "the number of a template": (
        workload(template("a", 1)), {"podGroupTemplates": [template("a", 2)]}, [],
    ),
    "the intent of a request": (request(), {"intent": "Withdrawn"}, []),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_what_may_change(name):
    old, spec, expected = CHANGES[name]
    new = changed(old, **spec)
    assert list(map(str, strategy_of(new).validate_update(new, old))) == expected


def test_what_needs_a_gate_is_forbidden_without():
    made = pod_group(schedulingConstraints={"topology": [{"key": "rack"}]})
    (found,) = strategy_of(made, default_of("1.37")).validate(made)
    assert str(found) == "spec.schedulingConstraints: Forbidden"


def test_a_status_does_not_go_back():
    old = obj("Eviction", "v1alpha1", "lifecycle.k8s.io", status={"observedGeneration": 3})
    new = {**old, "status": {"observedGeneration": 2}}
    (found,) = strategy_of(new).validate_status(new, old)
    assert str(found).endswith("may not be decreased from 3")


def test_groups_of_1_36_are_held_against_its_tags():
    made = obj("PodGroup", "v1alpha2", schedulingPolicy={"gang": {}}, disruptionMode="Always")
    assert list(map(str, strategy_of(made, OF_GROUPS).validate(made))) == [
        "spec.schedulingPolicy.gang.minCount: Required value",
        'spec.disruptionMode: Unsupported value: "Always": supported values: "Pod", "PodGroup"',
    ]


def test_releases_without_tags_are_left_alone():
    made = obj("Workload", "v1alpha1", podGroups=[])
    assert strategy_of(made).validate(made) == []
