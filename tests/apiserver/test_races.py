"""Many clients at once, over HTTP and inside the process, while threads switch all the time.

Each lane of a server has work: the loop, large bodies, writes to a shared store, webhooks, and the
threads of programs in its process. What must hold is what `test_interleavings` checks, too.
"""

import http.client
import json
import random
import sys
import threading
from contextlib import ExitStack, contextmanager

import pytest

from apiserver.competitors import (
    FREE,
    MODES,
    POD,
    SPACE,
    STEPS,
    Client,
    Hooks,
    ask,
    check,
    place,
    prepare,
)
from dralab.apiserver.http.messages import (
    HEAVY,
    HEAVY_LANE,
    LARGE,
    LARGE_LANE,
    WAITING_LANE,
    WRITES_LANE,
)
from dralab.apiserver.storage.etcd.address import EtcdAddress
from dralab.cluster import Cluster, Options
from fakeetcd import FakeEtcd

TOKEN = "races"
CLIENTS, STEPS_EACH = 8, 12
ONE_AT_A_TIME = (Client.turn,)  # the loop does that itself
LAST = "last"
WATCHED = {"configmaps": {}, "pods": POD, "services": {"spec": {"ports": [{"port": 80}]}}}


class Sender:
    """Sends requests of an administrator, who acts as others; some bodies fill a slower lane."""

    def __init__(self, port, chance):
        self.chance = chance
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def __call__(self, method, path, body, media, user, accept):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": media}
        headers |= {"Accept": accept} if accept else {}
        if user is not None:
            headers["Impersonate-User"] = user.name
            if user.groups:
                (headers["Impersonate-Group"],) = user.groups
        text = b"" if body is None else json.dumps(body).encode()
        if text and (size := self.chance.choice((0, 0, 0, 0, HEAVY, LARGE))):
            text += b" " * size
        self.connection.request(method, path, text or None, headers)
        answer = self.connection.getresponse()
        return answer.status, answer.getheaders(), answer.read()


class Watcher(threading.Thread):
    """Watches a collection over HTTP until the object `last` comes, and keeps what it was told."""

    def __init__(self, port, collection, listed):
        super().__init__(daemon=True)
        self.state = {place(each): each for each in listed["items"]}
        self.revision = int(listed["metadata"]["resourceVersion"])
        self.problems = []
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        path = f"/api/v1/{collection}?watch=1&resourceVersion={self.revision}"
        self.connection.request("GET", path, headers={"Authorization": f"Bearer {TOKEN}"})
        self.answer = self.connection.getresponse()
        self.start()

    def run(self):
        for line in self.answer:
            event = json.loads(line)
            found = event["object"]
            at = int(found["metadata"]["resourceVersion"])
            if at <= self.revision:
                self.problems.append(("order", self.revision, line))
            self.revision = at
            if event["type"] == "DELETED":
                if self.state.pop(place(found), None) is None:
                    self.problems.append(("deleted before", line))
            else:
                if (place(found) in self.state) != (event["type"] == "MODIFIED"):
                    self.problems.append(("kind", line))
                self.state[place(found)] = found
            if found["metadata"]["name"] == LAST:
                return


@pytest.fixture
def _switching_all_the_time():
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@contextmanager
def stores(sort):
    """The stores of the servers that race: one in memory, or one etcd for each of them."""
    if sort == "memory":
        yield [None]
    else:
        pytest.importorskip("greenlet")
        with FakeEtcd() as etcd:
            yield [EtcdAddress.read(etcd.url)] * (2 if sort == "two on etcd" else 1)


@pytest.mark.thorough
@pytest.mark.usefixtures("_switching_all_the_time")
@pytest.mark.parametrize("sort", ["memory", "etcd", "two on etcd"])
def test_many_clients_at_once_keep_what_they_promise(sort, request):
    for seed in range(request.config.getoption("--seeds") or 1):
        with stores(sort) as found, ExitStack() as stack:
            clusters = [stack.enter_context(Cluster(options(store))) for store in found]
            race(random.Random(seed), clusters)


def options(store):
    return Options(
        token=TOKEN, authorization=MODES, mount_tokens=True, own_objects=True, store=store
    )


def race(chance, clusters):
    prepare(clusters[0].server)
    hooks = Hooks(lambda: threading.Event().wait(0.002))
    for each in clusters:
        each.server.store.refresh()
        vars(each.server.resources.context.outgoing)["client"] = hooks
    watchers = [watchers_of(each.server, port_of(each)) for each in clusters]
    clients = clients_of(clusters, hooks, chance)
    errors = run_all(clients)
    assert not errors, errors
    for each in clusters:
        wanted = {LARGE_LANE, HEAVY_LANE, WAITING_LANE}
        wanted |= {WRITES_LANE} if each.server.store.shared else set()
        assert set(each._edge._apart) >= wanted, "each lane had work"
        each.server.store.refresh()
        check(each.server, clients)
    end_watches(clusters[0].server)
    for each, own in zip(clusters, watchers, strict=True):
        each.server.store.refresh()
        check_watchers(each.server, own)
    for each in clients:
        each.send.connection.close()


def port_of(cluster):
    return int(cluster.url.rpartition(":")[2])


def clients_of(clusters, hooks, chance):
    found = []
    for number in range(CLIENTS):
        own = random.Random(chance.random())
        cluster = clusters[number % len(clusters)]
        send = Sender(port_of(cluster), own)
        client = Client(cluster.server, hooks, own, f"c{number}x", send, STEPS_EACH)
        # Every kind of step is taken, by someone or other.
        client.steps[0:3] = [STEPS[(3 * number + at) % len(STEPS)] for at in range(3)]
        client.steps = [step for step in client.steps if step not in ONE_AT_A_TIME]
        found.append(client)
    return found


def watchers_of(server, port):
    return {each: Watcher(port, each, ask(server, "GET", f"/api/v1/{each}")[1]) for each in WATCHED}


def run_all(clients):
    """Run all clients at the same time; return what went wrong."""
    errors, start = [], threading.Barrier(len(clients))

    def work(client):
        start.wait()
        try:
            client.run()
        except BaseException as error:  # noqa: BLE001 - the test tells of it
            errors.append((client.name, [each.__name__ for each in client.steps], error))

    threads = [threading.Thread(target=work, args=(each,)) for each in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def end_watches(server):
    for collection, body in WATCHED.items():
        space = SPACE if collection != "pods" else FREE
        made = {"metadata": {"name": LAST}, **body}
        status, found = ask(server, "POST", f"{space}/{collection}", made)
        assert status == 201, found


def check_watchers(server, watchers):
    """The streams are complete, and in order: what they lead to is what is stored."""
    for collection, watcher in watchers.items():
        watcher.join(60)
        assert not watcher.is_alive(), collection
        watcher.connection.close()
        assert not watcher.problems
        stored = ask(server, "GET", f"/api/v1/{collection}")[1]["items"]
        assert watcher.state.keys() == {place(each) for each in stored}
        for each in stored:
            told = watcher.state[place(each)]["metadata"]["resourceVersion"]
            assert told == each["metadata"]["resourceVersion"]
