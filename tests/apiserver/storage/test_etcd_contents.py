"""How all of an etcd is read, and when its history is forgotten."""

from collections.abc import Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

pb = pytest.importorskip("dralab.apiserver.storage.etcd._generated.etcd_v3_pb2")

from dralab.apiserver.storage import (  # noqa: E402 - needs etcd's messages
    Key,
    StorageUnavailable,
)
from dralab.apiserver.storage.etcd import client as client_module  # noqa: E402
from dralab.apiserver.storage.etcd import compaction, contents  # noqa: E402
from dralab.apiserver.storage.etcd import leases as leases_module  # noqa: E402
from dralab.apiserver.storage.etcd.client import Called, EtcdClient  # noqa: E402
from dralab.apiserver.storage.etcd.commits import Commits, Write  # noqa: E402
from dralab.apiserver.storage.etcd.compaction import Compactor  # noqa: E402
from dralab.apiserver.storage.etcd.layout import end_of  # noqa: E402
from dralab.apiserver.storage.etcd.leases import EventLease  # noqa: E402
from dralab.apiserver.storage.etcd.store import EtcdStore  # noqa: E402


class Pages:
    """An etcd with sorted keys that goes on while it is read."""

    def __init__(self, *keys: bytes) -> None:
        self.keys = keys
        self.revision = 7
        self.asked: list[tuple[bytes, int]] = []

    def range(self, request: Any) -> Any:
        self.asked.append((request.key, request.revision))
        found = [key for key in self.keys if request.key <= key < request.range_end]
        page = [pb.KeyValue(key=key) for key in found[: request.limit]]
        answer = pb.RangeResponse(kvs=page, more=len(found) > request.limit)
        answer.header.revision = self.revision
        self.revision += 1
        return answer


def test_everything_is_read_in_pages_as_of_one_revision(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contents, "PAGE", 2)
    etcd = Pages(b"/r/a", b"/r/a\0", b"/r/b", b"/r/c", b"/r/d", b"/s")
    layout: Any = SimpleNamespace(start=b"/r/", end=b"/r0")
    found = [(kv.key, at) for kv, at in contents.everything(etcd, layout)]  # type: ignore[arg-type]
    assert found == [(key, 7) for key in etcd.keys[:5]]
    assert etcd.asked == [(b"/r/", 0), (b"/r/a\0\0", 7), (b"/r/c\0", 7)]


@pytest.mark.parametrize(
    ("version", "good"),
    [
        ("3.4.24", False),
        ("3.4.25", True),
        ("3.5.7", False),
        ("3.5.8", True),
        ("3.5.8-rc.1", True),
        ("3.6.0", True),
        ("4.0.0", True),
        ("3.3.99", False),
        ("2.9.99", False),
        ("3.5", False),
        ("three", False),
    ],
)
def test_only_an_etcd_that_tells_its_progress_is_used(version: str, good: bool) -> None:
    if good:
        contents.check_version(version, "etcd://x")
        return
    with pytest.raises(StorageUnavailable, match=r"^etcd://x has (the )?version"):
        contents.check_version(version, "etcd://x")


def test_history_is_forgotten_every_fifth_minute_whatever_etcd_says() -> None:
    """The thread's work, with minutes that pass at once."""
    done: list[str] = []

    def look() -> None:
        done.append("look")
        raise StorageUnavailable("etcd does not answer")

    minutes = iter([False] * 11 + [True])
    thread: Any = SimpleNamespace(
        _over=SimpleNamespace(wait=lambda seconds: done.append(f"{seconds:.0f}") or next(minutes)),
        _each_minute=lambda: done.append("minute"),
        look=look,
    )
    Compactor._run(thread)
    minute = ["60", "minute"]
    assert compaction.EVERY == 5 * compaction.MINUTE
    assert done == [*minute * 5, "look", *minute * 5, "look", *minute, "60"]


@pytest.mark.parametrize(
    ("prefix", "end"), [(b"/registry/", b"/registry0"), (b"a", b"b"), (b"a\xfe", b"a\xff")]
)
def test_the_end_of_a_prefix_is_the_first_key_behind_it(prefix: bytes, end: bytes) -> None:
    assert end_of(prefix) == end
    assert prefix <= prefix + b"\xff\xff" < end


def test_some_events_share_a_lease_and_others_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases_module, "SHARED", 3)
    asked: list[int] = []

    def lease(seconds: int) -> int:
        asked.append(seconds)
        return 100 + len(asked)

    client: Any = SimpleNamespace(lease=lease)
    leases = EventLease(client, 3600)
    event = Key("events", "default", "e")
    assert leases.of(Key("pods", "default", "p")) == 0
    assert asked == []
    assert [leases.of(event) for _ in range(7)] == [101] * 3 + [102] * 3 + [103]
    leases.renew()
    assert [leases.of(event) for _ in range(4)] == [104] * 3 + [105]
    leases.renew()
    leases.renew()
    assert leases.of(event) == 106
    assert asked == [3600] * 6


