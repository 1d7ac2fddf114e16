"""Explanations of classic DRA: named resources, the fake driver's devices, and drivers' own."""

import pytest
import yaml

from dralab.cli._older import reason_of
from dralab.prototypes.generations import GENERATIONS, detected
from dralab.prototypes.placement import PlacedPod

API = "resource.k8s.io/v1alpha2"
FAKE = "fake.resource.3-shake.com"
CLASSIC = GENERATIONS["classic"]


def item(kind, name, version=API, namespace="default", **fields):
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **fields}


def node(name, **labels):
    return item("Node", name, "v1", "") | {"metadata": {"name": name, "labels": labels}}


def device_class(name="gpu", driver="gpu.example.com", **fields):
    return item("ResourceClass", name, namespace="", driverName=driver, **fields)


def named_resources(*models, node="node-a"):
    instances = [
        {"name": f"gpu-{number}", "attributes": [{"name": "model", "string": model}]}
        for number, model in enumerate(models)
    ]
    for number, instance in enumerate(instances):
        instance["attributes"].append({"name": "mem", "quantity": f"{10 * (number + 1)}Gi"})
    fields = {"nodeName": node, "driverName": "gpu.example.com"}
    return item(
        "ResourceSlice", f"{node}-gpus", namespace="", **fields,
        namedResources={"instances": instances},
    )  # fmt: skip


def parameters(*selectors, driver="gpu.example.com"):
    requests = [{"namedResources": {"selector": selector}} for selector in selectors]
    asked = [{"driverName": driver, "requests": requests}]
    return item("ResourceClaimParameters", "asked", driverRequests=asked)


def claim(class_name="gpu", name="c", reference=None, **status):
    spec = {"resourceClassName": class_name} | ({"parametersRef": reference} if reference else {})
    return item("ResourceClaim", name, spec=spec) | ({"status": status} if status else {})


def pod(name="p", claim="c"):
    spec = {
        "containers": [{"name": "c", "resources": {"claims": [{"name": "gpu"}]}}],
        "resourceClaims": [{"name": "gpu", "source": {"resourceClaimName": claim}}],
    }
    return item("Pod", name, "v1", spec=spec)


ASKED = {"apiGroup": "resource.k8s.io", "kind": "ResourceClaimParameters", "name": "asked"}
COUNTED = {"apiGroup": FAKE, "kind": "FakeClaimParameters", "name": "counted"}


def counted(**spec):
    return item("FakeClaimParameters", "counted", f"{FAKE}/v1alpha1", spec=spec)


def state(count=3, status="Ready", **allocated):
    spec = {
        "allocatableDevice": [
            {"fake": {"uuid": f"FAKE-{number}", "name": "LATEST"}} for number in range(count)
        ],
        "allocatedClaims": {
            uid: {"fake": {"devices": [{"uuid": uuid}]}} for uid, uuid in allocated.items()
        },
    }
    version = f"nas.{FAKE}/v1alpha1"
    return item("NodeAllocationState", "node-a", version, "fake-system", spec=spec, status=status)


def cluster(*objects):
    reports = CLASSIC.read_all(objects)
    assert [str(f) for r in reports for f in r.findings if f.level == "invalid"] == []
    return CLASSIC.cluster([report.document for report in reports])


def answer(*objects):
    """The devices of the first pod, or the page that says why it has none."""
    world = cluster(*objects)
    placed = world.place(world.pods()[0])
    if isinstance(placed, PlacedPod):
        return [str(each) for each in placed.devices]
    return reason_of(world, placed).text


def structured(*selectors):
    return answer(
        named_resources("a", "b"), device_class(structuredParameters=True),
        parameters(*selectors), claim(reference=ASKED), pod(),
    )  # fmt: skip


def test_named_resources_are_given_by_selectors():
    assert structured('attributes.string["model"] == "b"') == ["node-a-gpus/gpu-1"]
    assert structured("true", "true") == ["node-a-gpus/gpu-0", "node-a-gpus/gpu-1"]


@pytest.mark.parametrize(
    ("selector", "lines"),
    [
        (
            'attributes.string["model"] == "A"',
            [
                "ResourceClaimParameters default/asked driverRequests[0].requests[0].namedResources",
                "^^^",
                "model: a (1), b (1)",
                "did you mean 'a'?",
            ],
        ),
        ('attributes.string["modelx"] == "a"', ['attribute "modelx"', "did you mean 'model'?"]),
        (
            'attributes.quantity["mem"].isGreaterThan(quantity("50Gi"))',
            ["no gpu has mem > 50Gi", "the largest mem is 20Gi", "node-a/gpu-1"],
        ),
    ],
)
def test_a_selector_that_no_named_resource_meets_is_explained(selector, lines):
    page = structured(selector)
    assert [line for line in lines if line not in page] == []


def test_what_does_not_exist_is_named_with_what_does():
    objects = named_resources("a"), device_class(structuredParameters=True), pod()
    assert 'ResourceClass "gpuu" does not exist; did you mean "gpu"?' in answer(
        *objects, claim("gpuu")
    )
    wrong = ASKED | {"name": "askd"}
    assert 'did you mean "asked"?' in world_reason(
        *objects, parameters("true"), claim(reference=wrong)
    )


def world_reason(*objects):
    world = cluster(*objects)
    return world.place(world.pods()[0]).reason


def fake(*objects):
    return answer(device_class("fake", FAKE), claim("fake", reference=COUNTED), pod(), *objects)


