"""Every file of the k8srm prototype gives the answer of an exhaustive search under its rules."""

from functools import lru_cache
from pathlib import Path

import pytest
import yaml

from dralab.allocation.check.enumeration import assignments
from dralab.prototypes.k8srm.cluster import K8srmCluster
from dralab.prototypes.k8srm.normalize import normalize
from dralab.prototypes.placement import PlacedPod
from dralab.values.patches import copied

DATA = Path(__file__).parents[2] / ".." / "shared" / "testdata"
K4 = DATA / "k8srm-prototype"
HISTORIC = DATA / "k8srm-prototype-historic"
pytestmark = pytest.mark.skipif(not K4.is_dir(), reason="the shared test data are not here")

POOLS = [
    "pools-one-node-sriov-0",
    "pools-one-node-sriov-1",
    "pools-two-nodes-one-dgxa100",
    "pools-two-nodes-two-simple-gpus",
]
VF = ["node-00-nic0/pf-0-vf-0", "node-00-nic0/pf-0-vf-1"]
PF = ["node-00-nic0/pf-0", "node-00-nic0/pf-1", "node-00-nic1/pf-0", "node-00-nic1/pf-1"]
GPU = ["node-00-foozer/dev-00", "node-00-foozer/dev-01"]

# file → (distinct device sets over all nodes, first devices; none: unschedulable)
PODS = {
    "pod-multi-net-0": (8, VF[:1]),
    "pod-multi-net-1": (60, [*VF, "node-00-nic0/pf-1"]),
    "pod-multi-net-2": (12, VF),
    "pod-multi-net-3": (4, VF),
    "pod-multi-net-4": (66, VF),
    "pod-multi-net-5": (4, ["node-001-nic-001/pf-0-vf-0"]),
    "pod-multi-net-6": (630, PF[:3]),
    "pod-multi-net-7": (196, PF),
    "pod-multi-net-8": (0, None),
    "pod-one-container-one-gpu": (4, GPU[:1]),
    "pod-one-container-two-gpus-0": (2, GPU),
    "pod-one-container-two-gpus-1": (2, GPU),
    "pod-one-container-two-gpus-2": (0, None),
    "pod-one-container-gpu-priority-list": (0, None),
    "pod-one-container-gpu-priority-list-one-vf": (0, None),
    "pod-one-container-one-gpu-one-vf": (0, None),
    "pod-one-container-partial-gpu": (0, None),
    "pod-one-container-split-allocation-gpus": (0, None),
    "pod-one-container-shared-split-allocation-gpus": (0, None),
    "pod-two-containers-one-gpu": (4, GPU[:1]),
    "pod-two-containers-two-gpus-0": (2, GPU),
    "pod-two-containers-two-gpus-1": (2, GPU),
    "pod-two-containers-two-gpus-2": (0, None),
    "two-pods-one-gpu-0": (4, GPU[:1]),
    "two-pods-one-gpu-1": (4, GPU[:1]),
}


@lru_cache(maxsize=64)
def mended(file):
    return [normalize(item).document for item in yaml.safe_load_all(file.read_text())]


def documents(*files):
    return copied([item for file in files for item in mended(file)])


def world(pod_file, *more):
    files = [K4 / f"{name}.yaml" for name in POOLS]
    return K8srmCluster(documents(*files, K4 / "classes.yaml", pod_file) + list(more))


def test_every_file_has_its_expectation():
    assert {path.stem for path in K4.glob("*.yaml")} == {*POOLS, "classes", *PODS}


@pytest.mark.parametrize("name", PODS)
def test_a_pod_gets_the_first_of_its_device_sets(name):
    sets, first = PODS[name]
    made = world(K4 / f"{name}.yaml")
    pod = made.pods()[0]
    found = {
        frozenset(device for _, devices in assignment for device in devices)
        for node, problem in made.problems(pod)
        for assignment in assignments(problem, node, budget=1_000_000)
    }
    assert len(found) == sets
    placed = made.place(pod)
    if first is None:
        assert not isinstance(placed, PlacedPod)
        assert [refusal.node for refusal in placed.nodes] == [
            "node-00",
            "node-01",
            "nvidia-00",
            "nvidia-01",
        ]
    else:
        assert placed.node == "node-00"
        assert [str(device) for device in placed.devices] == first


@pytest.mark.parametrize("name", ["two-pods-one-gpu-0", "two-pods-one-gpu-1"])
def test_two_pods_share_one_device_of_one_claim(name):
    made = world(K4 / f"{name}.yaml")
    for pod in made.pods():
        placed = made.place(pod)
        assert placed.node == "node-00"
        assert placed.containers["my-container"] == (GPU[0],)
        made.apply(placed)
    assert placed.devices == ()
    [claim] = placed.claims
    assert claim["status"]["podNames"] == ["foozer-0", "foozer-1"]
    assert len(claim["status"]["allocations"]) == 1
    configs = [item["kind"] for item in claim["status"]["claimConfigs"]]
    assert configs == (["GPUSharingConfig"] if name.endswith("1") else [])


