"""Translations keep their meaning: the converted scenario gets the same devices."""

from pathlib import Path

import pytest
import yaml

from dralab.api.resource.files import ResourceCheck
from dralab.prototypes.conversion import expressions, reading
from dralab.prototypes.conversion.neutral import NeutralExpression
from dralab.prototypes.conversion.to_evolution import ToEvolution
from dralab.prototypes.conversion.to_k8srm import ToK8srm
from dralab.prototypes.conversion.to_v1 import ToV1
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import PlacedPod

K4 = Path(__file__).parents[2] / ".." / "shared" / "testdata" / "k8srm-prototype"
needs_data = pytest.mark.skipif(not K4.is_dir(), reason="the shared test data are not here")
TYPES = {"bandwidth": "quantity", "fw": "version", "model": "string", "flag": "bool"}


@pytest.mark.parametrize(
    ("source", "target", "text", "expected"),
    [
        (
            "k8srm",
            "evolution",
            "device.model == 'x'",
            "device.stringAttributes['d.io/model'] == 'x'",
        ),
        (
            "k8srm",
            "evolution",
            "device.bandwidth >= '1G'",
            "device.quantityAttributes['d.io/bandwidth'].compareTo(quantity('1G')) >= 0",
        ),
        (
            "k8srm",
            "v1",
            "device.fw < '1.2.0'",
            "'fw' in device.attributes['d.io'] && device.attributes['d.io'].fw.compareTo(semver('1.2.0')) < 0",
        ),
        ("k8srm", "v1", "has(device.model) && !(device.n > 2)", None),
        (
            "evolution",
            "k8srm",
            "device.stringAttributes['d.io/model'] == 'x' || device.boolAttributes['d.io/flag']",
            "device.model == 'x' || device.flag",
        ),
        (
            "evolution",
            "v1",
            "device.stringAttributes['d.io/model'] == 'x'",
            "device.attributes['d.io'].?model.orValue('') == 'x'",
        ),
        (
            "evolution",
            "v1",
            "'d.io/model' in device.attributes",
            "'model' in device.attributes['d.io']",
        ),
        (
            "v1",
            "evolution",
            "device.driver == 'd.io' && device.attributes['d.io'].model == 'x'",
            "device.driverName == 'd.io' && device.stringAttributes['d.io/model'] == 'x'",
        ),
        (
            "v1",
            "k8srm",
            "device.capacity['d.io'].bandwidth.compareTo(quantity('1G')) > 0",
            "device.bandwidth.compareTo(quantity('1G')) > 0",
        ),
        (
            "v1",
            "k8srm",
            "device.attributes['d.io'].model in ['a', 'b']",
            "device.model in ['a', 'b']",
        ),
    ],
)
def test_expressions_are_translated(source, target, text, expected):
    if expected is None:
        with pytest.raises(expressions.UntranslatableError):
            expressions.translated(NeutralExpression(text, source), target, TYPES, ("d.io",))
        return
    assert (
        expressions.translated(NeutralExpression(text, source), target, TYPES, ("d.io",))
        == expected
    )


@pytest.mark.parametrize(
    ("source", "target", "text", "why"),
    [
        ("v1", "k8srm", "device.driver == 'x'", "the driver's name"),
        ("k8srm", "v1", "device.all(k, true)", "macro|device as a whole"),
        ("k8srm", "v1", "device.model = 'x'", "not an expression"),
    ],
)
def test_what_has_no_equivalent_says_which_part(source, target, text, why):
    with pytest.raises(expressions.UntranslatableError, match=why):
        expressions.translated(NeutralExpression(text, source), target, TYPES, ("d.io",))


def k4_objects(name):
    files = ["classes", "pools-two-nodes-two-simple-gpus", "pools-one-node-sriov-0", name]
    generation = GENERATIONS["k8srm"]
    return [
        generation.read(item).document
        for file in files
        for item in yaml.safe_load_all((K4 / f"{file}.yaml").read_text())
    ]


def devices(objects, api):
    generation = GENERATIONS[api]
    reports = [generation.read(item) for item in objects]
    assert [str(f) for r in reports for f in r.findings if f.level == "invalid"] == []
    world = generation.cluster([report.document for report in reports])
    found = []
    for pod in world.pods():
        placed = world.place(pod)
        if isinstance(placed, PlacedPod):
            world.apply(placed)
            # Where two pools of a node name devices alike, a conversion puts the pool's name first.
            names = [d.device.removeprefix(f"{d.pool}-") for d in placed.devices]
            pools = [d.pool for d in placed.devices]
            found.append((placed.node, sorted(zip(pools, names, strict=True))))
        else:
            found.append(None)
    return found


PODS = [
    "pod-multi-net-0",
    "pod-multi-net-2",
    "pod-multi-net-3",
    "pod-one-container-one-gpu",
    "pod-one-container-two-gpus-0",
    "pod-one-container-two-gpus-1",
    "pod-one-container-two-gpus-2",
    "pod-two-containers-one-gpu",
    "pod-two-containers-two-gpus-0",
    "pod-two-containers-two-gpus-1",
    "two-pods-one-gpu-0",
]


