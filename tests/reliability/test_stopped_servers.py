"""Two servers on one etcd, each stopped (SIGSTOP) and continued in turn, behind bad networks.

A server that goes on knows nothing of what the other has done meanwhile: what it answers then must
be true all the same, and what it was about to write must not undo anything.
"""

import random
import signal
import sys
import threading
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, Self

import pytest

pytest.importorskip("grpc")

from bad_network import BadNetwork
from builders import claim, pod, request
from conformance.test_stopped_schedulers import PODS_IN_ALL, Schedulers, check, fill
from dralab.runtime.kubeconfig import ClusterAccess
from dralab.runtime.new_kubeconfig import kubeconfig
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import CLAIMS, NODES, PODS
from etcds import Etcd
from reliability.processes import Connection, ServerProcess
from reliability.test_etcd import UNKNOWN, Watcher, Writer, asked
from reliability.test_kill import BROKEN, PATH

pytestmark = pytest.mark.conformance
SHARED = ("shared-0", "shared-1")


class Servers:
    """Two servers, each with a bad network to etcd and another one to its clients."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.seed = place, seed
        self.running: list[ServerProcess] = []
        self.networks: list[BadNetwork] = []
        self.hosts: list[str] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        etcd = self._open.enter_context(Etcd(self.place))
        for number in range(2):
            behind = self._network(etcd.ports[0], self.seed + 10 * number)
            server = ServerProcess(":memory:", "--store", f"etcd://127.0.0.1:{behind}")
            self._open.callback(server.kill)
            self._open.callback(server.process.send_signal, signal.SIGCONT)
            self.running.append(server)
            before = self._network(int(server.host.rpartition(":")[2]), self.seed + 10 * number + 1)
            self.hosts.append(f"127.0.0.1:{before}")
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def _network(self, port: int, seed: int) -> int:
        network = BadNetwork("127.0.0.1", port, seed)
        found = network.begin()
        self._open.callback(network.close)
        self.networks.append(network)
        return found

    def stop(self, number: int) -> None:
        self.running[number].process.send_signal(signal.SIGSTOP)

    def go_on(self, number: int) -> None:
        self.running[number].process.send_signal(signal.SIGCONT)


class Editor(threading.Thread):
    """Adds tags of its own to objects that others change too, by read and replace.

    `done` has the revision and the object of each acknowledged tag, `unknown` the tags that may or
    may not be there, `refused` those that must not.
    """

    def __init__(self, number: int, hosts: list[str], over: threading.Event) -> None:
        super().__init__()
        self.rng = random.Random(number)
        self.number, self.hosts, self.over = number, hosts, over
        self.done: dict[str, tuple[str, int]] = {}
        self.unknown: set[str] = set()
        self.refused: set[str] = set()

    def run(self) -> None:
        turn = self.number
        while not self.over.is_set():
            with closing(Connection(self.hosts[turn % 2], timeout=4)) as connection:
                try:
                    while not self.over.is_set():
                        self.act(connection)
                except (*BROKEN, ValueError):
                    self.over.wait(0.02)
            turn += 1

    def act(self, connection: Connection) -> None:
        name = self.rng.choice(SHARED)
        status, found = connection.ask("GET", f"{PATH}/{name}")
        if status != 200:
            return
        tag = f"{self.number}.{len(self.done) + len(self.unknown) + len(self.refused)}"
        content = f"{found['data']['content']} {tag}"
        self.unknown.add(tag)
        status, answer = connection.ask(
            "PUT", f"{PATH}/{name}", {**found, "data": {"content": content}}
        )
        if status in UNKNOWN:
            return
        self.unknown.remove(tag)
        if status == 200:
            self.done[tag] = name, int(answer["metadata"]["resourceVersion"])
        else:
            assert status == 409, answer
            self.refused.add(tag)


class Witness(Watcher):
    """A watcher that notes what it saw, and which revisions it skipped by listing again."""

    def __init__(self, hosts: list[str]) -> None:
        super().__init__(hosts)
        self.seen: set[int] = set()
        self.skipped: list[tuple[int, int]] = []
        self.last = 0

    def begin(self, connection: Connection) -> None:
        super().begin(connection)
        if self.revision:
            self.skipped.append((self.last, self.revision))

    def take(self, event: Any) -> None:
        super().take(event)
        if event["type"] != "ERROR":
            self.last = self.revision
            self.seen.add(self.revision)

    def missed(self, revision: int) -> bool:
        """Whether a change was neither seen nor skipped."""
        return revision not in self.seen and not any(
            first < revision <= last for first, last in self.skipped
        )


@pytest.mark.parametrize("seed", [1, 2])
def test_servers_that_stop_lose_no_write_no_event_and_no_conflict(
    tmp_path: Path, seed: int
) -> None:
    chance, over = random.Random(seed), threading.Event()
    with Servers(tmp_path, seed) as servers:
        for name in SHARED:
            body = {"metadata": {"name": name}, "data": {"content": ""}}
            asked(servers.running[0].host, "POST", PATH, body)
        editors = [Editor(number, servers.hosts, over) for number in range(4)]
        writers = [Writer(number, servers.hosts, over) for number in range(4)]
        watchers = [Witness(servers.hosts) for _ in range(2)]
        try:
            for thread in (*editors, *writers, *watchers):
                thread.start()
            for turn in range(12):
                over.wait(chance.uniform(0.2, 2))
                servers.stop(turn % 2)
                over.wait(chance.choice([0.1, 1, 6]))
                servers.go_on(turn % 2)
            over.wait(2)
            over.set()
            for each in (*editors, *writers):
                each.join(60)
            end = {"metadata": {"name": "end"}, "data": {"content": "end"}}
            direct = [server.host for server in servers.running]
            asked(direct[0], "POST", PATH, end)
            listings = [asked(host, "GET", PATH)["items"] for host in direct]
            for watcher in watchers:
                watcher.join(60)
        finally:
            over.set()
            for watcher in watchers:
                watcher.ended = True
        cuts = [network.cuts for network in servers.networks]
    assert [each.wrong for each in (*writers, *watchers) if each.wrong] == []
    assert listings[0] == listings[1]
    found = {item["metadata"]["name"]: item["data"]["content"] for item in listings[0]}
    for writer in writers:
        for name, possible in writer.possible.items():
            assert found.get(name) in possible
    assert all(watcher.state == found for watcher in watchers)
    # Optimistic locking: each acknowledged tag is there, once; no refused one is.
    there = [(tag, name) for name in SHARED for tag in found[name].split()]
    told = {tag: name for each in editors for tag, (name, _) in each.done.items()}
    assert len(set(there)) == len(there)
    assert told.items() <= dict(there).items()
    assert not {tag for each in editors for tag in each.refused} & dict(there).keys()
    # Watches: each acknowledged change was an event.
    revisions = [revision for each in editors for _, revision in each.done.values()]
    assert not [r for watcher in watchers for r in revisions if watcher.missed(r)]
    seen = min(len(watcher.seen) for watcher in watchers)
    sys.stdout.write(
        f"\n{len(revisions)} edits, {sum(len(each.refused) for each in editors)} conflicts, "
        f"{sum(len(each.unknown) for each in editors)} unanswered; "
        f"{sum(each.acknowledged for each in writers)} other writes; {seen} events seen, "
        f"{max(len(watcher.skipped) for watcher in watchers)} lists; cuts {cuts}\n"
    )
    assert len(revisions) > 30
    assert any(each.refused for each in editors)
    assert min(cuts) > 0


@pytest.mark.parametrize("seed", [1, 2])
def test_no_device_is_given_twice_where_servers_stop(tmp_path: Path, seed: int) -> None:
    chance, over = random.Random(seed), threading.Event()
    with Servers(tmp_path, seed) as servers, ExitStack() as opened:
        client = RemoteClient(ClusterAccess(server=servers.running[0].url))
        opened.callback(client.close)
        fill(client)
        for node in client.list(NODES).items:  # no controller finds them ready
            client.patch(NODES, node["metadata"]["name"], {"spec": {"taints": None}})
        made = []
        for number, host in enumerate(servers.hosts):
            config = tmp_path / f"config{number}"
            config.write_text(kubeconfig(f"http://{host}"), encoding="utf-8")
            each = Schedulers(client, config, *([] if seed % 2 else ["--no-leader-elect"]))
            opened.callback(each.end)
            each.start()
            made.append(each)
        given = 0
        for turn in range(6):
            for _ in range(PODS_IN_ALL // 6):
                name = f"p{given}"
                client.create(CLAIMS, claim(name, request("r"), namespace="default"))
                client.create(PODS, pod(name, claims={"g": name}), "default")
                given += 1
            over.wait(chance.uniform(0.1, 1))  # they are in the middle of them
            servers.stop(turn % 2)
            over.wait(chance.choice([1, 6, 20]))
            servers.go_on(turn % 2)
        for _ in range(1800):
            if all(each["spec"].get("nodeName") for each in client.list(PODS).items):
                break
            over.wait(0.1)
        check(client, servers.networks[1])
