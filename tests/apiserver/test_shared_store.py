"""Two servers over one etcd are one cluster, whatever the other has done a moment ago."""

import asyncio
import itertools
import threading

import orjson
import pytest

pytest.importorskip("grpc")
pytest.importorskip("greenlet")

from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.messages import ByteStream, HttpRequest
from dralab.apiserver.http.trying import tried
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import Key
from dralab.apiserver.storage.etcd import client as etcd_client
from dralab.apiserver.verbs import deleting
from etcds import etcd_store
from fakeetcd import FakeEtcd
from waiting import until

MAPS = "/api/v1/namespaces/default/configmaps"
FOOS = "/apis/example.com/v1/namespaces/default/foos"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
prefixes = (f"/cluster-{number}" for number in itertools.count())


@pytest.fixture(scope="module")
def etcd():
    with FakeEtcd() as running:
        yield running


@pytest.fixture
def servers(etcd):
    prefix = next(prefixes)
    found = [ApiServer(etcd_store(etcd.url, prefix, window=10_000)) for _ in range(2)]
    yield found
    etcd.hold.set()
    etcd.faults.clear()
    for server in found:
        server.close()


def ask(server, method, path, body=None, query="", kind="application/json"):
    """Return the status and body of an answer, made as the edge has it made."""
    text = b"" if body is None else orjson.dumps(body)
    request = HttpRequest(
        method=method, path=path, query=query, headers={"content-type": kind}, body=text
    )
    if method == "GET":
        server.store.refresh()
    answer = server.handle_apart(request)
    return answer.status, orjson.loads(answer.content)


def config(name, **data):
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def definition():
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"plural": "foos", "singular": "foo", "kind": "Foo", "listKind": "FooList"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def foo(name):
    return {"apiVersion": "example.com/v1", "kind": "Foo", "metadata": {"name": name}}


def test_a_cluster_begins_once(servers):
    first, second = (ask(server, "GET", "/api/v1/namespaces")[1]["items"] for server in servers)
    assert len(first) == 4
    assert first == second


def test_a_write_upon_what_another_server_has_just_written_is_done(etcd, servers):
    here, there = servers
    for change, method, path, body, status in [
        (("POST", MAPS, config("a")), "PUT", f"{MAPS}/a", config("a", x="1"), 200),
        (("PUT", f"{MAPS}/a", config("a", x="2")), "PATCH", f"{MAPS}/a", {"data": {"x": "1"}}, 200),
        (("DELETE", f"{MAPS}/a"), "POST", MAPS, config("a", x="3"), 201),
        (("DELETE", f"{MAPS}/a"), "DELETE", f"{MAPS}/a", None, 404),
    ]:  # fmt: skip
        # The other server has not heard of the change when it is asked.
        answered = []
        with there.store.lock:
            assert ask(here, *change)[0] < 300
            kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
            writer = threading.Thread(
                target=lambda: answered.append(ask(there, method, path, body, kind=kind))  # noqa: B023
            )
            writer.start()
        writer.join()
        assert answered[0][0] == status, answered
        if body is not None:
            here.store.refresh()
            assert ask(here, "GET", f"{MAPS}/a")[1] == answered[0][1]


def test_no_patch_is_lost_whichever_server_takes_it(servers):
    ask(servers[0], "POST", MAPS, config("a"))
    answers = []

    def patch(server, who):
        for number in range(10):
            body = {"data": {f"{who}-{number}": "x"}}
            answers.append(
                ask(server, "PATCH", f"{MAPS}/a", body, kind="application/merge-patch+json")[0]
            )

    writers = [
        threading.Thread(target=patch, args=(servers[number % 2], number)) for number in range(4)
    ]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    done = answers.count(200)
    # A write that others keep disturbing may be refused in the end (ServerTimeout).
    assert done + answers.count(500) == 40, answers
    assert len(ask(servers[0], "GET", f"{MAPS}/a")[1]["data"]) == done > 20


