"""Histories of many clients at once, and what must hold in each of them.

Every write carries a content of its own and is told its revision, so that a history can be
checked instead of searched: revisions give the one order in which everything must have happened.
"""

import itertools
import json
import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from dralab.cluster import Cluster, Options
from reliability.processes import Connection
from waiting import PATIENCE

PATH = "/api/v1/namespaces/default/configmaps"
SMALLEST = 0
UNANSWERED = 599
UNKNOWN = frozenset({UNANSWERED, 504})  # the write may have happened


@dataclass
class Operation:
    """One call as its client saw it: `began` and `ended` by one clock for all."""

    kind: str
    name: str
    began: float
    ended: float
    status: int
    revision: int = 0
    content: str | None = None
    expected: int = 0  # the revision that an update asked for
    state: dict[str, tuple[int, str]] = field(default_factory=dict)  # of a list


@dataclass
class Seen:
    """An event of a watch."""

    type: str
    name: str
    revision: int
    content: str


def clock() -> float:
    return time.perf_counter()  # one clock for all threads, which never goes back


class Client(threading.Thread):
    def __init__(self, number: int, host: str, count: int, seed: int, path: str = PATH) -> None:
        super().__init__()
        self.number = number
        self.path = path
        self.host = host
        self.rng = random.Random(seed * 1_000 + number)
        self.count = count
        self.history: list[Operation] = []
        self.fresh = itertools.count()
        self.asked = "", "", ""

    def run(self) -> None:
        connection = Connection(self.host)
        for _ in range(self.count):
            self.act(connection)
        connection.close()

    def act(self, connection: Connection) -> None:
        name = f"o{self.rng.randrange(4)}"
        path, content = f"{self.path}/{name}", f"{self.number}-{next(self.fresh)}"
        kind = self.rng.choices(
            ["create", "update", "patch", "delete", "get", "list"], [4, 4, 3, 2, 4, 1]
        )[0]
        expected = 0
        self.asked = kind, name, content
        if kind == "update":
            status, current = connection.ask("GET", path)
            if status == 200:
                expected = int(current["metadata"]["resourceVersion"])
            chance = self.rng.random()
            if chance < 0.2:
                expected = 0
            elif chance < 0.3:
                expected = max(expected - 1, 0)  # refused, however the clients take turns
        began = clock()
        match kind:
            case "create":
                body = {"metadata": {"name": name}, "data": {"c": content}}
                status, answer = connection.ask("POST", self.path, body)
            case "update":
                metadata = {"name": name} | ({"resourceVersion": str(expected)} if expected else {})
                status, answer = connection.ask(
                    "PUT", path, {"metadata": metadata, "data": {"c": content}}
                )
            case "patch":
                merge = "application/merge-patch+json"
                status, answer = connection.ask("PATCH", path, {"data": {"c": content}}, merge)
            case "delete":
                status, answer = connection.ask("DELETE", path)
            case "get":
                status, answer = connection.ask("GET", path)
            case _:
                status, answer = connection.ask("GET", self.path)
        made = Operation(kind, name, began, clock(), status, content=content, expected=expected)
        if status < 300 and kind != "delete":
            made.revision = int(answer["metadata"]["resourceVersion"])
            if kind == "list":
                made.state = {
                    item["metadata"]["name"]: (
                        int(item["metadata"]["resourceVersion"]),
                        item["data"]["c"],
                    )
                    for item in answer["items"]
                }
            else:
                made.content = answer["data"]["c"]
                assert kind == "get" or made.content == content
        self.history.append(made)


class Watcher(threading.Thread):
    def __init__(self, host: str, since: int = 1, path: str = PATH) -> None:
        super().__init__()
        self.seen: list[Seen] = []
        self.ended = False
        self.connection = Connection(host)
        self.stream = self.connection.stream(f"{path}?watch=1&resourceVersion={since}")

    def run(self) -> None:
        while line := self.stream.readline():
            event = json.loads(line)
            metadata = event["object"]["metadata"]
            if metadata["name"] == "end":
                self.ended = True
                break
            self.seen.append(
                Seen(
                    event["type"],
                    metadata["name"],
                    int(metadata["resourceVersion"]),
                    event["object"]["data"]["c"],
                )
            )
        self.stream.close()
        self.connection.close()


