"""Whatever is written, there is an answer: a list of errors, never a crash."""

import copy
import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from builders import (
    ask,
    claim,
    counter_set,
    device,
    device_class,
    first_of,
    obj,
    pool,
    request,
    taint,
)
from dralab.allocation.cel_compiler import compiled
from dralab.api.manifests import ManifestProblem, Manifests, load, objects_of
from dralab.api.resource.features import ALL
from dralab.api.resource.files import ResourceCheck, add_pool_problems
from dralab.api.resource.rules import (
    convert,
    default,
    default_update,
    errors_in,
    problems,
    validate_create,
    validate_update,
    without_disabled,
)
from dralab.api.resource.types import KINDS

NOW = "2026-01-01T00:00:00Z"
RESULT = {"request": "r", "driver": "d", "pool": "p", "device": "x", "tolerations": [{"key": "k"}]}
STATUS = {
    "allocation": {"devices": {"results": [RESULT], "config": [{"source": "FromClass"}]}},
    "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    "devices": [{"driver": "d", "pool": "p", "device": "x", "conditions": [{}], "data": {}}],
}
RANGE = {"default": "1", "validRange": {"min": "1", "max": "4", "step": "1"}}
NODES = {
    "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]}]
}
SEEDS = [
    *pool(
        "p",
        device("d0", model="a", sizes=[1, 2], consumes={"s": {"m": 1}}, taints=[taint("k")]),
        device("d1", shared=True, capacity={"m": {"value": "4", "requestPolicy": RANGE}}),
        device("d2", more={
            "nodeAllocatableResources": {"cpu": {"mapping": {"deviceMultiplier": "1"}, "overhead": {"perPod": "1"}}},
            "bindingConditions": ["a"], "bindingFailureConditions": ["b"], "nodeSelector": NODES,
        }),
        counters=[counter_set("s", m=4)],
        skipNodeOperations=["*"], partitionTypeAttribute="gpu.example.com/model",
    ),
    claim(
        "c",
        request("r", "gpu", "true", tolerations=[{"key": "k"}], capacity={"requests": {"m": "1"}},
                derivedAttributes=[{"name": "a", "expression": "1"}], adminAccess=True),
        first_of("s", a=ask(), b=ask(count="All")),
        match="d/a", config=[{"opaque": {"driver": "d", "parameters": {"a": 1}}}], status=STATUS,
    ),
    device_class("gpu", "true", extendedResourceName="example.com/gpu"),
    obj("ResourceClaimTemplate", "t", spec={"metadata": {"labels": {"a": "b"}}, "spec": claim("c", request("r"))["spec"]}),
    obj("DeviceTaintRule", "r", spec={"deviceSelector": {"driver": "d"}, "taint": taint("k")}, status={"conditions": [{}]}),
    obj("ResourcePoolStatusRequest", "q", api="resource.k8s.io/v1alpha3", spec={"driver": "d", "limit": 3},
        status={"poolCount": 1, "pools": [{"driver": "d", "poolName": "p", "generation": 1}]}),
]  # fmt: skip
ODD = st.one_of(
    st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(allow_nan=False),
    st.text(max_size=5), st.sampled_from(["", "1e400", "-1", "9999999999999999999", "1n", "[", "a/b/c", "\x00", "ü" * 100]),
    st.lists(st.none(), max_size=2), st.just({}), st.dictionaries(st.text(max_size=3), st.none(), max_size=2),
)  # fmt: skip


def paths(value, path=()):
    yield path
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in items:
        yield from paths(item, (*path, key))


@st.composite
def damaged(draw):
    """A good object of some version in which a few values were replaced by odd ones."""
    made = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    made = convert(made, draw(st.sampled_from(KINDS[made["kind"]])))
    for _ in range(draw(st.integers(1, 3))):
        path = draw(
            st.sampled_from(
                [path for path in paths(made) if path and path[0] in {"spec", "status"}]
            )
        )
        holder = made
        for step in path[:-1]:
            holder = holder[step]
        holder[path[-1]] = draw(ODD)
    return made


@pytest.mark.thorough
@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(damaged())
def test_a_damaged_object_gets_errors_and_no_crash(made):
    _, version = made["apiVersion"].split("/")
    kind = made["kind"]
    found = problems(version, kind, made)
    assert all(str(item) for item in found)
    if not found:
        hub = without_disabled(default(convert(made, KINDS[kind][0]), now=NOW), ALL)
        errors = validate_create(hub, ALL, compiled)
        errors += validate_update(hub, default_update(hub, hub, now=NOW), "", ALL, compiled)
        if kind in {"ResourceClaim", "DeviceTaintRule", "ResourcePoolStatusRequest"}:
            errors += validate_update(hub, hub | {"status": {}}, "status", ALL)
        assert all(str(item) for item in errors_in(version, kind, errors))
        assert json.dumps(hub)


@pytest.mark.thorough
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(damaged(), min_size=1, max_size=4))
def test_files_of_damaged_objects_are_told_and_never_crash(made):
    text = json.dumps({"kind": "List", "apiVersion": "v1", "items": made}).encode()
    found = load(["-"], [ResourceCheck(now=NOW, expressions=compiled)], stdin=lambda: text)
    add_pool_problems(found)
    assert len(found.objects) <= len(made)


@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.one_of(
        st.binary(max_size=60),
        st.text(alphabet="ab:-[]{}&*!|>'\"#\n \t,?%@0", max_size=60).map(str.encode),
    )
)
def test_any_bytes_are_read_or_told(content):
    found = list(objects_of("x.yaml", content))
    for item in found:
        assert str(item) if isinstance(item, ManifestProblem) else isinstance(item.object, dict)
    load(["-"], stdin=lambda: content)
    assert isinstance(load([]), Manifests)