def test_configs_are_copied_in_the_order_of_the_claim():
    made = world(K4 / "pod-multi-net-6.yaml")
    [claim] = made.place(made.pods()[0]).claims
    names = [item["metadata"]["name"] for item in claim["status"]["claimConfigs"]]
    assert names == ["bluenet", "rednet", "greennet"]


def test_containers_see_the_devices_they_name():
    made = world(K4 / "pod-two-containers-two-gpus-1.yaml")
    containers = made.place(made.pods()[0]).containers
    assert containers == {"my-container": (GPU[0],), "my-other-container": (GPU[1],)}


def test_what_was_handed_out_is_gone_for_the_next_pod():
    made = world(K4 / "pod-one-container-two-gpus-0.yaml")
    pod = made.pods()[0]
    made.apply(made.place(pod))
    other = {**pod, "metadata": {**pod["metadata"], "name": "second"}}
    placed = made.place(other)
    assert placed.node == "node-01"
    made.apply(placed)
    assert not isinstance(
        made.place({**pod, "metadata": {**pod["metadata"], "name": "third"}}), PlacedPod
    )


def test_the_same_winner_in_100_runs():
    objects = list(world(K4 / "pod-multi-net-7.yaml").objects.values())
    placements = {
        tuple(map(str, made.place(made.pods()[0]).devices))
        for made in (K8srmCluster(objects) for _ in range(100))
    }
    assert placements == {tuple(PF)}


# --- the data's own disagreements ---------------------------------------------------------------


def states(folder):
    found = {}
    for path in sorted(folder.glob("*.yaml")):
        if path.stem == "pod-spec-examples":
            continue
        for item in yaml.safe_load_all(path.read_text()):
            found[path.stem, item["kind"], item["metadata"]["name"]] = normalize(item)
    return found


def test_no_document_is_invalid_and_every_legacy_one_says_how_it_was_read():
    reports = states(K4) | states(HISTORIC)
    assert {key for key, report in reports.items() if report.state == "invalid"} == set()
    legacy = {key for key, report in reports.items() if report.state == "legacy"}
    assert len(legacy) == 41
    group = [key for key in legacy if key[:2] == ("classes", "DeviceClass")]
    assert ("classes", "DeviceClass", "example.com-gpu") not in group
    padded = reports["pools-two-nodes-one-dgxa100", "DevicePool", "nvidia-00-dgxa100"]
    assert 'read as "memory-slices-0", which the pool has' in str(padded.findings[0])


def test_a_snippet_collection_is_no_document():
    text = (HISTORIC / "pod-spec-examples.yaml").read_text()
    assert all("kind" not in item for item in yaml.safe_load_all(text))


@pytest.mark.parametrize("name", ["pod-embedded", "pod-ref", "pod-template"])
def test_historic_pods_get_one_foozer(name):
    files = [
        HISTORIC / "drivers.yaml",
        HISTORIC / "classes.yaml",
        HISTORIC / f"{name}-foozer-single.yaml",
    ]
    made = K8srmCluster(documents(K4 / "pools-two-nodes-two-simple-gpus.yaml", *files))
    placed = made.place(made.pods()[0])
    assert [str(device) for device in placed.devices] == GPU[:1]
    [claim] = placed.claims
    existing = name == "pod-ref"
    assert (claim["metadata"]["name"] == "example.com-foozer-single-superfast-claim") is existing
    assert ("ownerReferences" in claim["metadata"]) is not existing
    assert claim["status"]["podNames"] == [made.pods()[0]["metadata"]["name"]]
    if name != "pod-embedded":
        assert [c["spec"] for c in claim["status"]["claimConfigs"]] == [{"superfast": True}]


def test_class_configs_are_frozen_at_allocation():
    pool = {
        "apiVersion": "devmgmtproto.k8s.io/v1alpha1",
        "kind": "DevicePool",
        "metadata": {"name": "vlans"},
        "spec": {"driver": "vlan", "nodeName": "n", "devices": [{"name": "v"}]},
    }
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {
            "containers": [],
            "deviceClaims": {"devices": [{"name": "v", "class": "vlan-2000"}]},
        },
    }
    objects = documents(HISTORIC / "drivers.yaml", HISTORIC / "classes.yaml")
    made = K8srmCluster([*objects, pool, pod])
    placed = made.place(pod)
    made.apply(placed)
    for item in made.objects.values():
        if item["kind"] == "ConfigMap":
            item["data"]["vlanID"] = "9"
    [claim] = placed.claims
    assert [c["data"]["vlanID"] for c in claim["status"]["classConfigs"]] == ["2000"]