class Watched:
    """What the thread of a watch does, with watches that end as they are told."""

    address = "etcd://x"
    layout = SimpleNamespace(start=b"a", end=b"b")

    def __init__(self, *ends: object) -> None:
        self.ends = list(ends)
        self.done: list[str] = []
        self._reached = 7
        self._connected, self._missed = True, False
        self._over = SimpleNamespace(is_set=lambda: not self.ends, wait=self.done.append)
        self._client = SimpleNamespace(watch=self.watch)
        self.lock = nullcontext()

    def watch(self, _start: bytes, _end: bytes, since: int) -> object:
        self.done.append(f"watch {since}")
        return SimpleNamespace(close=lambda: self.done.append("close"))

    def _follow_watch(self, _: object) -> None:
        end = self.ends.pop(0)
        if isinstance(end, Exception):
            raise end
        self._missed = bool(end)

    def _reload(self) -> None:
        self.done.append("reload")

    def _awaken(self) -> None:
        self.done.append("awaken")


@pytest.mark.parametrize(
    ("end", "reloads"),
    [
        (True, True),  # compacted
        (False, False),  # cancelled by a member
        (StorageUnavailable("cut"), False),
    ],
)
def test_only_a_watch_that_may_have_missed_something_has_all_read_again(
    end: object, reloads: bool
) -> None:
    watched: Any = Watched(end, False)
    EtcdStore._run(watched)
    told = [each for each in watched.done if isinstance(each, str)]
    assert told == ["watch 8", *["reload"] * reloads, "watch 8", "awaken"]
    assert watched._connected is False


class Brought:
    """A watch that has brought some responses."""

    def __init__(self, *responses: Any) -> None:
        self.brought = list(responses)
        self.is_over = False

    @property
    def has_news(self) -> bool:
        return bool(self.brought)

    def responses(self) -> Iterator[Any]:
        while self.brought:
            yield self.brought.pop(0)

    def close(self) -> None:
        self.is_over, self.brought = True, []


@pytest.mark.parametrize(
    ("response", "misses"),
    [
        (pb.WatchResponse(canceled=True, compact_revision=9), True),
        (pb.WatchResponse(canceled=True, cancel_reason="too slow"), False),
        (SimpleNamespace(), True),  # an error of our own
    ],
)
def test_a_watch_that_cannot_go_on_is_ended_and_nothing_after_it_is_applied(
    response: Any, misses: bool
) -> None:
    store: Any = EtcdStore.__new__(EtcdStore)
    store.lock, store.address, store._missed, store._events = nullcontext(), "etcd://x", False, []
    store._watch = watch = Brought(response, pb.WatchResponse(events=[pb.Event()]))
    store._hear()
    assert (watch.is_over, store._missed, watch.brought) == (True, misses, [])


def test_a_writer_that_is_interrupted_leaves_no_transaction_behind() -> None:
    calls: list[int] = []

    def transact(request: Any, done: Any) -> None:
        calls.append(len(request.success))
        if len(calls) == 1:
            raise KeyboardInterrupt
        header = pb.ResponseHeader(revision=2)
        done(Called(pb.TxnResponse(succeeded=True, header=header), repeated=False))

    def write(path: bytes) -> Write:
        put = pb.RequestOp(request_put=pb.PutRequest(key=path))
        return Write(path, put, {path: 0}, {}, 1, lambda _: None)

    commits, first, second = Commits(transact), write(b"/a"), write(b"/b")
    with pytest.raises(KeyboardInterrupt):
        commits.carry_out(first)
    assert (first.revision, str(first.error)) == (0, "the writer was interrupted")
    commits.carry_out(second)
    assert (calls, second.revision) == ([1, 1], 2)


def test_a_watch_asks_for_progress_and_for_large_answers_in_parts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without progress a quiet server would not know how far it is; etcd sends neither unasked."""
    monkeypatch.setattr(client_module, "EtcdWatch", lambda *given: given)
    members = [SimpleNamespace(connected=lambda name=name: name) for name in ("first", "second")]
    client: Any = SimpleNamespace(current=1, members=members)
    _, connection, wanted = EtcdClient.watch(client, b"/a", b"/b", 7)  # type: ignore[misc]
    assert connection == "second"
    assert (wanted.key, wanted.range_end, wanted.start_revision) == (b"/a", b"/b", 7)
    assert (wanted.progress_notify, wanted.fragment) == (True, True)


@pytest.mark.parametrize(("given", "then"), [(0, 1), (1, 2), (2, 0)])
def test_the_next_member_is_asked_once_one_does_not_answer(given: int, then: int) -> None:
    client: Any = SimpleNamespace(current=given, members=["a", "b", "c"])
    EtcdClient.leave(client, (given + 1) % 3)
    assert client.current == given, "another thread has left it before"
    EtcdClient.leave(client, given)
    assert client.current == then
