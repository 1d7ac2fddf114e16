"""Requests in the loop, in lanes and in engine threads, in orders drawn from seeds.

`--seeds N` tries as many, `--seeds N --first-seed M` from M on; `make nightly` 10,000.
A failure names its seed, and the command that repeats it.
"""

import json
from functools import cache

import pytest

from apiserver.competitors import MODES, STEPS, Client, Hooks, addresses_of, ask, check, prepare
from dralab.api import kinds
from dralab.apiserver.access.authorization import nodes
from dralab.apiserver.access.users import ADMIN
from dralab.apiserver.http.messages import HEAVY_LANE, LARGE_LANE, LOOP, HttpRequest, TakesLong
from dralab.apiserver.http.trying import unavailable
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore, StorageUnavailable
from dralab.apiserver.verbs.aggregation.local_services import LocalApiServices
from dralab.apiserver.verbs.upkeep import bootstrap
from dralab.apiserver.verbs.upkeep.flow_schema_statuses import FlowSchemaStatuses
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from interleavings import Deadlock, Interleaving

SEEDS = 8
THREAD = ""  # of a program in the process of the server
# Seeds that found something: what was wrong then.
FOUND = {
    4: "requests were classified by FlowSchemas that had been replaced",
    22: "a quota counted a pod that was taken back",
    90: "an index lacked a pod that was written beside one that was taken back",
    257: "a definition was served that was taken back",
    344: "a policy acted that was taken back",
}
AGAIN = (
    'pytest -m "not conformance" tests/apiserver/test_interleavings.py --seeds 1 --first-seed {}'
)


expected = cache(nodes.expected)


class FailingStore(MemoryStore):
    """A store whose medium fails now and then: what it was to keep is taken back."""

    def __init__(self):
        super().__init__()
        self.fails = lambda: False

    def _persist(self, changes):
        if self.fails():
            raise StorageUnavailable("the disk is full")


class Sender:
    """Answers requests in the thread of a client, in the loop or in a lane."""

    def __init__(self, server, chance):
        self.server, self.chance = server, chance

    def __call__(self, method, path, body, media, user, accept):
        lane = self.chance.choice((LOOP, HEAVY_LANE, LARGE_LANE, THREAD))
        text = b"" if body is None else json.dumps(body).encode()
        path, _, query = path.partition("?")
        head = {"content-type": media} | ({"accept": accept} if accept else {})
        request = HttpRequest(method=method, path=path, query=query, headers=head, body=text)
        request.user, request.lane = user or ADMIN, lane
        while True:
            try:
                if request.lane == LOOP:
                    with self.server.store.batch():
                        answer = self.server.handle(request)
                else:
                    answer = self.server.handle_apart(request)
            except TakesLong as condition:
                request.lane = condition.lane
                continue
            except StorageUnavailable as error:
                answer = unavailable(error)
            return answer.status, answer.headers, answer.content


def new_server(store):
    clock, chance = ManualClock(1_800_000_000 * 10**9), Randomness(1)
    server = ApiServer(
        store, clock=clock, randomness=chance, authorization=MODES, mount_tokens=True
    )
    prepare(server)
    return server


def server_of(order, monkeypatch):
    """A server whose threads switch at each lock, and at lines of some of its modules."""
    order.take_over("dralab.apiserver", monkeypatch, also=[kinds])
    # The roles and schemas of every cluster are read from files, which takes half of the time.
    monkeypatch.setattr(nodes, "expected", expected)
    monkeypatch.setattr(bootstrap, "reconcile", lambda *_: None)
    store = FailingStore()
    server = new_server(store)
    if order.chance.random() < 0.3:  # what a whole cluster has: observers that write
        LocalApiServices(server.resources).publish()
        FlowSchemaStatuses(server.resources.context).follow()
    hooks = Hooks(order.pause)
    vars(server.resources.context.outgoing)["client"] = hooks
    if order.chance.random() < 0.2:
        store.fails = lambda: order.chance.random() < 0.05
    return server, hooks


