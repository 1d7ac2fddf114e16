"""What every store does; the fixture `store` runs each test on each of them."""

import threading
from collections.abc import Sequence
from typing import Any

import pytest

from dralab.apiserver.storage import (
    Change,
    Compacted,
    FutureRevision,
    Key,
    KeyExists,
    KeyMissing,
    MemoryStore,
    RevisionConflict,
    StorageUnavailable,
    Store,
    Unstorable,
)


def pod(name: str, namespace: str = "default") -> Key:
    return Key("pods", namespace, name)


def value(**fields: Any) -> dict[str, Any]:
    return {"metadata": {}, **fields}


def names(store: Store, namespace: str = "", **options: Any) -> list[str]:
    found = store.list("pods", namespace, **options).items
    return [f"{item.key.namespace}/{item.key.name}" for item in found]


def told(changes: Sequence[Change]) -> list[tuple[str, int]]:
    return [(change.key.name, change.revision) for change in changes]


def turn(store: Store, revision: int) -> int:
    """Return which write a revision is of: over etcd, one has places for several keys."""
    return revision >> 12 if store.shared else revision


def turns(store: Store, changes: Sequence[Change]) -> list[tuple[str, int]]:
    return [(name, turn(store, revision)) for name, revision in told(changes)]


def test_the_store_stamps_what_it_stores(store: Store) -> None:
    first = store.create(pod("a"), value(spec=1))
    second = store.update(pod("a"), value(spec=2))
    assert first.revision < second.revision <= store.revision
    assert turn(store, second.revision) == turn(store, first.revision) + 1
    assert turn(store, second.revision) == turn(store, store.revision)
    assert (first.created, second.created) == (first.revision, first.revision)
    assert second.value["metadata"]["resourceVersion"] == str(second.revision)
    assert b'"spec":2' in second.encoded
    assert first.value["spec"] == 1, "the state before is untouched"
    assert store.get(pod("a")) is not None
    assert store.get(pod("b")) is None


def test_one_counter_serves_all_collections(store: Store) -> None:
    a = store.create(pod("a"), value())
    b = store.create(Key("nodes", "", "a"), value())
    assert turn(store, b.revision) == turn(store, a.revision) + 1
    assert store.resources() == ["nodes", "pods"]
    assert (store.count("pods"), store.count("pods", "elsewhere"), store.count("none")) == (1, 0, 0)


def test_refusals_carry_the_facts_and_change_nothing(store: Store) -> None:
    stored = store.create(pod("a"), value())
    before = store.revision
    with pytest.raises(KeyExists) as taken:
        store.create(pod("a"), value())
    assert taken.value.current.revision == stored.revision
    with pytest.raises(KeyMissing):
        store.update(pod("b"), value())
    with pytest.raises(KeyMissing):
        store.delete(pod("b"))
    for write in (store.update, store.delete):
        with pytest.raises(RevisionConflict) as stale:
            write(pod("a"), value(), expect=stored.revision - 1)
        assert stale.value.current.revision == stored.revision
    assert store.revision == before
    seen = stored.revision
    assert str(stale.value) == f"pods/default/a is at revision {seen}, not at {seen - 1}"


def test_a_deletion_returns_the_last_state_at_its_own_revision(store: Store) -> None:
    stored = store.create(pod("a"), value(spec=1))
    gone = store.delete(pod("a"), expect=stored.revision)
    assert turn(store, gone.revision) == turn(store, stored.revision) + 1
    assert turn(store, gone.revision) == turn(store, store.revision)
    assert gone.value["spec"] == 1
    assert gone.value["metadata"]["resourceVersion"] == str(gone.revision)
    assert store.get(pod("a")) is None
    again = store.create(pod("a"), value())
    assert again.created == again.revision > gone.revision


def test_a_deletion_may_bring_its_own_last_state(store: Store) -> None:
    store.create(pod("a"), value(spec=1))
    gone = store.delete(pod("a"), value(spec="final"))
    assert gone.value["spec"] == "final"
    assert store.changes(gone.revision - 1, "pods")[0].departed.value["spec"] == "final"


def test_lists_are_in_the_order_of_the_key_text(store: Store) -> None:
    # "a-b/…" sorts before "a/…", as in etcd: "-" comes before "/".
    for namespace, name in (("a", "z"), ("a-b", "m"), ("a", "b"), ("b", "a")):
        store.create(pod(name, namespace), value())
    assert names(store) == ["a-b/m", "a/b", "a/z", "b/a"]
    assert names(store, "a") == ["a/b", "a/z"]


