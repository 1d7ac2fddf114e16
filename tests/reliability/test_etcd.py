"""Servers that share an etcd, as clients of all of them see it: one history, whoever is killed."""

import json
import random
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("grpc")
pytest.importorskip("greenlet")

from dralab.apiserver.storage.etcd import EtcdAddress
from dralab.cluster import Cluster, Options
from etcds import Etcd, prefixes
from fakeetcd import FakeEtcd
from reliability.processes import Connection, ServerProcess
from reliability.test_history import check, recorded
from reliability.test_kill import BROKEN, PATH, Content

UNKNOWN = frozenset({500, 503, 504})


def linear(url: str, clients: int, count: int) -> set[tuple[str, int]]:
    """Check a history over two servers; return what happened in it."""
    address = EtcdAddress.read(url, prefix=next(prefixes))
    with Cluster(Options(store=address)) as one, Cluster(Options(store=address)) as other:
        history, watches = recorded([one, other], clients, count, seed=3)
    check(history, watches)
    return {(each.kind, each.status) for each in history}


def test_the_history_over_two_servers_is_linear_for_each_object() -> None:
    with FakeEtcd() as etcd:
        happened = linear(etcd.url, clients=8, count=15)
    assert {("update", 409), ("create", 409), ("delete", 404), ("patch", 200)} <= happened


@pytest.mark.conformance
def test_the_history_over_two_servers_and_a_real_etcd_is_linear(tmp_path: Path) -> None:
    with Etcd(tmp_path) as etcd:
        linear(etcd.url, clients=40, count=60)


class Writer(threading.Thread):
    """Writes to objects of its own through any server that answers.

    `possible` is what each may contain: one thing after an acknowledged write, more while it is
    unknown whether a write has happened.
    """

    def __init__(self, number: int, hosts: list[str], over: threading.Event) -> None:
        super().__init__()
        self.rng = random.Random(number)
        self.number, self.hosts, self.over = number, hosts, over
        self.possible: dict[str, set[Content]] = {f"w{number}-{each}": {None} for each in range(3)}
        self.acknowledged = 0
        self.wrong: list[Any] = []

    def run(self) -> None:
        turn = self.number
        while not self.over.is_set() and not self.wrong:
            connection = Connection(self.hosts[turn % len(self.hosts)], timeout=15)
            try:
                while not self.over.is_set() and not self.wrong:
                    self.act(connection)
            except (*BROKEN, ValueError):  # an answer may be cut off
                self.over.wait(0.02)
            finally:
                connection.close()
            turn += 1

    def act(self, connection: Connection) -> None:
        name = self.rng.choice(sorted(self.possible))
        path, possible = f"{PATH}/{name}", self.possible[name]
        status, answer = connection.ask("GET", path)
        if status in UNKNOWN:
            return
        found = answer["data"]["content"] if status == 200 else None
        if found not in possible:
            self.wrong.append((name, "reads", found, "not one of", possible))
            return
        wanted: Content = f"{self.number}-{self.rng.randrange(10**9)}"
        if found is None:
            body = {"metadata": {"name": name}, "data": {"content": wanted}}
            request = ("POST", PATH, body)
        elif self.rng.random() < 0.3:
            wanted = None
            request = ("DELETE", path, None)
        else:
            request = ("PUT", path, answer | {"data": {"content": wanted}})
        possible.add(wanted)
        status, answer = connection.ask(*request)
        if status in (200, 201):
            self.possible[name] = {wanted}
            self.acknowledged += 1
        elif status not in (404, 409, *UNKNOWN) or (status < 500 and len(possible) == 2):
            # Nobody else writes to it: only an unknown write of its own can be in the way.
            self.wrong.append((request, status, answer))


class Watcher(threading.Thread):
    """Follows all objects through one server after the other; lists again where it must."""

    def __init__(self, hosts: list[str]) -> None:
        super().__init__()
        self.hosts = hosts
        self.state: dict[str, Content] = {}
        self.revision = 0
        self.wrong: list[Any] = []
        self.ended = False

    def run(self) -> None:
        turn = 0
        while not (self.ended or self.wrong):
            turn += 1
            connection = Connection(self.hosts[turn % len(self.hosts)], timeout=5)
            try:
                if not self.revision:
                    self.begin(connection)
                query = f"watch=1&resourceVersion={self.revision}&timeoutSeconds=3"
                with connection.stream(f"{PATH}?{query}") as stream:
                    while (line := stream.readline()).endswith(b"\n"):
                        self.take(json.loads(line))
            except (*BROKEN, ValueError, KeyError):
                threading.Event().wait(0.02)
            finally:
                connection.close()

    def begin(self, connection: Connection) -> None:
        status, listing = connection.ask("GET", PATH)
        if status == 200:
            self.state = {
                item["metadata"]["name"]: item["data"]["content"] for item in listing["items"]
            }
            self.revision = int(listing["metadata"]["resourceVersion"])

    def take(self, event: Any) -> None:
        if event["type"] == "ERROR":
            self.revision = 0
            return
        name = event["object"]["metadata"]["name"]
        revision = int(event["object"]["metadata"]["resourceVersion"])
        if revision <= self.revision or (event["type"] == "ADDED") != (name not in self.state):
            self.wrong.append((event, self.revision, self.state.get(name)))
        self.revision = revision
        if event["type"] == "DELETED":
            self.state.pop(name, None)
        else:
            self.state[name] = event["object"]["data"]["content"]
        self.ended = name == "end"


def asked(host: str, method: str, path: str, body: Any = None) -> Any:
    """Return what a server answers by whom nothing is refused any more."""
    with closing(Connection(host)) as connection:
        status, answer = connection.ask(method, path, body)
    assert status < 300, answer
    return answer


@pytest.mark.conformance
def test_members_and_servers_may_be_killed_and_nothing_acknowledged_is_lost(
    tmp_path: Path,
) -> None:
    chance, over = random.Random(5), threading.Event()
    with Etcd(tmp_path, members=3) as etcd:
        servers = [ServerProcess(":memory:", "--store", etcd.url) for _ in range(2)]
        hosts = [server.host for server in servers]
        writers = [Writer(number, hosts, over) for number in range(6)]
        watchers = [Watcher(hosts) for _ in range(2)]
        try:
            for thread in (*writers, *watchers):
                thread.start()
            for _ in range(12):
                victim = chance.randrange(5)
                if victim < 3:
                    etcd.kill(victim)
                    over.wait(chance.uniform(0.5, 2.5))
                    etcd.start(victim)
                else:
                    servers[victim - 3].kill()
                    over.wait(chance.uniform(0.1, 1.0))
                    servers[victim - 3] = ServerProcess(":memory:", "--store", etcd.url)
                    hosts[victim - 3] = servers[victim - 3].host
                over.wait(chance.uniform(0.5, 2.0))
            over.set()
            for writer in writers:
                writer.join(60)
            end = {"metadata": {"name": "end"}, "data": {"content": "end"}}
            asked(hosts[0], "POST", PATH, end)
            listings = [asked(host, "GET", PATH)["items"] for host in hosts]
            for watcher in watchers:
                watcher.join(60)
        finally:
            over.set()
            for watcher in watchers:
                watcher.ended = True
            for server in servers:
                server.kill()
    assert [each.wrong for each in (*writers, *watchers) if each.wrong] == []
    assert listings[0] == listings[1]
    found = {item["metadata"]["name"]: item["data"]["content"] for item in listings[0]}
    for writer in writers:
        for name, possible in writer.possible.items():
            assert found.get(name) in possible
    assert all(watcher.state == found for watcher in watchers)
    assert sum(writer.acknowledged for writer in writers) > 100
