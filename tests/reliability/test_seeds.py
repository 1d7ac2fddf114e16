"""Server, store and clients in one simulated time, with a disk, a network and power that fail.

Everything happens in an order that follows from the seed. What is on the disk in the end is the
truth; what clients were told, and what watchers saw, must agree with it.
"""

import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest

from dralab.api.status import ApiError
from dralab.apiserver.http.connections import asgi
from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.connections.asgi_base import AsgiLimits
from dralab.apiserver.http.messages import LOOP, HttpRequest, HttpResponse
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import Change, Key, MemoryStore, StorageUnavailable, Stored, Undecided
from dralab.kernel.events import Events
from dralab.kernel.randomness import Randomness
from dralab.runtime.local import LocalClient, LocalWatch
from dralab.runtime.resources import CONFIG_MAPS

PATH = "/api/v1/namespaces/default/configmaps"
MILLISECOND = 10**6
LEAP = 1_000
LONG = 400 * MILLISECOND
UNKNOWN = 0  # the status of a request whose answer was lost
Row = tuple[Key, int, int, bytes | None]  # key, revision, created, JSON


@dataclass
class Disk:
    """What the store has written: batches, of which the last may not be synced."""

    chance: random.Random
    relaxed: bool
    rows: list[list[Row]] = field(default_factory=list)
    synced: int = 0
    told: int = 1  # the revision up to which the server was told that it is written
    lost: list[Row] = field(default_factory=list)

    def open(self) -> MemoryStore:
        """Return a store over what is there, as a start of the server finds it."""
        return SimulatedStore(self)

    def disturb(self) -> None:
        """Do nothing: each write has its own fate."""

    def write(self, batch: list[Row]) -> None:
        """Write a batch, or fail. StorageUnavailable, Undecided."""
        fate = self.chance.random()
        if fate < 0.05:
            raise StorageUnavailable("the disk is full")
        if fate < 0.08 and not self.relaxed:
            # Until something is written over it, it is in the file.
            self.rows[self.synced :] = [batch]
            raise Undecided("the disk did not confirm a write")
        if not self.relaxed:
            self.rows[self.synced :] = [batch]
            self.synced += 1
        else:
            self.rows.append(batch)
            if self.chance.random() < 0.2:
                self.synced = len(self.rows)
        self.told = batch[-1][1]

    def cut_power(self) -> None:
        """Lose some of what was not synced, from the end."""
        kept = self.chance.randint(self.synced, len(self.rows))
        if self.relaxed:  # else nobody was told of it
            self.lost += [row for batch in self.rows[kept:] for row in batch]
        del self.rows[kept:]
        self.synced = kept


class SimulatedStore(MemoryStore):
    """The memory store over such a disk. It begins anew as the store on disk does."""

    def __init__(self, disk: Disk) -> None:
        super().__init__(window=15)
        self.disk = disk
        for key, revision, created, encoded in (row for batch in disk.rows for row in batch):
            collection = self._collection(key.resource)
            if encoded is None:
                collection.drop(key)
            else:
                collection.put(Stored(key, None, revision, created, encoded))
            self._revision = revision
        if disk.relaxed and disk.told > 1:
            self._revision = disk.told = max(disk.told, self._revision) + LEAP
        self.compact(self._revision)

    def _persist(self, changes: Sequence[Change]) -> None:
        self.disk.write(
            [
                (
                    change.key,
                    change.revision,
                    change.after.created if change.after else 0,
                    change.after.encoded if change.after else None,
                )
                for change in changes
            ]
        )


@dataclass
class Operation:
    kind: str
    name: str
    began: int
    content: str
    expected: int = 0
    ended: int = 0
    status: int = UNKNOWN
    revision: int = 0
    read: str = ""


