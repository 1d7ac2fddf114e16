"""Pods of every generation start on nodes, and every part may do only what its user may."""

import pytest

from dralab.api.resource.features import DEFAULT_1_36
from dralab.api.status import ApiError
from dralab.cli._placing_server import Server
from dralab.components.control_plane import SCHEDULER_USER
from dralab.components.nodes import equip
from dralab.node.node_spec import NodeSpec
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import PlacedPod
from dralab.runtime.resources import DEVICE_CLAIMS, EVOLUTION_CLAIMS, EVOLUTION_PODS, PODS
from generationpods import CLASSIC, EVOLUTION, K8SRM, TODAY
from guardedlab import Guarded
from labs import create_all


def scheduled(cluster, generation):
    """Do what `dralab allocate --apply` does, as the scheduler's user."""
    server = Server(cluster.of(SCHEDULER_USER), GENERATIONS[generation])
    world = GENERATIONS[generation].cluster(server.objects())
    placed = world.place(world.pods()[0])
    assert isinstance(placed, PlacedPod)
    server.write(placed)


def log(cluster, container="c"):
    run = cluster.kubelets.find_container(cluster.client.get(PODS, "p", "default"), container)
    return [line for _, line in run.log.read()[0]]


@pytest.mark.parametrize("profiles", [("v1", "k8srm"), ("k8srm",), ("v1", "classic")])
def test_a_pod_of_k8srm_starts_on_its_node(profiles):
    cluster = Guarded(profiles, drivers=())
    create_all(cluster.client, cluster.server.resources.kinds, K8SRM)
    cluster.wait(5)
    scheduled(cluster, "k8srm")
    cluster.wait(10)
    assert cluster.running() == ["p"]
    assert {"ready", "export DEVICE_TOY='toys/d0'"} <= set(log(cluster))
    cluster.client.delete(PODS, "p", "default")
    cluster.wait(60)
    assert cluster.client.list(DEVICE_CLAIMS).items == []
    assert cluster.refused == []


def test_the_scheduler_may_not_read_the_configs_that_claims_name(capsys):
    cluster = Guarded(drivers=())
    named = K8SRM.replace(
        "toys.example.com}}", "toys.example.com, configs: [{apiVersion: v1, kind: ConfigMap, "
        "name: own, namespace: default}]}}"
    )  # fmt: skip
    config = "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: own, namespace: default}\n"
    create_all(cluster.client, cluster.server.resources.kinds, named + config)
    server = Server(cluster.of(SCHEDULER_USER), GENERATIONS["k8srm"])
    world = GENERATIONS["k8srm"].cluster(server.objects())
    assert "own" in world.place(world.pods()[0]).reason
    told = capsys.readouterr().err
    assert "a config cannot be read" in told
    assert 'cannot get resource "configmaps"' in told


SHARED = """\
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: toys}
spec: {driver: t, nodeName: node-0, devices: [{name: d0}, {name: d1}, {name: d2}]}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: toy}
spec: {definition: {driver: t}}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClaim
metadata: {name: shape, namespace: default}
spec:
  claims:
  - {name: one, deviceClass: toy}
  - {name: two, deviceClass: toy, requests: {count: 2}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  containers:
  - {name: c, image: x, command: [sh, -c, export], devices: [{name: two}]}
  - {name: d, image: x, command: [sh, -c, export], devices: [{name: one}]}
  deviceClaims: {claimName: shape}
"""


def test_a_container_of_k8srm_sees_the_devices_of_the_instances_that_it_names():
    cluster = Guarded(drivers=())
    create_all(cluster.client, cluster.server.resources.kinds, SHARED)
    cluster.wait(5)
    scheduled(cluster, "k8srm")
    cluster.wait(10)

    def devices(container):
        return [line for line in log(cluster, container) if "DEVICE_" in line]

    assert devices("d") == ["export DEVICE_ONE='toys/d0'"]
    assert devices("c") == ["export DEVICE_TWO_0='toys/d1'", "export DEVICE_TWO_1='toys/d2'"]


def test_a_node_may_read_the_device_claims_of_its_own_pods_alone():
    cluster = Guarded(drivers=())
    create_all(cluster.client, cluster.server.resources.kinds, K8SRM)
    scheduled(cluster, "k8srm")
    [claim] = cluster.client.list(DEVICE_CLAIMS).items
    name = claim["metadata"]["name"]
    assert cluster.of("system:node:node-0").get(DEVICE_CLAIMS, name, "default")
    for user, ask in [
        ("system:node:node-1", lambda client: client.get(DEVICE_CLAIMS, name, "default")),
        ("system:node:node-0", lambda client: client.get(DEVICE_CLAIMS, "other", "default")),
        ("system:node:node-0", lambda client: client.list(DEVICE_CLAIMS, "default")),
        ("system:node:node-0", lambda client: client.delete(DEVICE_CLAIMS, name, "default")),
    ]:
        with pytest.raises(ApiError) as caught:
            ask(cluster.of(user))
        assert caught.value.reason == "Forbidden"


