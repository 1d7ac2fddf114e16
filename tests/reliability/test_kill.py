"""kill -9 at random points: what was acknowledged is there, and nothing else has happened."""

import http.client
import json
import random
import threading
from pathlib import Path
from typing import Any

import pytest

from reliability.processes import Connection, ServerProcess
from waiting import until

PATH = "/api/v1/namespaces/default/configmaps"
BROKEN = (http.client.HTTPException, ConnectionError, TimeoutError)
Content = str | None  # the payload of an object; None where there is none


class WritingThread(threading.Thread):
    """Writes to objects of its own, one after the other, until the server is gone.

    `known` is what was acknowledged, `attempted` what was on its way when the server died.
    """

    def __init__(
        self,
        number: int,
        rng: random.Random,
        known: dict[str, Content],
        counted: threading.Semaphore,
    ) -> None:
        super().__init__()
        self.counted = counted
        self.number = number
        self.rng = rng
        self.known = known
        self.attempted: tuple[str, Content] | None = None
        self.acknowledged = 0
        self.newest = 0
        self.wrong: list[Any] = []
        self.host = ""

    def run(self) -> None:
        connection = Connection(self.host)
        try:
            while not self.wrong:
                self.write(connection)
        except BROKEN:
            pass
        finally:
            self.counted.release(1_000)  # nobody waits for its writes any more
            connection.close()

    def write(self, connection: Connection) -> None:
        name = f"w{self.number}-{self.rng.randrange(5)}"
        path = f"{PATH}/{name}"
        content: Content = f"{self.rng.randrange(10**9)}" + "x" * self.rng.choice([0, 10, 5_000])
        if self.known.get(name) is None:
            self.attempted = name, content
            body = {"metadata": {"name": name}, "data": {"content": content}}
            status, answer = connection.ask("POST", PATH, body)
        elif self.rng.random() < 0.3:
            content = None
            self.attempted = name, None
            status, answer = connection.ask("DELETE", path)
        else:
            self.attempted = name, content
            merge = "application/merge-patch+json"
            status, answer = connection.ask("PATCH", path, {"data": {"content": content}}, merge)
        if status not in (200, 201):
            self.wrong.append((status, answer))
            return
        self.known[name] = content
        self.attempted = None
        self.acknowledged += 1
        self.counted.release()
        self.newest = max(self.newest, int(answer["metadata"].get("resourceVersion") or 0))


class Watcher(threading.Thread):
    """Applies the events of a watch to what it has, until the server is gone; then goes on."""

    def __init__(self, state: dict[str, Content], revision: int) -> None:
        super().__init__()
        self.state = state
        self.revision = revision
        self.expired = False
        self.host = ""

    def run(self) -> None:
        connection = Connection(self.host)
        try:
            stream = connection.stream(f"{PATH}?watch=1&resourceVersion={self.revision}")
            while line := stream.readline():
                if not line.endswith(b"\n"):
                    break
                if not self.apply(json.loads(line)):
                    break
        except (*BROKEN, ValueError):
            pass
        finally:
            connection.close()

    def apply(self, event: Any) -> bool:
        if event["type"] == "ERROR":
            self.expired = event["object"]["code"] == 410
            return False
        metadata = event["object"]["metadata"]
        revision = int(metadata["resourceVersion"])
        assert revision > self.revision
        self.revision = revision
        if event["type"] == "DELETED":
            del self.state[metadata["name"]]
        elif event["type"] in ("ADDED", "MODIFIED"):
            assert (event["type"] == "ADDED") == (metadata["name"] not in self.state)
            self.state[metadata["name"]] = event["object"]["data"]["content"]
        return True


def contents(server: ServerProcess) -> tuple[dict[str, Content], int]:
    connection = Connection(server.host)
    status, listing = connection.ask("GET", PATH)
    connection.close()
    assert status == 200
    found = {item["metadata"]["name"]: item["data"]["content"] for item in listing["items"]}
    return found, int(listing["metadata"]["resourceVersion"])


def survived(writer: WritingThread, found: dict[str, Content]) -> dict[str, Content]:
    """Return a writer's objects; what was on its way is there whole, or not at all."""
    mine = {name: c for name, c in found.items() if name.startswith(f"w{writer.number}-")}
    expected = {name: c for name, c in writer.known.items() if c is not None}
    if mine != expected:
        assert writer.attempted is not None, "an acknowledged write is lost"
        name, content = writer.attempted
        expected.pop(name, None)
        if content is not None:
            expected[name] = content
        assert mine == expected
    return mine


def rounds(data: Path, count: int, durability: str, seed: int) -> int:
    """Kill the server `count` times; return how many writes were acknowledged."""
    rng = random.Random(seed)
    known: list[dict[str, Content]] = [{} for _ in range(6)]
    acknowledged = 0
    watched: dict[str, Content] = {}
    watched_at = newest = 0
    writers: list[WritingThread] = []
    watcher = Watcher(watched, watched_at)
    for number in range(count + 1):
        with ServerProcess(data, "--durability", durability) as server:
            found, revision = contents(server)
            assert revision >= newest, "revisions do not go back"
            for writer in writers:
                known[writer.number] = survived(writer, found)
            assert watcher.revision <= revision, "a watcher saw what did not last"
            if number == count:
                # The last watcher goes on from where it was and arrives at what is there.
                last = Watcher(watched, watched_at)
                last.host = server.host
                last.start()
                connection = Connection(server.host)
                connection.ask(
                    "POST", PATH, {"metadata": {"name": "end"}, "data": {"content": "end"}}
                )
                connection.close()
                until(lambda last=last: "end" in last.state or last.expired)
                server.kill()
                last.join()
                if not last.expired:
                    assert last.state == found | {"end": "end"}
                return acknowledged
            if not number:
                watched, watched_at = found, revision
            counted = threading.Semaphore(0)
            writers = [
                WritingThread(n, random.Random(rng.random()), known[n], counted) for n in range(6)
            ]
            watcher = Watcher(watched, watched_at)
            for thread in (watcher, *writers):
                thread.host = server.host
                thread.start()
            # After so many writes, however long they take, and somewhere within the next ones.
            for _ in range(rng.randrange(1, 60)):
                counted.acquire()
            server.kill()
            for thread in (watcher, *writers):
                thread.join()
            for writer in writers:
                assert writer.wrong == []
                acknowledged += writer.acknowledged
                newest = max(newest, writer.newest)
            if watcher.expired:
                watched, watched_at = dict(found), revision
            else:
                watched, watched_at = watcher.state, watcher.revision
            newest = max(newest, watched_at)
    raise AssertionError("unreachable")


@pytest.mark.thorough
def test_what_was_acknowledged_survives_a_few_kills(tmp_path: Path) -> None:
    assert rounds(tmp_path / "data", 3, "relaxed", seed=1) > 0


@pytest.mark.conformance
@pytest.mark.parametrize(("durability", "count"), [("relaxed", 120), ("fsync", 80)])
def test_what_was_acknowledged_survives_200_kills(
    tmp_path: Path, durability: str, count: int
) -> None:
    assert rounds(tmp_path / "data", count, durability, seed=2) > count * 10
