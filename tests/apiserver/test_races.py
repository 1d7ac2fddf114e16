"""Many clients at once, over HTTP and inside the process, while threads switch all the time.

Each lane of a server has work: the loop, large bodies, writes to a shared store, webhooks, and the
threads of programs in its process. What must hold is what `test_interleavings` checks, too.
"""

import http.client
import json
import random
import sys
import threading
from contextlib import contextmanager

import pytest

from apiserver.competitors import MODES, SPACE, STEPS, Client, Hooks, ask, check, place, prepare
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


class Sender:
    """Sends requests of an administrator, who acts as others; some bodies fill a slower lane."""

    def __init__(self, port, chance):
        self.chance = chance
        self.connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)

    def __call__(self, method, path, body, media, user):
        headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": media}
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
def store_of(sort):
    if sort == "memory":
        yield None
    else:
        with FakeEtcd() as etcd:
            yield EtcdAddress.read(etcd.url)


@pytest.mark.thorough
@pytest.mark.usefixtures("_switching_all_the_time")
@pytest.mark.parametrize("sort", ["memory", "etcd"])
def test_many_clients_at_once_keep_what_they_promise(sort, request):
    for seed in range(request.config.getoption("--seeds") or 1):
        with store_of(sort) as store:
            race(seed, store)


def race(seed, store):
    options = Options(
        token=TOKEN, authorization=MODES, mount_tokens=True, own_objects=True, store=store
    )
    chance = random.Random(seed)
    with Cluster(options) as cluster:
        server, port = cluster.server, int(cluster.url.rpartition(":")[2])
        prepare(server)
        hooks = Hooks(lambda: threading.Event().wait(0.002))
        vars(server.resources.context.outgoing)["client"] = hooks
        watchers = {
            each: Watcher(port, each, ask(server, "GET", f"/api/v1/{each}")[1])
            for each in ("configmaps", "pods", "services")
        }
        clients = clients_of(server, hooks, chance, port)
        errors = run_all(clients)
        assert not errors, errors
        lanes = set(cluster._edge._apart)
        wanted = {LARGE_LANE, HEAVY_LANE, WAITING_LANE} | ({WRITES_LANE} if store else set())
        assert lanes >= wanted, "each lane had work"
        server.store.refresh()
        check(server, clients)
        check_watchers(server, watchers)
        for each in clients:
            each.send.connection.close()


def clients_of(server, hooks, chance, port):
    found = []
    for number in range(CLIENTS):
        own = random.Random(chance.random())
        client = Client(server, hooks, own, f"c{number}x", Sender(port, own), STEPS_EACH)
        # Every kind of step is taken, by someone or other.
        client.steps[0:3] = [STEPS[(3 * number + at) % len(STEPS)] for at in range(3)]
        client.steps = [step for step in client.steps if step not in ONE_AT_A_TIME]
        found.append(client)
    return found


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


def check_watchers(server, watchers):
    """The streams are complete, and in order: what they lead to is what is stored."""
    spec = {"ports": [{"port": 80}]}
    pod = {"containers": [{"name": "c", "image": "x"}]}
    bodies = {"configmaps": {}, "pods": {"spec": pod}, "services": {"spec": spec}}
    for collection, body in bodies.items():
        space = SPACE if collection != "pods" else SPACE.replace("default", "kube-public")
        made = {"metadata": {"name": LAST}, **body}
        status, found = ask(server, "POST", f"{space}/{collection}", made)
        assert status == 201, found
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
