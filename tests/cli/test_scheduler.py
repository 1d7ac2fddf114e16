import pytest
from click.testing import CliRunner

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.api.status import ApiError
from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from dralab.kernel.randomness import Randomness
from dralab.runtime.kubeconfig import read
from dralab.runtime.live import LiveEngine
from dralab.runtime.manager import Manager
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from dralab.scheduler.scheduler import Scheduler
from waiting import until


@pytest.fixture(params=[False, True], ids=["http", "https"])
def cluster(request):
    with Cluster(Options(tls=request.param)) as running:
        yield running


@pytest.fixture
def client(cluster):
    made = RemoteClient(read(cluster.kubeconfig))
    yield made
    made.close()


def test_the_scheduler_works_over_the_network_as_it_does_in_process(cluster, client):
    engine = LiveEngine(name="scheduler", workers=4)
    manager = Manager(engine, client, Randomness(1))
    Scheduler(manager, CelSelectorCompiler())
    node = client.create(NODES, worker("n0"))
    client.update(NODES, {**node, "status": worker("n0")["status"]}, subresource="status")
    client.patch(NODES, "n0", {"spec": {"taints": None}})
    client.create(CLASSES, device_class("gpu", 'device.driver == "gpu.example.com"'))
    for item in pool("n0", device("d0"), device("d1"), node="n0"):
        client.create(SLICES, item)
    manager.start()
    engine.start()
    try:
        for number in range(3):
            name = f"p{number}"
            client.create(CLAIMS, claim(name, request("r"), namespace="default"), "default")
            client.create(PODS, pod(name, claims={"g": name}), "default")

        def placed():
            return [p for p in client.list(PODS).items if p["spec"].get("nodeName")]

        assert until(lambda: len(placed()) == 2)
        results = [
            item["device"]
            for obj in client.list(CLAIMS).items
            if obj.get("status")
            for item in obj["status"]["allocation"]["devices"]["results"]
        ]
        assert sorted(results) == ["d0", "d1"]
    finally:
        manager.stop()
        engine.stop()


def test_every_verb_of_the_remote_client_reaches_the_server(client):
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "1"}}
    from dralab.runtime.resources import CONFIG_MAPS

    made = client.create(CONFIG_MAPS, body, "default")
    watch = client.watch(CONFIG_MAPS, "default", revision=made["metadata"]["resourceVersion"])
    changed = client.update(CONFIG_MAPS, {**made, "data": {"k": "2"}})
    with pytest.raises(ApiError, match="the object has been modified"):
        client.update(CONFIG_MAPS, {**made, "data": {"k": "3"}})
    client.patch(CONFIG_MAPS, "a", {"data": {"m": "4"}}, "default")
    client.patch(CONFIG_MAPS, "a", [{"op": "remove", "path": "/data/k"}], "default", type="json")
    assert client.get(CONFIG_MAPS, "a", "default")["data"] == {"m": "4"}
    assert changed["data"] == {"k": "2"}
    client.delete(CONFIG_MAPS, "a", "default", options={"propagationPolicy": "Background"})
    client.create(CONFIG_MAPS, {"metadata": {"name": "b", "labels": {"of": "b"}}}, "default")
    client.delete_collection(CONFIG_MAPS, "default", label_selector="of=b")
    seen = [watch.next(10).type for _ in range(6)]
    assert seen == ["MODIFIED", "MODIFIED", "MODIFIED", "DELETED", "ADDED", "DELETED"]
    watch.close()
    with pytest.raises(ApiError) as caught:
        client.get(CONFIG_MAPS, "a", "default")
    assert (caught.value.reason, caught.value.code) == ("NotFound", 404)


def test_a_long_list_comes_whole(client):
    from dralab.runtime import remote
    from dralab.runtime.resources import CONFIG_MAPS

    for number in range(7):
        client.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}"}}, "default")
    page, remote.PAGE = remote.PAGE, 3
    try:
        listing = client.list(CONFIG_MAPS, "default")
    finally:
        remote.PAGE = page
    assert [obj["metadata"]["name"] for obj in listing.items] == [f"c{n}" for n in range(7)]
    assert int(listing.revision) > 0


def test_a_watch_outlives_a_server_that_comes_back(tmp_path):
    from dralab.runtime.resources import CONFIG_MAPS

    data = tmp_path / "data"
    with Cluster(Options(data=data)) as first:
        port = int(first.url.rpartition(":")[2])
        client = RemoteClient(read(first.kubeconfig))
        revision = client.list(CONFIG_MAPS).revision
        watch = client.watch(CONFIG_MAPS, revision=revision)
        client.create(CONFIG_MAPS, {"metadata": {"name": "a"}}, "default")
        assert watch.next(10).object["metadata"]["name"] == "a"
    with Cluster(Options(data=data, port=port)) as second:
        second.client.create(CONFIG_MAPS, {"metadata": {"name": "b"}}, "default")
        assert watch.next(15).object["metadata"]["name"] == "b"
        watch.close()
    client.close()


def test_a_watch_notices_a_server_that_comes_back_empty():
    from dralab.runtime.resources import CONFIG_MAPS

    with Cluster() as first:
        port = int(first.url.rpartition(":")[2])
        client = RemoteClient(read(first.kubeconfig))
        for number in range(30):
            client.create(CONFIG_MAPS, {"metadata": {"name": f"c{number}"}}, "default")
        watch = client.watch(CONFIG_MAPS, revision=client.list(CONFIG_MAPS).revision)
    with Cluster(Options(port=port)), pytest.raises(ApiError) as caught:
        watch.next(15)
    assert caught.value.reason == "Expired"
    client.close()


def test_a_server_that_is_not_there_is_one_clear_line(tmp_path):
    config = tmp_path / "config"
    config.write_text(
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n", encoding="utf-8"
    )
    result = CliRunner().invoke(main, ["scheduler", "--kubeconfig", str(config)])
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: http://127.0.0.1:9 does not answer")


def test_a_kubeconfig_that_cannot_be_used_is_bad_input(tmp_path):
    result = CliRunner().invoke(main, ["scheduler", "--kubeconfig", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert "cannot be read" in result.stderr
