"""How all of an etcd is read, and when its history is forgotten."""

from types import SimpleNamespace
from typing import Any

import pytest

pb = pytest.importorskip("dralab.apiserver.storage.etcd._generated.etcd_v3_pb2")

from dralab.apiserver.storage import StorageUnavailable  # noqa: E402 - needs etcd's messages
from dralab.apiserver.storage.etcd import compaction, contents  # noqa: E402
from dralab.apiserver.storage.etcd.compaction import Compactor  # noqa: E402


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
