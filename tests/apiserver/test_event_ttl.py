"""Events end an hour after their last write, with or without controllers."""

from pathlib import Path

import pytest

from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore, Store
from dralab.apiserver.storage.sqlite import SqliteStore
from dralab.kernel.clock import SECOND, ManualClock
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import EVENTS

START = 1_700_000_000 * SECOND


class Lab:
    def __init__(self, store: Store | None = None, now: int = START, **more: int) -> None:
        self.clock = ManualClock(now)
        self.server = ApiServer(store or MemoryStore(), clock=self.clock, **more)
        self.client = LocalClient(self.server.resources, self.server.hub)

    def record(self, name: str, **fields: object) -> None:
        about = {"namespace": "default"}
        metadata = {"name": name, "namespace": "default"}
        event = {"metadata": metadata, "involvedObject": about, "reason": name, **fields}
        self.client.create(EVENTS, event, "default")

    def wait(self, seconds: int) -> None:
        self.clock.advance(seconds * SECOND)

    @property
    def events(self) -> list[str]:
        return [event["metadata"]["name"] for event in self.client.list(EVENTS).items]


def test_an_event_ends_an_hour_after_its_last_write():
    lab = Lab()
    lab.record("once")
    lab.record("often")
    lab.wait(1800)
    lab.client.patch(EVENTS, "often", {"count": 2}, "default")
    lab.wait(1801)
    lab.server.tick()
    assert lab.events == ["often"]
    lab.wait(1800)
    lab.server.tick()
    assert lab.events == []


@pytest.mark.parametrize("when", ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"])
def test_an_event_lives_for_an_hour_whatever_its_times_say(when):
    lab = Lab()
    for name in ("a", "odd", "z"):
        lab.record(name, **({"lastTimestamp": when} if name == "odd" else {}))
    lab.wait(3600)
    lab.server.tick()
    assert lab.events == ["a", "odd", "z"]
    lab.wait(1)
    lab.server.tick()
    assert lab.events == []


def test_where_nobody_calls_new_events_take_old_ones_with_them():
    lab = Lab()
    for number in range(20):
        lab.record(f"old-{number}")
    lab.wait(3601)
    for number in range(3):
        lab.record(f"new-{number}")
    assert lab.events == ["new-0", "new-1", "new-2"]


def test_a_restart_does_not_give_events_another_hour(tmp_path: Path):
    lab = Lab(SqliteStore(tmp_path))
    lab.record("a")
    lab.wait(3000)
    lab.record("b")
    lab.server.close()
    again = Lab(SqliteStore(tmp_path), START + 3700 * SECOND)
    again.server.tick()
    assert again.events == ["b"]
    again.server.close()


def test_what_was_deleted_and_made_anew_is_another_event():
    lab = Lab()
    lab.record("a")
    lab.wait(3000)
    lab.client.delete(EVENTS, "a", "default")
    lab.record("a")
    lab.wait(1000)
    lab.server.tick()
    assert lab.events == ["a"]


def test_the_operator_says_how_long_events_are_kept():
    lab = Lab(event_ttl=60 * SECOND)
    lab.record("a")
    lab.wait(61)
    lab.server.tick()
    assert lab.events == []


def test_an_event_costs_the_same_however_often_it_is_written():
    lab = Lab()
    for name in ("a", "b"):
        lab.record(name)
        for count in range(50):
            lab.client.patch(EVENTS, name, {"count": count}, "default")
    assert len(lab.server.leases) == 2
    lab.client.delete(EVENTS, "a", "default")
    assert len(lab.server.leases) == 1