@pytest.mark.parametrize(
    ("profiles", "text"), [(("v1", "classic"), CLASSIC), (("v1",), TODAY)], ids=["classic", "v1"]
)
def test_a_pod_that_the_cluster_itself_schedules_starts_on_its_node(profiles, text):
    cluster = Guarded(profiles)
    create_all(cluster.client, cluster.server.resources.kinds, text)
    cluster.wait(30)
    assert cluster.running() == ["p"]
    assert "ready" in log(cluster)
    assert cluster.refused == []


@pytest.fixture
def evolution():
    cluster = Guarded(("evolution",), drivers=())
    create_all(cluster.client, cluster.server.resources.kinds, EVOLUTION)
    return cluster


def status(cluster, resource, name):
    return cluster.client.get(resource, name, "default").get("status") or {}


def test_a_pod_of_dra_evolution_runs_with_its_devices_until_it_is_deleted(evolution):
    scheduled(evolution, "evolution")
    evolution.wait(10)
    assert evolution.running() == ["p"]
    assert status(evolution, EVOLUTION_PODS, "p")["phase"] == "Running"
    assert status(evolution, EVOLUTION_PODS, "p")["podIP"]
    assert {"ready", "export DEVICE_FAST='toys.example.com/node-0/d0'"} <= set(log(evolution))
    evolution.client.delete(EVOLUTION_PODS, "p", "default")
    # Until its container has ended, nobody else may have the device.
    assert evolution.client.get(EVOLUTION_PODS, "p", "default")["metadata"]["deletionTimestamp"]
    evolution.wait(60)
    assert evolution.client.list(EVOLUTION_PODS).items == []
    assert evolution.client.list(PODS).items == []
    assert evolution.client.list(EVOLUTION_CLAIMS).items == []
    assert evolution.kubelets.nodes["node-0"].directory.texts() == {}
    assert evolution.refused == []


def test_a_pod_of_dra_evolution_ends_with_the_pod_that_runs_it(evolution):
    """`kubectl delete pod p` deletes that one."""
    scheduled(evolution, "evolution")
    evolution.wait(10)
    evolution.client.delete(PODS, "p", "default")
    evolution.wait(60)
    assert evolution.client.list(PODS).items == []
    assert evolution.client.list(EVOLUTION_PODS).items == []
    assert evolution.client.list(EVOLUTION_CLAIMS).items == []
    assert evolution.refused == []


def test_a_pod_of_dra_evolution_that_is_over_gives_its_devices_back(evolution):
    scheduled(evolution, "evolution")
    evolution.wait(10)
    # As after an eviction.
    evolution.client.patch(
        PODS, "p", {"status": {"phase": "Failed"}}, "default", subresource="status"
    )
    evolution.wait(40)
    assert status(evolution, EVOLUTION_PODS, "p")["phase"] == "Failed"
    [claim] = evolution.client.list(EVOLUTION_CLAIMS).items
    assert not claim["status"]


def test_a_pod_of_dra_evolution_on_a_node_that_only_a_pool_names_waits_for_it():
    cluster = Guarded(("evolution",), drivers=())
    text = EVOLUTION.replace("nodeName: node-0", "nodeName: later")
    create_all(cluster.client, cluster.server.resources.kinds, text)
    scheduled(cluster, "evolution")
    cluster.wait(60)
    assert status(cluster, EVOLUTION_PODS, "p") == {}
    assert cluster.client.list(PODS).items == []
    equip(cluster.kubelets.add_node(NodeSpec(name="later")), DEFAULT_1_36)
    cluster.wait(10)
    assert cluster.running() == ["p"]


def test_a_pod_of_dra_evolution_says_that_its_name_is_taken(evolution):
    other = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
    evolution.client.create(PODS, other, "default")
    scheduled(evolution, "evolution")
    evolution.wait(5)
    assert status(evolution, EVOLUTION_PODS, "p")["reason"] == "NameTaken"
    evolution.client.delete(PODS, "p", "default")
    evolution.wait(60)
    assert status(evolution, EVOLUTION_PODS, "p")["phase"] == "Running"


def test_a_pod_that_claims_to_run_another_one_gets_none_of_its_devices(evolution):
    scheduled(evolution, "evolution")
    evolution.wait(10)
    [claim] = evolution.client.list(EVOLUTION_CLAIMS).items
    real = evolution.client.get(PODS, "p", "default")
    thief = {
        "metadata": {"name": "thief", "ownerReferences": real["metadata"]["ownerReferences"]},
        "spec": {
            "nodeName": "node-0",
            "resourceClaims": [{"name": "x", "resourceClaimName": claim["metadata"]["name"]}],
            "containers": [{"name": "c", "image": "i", "resources": {"claims": [{"name": "x"}]}}],
        },
    }
    evolution.client.create(PODS, thief, "default")
    evolution.wait(30)
    assert evolution.running() == ["p"]
