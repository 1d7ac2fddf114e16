"""Many watchers: no event is lost, and memory is bounded by what is shared."""

import json
import os
import resource
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reliability.processes import Connection, ServerProcess
from waiting import PATIENCE

PATH = "/api/v1/namespaces/default/configmaps"
ROOT = Path(__file__).parents[2]


class Watcher(threading.Thread):
    def __init__(self, host: str, count: int, revision: int) -> None:
        super().__init__()
        self.count = count
        self.revisions: list[int] = []
        self.connection = Connection(host)
        self.stream = self.connection.stream(f"{PATH}?watch=1&resourceVersion={revision}")

    def run(self) -> None:
        while len(self.revisions) < self.count:
            event = json.loads(self.stream.readline())
            self.revisions.append(int(event["object"]["metadata"]["resourceVersion"]))
        self.stream.close()
        self.connection.close()


def write(connection: Connection, count: int, size: int) -> list[int]:
    made = []
    for index in range(count):
        body: Any = {"metadata": {"name": f"c{index}"}, "data": {"x": "x" * size}}
        status, answer = connection.ask("POST", PATH, body)
        assert status == 201
        made.append(int(answer["metadata"]["resourceVersion"]))
    return made


@pytest.mark.thorough
def test_every_watcher_gets_every_event_in_order() -> None:
    with ServerProcess(":memory:") as server:
        connection = Connection(server.host)
        start = int(connection.ask("GET", PATH)[1]["metadata"]["resourceVersion"])
        watchers = [Watcher(server.host, 150, start) for _ in range(40)]
        for watcher in watchers:
            watcher.start()
        made = write(connection, 150, 500)
        for watcher in watchers:
            watcher.join(PATIENCE)
            assert watcher.revisions == made
        connection.close()


@pytest.mark.thorough
def test_watchers_that_do_not_read_cost_what_they_share() -> None:
    """60 sleeping watchers of 15 MB: were the bytes their own, they would be 900 MB."""
    with ServerProcess(":memory:") as server:
        connection = Connection(server.host)
        asleep = [Connection(server.host) for _ in range(60)]
        for one in asleep:
            one.stream(f"{PATH}?watch=1&resourceVersion=1")
        before = server.resident()
        write(connection, 300, 50_000)
        assert server.resident() < before + 150
        for one in (*asleep, connection):
            one.close()


MANY = int(os.environ.get("DRALAB_WATCHERS", "10000"))


@pytest.fixture
def descriptors() -> Iterator[None]:
    """Let this process, and the servers that it starts, open a file for each watcher."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MANY + 2_000
    if hard != resource.RLIM_INFINITY and hard < wanted:
        pytest.skip(f"a process may open {hard} files: {wanted} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Sleeper:
    """A watcher that asks and then reads nothing, with as small a buffer as there is."""

    def __init__(self, host: str, revision: int) -> None:
        address, _, port = host.rpartition(":")
        self.socket = socket.socket()
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        self.socket.settimeout(PATIENCE)
        self.socket.connect((address, int(port)))
        request = f"GET {PATH}?watch=1&resourceVersion={revision} HTTP/1.0\r\nHost: {host}\r\n\r\n"
        self.socket.sendall(request.encode())

    def wake(self, count: int) -> list[int]:
        """Read now, until so many events have come or it was cut off; return the revisions."""
        found: list[int] = []
        with self.socket, self.socket.makefile("rb") as lines:
            for line in lines:
                if line.startswith(b"{") and line.endswith(b"\n"):
                    event = json.loads(line)
                    if event["type"] == "ERROR":
                        break
                    found.append(int(event["object"]["metadata"]["resourceVersion"]))
                if len(found) == count:
                    break
        return found


@pytest.mark.conformance
@pytest.mark.usefixtures("descriptors")
def test_10_000_watchers_most_of_them_asleep_starve_nobody() -> None:
    """One in a hundred reads and misses nothing; memory is bounded by what the others share."""
    with ServerProcess(":memory:") as server:
        connection = Connection(server.host)
        revision = int(connection.ask("GET", PATH)[1]["metadata"]["resourceVersion"])
        asleep = [Sleeper(server.host, revision) for _ in range(MANY - MANY // 100)]
        awake = [Watcher(server.host, 300, revision) for _ in range(MANY // 100)]
        for watcher in awake:
            watcher.start()
        before = server.resident()
        made = write(connection, 300, 2_000)
        for watcher in awake:
            watcher.join(10 * PATIENCE)
            assert watcher.revisions == made
        assert server.resident() < before + 50 + MANY // 25, "MiB: 40 KiB a watcher"
        for sleeper in asleep[:: MANY // 20]:
            found = sleeper.wake(300)
            assert found == made[: len(found)], "no gap before it was cut off"
        assert connection.ask("GET", PATH)[0] == 200
        for sleeper in asleep:
            sleeper.socket.close()
        connection.close()


@pytest.mark.conformance
@pytest.mark.skipif(shutil.which("go") is None, reason="the load generator is written in Go")
def test_1000_watchers_of_10_000_objects_lose_no_event_and_memory_is_bounded() -> None:
    load = pytest.importorskip("benchmarks.load", reason="the load generator is in the checkout")
    with ServerProcess(":memory:") as server:
        connection = Connection(server.host)
        revision = connection.ask("GET", PATH)[1]["metadata"]["resourceVersion"]
        peak = [0]
        over = threading.Event()

        def look() -> None:
            while not over.wait(0.2):
                peak[0] = max(peak[0], server.resident())

        looking = threading.Thread(target=look)
        looking.start()
        body = ROOT / "build" / "configmap.json"
        binary = load.built()
        body.write_text(json.dumps({"metadata": {"name": "c%d"}, "data": {"x": "x" * 500}}))
        done = subprocess.run(
            [
                str(binary), f"-url={server.url}", "-method=POST", f"-path={PATH}", f"-body={body}",
                "-n=10000", "-c=4", "-watchers=1000", "-events=10000",
                f"-watch={PATH}?watch=1&resourceVersion={revision}",
            ],
            capture_output=True, text=True, timeout=500, check=True,
        )  # fmt: skip
        over.set()
        looking.join()
        found = json.loads(done.stdout)
        assert found["events"] == 10_000_000, "the generator ends when each has them all"
        assert found["statuses"] == {"201": 10_000}
        assert peak[0] < 700, "MiB"
        connection.close()
