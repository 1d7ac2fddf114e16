"""The documents of dra-evolution: how its parser judged them, and which devices pods get."""

from collections import Counter
from pathlib import Path

import pytest
import yaml

from dralab.prototypes.evolution.cluster import EvolutionCluster
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import PlacedPod

DATA = Path(__file__).parents[2] / ".." / "shared" / "testdata"
D3 = DATA / "dra-evolution"
pytestmark = pytest.mark.skipif(not D3.is_dir(), reason="the shared test data are not here")

# file → devices of each pod; an empty list: unschedulable
ANSWERS = {
    "pod-one-container-one-gpu": [["node-00-foozer/dev-00"]],
    "pod-one-container-two-gpus-0": [["node-00-foozer/dev-00", "node-00-foozer/dev-01"]],
    "pod-one-container-two-gpus-1": [["node-00-foozer/dev-00", "node-00-foozer/dev-01"]],
    "pod-one-container-two-gpus-2": [[]],
    "pod-one-container-one-gpu-one-vf": [[]],
    "pod-two-containers-one-gpu": [["node-00-foozer/dev-00"]],
    "pod-two-containers-two-gpus-0": [["node-00-foozer/dev-00", "node-00-foozer/dev-01"]],
    "pod-two-containers-two-gpus-1": [["node-00-foozer/dev-00", "node-00-foozer/dev-01"]],
    "pod-two-containers-two-gpus-2": [[]],
    "two-pods-one-gpu-0": [["node-00-foozer/dev-00"], []],
    "two-pods-one-gpu-1": [["node-00-foozer/dev-00"], []],
}


def reports(name):
    read = GENERATIONS["evolution"].read
    return [read(item) for item in yaml.safe_load_all((D3 / f"{name}.yaml").read_text())]


def foozer_pools():
    values = {"stringValue": "string", "semVerValue": "version"}

    def attribute(item):
        [kind] = [key for key in item if key != "name"]
        return {"name": item["name"], values[kind]: item[kind]}

    text = (DATA / "k8srm-prototype" / "pools-two-nodes-two-simple-gpus.yaml").read_text()
    for item in yaml.safe_load_all(text):
        spec = item["spec"]
        devices = [
            {
                "name": d["name"],
                "attributes": [attribute(a) for a in [*spec["attributes"], *d["attributes"]]],
            }
            for d in spec["devices"]
        ]
        yield {
            "apiVersion": "resource.k8s.io/v1alpha2",
            "kind": "ResourcePool",
            "metadata": item["metadata"],
            "spec": {
                "driverName": "foozer.example.com",
                "nodeName": spec["nodeName"],
                "devices": devices,
            },
        }


def world(name, **changes):
    objects = [
        report.document
        for file in ("classes", "pools-one-node-sriov-0", name)
        for report in reports(file)
    ]
    for item in objects:
        if item["kind"] == "ResourceClaim":
            item["spec"].update(changes)
    return EvolutionCluster([*foozer_pools(), *objects])


@pytest.mark.thorough
def test_the_strict_parser_of_the_authors_and_ours_agree():
    found = Counter(
        report.state for path in sorted(D3.glob("*.yaml")) for report in reports(path.stem)
    )
    assert found == {"valid": 42, "legacy": 32, "invalid": 1}


@pytest.mark.thorough
def test_the_shipped_dgxa100_breaks_four_of_its_own_limits():
    [report] = reports("pools-two-nodes-dgxa100")
    text = "\n".join(map(str, report.findings))
    assert "[0].spec.devices: Too many: 208: must have at most 128 items" in text
    assert '"gpu-0-memory": a valid C identifier' in text
    assert '"gpu-0-mig-1g.5gb-0": must not contain dots' in text
    assert "[0].spec.driverName: a lowercase RFC 1123 subdomain" in text
    assert '"cuda-compute-capability": a valid C identifier' in text


def test_every_file_that_passes_has_its_answer():
    passing = {
        path.stem
        for path in D3.glob("*pod*.yaml")
        if all(report.state == "valid" for report in reports(path.stem))
    }
    assert passing == set(ANSWERS)


@pytest.mark.parametrize("name", ANSWERS)
def test_pods_get_their_devices(name):
    made = world(name)
    for pod, devices in zip(made.pods(), ANSWERS[name], strict=True):
        placed = made.place(pod)
        assert isinstance(placed, PlacedPod) is bool(devices)
        if devices:
            assert [str(device) for device in placed.devices] == devices
            made.apply(placed)


@pytest.mark.parametrize("name", ["two-pods-one-gpu-0", "two-pods-one-gpu-1"])
def test_a_shareable_claim_serves_both_pods(name):
    made = world(name, shareable=True)
    nodes = []
    for pod in made.pods():
        placed = made.place(pod)
        made.apply(placed)
        nodes.append(placed.node)
    assert nodes == ["node-00", "node-00"]
    assert [part["name"] for part in placed.claims[0]["status"]["reservedFor"]] == [
        "foozer-0",
        "foozer-1",
    ]


def test_a_claim_that_is_not_shareable_says_so_to_the_second_pod():
    made = world("two-pods-one-gpu-0")
    first, second = made.pods()
    made.apply(made.place(first))
    assert "set spec.shareable to true" in made.place(second).reason


def test_requests_are_associated_with_containers_by_name():
    made = world("pod-two-containers-two-gpus-1")
    containers = made.place(made.pods()[0]).containers
    assert containers == {
        "my-container": ("foozer.example.com/node-00/dev-00",),
        "my-other-container": ("foozer.example.com/node-00/dev-01",),
    }


def test_one_template_makes_two_claims():
    made = world("pod-two-containers-two-gpus-0")
    placed = made.place(made.pods()[0])
    assert len({claim["metadata"]["name"] for claim in placed.claims}) == 2


def test_the_result_is_written_per_driver_with_admin_configs_first():
    made = world("two-pods-one-gpu-1")
    for item in made.objects.values():
        if item["kind"] == "DeviceClass":
            item["config"] = [
                {"opaque": {"driverName": "foozer.example.com", "parameters": {"a": 1}}}
            ]
    [claim] = made.place(made.pods()[0]).claims
    [data] = claim["status"]["allocation"]["driverData"]
    assert data["driverName"] == "foozer.example.com"
    [result] = data["data"]["results"]
    assert result["deviceName"] == "dev-00"
    assert [config["admin"] for config in result["config"]] == [True, False]
    assert "requestName" not in result
    assert claim["metadata"]["finalizers"] == ["dra.k8s.io/delete-protection"]


def test_management_access_needs_a_quota_when_allocating():
    made = world("pod-one-container-one-gpu")
    for item in made.objects.values():
        if item["kind"] == "ResourceClaimTemplate":
            item["spec"]["spec"]["requests"][0]["adminAccess"] = True
    pod = made.pods()[0]
    assert "adminAccess needs a Quota" in made.place(pod).reason
    quota = {
        "apiVersion": "resource.k8s.io/v1alpha2",
        "kind": "Quota",
        "metadata": {"name": "q", "namespace": "default"},
        "spec": {"allowManagementAccess": True},
    }
    allowed = EvolutionCluster([*made.objects.values(), quota])
    placed = allowed.place(pod)
    assert [str(device) for device in placed.devices] == ["node-00-foozer/dev-00"]
    allowed.apply(placed)
    again = allowed.place({**pod, "metadata": {**pod["metadata"], "name": "other"}})
    assert [str(device) for device in again.devices] == ["node-00-foozer/dev-00"]