class World:
    """One run: clients that ask, watchers that follow, a server that dies and comes back."""

    def __init__(self, seed: int, disk: Disk | None = None) -> None:
        self.events = Events()
        self.chance = random.Random(seed)
        self.disk = disk or Disk(random.Random(seed + 1), relaxed=seed % 2 == 1)
        self.randomness = Randomness(seed)
        self.waiting: deque[tuple[HttpRequest, Callable[[HttpResponse], None]]] = deque()
        self.history: list[Operation] = []
        self.refusals = self.cuts = 0
        self.server: ApiServer | None = None
        self.start()
        self.watchers = [Watcher(self) for _ in range(2)]
        for number in range(4):
            self.later(lambda number=number: self.act(number))
        for _ in range(3):
            self.events.after(self.chance.randrange(LONG), self.cut_power)
        faults = random.Random(seed + 2)
        for _ in range(12):
            self.events.after(faults.randrange(LONG), self.disk.disturb)

    def later(self, call: Callable[[], object], most: int = 15) -> None:
        self.events.after(self.chance.randint(1, most * MILLISECOND), call)

    def start(self) -> None:
        while True:  # what every cluster has may not be writable at once
            try:
                store = self.disk.open()
                self.server = ApiServer(store, clock=self.events.clock, randomness=self.randomness)
                break
            except StorageUnavailable:
                continue
        self.edge = AsgiApp(self.server, limits=AsgiLimits(timers=False))

    def cut_power(self) -> None:
        if self.server is not None:
            self.cuts += 1
            self.server = None
            self.waiting.clear()
            self.disk.cut_power()
            self.later(self.start, 30)

    # --- clients --------------------------------------------------------------------------

    def act(self, number: int) -> None:
        """Do one thing, and after it the next."""
        if self.events.now() > LONG:
            return
        kinds = ["create", "update", "patch", "delete", "get"]
        kind = self.chance.choices(kinds, [4, 3, 3, 2, 4])[0]
        name = f"o{self.chance.randrange(3)}"
        known = [one for one in self.history if one.name == name and one.revision]
        expected = self.chance.choice(known).revision if known else 0
        content = f"{number}-{len(self.history)}"
        one = Operation(kind, name, self.events.now(), content, expected)
        self.history.append(one)
        body = {"metadata": {"name": name}, "data": {"c": content}}
        media, path, method = "application/json", f"{PATH}/{name}", "GET"
        match kind:
            case "create":
                method, path = "POST", PATH
            case "update":
                method = "PUT"
                body["metadata"]["resourceVersion"] = str(expected) if expected else ""
            case "patch":
                method, media = "PATCH", "application/merge-patch+json"
                body = {"data": {"c": content}}
            case "delete":
                method = "DELETE"
        text = b"" if method in {"GET", "DELETE"} else orjson.dumps(body)
        request = HttpRequest(
            method=method, path=path, headers={"content-type": media}, body=text, lane=LOOP
        )

        def over(answer: HttpResponse | None) -> None:
            if one.ended:
                return
            one.ended = self.events.now()
            if answer is not None:
                self.take(one, answer)
            self.later(lambda: self.act(number))

        self.events.after(60 * MILLISECOND, lambda: over(None))  # the client gives up
        if self.chance.random() < 0.9:
            self.later(lambda: self.arrive(request, over))

    def take(self, one: Operation, answer: HttpResponse) -> None:
        value = orjson.loads(answer.content)
        one.status = answer.status
        if answer.status < 300 and one.kind != "delete":
            one.revision = int(value["metadata"]["resourceVersion"])
            one.read = value["data"]["c"]

    def arrive(self, request: HttpRequest, answered: Callable[[HttpResponse], None]) -> None:
        if self.server is None:
            return  # the connection is refused: the client gives up
        if not self.waiting:
            self.events.after(MILLISECOND, self.turn)  # so that requests share a batch
        self.waiting.append((request, answered))

    def turn(self) -> None:
        """Answer what has come, as the edge does: in one batch of the store."""
        asked, self.waiting = list(self.waiting), deque()
        if self.server is None:
            return
        for (_, answered), outcome in self.edge._batch(asked):  # type: ignore[arg-type]
            self.refusals += outcome.status >= 500
            if self.chance.random() < 0.95:
                self.later(lambda answered=answered, outcome=outcome: answered(outcome))
        for watcher in self.watchers:
            watcher.follow()