def test_pages_show_one_state_however_much_changes_between_them(store: Store) -> None:
    for index in range(10):
        store.create(pod(f"p{index}", f"ns{index % 2}"), value(spec=index))
    first = store.list("pods", limit=4)
    assert (len(first.items), first.remaining, first.more) == (4, 6, True)
    store.delete(pod("p0", "ns0"))
    store.delete(pod("p9", "ns1"))
    store.update(pod("p7", "ns1"), value(spec="new"))
    store.create(pod("p8a", "ns0"), value())
    store.create(pod("x", "ns2"), value())
    seen, page = list(first.items), first
    while page.more:
        last = seen[-1].key
        page = store.list(
            "pods", revision=first.revision, after=(last.namespace, last.name), limit=4
        )
        assert page.revision == first.revision
        assert page.remaining == 10 - len(seen) - len(page.items)
        seen += page.items
    assert [item.value["spec"] for item in seen] == [0, 2, 4, 6, 8, 1, 3, 5, 7, 9]


def test_an_old_revision_shows_what_was_there(store: Store) -> None:
    a = store.create(pod("a"), value(spec=1))
    b = store.create(pod("b"), value())
    store.update(pod("a"), value(spec=2))
    store.delete(pod("b"))
    assert names(store) == ["default/a"]
    assert names(store, revision=a.revision) == ["default/a"]
    assert names(store, revision=b.revision) == ["default/a", "default/b"]
    assert store.list("pods", revision=a.revision).items[0].value["spec"] == 1
    assert names(store, revision=a.revision - 1) == []
    assert store.list("pods", "other", revision=a.revision).items == []


def test_a_filter_works_before_the_limit(store: Store) -> None:
    for index in range(10):
        store.create(pod(f"p{index}"), value(spec=index))
    page = store.list("pods", limit=2, where=lambda item: item.value["spec"] % 3 == 0)
    assert [item.value["spec"] for item in page.items] == [0, 3]
    assert (page.more, page.remaining) == (True, None)
    page = store.list(
        "pods", limit=2, after=("default", "p3"), where=lambda item: item.value["spec"] % 3 == 0
    )
    assert [item.value["spec"] for item in page.items] == [6, 9]
    assert (page.more, page.remaining) == (False, 0)


def test_the_log_tells_every_change_of_a_collection_in_order(store: Store) -> None:
    start = store.revision
    store.create(pod("a"), value(spec=1))
    store.create(Key("nodes", "", "n"), value())
    store.update(pod("a"), value(spec=2))
    store.delete(pod("a"))
    created, updated, deleted = store.changes(start, "pods")
    assert (created.before, updated.before.value["spec"]) == (None, 1)  # type: ignore[union-attr]
    assert (updated.after.value["spec"], deleted.after) == (2, None)  # type: ignore[union-attr]
    assert updated.departed.value["spec"] == 1
    assert updated.departed.value["metadata"]["resourceVersion"] == str(updated.revision)
    assert deleted.departed.revision == deleted.revision <= store.revision
    assert store.changes(updated.revision, "pods") == [deleted]
    assert store.changes(store.revision, "pods") == []
    assert turns(store, store.changes(start, "nodes")) == [("n", turn(store, start) + 2)]


def test_the_future_cannot_be_read(store: Store) -> None:
    with pytest.raises(FutureRevision) as future:
        store.list("pods", revision=store.revision + 1)
    assert future.value.current == store.revision
    with pytest.raises(FutureRevision):
        store.compact(store.revision + 1)


def test_what_was_compacted_is_refused(store: Store) -> None:
    first = store.create(pod("a"), value())
    second = store.update(pod("a"), value())
    third = store.update(pod("a"), value())
    store.compact(second.revision)
    assert store.compacted == second.revision
    for resource in ("pods", "never-seen"):
        with pytest.raises(Compacted) as gone:
            store.changes(first.revision, resource)
        assert gone.value.compacted == second.revision
        with pytest.raises(Compacted):
            store.list(resource, revision=first.revision)
    assert names(store, revision=second.revision) == ["default/a"]
    assert told(store.changes(second.revision, "pods")) == [("a", third.revision)]
    store.compact(first.revision)
    assert store.compacted == second.revision, "a compaction is not taken back"


def test_what_may_yet_be_undone_is_not_forgotten(store: Store) -> None:
    """A batch is open: it ends with an error of the disk, or is announced."""
    store.create(pod("a"), value())
    announced = store.revision
    with store.batch():
        store.create(pod("b"), value())
        store.create(pod("c"), value())
        store.compact(store.revision)
        open_ = store.compacted
        assert store.changes(open_, "pods") == []
    assert turn(store, announced) <= turn(store, open_ + 1) <= turn(store, announced) + 1
    if not store.shared:  # over etcd, each write is announced once it has happened
        assert open_ == announced
        assert [name for name, _ in told(store.changes(open_, "pods"))] == ["b", "c"]


