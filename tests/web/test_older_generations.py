"""The page of a server that serves only older generations shows them as today's objects."""

import orjson
import pytest

from dralab.cli import ui
from dralab.cli._connection import NO_CLUSTER
from dralab.cli._inventory import InventorySource
from dralab.cli._placing_server import Server
from dralab.components.simulated import SimulatedCluster
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.placement import PlacedPod
from dralab.runtime.generations import resources_of
from dralab.runtime.resources import NODES
from dralab.web.desk import Desk
from dralab.web.followed_source import FollowedSource
from dralab.web.sources import FOLLOWED, ListedSource
from generationpods import EVOLUTION, K8SRM
from labs import create_all
from web.test_desk import devices

NODE = "apiVersion: v1\nkind: Node\nmetadata: {name: node-0}\nstatus: {allocatable: {cpu: 4, memory: 8Gi, pods: 9}}\n"


@pytest.mark.parametrize("far", [False, True], ids=["near", "far"])
@pytest.mark.parametrize(
    ("api", "text"), [("k8srm", K8SRM), ("evolution", EVOLUTION)], ids=["k8srm", "evolution"]
)
def test_devices_and_pods_are_there_before_and_after_scheduling(api, text, far):
    cluster = SimulatedCluster(profiles=(api,))
    more = text.rpartition("---\n")[2].replace("name: p,", "name: q,")
    for part in (NODE, text, more):
        create_all(cluster.client, cluster.server.resources.kinds, part)
    clock = cluster.engine.clock
    near = ListedSource(cluster.client, cluster.server.store)
    source = FollowedSource(cluster.client, clock) if far else near
    desk = Desk(source, cluster.engine.clock, "this server", live=True)

    def shown():
        fleet, waiting = orjson.loads(desk.fleet()), orjson.loads(desk.waiting())
        return devices(fleet), sorted(each["name"] for each in waiting["items"])

    heard = []
    source.follow(lambda: heard.append(1))
    assert shown() == ([("node-0", "d0", "free", [], "")], ["p", "q"])
    cluster.client.patch(NODES, "node-0", {"spec": {"taints": None}})
    server = Server(cluster.client, GENERATIONS[api])
    world = GENERATIONS[api].cluster(server.objects())
    placed = next(world.place(pod) for pod in world.pods() if pod["metadata"]["name"] == "p")
    assert isinstance(placed, PlacedPod)
    server.write(placed)
    cluster.wait(10)
    assert far or heard
    assert shown() == ([("node-0", "d0", "used", ["pod default/p"], "")], ["q"])
    told = orjson.loads(desk.explanation("pod", "default", "q"))
    assert not told["fits"]


@pytest.mark.parametrize("text", [K8SRM, EVOLUTION], ids=["k8srm", "evolution"])
def test_files_of_an_older_generation_are_shown_too(text, tmp_path):
    file = tmp_path / "cluster.yaml"
    file.write_text(f"{NODE}---\n{text}")
    desk = ui._desk(InventorySource(files=(str(file),), connection=NO_CLUSTER), None)
    assert devices(orjson.loads(desk.fleet())) == [("node-0", "d0", "free", [], "")]
    assert [each["name"] for each in orjson.loads(desk.waiting())["items"]] == ["p"]


@pytest.mark.parametrize("name", [name for name in GENERATIONS if name != "v1"])
def test_the_page_follows_every_kind_of_an_older_generation(name):
    """What a store calls a collection is what the page listens for."""
    cluster = SimulatedCluster(profiles=(name,))
    kinds = cluster.server.resources.kinds
    for resource in resources_of(GENERATIONS[name]).values():
        assert kinds.find(resource.group, resource.version, resource.plural).hub in FOLLOWED