def test_services_of_both_servers_have_addresses_of_their_own(servers):
    addresses = []

    def create(server, who):
        for number in range(8):
            body = {
                "apiVersion": "v1",
                "kind": "Service",
                "metadata": {"name": f"s{who}-{number}"},
                "spec": {"ports": [{"port": 80}]},
            }
            # So few that two at once choose the same.
            status, made = ask(server, "POST", "/api/v1/namespaces/default/services", body)
            if status == 201:
                addresses.append(made["spec"]["clusterIP"])

    for server in servers:
        for admission in server.resources.context.admission:
            if admission.name == "ServiceAddresses":
                admission.network = type(admission.network)("10.0.0.0/26")
    writers = [threading.Thread(target=create, args=(each, n)) for n, each in enumerate(servers)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert len(addresses) > 8
    assert len(set(addresses)) == len(addresses)


def test_a_kind_that_one_server_is_told_of_both_serve(servers):
    here, there = servers
    assert ask(here, "POST", DEFINITIONS, definition())[0] == 201
    assert ask(here, "POST", FOOS, foo("a"))[0] == 201
    there.store.refresh()
    there.resources.context.following.settle("apiextensions.k8s.io/customresourcedefinitions")
    assert ask(there, "POST", FOOS, foo("b"))[0] == 201
    names = [each["metadata"]["name"] for each in ask(here, "GET", FOOS)[1]["items"]]
    assert names == ["a", "b"]
    conditions = ask(there, "GET", f"{DEFINITIONS}/foos.example.com")[1]["status"]["conditions"]
    assert {each["type"]: each["status"] for each in conditions} == {
        "NamesAccepted": "True", "Established": "True",
    }  # fmt: skip
    late = ApiServer(etcd_store(str(here.store.address), here.store.address.prefix))
    assert ask(late, "GET", FOOS)[0] == 200
    late.close()


def test_a_kind_goes_at_both_servers_with_its_objects(servers):
    here, there = servers
    ask(here, "POST", DEFINITIONS, definition())
    ask(here, "POST", FOOS, foo("a"))
    assert ask(here, "DELETE", f"{DEFINITIONS}/foos.example.com")[0] == 200
    for server in (here, there):
        server.store.refresh()
        server.resources.context.following.settle("apiextensions.k8s.io/customresourcedefinitions")
        server.store.refresh()
        server.resources.context.following.settle("apiextensions.k8s.io/customresourcedefinitions")
        assert server.store.count("example.com/foos") == 0
        assert not [kind for kind in server.resources.kinds if kind.group == "example.com"]


def test_pods_of_a_node_are_found_by_whichever_server(servers):
    here, there = servers
    pods = "/api/v1/namespaces/default/pods"
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"nodeName": "n1", "containers": [{"name": "c", "image": "i"}]},
    }
    query = "fieldSelector=spec.nodeName%3Dn1"
    assert ask(there, "GET", pods, query=query)[1]["items"] == [], "the index is made"
    assert ask(here, "POST", pods, body)[0] == 201
    assert len(ask(there, "GET", pods, query=query)[1]["items"]) == 1
    ask(here, "DELETE", f"{pods}/a", {"gracePeriodSeconds": 0})
    assert ask(there, "GET", pods, query=query)[1]["items"] == []


def over_sockets(server, *requests):
    """Return the outcomes of requests that come to the edge at once."""

    async def main():
        edge = AsgiApp(server)
        return await asyncio.gather(*(edge.submit(request) for request in requests))

    return asyncio.run(main())


def request(method, path, query="", body=b""):
    return HttpRequest(
        method=method,
        path=path,
        query=query,
        headers={"content-type": "application/json"},
        body=body,
    )


def test_the_edge_reads_what_the_other_server_acknowledged(servers):
    here, there = servers
    made = over_sockets(here, request("POST", MAPS, body=orjson.dumps(config("a"))))[0]
    revision = orjson.loads(made.content)["metadata"]["resourceVersion"]
    with_revision = f"resourceVersion={revision}"
    one, some, none, listed = over_sockets(
        there,
        request("GET", f"{MAPS}/a"),
        request("GET", f"{MAPS}/a", with_revision),
        request("GET", f"{MAPS}/b"),
        request("GET", MAPS, with_revision),
    )
    assert (one.status, some.status, none.status, listed.status) == (200, 200, 404, 200)
    assert one.content == made.content
    assert len(orjson.loads(listed.content)["items"]) == 1


def test_a_write_that_waits_for_another_s_keeps_no_other_request_waiting(etcd, servers):
    here, there = servers
    etcd.hold.clear()  # so that this server does not hear of the other's write
    assert ask(there, "POST", MAPS, config("before"))[0] == 201

    async def main():
        edge = AsgiApp(here)
        written = edge.submit(request("POST", MAPS, body=orjson.dumps(config("behind"))))
        await asyncio.to_thread(until, lambda: "Txn" in etcd.calls)
        read = await edge.submit(request("GET", MAPS, "resourceVersion=0"))
        assert not written.done()
        etcd.hold.set()
        return read, await written

    etcd.calls.clear()
    read, written = asyncio.run(main())
    assert (read.status, written.status) == (200, 201)


def test_a_request_of_many_writes_does_not_poll_for_their_answers(servers, monkeypatch):
    """It holds the store's lock from its second step on, so the loop's thread waits."""
    monkeypatch.setattr(etcd_client, "POLLED", 60.0)
    monkeypatch.setattr(deleting, "STEP", 1)
    here = servers[0]
    for name in "abcd":
        over_sockets(here, request("POST", MAPS, body=orjson.dumps(config(name))))
    deleted, left = over_sockets(here, request("DELETE", MAPS), request("GET", MAPS))
    assert (deleted.status, left.status) == (200, 200)
    assert [one.key.name for one in here.store.list("configmaps", "default").items] == []