class Watcher:
    """Follows all objects; after a power cut it goes on, or lists again where it must."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.state: dict[str, tuple[int, str]] = {}
        self.revision = 0
        self.seen: list[tuple[int, str, str]] = []
        self.watch: LocalWatch | None = None
        self.server: ApiServer | None = None

    def follow(self) -> None:
        """Take in what there is."""
        world = self.world
        if world.server is None:
            return
        if self.server is not world.server:
            self.server, self.watch = world.server, None
        client = LocalClient(world.server.resources, world.server.hub)
        if self.watch is None:
            if self.revision:
                try:
                    self.watch = client.watch(CONFIG_MAPS, revision=str(self.revision))
                except ApiError:  # its revision is forgotten
                    self.revision = 0
            if not self.revision:
                found = client.list(CONFIG_MAPS)
                self.revision = int(found.revision)
                self.state = {item["metadata"]["name"]: _told(item) for item in found.items}
                self.watch = client.watch(CONFIG_MAPS, revision=found.revision)
        assert self.watch is not None
        while (event := self.watch.next(0)) is not None:
            revision, content = _told(event.object)
            name = event.object["metadata"]["name"]
            assert revision > self.revision, "an event came twice, or too late"
            assert (event.type == "ADDED") == (name not in self.state)
            self.revision = revision
            self.seen.append((revision, event.type, content))
            if event.type == "DELETED":
                del self.state[name]
            else:
                self.state[name] = revision, content


def _told(value: Any) -> tuple[int, str]:
    return int(value["metadata"]["resourceVersion"]), value["data"]["c"]


@contextmanager
def patient() -> Iterator[None]:
    """Let no batch end for the time that it takes: that is not simulated."""
    held, asgi.HELD = asgi.HELD, 1e9
    try:
        yield
    finally:
        asgi.HELD = held


def lived(seed: int, disk: Disk | None = None) -> World:
    with patient():
        world = World(seed, disk)
        world.events.run(2 * LONG)
        if world.server is None:
            world.start()
        for watcher in world.watchers:
            watcher.follow()
    return world


def check(world: World) -> None:
    """Raise AssertionError where somebody was told what is not so."""
    disk = world.disk
    rows = [row for batch in disk.rows for row in batch if row[0].resource == "configmaps"]
    lost = {row[1] for row in disk.lost}
    revisions = [row[1] for row in rows]
    assert revisions == sorted(set(revisions)), "each revision once, and in order"
    assert not lost & set(revisions), "a revision that was lost is given again"
    truth = {
        row[1]: (row[0].name, None if row[3] is None else orjson.loads(row[3])["data"]["c"])
        for row in rows
    }
    asked = {one.content: one for one in world.history if one.kind in {"create", "update", "patch"}}
    written = [content for _, content in truth.values() if content is not None]
    assert len(written) == len(set(written)), "a write happened twice"
    for content in written:
        assert asked[content].status < 300 or asked[content].status == 504, "what was refused"
    for one in world.history:
        if one.revision and one.revision not in lost:
            if one.kind != "get":
                assert truth[one.revision] == (one.name, one.content), "an acknowledged write"
            assert truth[one.revision] == (one.name, one.read)
        if one.revision in lost:
            assert disk.relaxed, "fsync loses nothing"
        if one.kind == "update" and one.expected and one.revision in truth:
            between = range(one.expected + 1, one.revision)
            assert not [r for r in between if truth.get(r, ("",))[0] == one.name], "lost update"
        if one.kind == "get" and one.status == 200 and not disk.relaxed:
            known = [
                each.revision
                for each in world.history
                if each.name == one.name and 0 < each.ended < one.began
            ]
            assert one.revision >= max(known, default=0), "a stale read"
    assert world.server is not None
    now = {
        item.key.name: (item.revision, item.value["data"]["c"])
        for item in world.server.store.list("configmaps").items
    }
    for watcher in world.watchers:
        assert watcher.state == now, "a watcher ends with what is there"
        for revision, _, _ in watcher.seen:
            assert revision in truth or revision in lost or not disk.relaxed


@pytest.mark.parametrize("seed", range(20))
def test_what_clients_are_told_is_so_whatever_fails(seed: int) -> None:
    check(lived(seed))


def test_a_seed_gives_the_same_life_each_time() -> None:
    first, again = lived(1), lived(1)
    assert (first.history, first.disk.rows) == (again.history, again.disk.rows)
    assert first.cuts
    assert first.refusals
    assert first.disk.lost


@pytest.mark.conformance
@pytest.mark.parametrize("part", range(10))
def test_what_clients_are_told_is_so_with_ten_thousand_seeds(part: int) -> None:
    for seed in range(20 + part * 1_000, 1_020 + part * 1_000):
        try:
            check(lived(seed))
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
