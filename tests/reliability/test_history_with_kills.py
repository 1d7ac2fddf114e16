"""Histories of many clients, checked as in `test_history`, while servers are killed.

DRALAB_OPERATIONS says how many calls there are over each store; `make conformance` does 10,000.
"""

import logging
import os
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from etcds import Etcd
from reliability.processes import Connection, ServerProcess
from reliability.test_history import UNANSWERED, Client, Operation, Seen, check, clock
from reliability.test_history import Watcher as OneWatch
from reliability.test_kill import BROKEN
from waiting import PATIENCE, until

OPERATIONS = int(os.environ.get("DRALAB_OPERATIONS", "10000"))
CLIENTS, EACH = 20, 250  # of one part: the checks of a part take longer than linear
KILLS = 3
PAUSE = threading.Event()  # that nothing sets


class Servers:
    """Where a part's clients find a server: another process after each kill."""

    def __init__(self, hosts: list[str]) -> None:
        self.hosts = hosts

    def connect(self, number: int) -> Connection:
        return Connection(self.hosts[number % len(self.hosts)], timeout=30)


class PatientClient(Client):
    """A client that goes on with the next server; what was not answered is UNANSWERED."""

    def __init__(self, number: int, servers: Servers, seed: int, path: str) -> None:
        super().__init__(number, "", EACH, seed, path)
        self.servers = servers

    def run(self) -> None:
        connection = self.servers.connect(self.number)
        while len(self.history) < self.count:
            began = clock()
            try:
                self.act(connection)
            except ConnectionRefusedError:  # nothing was asked
                connection.close()
                PAUSE.wait(0.05)
                connection = self.servers.connect(self.number)
            except (*BROKEN, ValueError):
                kind, name, content = self.asked
                self.history.append(
                    Operation(kind, name, began, clock(), UNANSWERED, content=content)
                )
                connection.close()
                PAUSE.wait(0.02)
                connection = self.servers.connect(self.number)
        connection.close()


class PatientWatcher(threading.Thread):
    """A watcher that continues where the last server broke off."""

    def __init__(self, number: int, servers: Servers, since: int, path: str) -> None:
        super().__init__()
        self.number, self.servers, self.since, self.path = number, servers, since, path
        self.seen: list[Seen] = []

    def run(self) -> None:
        while not self._watched():
            PAUSE.wait(0.02)

    def _watched(self) -> bool:
        """Read one stream; return whether the end has come."""
        host = self.servers.hosts[self.number % len(self.servers.hosts)]
        try:
            watch = OneWatch(host, self.seen[-1].revision if self.seen else self.since, self.path)
        except BROKEN:
            return False
        watch.seen = self.seen
        try:
            watch.run()
        except (*BROKEN, ValueError):
            return False
        return watch.ended


def part(
    servers: Servers, number: int, kill: Any, rng: random.Random, watching: Servers
) -> list[Operation]:
    """Let clients act while servers are killed; check what they and watchers saw."""
    namespace = f"part{number}"
    connection = watching.connect(0)
    assert connection.ask("POST", "/api/v1/namespaces", {"metadata": {"name": namespace}})[0] == 201
    path = f"/api/v1/namespaces/{namespace}/configmaps"
    status, listing = connection.ask("GET", path)
    assert status == 200
    connection.close()
    since = int(listing["metadata"]["resourceVersion"])
    watchers = [PatientWatcher(each, watching, since, path) for each in range(2)]
    clients = [PatientClient(each, servers, number, path) for each in range(CLIENTS)]
    for thread in (*watchers, *clients):
        thread.start()
    for calls in sorted(rng.sample(range(CLIENTS, CLIENTS * EACH * 9 // 10), KILLS)):
        until(lambda: sum(len(client.history) for client in clients) >= calls)  # noqa: B023 - waits here
        kill()
    for client in clients:
        client.join(PATIENCE)
        assert not client.is_alive()
    connection = watching.connect(0)
    connection.ask("POST", path, {"metadata": {"name": "end"}, "data": {"c": ""}})
    connection.close()
    for watcher in watchers:
        watcher.join(PATIENCE)
        assert not watcher.is_alive()
    history = [one for client in clients for one in client.history]
    check(history, [watcher.seen for watcher in watchers])
    return history


def parts(servers: Servers, kill: Any, watching: Servers) -> None:
    rng = random.Random(7)
    history: list[Operation] = []
    number = 0
    while len(history) < OPERATIONS:
        history += part(servers, number, kill, rng, watching)
        number += 1
    acknowledged = sum(one.status in {200, 201} for one in history)
    logging.getLogger(__name__).warning(
        "%d calls, %d acknowledged, %d kills", len(history), acknowledged, number * KILLS
    )
    assert acknowledged > len(history) // 3


@pytest.mark.conformance
@pytest.mark.parametrize("durability", ["fsync", "relaxed"])
def test_a_history_stays_linear_over_kills_of_the_server(durability: str, tmp_path: Path) -> None:
    running = [ServerProcess(tmp_path, "--durability", durability)]
    servers = Servers([running[0].host])

    def kill() -> None:
        running[0].kill()
        running[0] = ServerProcess(tmp_path, "--durability", durability)
        servers.hosts = [running[0].host]

    try:
        parts(servers, kill, servers)
    finally:
        running[0].kill()


@pytest.mark.conformance
def test_a_history_stays_linear_over_kills_of_one_of_two_servers(tmp_path: Path) -> None:
    pytest.importorskip("grpc")
    pytest.importorskip("greenlet")
    with Etcd(tmp_path, options=("--unsafe-no-fsync",)) as etcd:

        def start() -> ServerProcess:
            return ServerProcess(":memory:", "--store", etcd.url)

        steady, running = start(), [start()]
        servers = Servers([steady.host, running[0].host])

        def kill() -> None:
            running[0].kill()
            running[0] = start()
            servers.hosts = [steady.host, running[0].host]

        try:
            parts(servers, kill, Servers([steady.host]))
        finally:
            steady.kill()
            running[0].kill()
