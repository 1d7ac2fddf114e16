import threading
from typing import Any

import pytest

from dralab.api.status import ApiError, ignoring
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Resource, delete_only, find
from dralab.runtime.local import LocalClient

CONFIGMAPS = Resource("", "v1", "configmaps")
PODS = Resource("", "v1", "pods")
NODES = Resource("", "v1", "nodes", namespaced=False)


@pytest.fixture
def client() -> LocalClient:
    server = ApiServer(MemoryStore(), clock=ManualClock(), randomness=Randomness(1))
    return LocalClient(server.resources, server.hub)


def config(name: str, **labels: str) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "default", "labels": labels}}


def test_objects_are_created_read_changed_and_deleted(client: LocalClient) -> None:
    made = client.create(CONFIGMAPS, config("a"))
    assert client.get(CONFIGMAPS, "a", "default") == made
    changed = client.update(CONFIGMAPS, {**made, "data": {"x": "1"}})
    assert changed["data"] == {"x": "1"}
    patched = client.patch(CONFIGMAPS, "a", {"data": {"y": "2"}}, "default")
    assert patched["data"] == {"x": "1", "y": "2"}
    client.delete(CONFIGMAPS, "a", "default")
    with pytest.raises(ApiError, match='configmaps "a" not found'):
        client.get(CONFIGMAPS, "a", "default")


def test_what_goes_in_stays_the_callers(client: LocalClient) -> None:
    body = config("a", app="web")
    client.create(CONFIGMAPS, body)
    assert body == config("a", app="web")
    body["metadata"]["labels"]["app"] = "other"
    assert client.get(CONFIGMAPS, "a", "default")["metadata"]["labels"] == {"app": "web"}


def test_what_is_no_json_is_refused(client: LocalClient) -> None:
    with pytest.raises(ApiError, match="is not JSON"):
        client.create(CONFIGMAPS, {"metadata": {"name": "a", "labels": {1}}}, "default")


def test_a_stale_update_is_a_conflict(client: LocalClient) -> None:
    made = client.create(CONFIGMAPS, config("a"))
    client.update(CONFIGMAPS, {**made, "data": {"x": "1"}})
    with pytest.raises(ApiError) as stale:
        client.update(CONFIGMAPS, {**made, "data": {"x": "2"}})
    assert stale.value.reason == "Conflict"


def test_lists_are_chosen_by_selectors(client: LocalClient) -> None:
    client.create(CONFIGMAPS, config("a", app="web"))
    client.create(CONFIGMAPS, config("b", app="db"))
    found = client.list(CONFIGMAPS, label_selector="app=db")
    assert [item["metadata"]["name"] for item in found.items] == ["b"]
    found = client.list(CONFIGMAPS, "default", field_selector="metadata.name=a")
    assert [item["metadata"]["name"] for item in found.items] == ["a"]


def test_a_watch_tells_what_happened_since_the_list(client: LocalClient) -> None:
    since = client.list(CONFIGMAPS).revision
    watch = client.watch(CONFIGMAPS, revision=since, label_selector="app=web")
    assert watch.next(timeout=0) is None
    made = client.create(CONFIGMAPS, config("a", app="web"))
    client.create(CONFIGMAPS, config("b", app="db"))
    client.patch(CONFIGMAPS, "a", {"metadata": {"labels": {"app": "db"}}}, "default")
    event = watch.next(timeout=0)
    assert event is not None
    assert (event.type, event.object) == ("ADDED", made)
    event = watch.next()
    assert event is not None
    assert (event.type, event.object["metadata"]["labels"]) == ("DELETED", {"app": "web"})
    assert watch.next(timeout=0) is None
    watch.close()
    client.create(CONFIGMAPS, config("c", app="web"))
    assert watch.next() is None


def test_a_watch_says_when_it_has_news(client: LocalClient) -> None:
    told: list[str] = []
    watch = client.watch(NODES, revision=client.list(NODES).revision)
    watch.notify(lambda: told.append("news"))
    assert told == []
    client.create(NODES, {"metadata": {"name": "n1"}})
    assert told == ["news"]
    client.create(NODES, {"metadata": {"name": "n2"}})
    assert watch.next(timeout=0)
    told.clear()
    watch.notify(lambda: told.append("still"))
    assert told == ["still"], "one event waits"


def test_a_watch_waits_for_other_threads(client: LocalClient) -> None:
    watch = client.watch(NODES, revision=client.list(NODES).revision)
    writer = threading.Timer(0.02, client.create, (NODES, {"metadata": {"name": "n1"}}))
    writer.start()
    event = watch.next(timeout=10)
    assert event is not None
    assert event.object["metadata"]["name"] == "n1"
    writer.join()


def test_a_watch_from_before_the_history_is_expired(client: LocalClient) -> None:
    old = client.list(NODES).revision
    client.create(NODES, {"metadata": {"name": "n1"}})
    client.hub.store.compact(client.hub.store.revision)
    with pytest.raises(ApiError) as expired:
        client.watch(NODES, revision=old)
    assert expired.value.reason == "Expired"


def test_a_pod_is_bound_by_its_subresource(client: LocalClient) -> None:
    pod = {
        "metadata": {"name": "p", "namespace": "default"},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    client.create(PODS, pod)
    binding = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    client.post(PODS, "p", "binding", binding, "default")
    assert client.get(PODS, "p", "default")["spec"]["nodeName"] == "n1"


def test_an_object_that_does_not_exist_is_none(client: LocalClient) -> None:
    assert find(client, CONFIGMAPS, "a", "default") is None
    made = client.create(CONFIGMAPS, config("a"))
    assert find(client, CONFIGMAPS, "a", "default") == made


def test_a_later_object_of_the_same_name_is_not_deleted(client: LocalClient) -> None:
    old = client.create(CONFIGMAPS, config("a"))
    assert delete_only(client, CONFIGMAPS, old)
    assert not delete_only(client, CONFIGMAPS, old)
    new = client.create(CONFIGMAPS, config("a"))
    assert not delete_only(client, CONFIGMAPS, old)
    assert find(client, CONFIGMAPS, "a", "default") == new


def test_only_the_named_reasons_are_ignored() -> None:
    with pytest.raises(ApiError), ignoring("NotFound"):
        raise ApiError.conflict("pods", "a", "it was changed")
    with pytest.raises(KeyError), ignoring("NotFound"):
        raise KeyError("NotFound")