@needs_data
@pytest.mark.parametrize("name", PODS)
def test_a_converted_scenario_gets_the_same_devices(name):
    original = k4_objects(name)
    expected = devices(original, "k8srm")
    converted = ToEvolution(reading.read(original, "k8srm")).objects()
    converted = [item for item in converted if item["apiVersion"].startswith("resource")]
    assert devices(converted, "evolution") == expected
    back = ToK8srm(reading.read(converted, "evolution")).objects()
    back = [item for item in back if item["kind"] != "OpaqueConfig"]
    assert devices(back, "k8srm") == expected


@needs_data
@pytest.mark.parametrize("name", sorted(path.stem for path in K4.glob("*pod*.yaml")))
def test_what_is_written_for_today_is_valid_today(name):
    check = ResourceCheck(now="2026-01-01T00:00:00Z")
    for item in ToV1(reading.read(k4_objects(name), "k8srm")).objects():
        checked = check(item)
        assert checked is None or [str(error) for error in checked.errors] == []


@needs_data
def test_what_does_not_carry_over_is_named_with_a_suggestion():
    scene = reading.read(k4_objects("pod-one-container-split-allocation-gpus"), "k8srm")
    ToV1(scene).objects()
    lost = [str(note) for note in scene.notes if note.level == "lost"]
    assert any(
        "a total over several devices" in text and "request as many" in text for text in lost
    )
    scene = reading.read(k4_objects("pod-one-container-gpu-priority-list"), "k8srm")
    ToEvolution(scene).objects()
    assert any("dra-evolution has no alternatives" in str(note) for note in scene.notes)


def k8srm(kind, name, spec, **more):
    metadata = {"name": name, "namespace": "default"} if kind == "DeviceClaim" else {"name": name}
    return (
        {"apiVersion": "devmgmtproto.k8s.io/v1alpha1", "kind": kind, "metadata": metadata}
        | ({"spec": spec} if spec else {})
        | more
    )


def to_v1(*items):
    reports = GENERATIONS["k8srm"].read_all(items)
    scene = reading.read([report.document for report in reports], "k8srm")
    objects = ToV1(scene).objects()
    lost = [str(note) for note in scene.notes if note.level == "lost"]
    return {(each["kind"], each["metadata"]["name"]): each for each in objects}, lost


def asked(detail):
    return k8srm("DeviceClaim", "c", {"devices": [{"name": "r", "allOf": [detail]}]})


def test_an_expression_whose_driver_is_not_known_is_lost_and_says_what_is_missing():
    claim = asked({"class": "toy", "constraints": "device.model == 'a'"})
    objects, lost = to_v1(claim)
    assert "selectors" not in str(objects)
    assert (
        "attribute model of an unknown driver: convert it together with its DeviceClass" in lost[0]
    )
    objects, lost = to_v1(claim, k8srm("DeviceClass", "toy", {"definition": {"driver": "d.io"}}))
    assert lost == []
    assert "device.attributes['d.io'].model" in str(objects["ResourceClaim", "c"])


def test_a_claim_inside_a_pod_becomes_a_template():
    entry = {"name": "gpu", "claim": {"deviceClass": "toy", "minDeviceCount": 2}}
    spec = {"containers": [{"name": "c", "devices": [{"name": "gpu"}]}], "deviceClaims": [entry]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    objects, lost = to_v1(pod, k8srm("DeviceClass", "toy", {"definition": {"driver": "d.io"}}))
    assert lost == []
    [request] = objects["ResourceClaimTemplate", "p-gpu"]["spec"]["spec"]["devices"]["requests"]
    assert request["exactly"] == {
        "deviceClassName": "toy", "allocationMode": "ExactCount", "count": 2,
    }  # fmt: skip
    [claim] = objects["Pod", "p"]["spec"]["resourceClaims"]
    assert claim == {"name": "gpu", "resourceClaimTemplateName": "p-gpu"}


def test_device_types_become_the_classes_and_drivers_that_they_stand_for():
    driver = k8srm("DeviceDriver", "d.io", None, deviceTypes=["gpu"])
    any_gpu = k8srm("DeviceClass", "any", {"deviceType": "gpu", "minDeviceCount": 2})
    objects, lost = to_v1(driver, any_gpu, asked({"deviceType": "gpu"}))
    assert lost == []
    assert "device.driver == 'd.io'" in str(objects["DeviceClass", "any"])
    exactly = objects["ResourceClaim", "c"]["spec"]["devices"]["requests"][0]["exactly"]
    assert (exactly["deviceClassName"], exactly["count"]) == ("any", 2)
    other = k8srm("DeviceClass", "other", {"deviceType": "gpu", "definition": {"driver": "e.io"}})
    objects, lost = to_v1(driver, any_gpu, other, asked({"deviceType": "gpu"}))
    assert lost == []
    text = str(objects["DeviceClass", "type-gpu"])
    assert "'d.io'" in text
    assert "'e.io'" in text


def test_the_access_of_a_class_is_written_into_its_claims():
    watching = {"definition": {"driver": "d.io"}, "adminAccess": True}
    objects, lost = to_v1(k8srm("DeviceClass", "watch", watching), asked({"class": "watch"}))
    assert lost == []
    exactly = objects["ResourceClaim", "c"]["spec"]["devices"]["requests"][0]["exactly"]
    assert exactly["adminAccess"] is True
    assert exactly["allocationMode"] == "All"