def test_of_two_loops_the_first_reads_what_etcd_answers(servers):
    here = servers[0]

    async def main():
        edge = AsgiApp(here)
        await edge.submit(request("GET", MAPS))
        mine = here.store._client._loop
        second = await asyncio.to_thread(over_sockets, here, request("GET", MAPS))
        assert here.store._client._loop is mine is asyncio.get_running_loop()
        again = await edge.submit(request("GET", MAPS))
        edge.close()
        return second[0].status, again.status

    assert asyncio.run(main()) == (200, 200)
    assert here.store._client._loop is None
    assert here.store.create(Key("configmaps", "default", "z"), config("z"))


def test_writes_wait_for_etcd_without_threads(etcd, servers):
    etcd.calls.clear()
    written = over_sockets(
        servers[0],
        *(request("POST", MAPS, body=orjson.dumps(config(f"m{n}"))) for n in range(40)),
    )
    assert {one.status for one in written} == {201}
    assert etcd.calls.count("Txn") <= 10, "those that begin in one turn of the loop share one"
    names = {thread.name.rpartition("_")[0] for thread in threading.enumerate()}
    assert "writes" not in names


@pytest.mark.parametrize(
    ("path", "query", "asks"),
    [
        (MAPS, "", True),
        (f"{MAPS}/a", "", True),
        (f"{MAPS}/a", "resourceVersion=99999999", True),
        (MAPS, "watch=1", True),
        (MAPS, "resourceVersion=0", False),
        (MAPS, "resourceVersion=1", False),
        (MAPS, "watch=1&resourceVersion=99999999", False),
        ("/healthz", "", False),
        ("/apis", "", False),
        ("/api/v1", "", False),
    ],
)
def test_only_what_reads_the_present_asks_etcd(etcd, servers, path, query, asks):
    etcd.calls.clear()
    [outcome] = over_sockets(servers[0], request("GET", path, query))
    if hasattr(outcome, "close"):
        outcome.close()
    assert ("Range" in etcd.calls) is asks


def test_clients_are_told_what_became_of_their_request(etcd, servers, monkeypatch):
    monkeypatch.setattr(etcd_client, "PATIENCE", 0.05)
    here = servers[0]
    body = orjson.dumps(config("a"))
    answers = {}
    for fault in ("full", "large", "lost", "refused"):
        etcd.fail("Txn", *[fault] * (1 if fault in {"full", "large"} else 10))
        [answers[fault]] = over_sockets(here, request("POST", MAPS, body=body))
        etcd.faults.clear()
    told = {
        fault: (
            answer.status,
            orjson.loads(answer.content)["reason"],
            "Retry-After" in dict(answer.headers),
        )
        for fault, answer in answers.items()
    }
    assert told == {
        "full": (503, "ServiceUnavailable", True),
        "large": (413, "RequestEntityTooLarge", False),
        "lost": (504, "Timeout", False),
        "refused": (409, "AlreadyExists", False),
    }
    etcd.fail("Range", *["refused"] * 10)
    unread, cached = over_sockets(
        here, request("GET", f"{MAPS}/a"), request("GET", MAPS, "resourceVersion=0")
    )
    assert (unread.status, cached.status) == (503, 200)
    assert orjson.loads(unread.content)["message"].startswith("the store cannot be read: etcd://")


def test_a_server_that_does_not_hear_of_writes_is_alive_and_not_ready(etcd, servers):
    server = servers[0]

    def pages(*paths):
        found = [server.handle(request("GET", path)) for path in paths]
        return [(page.status, page.content.decode()) for page in found]

    assert pages("/readyz", "/readyz/etcd") == [(200, "ok"), (200, "ok")]
    etcd.fail("Watch", *["refused"] * 1000)
    etcd.cut_watches()
    while server.store.connected:
        threading.Event().wait(0.01)
    ready, storage, live = pages("/readyz", "/readyz/etcd", "/livez")
    assert ready[0] == storage[0] == 500
    assert "[-]etcd failed: reason withheld" in ready[1]
    assert ready[1].endswith("readyz check failed\n")
    assert live == (200, "ok")
    etcd.faults.clear()
    while not server.store.connected:
        threading.Event().wait(0.01)
    assert pages("/readyz") == [(200, "ok")]


def test_a_stream_is_opened_once(servers):
    here, there = servers
    opened = []

    def attempt(view):
        opened.append(view)
        ask(there, "POST", MAPS, config(f"n{len(opened)}"))
        return ByteStream(source=None)

    answer = tried(request("POST", f"{MAPS}/a/exec"), here.store, attempt)
    assert isinstance(answer, ByteStream)
    assert len(opened) == 1