def clients_of(order, server, hooks, names):
    return [
        Client(server, hooks, order.chance, name, Sender(server, order.chance)) for name in names
    ]


def run(seed, monkeypatch):
    """Run clients in the order of a seed; return it."""
    order = Interleaving(seed)
    with monkeypatch.context() as patch:
        server, hooks = server_of(order, patch)
        clients = clients_of(order, server, hooks, ("ann", "bob", "cyd"))
        try:
            order.run(*(each.run for each in clients))
            server.store.fails = lambda: False
            check(server, clients)
        except (AssertionError, Deadlock) as error:
            done = {each.name: [step.__name__ for step in each.steps] for each in clients}
            raise AssertionError(f"seed {seed}: {error}\n{done}\n{AGAIN.format(seed)}") from error
        finally:
            server.close()
    return order.order


@pytest.fixture(scope="module", autouse=True)
def _everything_is_imported():
    """Take every step once: an import has a lock of its own."""
    order = Interleaving(0)
    server = new_server(MemoryStore())
    hooks = Hooks()
    vars(server.resources.context.outgoing)["client"] = hooks
    (client,) = clients_of(order, server, hooks, ["dan"])
    client.steps = STEPS
    client.run()
    server.close()


@pytest.mark.parametrize("number", [SEEDS, pytest.param(10_000, marks=pytest.mark.conformance)])
def test_requests_in_any_order_keep_what_they_promise(number, request, monkeypatch):
    first = request.config.getoption("--first-seed")
    for seed in range(first, first + (request.config.getoption("--seeds") or number)):
        run(seed, monkeypatch)


@pytest.mark.parametrize("seed", FOUND, ids=FOUND.get)
def test_what_once_failed_holds(seed, monkeypatch):
    run(seed, monkeypatch)


def test_what_is_derived_is_made_anew_before_others_can_see_what_was_taken_back():
    """A request that had begun before may write next, at the revision that was taken back."""
    store = FailingStore()
    server = new_server(store)
    verbs = server.application.resources
    others = verbs.context.scope(store=store.view())  # one that is under way
    store.fails = lambda: True
    body = {"spec": {"ports": [{"port": 80}]}, "metadata": {"name": "s"}}
    with pytest.raises(StorageUnavailable), store.batch():
        ask(server, "POST", "/api/v1/namespaces/default/services", body)
    store.fails = lambda: False
    kind = server.resources.kind("", "v1", "configmaps")
    verbs.create(kind, {"metadata": {"name": "c"}}, "default", others)
    assert addresses_of(server).addresses == {}
    server.close()


def test_the_same_seed_is_the_same_order(monkeypatch):
    orders = [run(7, monkeypatch) for _ in range(2)]
    assert orders[0] == orders[1]
    assert len(set(orders[0])) == 3


def test_a_lost_update_is_found():
    """The tool itself: two threads that read and write without a lock around both."""
    found = set()
    for seed in range(20):
        order, box = Interleaving(seed), {"n": 0}
        lock = order.lock()

        def add(box=box, lock=lock):
            with lock:
                n = box["n"]
            with lock:
                box["n"] = n + 1

        order.run(add, add)
        found.add(box["n"])
    assert found == {1, 2}


def test_an_update_that_no_lock_guards_is_found():
    """The tool itself: threads change at lines, too."""
    found = set()
    for seed in range(100):
        order, box = Interleaving(seed), {"n": 0}
        order.files = frozenset({__file__})

        def add(box=box):
            n = box["n"]
            box["n"] = n + 1

        order.run(add, add)
        found.add(box["n"])
    assert found == {1, 2}


def test_a_deadlock_is_found():
    seen = []
    for seed in range(20):
        order = Interleaving(seed)
        one, two = order.lock(), order.lock()

        def take(first, second):
            with first, second:
                pass

        try:
            order.run(lambda: take(one, two), lambda: take(two, one))  # noqa: B023 - runs here
        except Deadlock:
            seen.append(seed)
    assert 0 < len(seen) < 20
