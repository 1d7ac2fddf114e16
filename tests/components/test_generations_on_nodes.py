"""Pods of every generation start on nodes, and every part may do only what its user may."""

import pytest

from devicelab import create_all
from dralab.api.status import ApiError
from dralab.cli.schedule_server import Server
from dralab.components.control_plane import SCHEDULER_USER
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import PlacedPod
from dralab.runtime.resources import DEVICE_CLAIMS, PODS
from generationpods import CLASSIC, K8SRM, TODAY
from guardedlab import Guarded


def scheduled(cluster, generation):
    """Do what `dralab schedule --kubeconfig` does, as the scheduler's user."""
    server = Server(cluster.of(SCHEDULER_USER), GENERATIONS[generation])
    world = GENERATIONS[generation].cluster(server.objects())
    placed = world.place(world.pods()[0])
    assert isinstance(placed, PlacedPod)
    server.write(placed)


def log(cluster):
    run = cluster.kubelets.find_container(cluster.client.get(PODS, "p", "default"), "c")
    return [line for _, line in run.log.read()[0]]


@pytest.mark.parametrize("profiles", [("v1", "k8srm"), ("k8srm",), ("v1", "classic")])
def test_a_pod_of_k8srm_starts_on_its_node(profiles):
    cluster = Guarded(profiles, drivers=())
    create_all(cluster.client, cluster.server.resources.kinds, K8SRM)
    cluster.wait(5)
    scheduled(cluster, "k8srm")
    cluster.wait(10)
    assert cluster.running() == ["p"]
    assert "ready" in log(cluster)
    cluster.client.delete(PODS, "p", "default")
    cluster.wait(60)
    assert cluster.client.list(DEVICE_CLAIMS).items == []
    assert cluster.refused == []


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
