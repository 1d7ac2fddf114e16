"""Every store behaves as a dictionary that remembers all of its past: a stateful property."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from dralab.apiserver.storage import (
    Change,
    Compacted,
    Key,
    KeyExists,
    KeyMissing,
    MemoryStore,
    RevisionConflict,
    StorageUnavailable,
    Store,
)
from dralab.apiserver.storage.sqlite import SqliteStore
from etcds import etcd_store, prefixes

WINDOW = 12
keys = st.builds(
    Key, st.sampled_from(["pods", "nodes"]), st.sampled_from("ab"), st.sampled_from("xyz")
)
values = st.integers(0, 99)
State = dict[Key, tuple[int, int, int]]  # value, revision, created


class StoreMachine(RuleBasedStateMachine):
    """A store beside the obvious: a copy of all objects for each revision."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.store = self.opened()
        self.past: dict[int, State] = {self.store.revision: {}}
        self.heard: list[Change] = []
        self.store.subscribe(self.heard.extend)
        self.told = self.store.revision

    def opened(self) -> Store:
        return MemoryStore(window=WINDOW)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.directory)

    @property
    def now(self) -> State:
        return self.past[max(self.past)]

    @property
    def floor(self) -> int:
        """From where on the past is there: compacted, or as many changes ago as are kept."""
        kept = sorted(self.past)[-WINDOW - 1 :]
        return max(self.store.compacted, kept[0])

    @rule(key=keys, value=values)
    def create(self, key: Key, value: int) -> None:
        state = dict(self.now)
        if key in state:
            with pytest.raises(KeyExists):
                self.store.create(key, {"metadata": {}, "v": value})
            return
        made = self.store.create(key, {"metadata": {}, "v": value})
        state[key] = (value, made.revision, made.revision)
        self.past[made.revision] = state

    @rule(key=keys, value=values, expect=st.sampled_from([None, "right", "wrong"]))
    def update(self, key: Key, value: int, expect: str | None) -> None:
        state = dict(self.now)
        body = {"metadata": {}, "v": value}
        if key not in state:
            with pytest.raises(KeyMissing):
                self.store.update(key, body)
            return
        _, revision, created = state[key]
        if expect == "wrong":
            with pytest.raises(RevisionConflict):
                self.store.update(key, body, expect=revision - 1)
            return
        made = self.store.update(key, body, expect=revision if expect else None)
        state[key] = (value, made.revision, created)
        self.past[made.revision] = state

    @rule(key=keys)
    def delete(self, key: Key) -> None:
        state = dict(self.now)
        if key not in state:
            with pytest.raises(KeyMissing):
                self.store.delete(key)
            return
        gone = self.store.delete(key)
        assert gone.value["v"] == state.pop(key)[0]
        self.past[gone.revision] = state

    @rule(writes=st.lists(st.tuples(keys, values), max_size=20))
    def batch(self, writes: list[tuple[Key, int]]) -> None:
        with self.store.batch():
            for key, value in writes:
                if key in self.now:
                    self.update(key, value, None)
                else:
                    self.create(key, value)

    @rule(share=st.floats(0, 1))
    def compact(self, share: float) -> None:
        self.store.compact(int(self.store.revision * share))

    @rule(share=st.floats(0, 1), resource=st.sampled_from(["pods", "nodes"]))
    def look_back(self, share: float, resource: str) -> None:
        revision = int(self.store.revision * share)
        try:
            shown = self.store.list(resource, revision=revision)
            changes = self.store.changes(revision, resource)
        except Compacted:
            assert revision < self.floor
            return
        # Over etcd, revisions between those of changes have the state of the last one.
        known = [each for each in self.past if each <= revision]
        if not known:
            return
        past = self.past[max(known)]
        self.check(shown.items, past, resource)
        state = {key: one for key, one in past.items() if key.resource == resource}
        for change in changes:
            before = None if change.before is None else change.before.value["v"]
            assert before == (state[change.key][0] if change.key in state else None)
            if change.after is None:
                del state[change.key]
            else:
                after = change.after
                state[change.key] = (after.value["v"], after.revision, after.created)
        assert state == {key: one for key, one in self.now.items() if key.resource == resource}

    @rule(limit=st.integers(1, 3))
    def page(self, limit: int) -> None:
        items, page = [], self.store.list("pods", limit=limit)
        items += page.items
        while page.more:
            assert len(page.items) == limit
            after = (items[-1].key.namespace, items[-1].key.name)
            page = self.store.list("pods", revision=page.revision, after=after, limit=limit)
            items += page.items
        self.check(items, self.now, "pods")

    def check(self, items: Any, state: State, resource: str) -> None:
        shown = [(one.key, (one.value["v"], one.revision, one.created)) for one in items]
        assert shown == sorted((key, one) for key, one in state.items() if key.resource == resource)
        assert all(one.value["metadata"]["resourceVersion"] == str(one.revision) for one in items)

    @invariant()
    def the_recent_past_is_there(self) -> None:
        for resource in ("pods", "nodes"):
            self.store.changes(self.floor, resource)

    @invariant()
    def listeners_have_heard_everything_in_order(self) -> None:
        revisions = [change.revision for change in self.heard]
        if self.store.shared:
            assert revisions == sorted(each for each in self.past if each > self.told)
        else:
            assert revisions == list(range(self.told + 1, self.store.revision + 1))


