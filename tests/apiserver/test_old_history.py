"""History that is older than eight minutes is forgotten; watches that miss nothing by it go on."""

import pytest

from dralab.apiserver.storage import Compacted, Key, MemoryStore, freed_memory
from dralab.apiserver.storage.freed_memory import OldHistory
from dralab.apiserver.storage.sqlite import SWEEP, SqliteStore
from dralab.kernel.clock import SECOND, ManualClock

POD, NODE = Key("pods", "default", "a"), Key("nodes", "", "n")


class Lab:
    def __init__(self, store=None):
        self.clock, self.store = ManualClock(0), store or MemoryStore()
        self.history = OldHistory(self.store, self.clock)

    def tick(self, seconds=0):
        self.clock.advance(seconds * SECOND)
        return self.history.forget()


def changed(store, count):
    for number in range(count):
        store.update(POD, {"metadata": {}, "n": number})


def test_a_watch_may_begin_with_what_is_eight_minutes_old_and_with_nothing_older():
    lab = Lab()
    node = lab.store.create(NODE, {"metadata": {}})
    first = lab.store.create(POD, {"metadata": {}})
    second = lab.store.update(POD, {"metadata": {}})
    lab.tick()
    third = lab.store.update(POD, {"metadata": {}})
    assert lab.tick(480) == 0
    assert lab.tick(1) == 3
    with pytest.raises(Compacted):
        lab.store.changes(first.revision, "pods")
    assert [each.revision for each in lab.store.changes(second.revision, "pods")] == [
        third.revision
    ]
    # Of nodes a watch that begins long ago misses nothing: no change came after that one.
    assert lab.store.changes(node.revision, "nodes") == []
    assert lab.store.get(POD).revision == third.revision


def test_a_list_shows_no_state_that_is_older_even_if_nothing_has_changed():
    lab = Lab()
    old = lab.store.create(POD, {"metadata": {}}).revision
    lab.store.create(NODE, {"metadata": {}})
    lab.tick()
    lab.tick(480)
    assert [each.key for each in lab.store.list("pods", revision=old).items] == [POD]
    lab.tick(1)
    with pytest.raises(Compacted):
        lab.store.list("pods", revision=old)
    newest = lab.store.list("pods")
    assert [each.key for each in lab.store.list("pods", revision=newest.revision).items] == [POD]


def test_old_history_is_forgotten_a_part_at_a_time(monkeypatch):
    monkeypatch.setattr(freed_memory, "AT_A_TIME", 4)
    lab = Lab()
    lab.store.create(POD, {"metadata": {}})
    changed(lab.store, 9)
    assert lab.tick() == 0
    assert [lab.tick(481), lab.tick(), lab.tick(), lab.tick()] == [4, 4, 2, 0]


def test_deleted_objects_are_forgotten_with_their_history(tmp_path):
    """On disk their rows go with the writes that come next, and a restart does not bring it back."""
    store = SqliteStore(tmp_path)
    lab = Lab(store)
    for number in range(SWEEP):
        key = Key("pods", "default", f"p{number}")
        store.create(key, {"metadata": {}})
        last = store.delete(key)
    lab.tick()
    assert lab.tick(481) == 2 * SWEEP
    store.create(NODE, {"metadata": {}})
    rows = store._db.execute("SELECT count(*) FROM log").fetchone()[0]
    store.close()
    assert rows == 1
    again = SqliteStore(tmp_path)
    with pytest.raises(Compacted):
        again.changes(last.revision - 1, "pods")
    assert again.changes(last.revision, "pods") == []
    assert [each.key for each in again.list("nodes").items] == [NODE]
    again.close()
