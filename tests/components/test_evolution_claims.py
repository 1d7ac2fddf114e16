"""Claims of dra-evolution in a cluster that serves nothing newer."""

import yaml

from dralab.cli._placing_server import Server
from dralab.components.simulated import SimulatedCluster
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import PlacedPod
from dralab.runtime.resources import EVOLUTION_CLAIMS, EVOLUTION_PODS
from labs import create_all

OBJECTS = """\
apiVersion: resource.k8s.io/v1alpha2
kind: ResourcePool
metadata: {name: pool}
spec: {nodeName: n, driverName: toys, devices: [{name: d0}]}
---
apiVersion: resource.k8s.io/v1alpha2
kind: DeviceClass
metadata: {name: toy}
requirements: [{deviceSelector: "device.driverName == 'toys'"}]
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaim
metadata: {name: shared, namespace: default}
spec: {shareable: true, requests: [{name: toy, deviceClassName: toy}]}
"""
POD = """\
apiVersion: resource.k8s.io/v1alpha2
kind: Pod
metadata: {name: NAME, namespace: default}
spec:
  containers: [{name: c, image: x}]
  resourceClaims: [{name: toy, resourceClaimName: shared}]
"""


def test_a_claim_gives_its_devices_back_with_its_last_pod_and_can_be_deleted_then():
    cluster = SimulatedCluster(profiles=("evolution",))
    text = "---\n".join([OBJECTS, POD.replace("NAME", "p"), POD.replace("NAME", "q")])
    for item in yaml.safe_load_all(text):
        create_all(cluster.client, cluster.server.resources.kinds, item)
    server = Server(cluster.client, GENERATIONS["evolution"])
    world = GENERATIONS["evolution"].cluster(server.objects())
    for pod in world.pods():
        placed = world.place(pod)
        assert isinstance(placed, PlacedPod)
        world.apply(placed)
        server.write(placed)
    cluster.wait(1)

    def status():
        return cluster.client.get(EVOLUTION_CLAIMS, "shared", "default").get("status") or {}

    assert [user["name"] for user in status()["reservedFor"]] == ["p", "q"]
    cluster.client.delete(EVOLUTION_PODS, "p", "default")
    cluster.wait(1)
    assert [user["name"] for user in status()["reservedFor"]] == ["q"]
    assert status()["allocation"]
    cluster.client.delete(EVOLUTION_PODS, "q", "default")
    cluster.wait(1)
    assert "allocation" not in status()
    cluster.client.delete(EVOLUTION_CLAIMS, "shared", "default")
    cluster.wait(1)
    assert not cluster.client.list(EVOLUTION_CLAIMS).items