def test_devices_of_the_fake_driver_are_those_of_a_node_that_is_ready():
    assert fake(counted(count=2), state()) == ["node-a/FAKE-0", "node-a/FAKE-1"]
    assert fake(counted(), state(a="FAKE-0")) == ["node-a/FAKE-1"]
    assert "there are no devices: no NodeAllocationState that is Ready" in fake(
        counted(), state(status="NotReady")
    )


@pytest.mark.parametrize(
    ("spec", "lines"),
    [
        (
            {"count": 99},
            [
                "no node has 99 fakes",
                "FakeClaimParameters default/counted spec.count   count: 99",
                "write `count: 3` in FakeClaimParameters default/counted spec",
            ],
        ),
        ({"count": -1}, ["count=-1; spec.count must be 1 or more"]),
        ({"selector": {"model": "LATESTT"}}, ["did you mean 'LATEST'?"]),
    ],
)
def test_a_request_that_the_fake_driver_cannot_serve_is_explained(spec, lines):
    page = fake(counted(**spec), state())
    assert [line for line in lines if line not in page] == []


def test_devices_in_use_are_said_with_the_claim_that_holds_them():
    other = claim("fake", "other", allocation={"shareable": True})
    other["metadata"]["uid"] = "held"
    page = fake(counted(count=3), state(held="FAKE-0"), other)
    assert "wait until claim other ends" in page


def test_a_class_of_the_fake_driver_selects_models_by_pattern():
    chosen = {"apiGroup": FAKE, "kind": "DeviceClassParameters", "name": "old"}
    of_class = device_class("fake", FAKE, parametersRef=chosen)
    patterns = item(
        "DeviceClassParameters", "old", f"{FAKE}/v1alpha1", "",
        spec={"deviceSelector": [{"type": "fake", "name": "OLD-*"}]},
    )  # fmt: skip
    page = answer(of_class, patterns, claim("fake"), pod(), state())
    assert "model: LATEST (3)" in page


def test_of_another_drivers_claim_all_that_is_known_is_said():
    suitable = {"matchExpressions": [{"key": "rack", "operator": "In", "values": ["a"]}]}
    of_class = device_class("own", "x.example", suitableNodes={"nodeSelectorTerms": [suitable]})
    objects = of_class, node("n-0", rack="a"), node("n-1"), claim("own"), pod()
    told = world_reason(*objects)
    assert 'class "own" is of driver "x.example", and only its controller knows' in told
    assert "the class allows 1 of 2 nodes" in told
    assert "the driver was not asked: the pod has no PodSchedulingContext" in told
    refused = {"resourceClaims": [{"name": "gpu", "unsuitableNodes": ["n-0"]}]}
    context = item("PodSchedulingContext", "p", status=refused)
    assert "the driver refuses: n-0" in world_reason(*objects, context)


def test_a_pod_goes_where_its_claim_is():
    selector = {"nodeSelectorTerms": [{"matchFields": [
        {"key": "metadata.name", "operator": "In", "values": ["n-1"]}]}]}  # fmt: skip
    given = claim("own", allocation={"shareable": True, "availableOnNodes": selector})
    of_class = device_class("own", "x.example")
    world = cluster(of_class, node("n-0"), node("n-1"), given, pod())
    assert world.place(world.pods()[0]).node == "n-1"


def test_a_claim_that_is_not_shareable_serves_one_pod():
    user = {"resource": "pods", "name": "first", "uid": "u"}
    given = claim("own", allocation={}, reservedFor=[user])
    told = world_reason(device_class("own", "x.example"), node("n-0"), given, pod())
    assert "is not shareable and used by pod default/first" in told


def test_a_second_pod_does_not_get_the_devices_of_the_first():
    world = cluster(
        device_class("fake", FAKE),
        state(1),
        claim("fake"),
        claim("fake", "d"),
        pod(),
        pod("q", "d"),
    )
    first, second = world.pods()
    world.apply(world.place(first))
    page = reason_of(world, world.place(second)).text
    assert "wait until claim c ends" in page


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("{kind: ResourceClaim, spec: {resourceClass: x}}", 'did you mean "resourceClassName"?'),
        ("{kind: ResourceClas}", '"ResourceClas" is not one of'),
        (
            "{kind: ResourceClaimParameters, driverRequests: [{driverName: d, requests: "
            "[{namedResources: {selector: 'a ='}}]}]}",
            "driverRequests[0].requests[0].namedResources.selector",
        ),
        (
            "{apiVersion: v1, kind: Pod, spec: {containers: [], resourceClaims: [{name: g, source: "
            "{claimName: c}}]}}",
            "spec.resourceClaims[0].source.claimName",
        ),
        (
            "{apiVersion: v1, kind: Pod, spec: {containers: [], resourceClaims: [{name: g, source: "
            "{}}]}}",
            "exactly one of",
        ),
    ],
)
def test_a_mistake_is_told_by_its_field(text, finding):
    written = {"apiVersion": API, "metadata": {"name": "x"}} | yaml.safe_load(text)
    found = [str(each) for each in CLASSIC.read(written).findings if each.level == "invalid"]
    assert any(finding in each for each in found), found


def test_its_kinds_are_told_from_those_of_dra_evolution():
    assert detected([named_resources("a")]) == {"classic"}
    assert detected([state()]) == {"classic"}
    assert detected([item("DeviceClass", "c")]) == {"evolution"}