def check(history: list[Operation], watches: list[list[Seen]]) -> None:
    """Raise AssertionError where a history is one that no careful server can have made."""
    log = watches[0]
    assert all(other == log for other in watches), "every watcher sees the same, in one order"
    revisions = [seen.revision for seen in log]
    assert revisions == sorted(set(revisions)), "every change once, and in order"

    # The log is a history of each object: it is added, changes, and is deleted as it was last.
    states: dict[int, dict[str, tuple[int, str]]] = {SMALLEST: {}}
    state: dict[str, tuple[int, str]] = {}
    for seen in log:
        assert (seen.name in state) == (seen.type != "ADDED")
        if seen.type == "DELETED":
            assert seen.content == state.pop(seen.name)[1]
        else:
            state[seen.name] = (seen.revision, seen.content)
        states[seen.revision] = dict(state)

    writes = [
        one for one in history if one.kind in ("create", "update", "patch") and one.status < 300
    ]
    told = {seen.revision: seen for seen in log if seen.type != "DELETED"}
    known = [one.revision for one in writes]
    assert len(known) == len(set(known) & set(told)), "what was acknowledged is told"
    # What a killed server did not answer may have happened, once.
    open_ = Counter((one.name, one.content) for one in history if one.status in UNKNOWN)
    others = Counter((told[each].name, told[each].content) for each in set(told) - set(known))
    assert others <= open_, "what is told was asked for"
    for one in writes:
        assert (told[one.revision].name, told[one.revision].content) == (one.name, one.content)
        assert (one.kind == "create") == (told[one.revision].type == "ADDED")
    deleted = [one for one in history if one.kind == "delete" and one.status == 200]
    lost = [one for one in history if one.kind == "delete" and one.status in UNKNOWN]
    gone = len([seen for seen in log if seen.type == "DELETED"])
    assert len(deleted) <= gone <= len(deleted) + len(lost)

    # Revisions agree with time: who began after another had ended comes after it.
    latest = SMALLEST
    timed = [(one.ended, 1, one) for one in history] + [(one.began, 0, one) for one in history]
    floors: dict[int, int] = {}
    for _, ended, one in sorted(timed, key=lambda item: (item[0], item[1])):
        if ended:
            latest = max(latest, one.revision)
        else:
            floors[id(one)] = latest
    for one in writes:
        assert one.revision > floors[id(one)], "a write came before one that it followed"

    for one in history:
        if one.kind == "list" and one.status == 200:
            at = max(revision for revision in states if revision <= one.revision)
            assert one.state == states[at], "a list shows one state"
            assert one.revision >= floors[id(one)], "a list is not older than what was known"
        if one.kind == "get" and one.status == 200:
            assert (told[one.revision].name, told[one.revision].content) == (one.name, one.content)
            known = [w for w in writes if w.name == one.name and w.ended < one.began]
            assert one.revision >= max((w.revision for w in known), default=0), "a stale read"
        if one.kind == "update" and one.status < 300 and one.expected:
            between = [
                seen
                for seen in log
                if seen.name == one.name and one.expected < seen.revision < one.revision
            ]
            assert between == [], "an update overwrote what its writer had not seen"


def record(options: Options, clients: int, count: int, seed: int) -> tuple[Any, Any]:
    with Cluster(options) as cluster:
        return recorded([cluster], clients, count, seed)


def recorded(clusters: list[Cluster], clients: int, count: int, seed: int) -> tuple[Any, Any]:
    """Return what clients did and watchers saw; they are spread over servers of one store."""
    hosts = [cluster.url.removeprefix("http://") for cluster in clusters]
    since = max(cluster.server.store.compacted for cluster in clusters) or 1
    watchers = [Watcher(hosts[number % len(hosts)], since) for number in range(3)]
    threads = [Client(number, hosts[number % len(hosts)], count, seed) for number in range(clients)]
    for thread in (*watchers, *threads):
        thread.start()
    for client in threads:
        client.join(PATIENCE)
    connection = Connection(hosts[0])
    connection.ask("POST", PATH, {"metadata": {"name": "end"}, "data": {"c": ""}})
    connection.close()
    for watcher in watchers:
        watcher.join(PATIENCE)
    history = [one for client in threads for one in client.history]
    assert len(history) == clients * count
    return history, [watcher.seen for watcher in watchers]


def test_the_history_of_many_clients_is_linear_for_each_object() -> None:
    history, watches = record(Options(), clients=12, count=40, seed=1)
    check(history, watches)
    kinds = {(one.kind, one.status) for one in history}
    assert {("update", 409), ("create", 409), ("delete", 404), ("patch", 200)} <= kinds


@pytest.mark.conformance
@pytest.mark.parametrize("store", ["memory", "fsync", "relaxed"])
def test_the_history_of_50_clients_is_linear_for_each_object(store: str, tmp_path: Any) -> None:
    options = Options()
    if store != "memory":
        options = Options(data=tmp_path, durability=store)  # type: ignore[arg-type]
    history, watches = record(options, clients=50, count=100, seed=2)
    check(history, watches)


def op(
    kind: str, revision: int, content: str, began: float, ended: float, **more: Any
) -> Operation:
    return Operation(kind, "a", began, ended, 200, revision, content, **more)


LOG = [
    Seen("ADDED", "a", 2, "x"),
    Seen("MODIFIED", "a", 3, "y"),
    Seen("MODIFIED", "a", 5, "z"),
]
GOOD = [
    op("create", 2, "x", 0, 1),
    op("update", 3, "y", 2, 3, expected=2),
    op("patch", 5, "z", 4, 5),
    op("get", 5, "z", 6, 7),
]


def test_the_checker_accepts_what_is_right() -> None:
    check(GOOD, [LOG, LOG])


@pytest.mark.parametrize(
    ("history", "watches", "why"),
    [
        (GOOD, [LOG, LOG[:2]], "same"),
        (GOOD, [[LOG[0], LOG[2], LOG[1]]], "in order"),
        (GOOD[:1], [LOG], "asked for"),
        ([*GOOD[:2], op("update", 5, "z", 4, 5, expected=2)], [LOG], "overwrote"),
        ([*GOOD[:3], op("get", 3, "y", 6, 7)], [LOG], "stale"),
        ([GOOD[0], GOOD[2], op("update", 3, "y", 8, 9)], [LOG], "came before"),
        ([*GOOD[:3], op("list", 5, "", 6, 7, state={"a": (3, "y")})], [LOG], "one state"),
    ],
    ids=["watchers differ", "disorder", "a write too many", "a lost update", "a stale read",
         "time turned", "a torn list"],
)  # fmt: skip
def test_the_checker_finds_what_is_wrong(
    history: list[Operation], watches: list[list[Seen]], why: str
) -> None:
    with pytest.raises(AssertionError, match=why):
        check(history, watches)