def test_a_store_knows_whether_it_was_ever_written_to() -> None:
    store = MemoryStore()
    assert not store.wrote
    store.create(pod("a"), value())
    assert store.wrote
    store.delete(pod("a"))
    assert store.wrote


def test_a_busy_collection_forgets_its_own_past_and_no_other(store: Store) -> None:
    node = store.create(Key("nodes", "", "n"), value())
    first = store.create(pod("a"), value())
    made = [store.update(pod("a"), value()) for _ in range(60)]
    with pytest.raises(Compacted):
        store.changes(first.revision, "pods")
    assert len(store.changes(made[-51].revision, "pods")) == 50
    assert told(store.changes(node.revision - 1, "nodes")) == [("n", node.revision)]


def test_listeners_hear_a_batch_at_once_and_only_when_it_closes(store: Store) -> None:
    heard: list[list[tuple[str, int]]] = []
    stop = store.subscribe(lambda changes: heard.append(turns(store, changes)))
    before = store.revision
    start = turn(store, before)
    store.create(pod("a"), value())
    with store.batch():
        store.create(pod("b"), value())
        with store.batch():
            store.delete(pod("a"))
        assert names(store) == ["default/b"], "reads see an open batch"
        logged = turns(store, store.changes(before, "pods"))
        assert logged == [("a", start + 1)], "the log does not"
        assert len(heard) == 1
    assert heard == [[("a", start + 1)], [("b", start + 2), ("a", start + 3)]]
    assert len(store.changes(before, "pods")) == 3
    stop()
    stop()
    store.create(pod("c"), value())
    assert len(heard) == 2


def test_an_exception_keeps_what_was_written_before_it(store: Store) -> None:
    heard: list[list[tuple[str, int]]] = []
    store.subscribe(lambda changes: heard.append(told(changes)))

    def create_and_fail() -> None:
        with store.batch():
            store.create(pod("a"), value())
            store.delete(pod("b"))

    with pytest.raises(KeyMissing):
        create_and_fail()
    assert names(store) == ["default/a"]
    assert len(heard) == 1


def test_what_a_listener_writes_is_heard_after_what_it_was_told(store: Store) -> None:
    heard: list[tuple[str, str]] = []

    def answering(changes: Sequence[Change]) -> None:
        for change in changes:
            if change.key.name == "question":
                store.create(pod("answer"), value())

    if store.shared:
        pytest.skip("the listeners of a shared store may not write: see test_etcd")
    store.subscribe(answering)
    store.subscribe(lambda changes: heard.extend(("late", change.key.name) for change in changes))
    store.create(pod("question"), value())
    assert heard == [("late", "question"), ("late", "answer")]


def test_threads_lose_no_write(store: Store) -> None:
    start = store.revision
    heard: list[int] = []
    store.subscribe(lambda changes: heard.extend(change.revision for change in changes))

    def write(worker: int) -> None:
        for index in range(20):
            store.create(pod(f"{worker}-{index}"), value())

    workers = [threading.Thread(target=write, args=(worker,)) for worker in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert store.count("pods") == 80
    assert heard == sorted(set(heard))
    assert len(heard) == 80
    # Several may be of one transaction of etcd.
    assert len({turn(store, revision) for revision in heard}) == turn(store, store.revision) - turn(
        store, start
    )


def test_a_closed_store_takes_no_more_writes(store: Store) -> None:
    store.create(pod("a"), value())
    store.close()
    with pytest.raises(StorageUnavailable, match="closed"):
        store.create(pod("b"), value())
    assert names(store) == ["default/a"]


def test_what_cannot_be_written_as_json_is_not_stored(store: Store) -> None:
    deep: Any = 1
    for _ in range(300):
        deep = {"a": deep}
    made = store.create(pod("a"), value())
    with pytest.raises(Unstorable, match="pods/default/b cannot be stored: recursion limit"):
        store.create(pod("b"), value(spec=deep))
    with pytest.raises(Unstorable):
        store.update(pod("a"), value(spec=deep))
    assert turn(store, store.revision) == turn(store, made.revision)
    assert store.get(pod("a")) is made


def test_a_stored_object_lives_on_as_its_json(store: Store) -> None:
    stored = store.create(pod("a"), value(spec={"x": [1, None, "é"]}))
    before = stored.value
    stored.forget_value()
    assert stored.value == before
    assert stored.value is not before