class SqliteMachine(StoreMachine):
    """The same, and now and then the store is closed, copied, or out of room."""

    def opened(self) -> Store:
        return SqliteStore(self.directory, durability="relaxed", window=WINDOW)

    @rule()
    def reopen(self) -> None:
        before = self.store.revision, self.store.compacted
        self.store.close()
        self.store = self.opened()
        assert (self.store.revision, self.store.compacted) == before
        self.heard = []
        self.told = self.store.revision
        self.store.subscribe(self.heard.extend)

    @rule(writes=st.lists(st.tuples(keys, values), min_size=1, max_size=20))
    def disk_full(self, writes: list[tuple[Key, int]]) -> None:
        """A batch that cannot be written has not happened."""
        store = self.store
        assert isinstance(store, SqliteStore)
        revision, state, compacted = store.revision, self.now, store.compacted
        pages = store._db.execute("PRAGMA page_count").fetchone()[0]
        store._db.execute(f"PRAGMA max_page_count={pages}")
        past = dict(self.past)

        def fill() -> None:
            with store.batch():
                for key, value in writes:
                    body = {"metadata": {}, "v": value, "much": "x" * 100_000}
                    (store.update if store.get(key) else store.create)(key, body)

        with pytest.raises(StorageUnavailable, match="full"):
            fill()
        store._db.execute("PRAGMA max_page_count=1000000")
        self.past = past
        assert (store.revision, self.now, store.compacted) == (revision, state, compacted)
        for resource in ("pods", "nodes"):
            self.check(store.list(resource).items, state, resource)


class EtcdMachine(StoreMachine):
    """The same in an etcd, under a new prefix each time; and now and then a server takes over."""

    url = ""

    def opened(self) -> Store:
        self.prefix = next(prefixes)
        return etcd_store(self.url, self.prefix, window=WINDOW)

    @rule()
    def take_over(self) -> None:
        """Another server sees the present, and has a history from then on."""
        old, self.store = self.store, etcd_store(self.url, self.prefix, window=WINDOW)
        old.close()
        self.past[self.store.revision] = self.now
        self.heard = []
        self.told = self.store.revision
        self.store.subscribe(self.heard.extend)


@pytest.mark.thorough
@pytest.mark.parametrize(("machine", "examples"), [(StoreMachine, 40), (SqliteMachine, 15)])
def test_a_store_is_a_dictionary_with_a_past(machine: type[StoreMachine], examples: int) -> None:
    run_state_machine_as_test(
        machine, settings=settings(max_examples=examples, stateful_step_count=40, deadline=None)
    )


@pytest.mark.conformance
def test_a_store_on_disk_is_a_dictionary_with_a_past() -> None:
    run_state_machine_as_test(
        SqliteMachine, settings=settings(max_examples=400, stateful_step_count=50, deadline=None)
    )


@pytest.mark.conformance
def test_a_store_in_etcd_is_a_dictionary_with_a_past(etcd: str) -> None:
    machine = type("Machine", (EtcdMachine,), {"url": etcd})
    run_state_machine_as_test(
        machine, settings=settings(max_examples=60, stateful_step_count=40, deadline=None)
    )
