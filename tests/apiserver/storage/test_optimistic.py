"""A request thinks outside of the lock, and writes only where what it has read is still so."""

import threading

import pytest

from dralab.apiserver.storage import (
    Changed,
    Key,
    MemoryStore,
    OptimisticStore,
    StorageUnavailable,
)
from waiting import PATIENCE

WEB = Key("pods", "default", "web")
DB = Key("pods", "default", "db")
ELSEWHERE = Key("pods", "other", "web")


def value(**more):
    return {"metadata": {"name": "x"}, **more}


@pytest.fixture
def store():
    store = MemoryStore()
    store.create(WEB, value())
    return store


READS = {
    "an object": (lambda store: store.get(WEB), lambda store: store.update(WEB, value(a=1))),
    "an object that goes": (lambda store: store.get(WEB), lambda store: store.delete(WEB)),
    "an object that comes": (lambda store: store.get(DB), lambda store: store.create(DB, value())),
    "a namespace": (
        lambda store: store.list("pods", "default"),
        lambda store: store.create(DB, value()),
    ),
    "a collection": (
        lambda store: store.list("pods"),
        lambda store: store.create(ELSEWHERE, value()),
    ),
    "a count": (lambda store: store.count("pods"), lambda store: store.create(DB, value())),
    "a list that is forgotten": (
        lambda store: store.list("pods"),
        lambda store: (store.create(DB, value()), store.compact(store.revision)),
    ),
}


@pytest.mark.parametrize(("read", "change"), READS.values(), ids=READS)
def test_a_write_upon_what_has_changed_is_not_done(store, read, change):
    request = OptimisticStore(store)
    with request.lock:
        read(request)
        change(store)
        before = store.revision
        with pytest.raises(Changed):
            request.create(Key("pods", "default", "new"), value())
    assert store.revision == before


def test_what_was_not_read_may_change(store):
    request = OptimisticStore(store)
    request.get(WEB)
    request.list("pods", "default")
    store.create(ELSEWHERE, value())
    store.create(Key("nodes", "", "n"), value())
    assert request.update(WEB, value(a=1)).value["a"] == 1


def held(store):
    """Return whether another thread would have to wait for the store."""
    found = []

    def try_it():
        found.append(store.lock.acquire(blocking=False))
        if found[0]:
            store.lock.release()

    other = threading.Thread(target=try_it)
    other.start()
    other.join()
    return not found[0]


def test_the_lock_is_held_from_the_first_write_to_the_end_of_the_step(store):
    seen = []
    store.subscribe(lambda changes: seen.append(len(changes)))
    request = OptimisticStore(store)
    with request.lock:
        with request.lock:
            request.get(WEB)
            assert not held(store)
            request.update(WEB, value(a=1))
        assert held(store)
        request.create(DB, value())
        assert seen == []
    assert not held(store)
    assert seen == [2]  # announced together


def test_a_request_may_change_again_what_it_has_written(store):
    request = OptimisticStore(store)
    with request.lock, request.batch():
        request.get(WEB)
        request.update(WEB, value(a=1))
        assert request.get(WEB).value["a"] == 1
        request.update(WEB, value(a=2))
    request.update(WEB, value(a=3))
    assert store.get(WEB).value["a"] == 3


class ToldLock:
    """A lock that says when another thread than its first one wants it."""

    def __init__(self):
        self.lock, self.wanted = threading.RLock(), threading.Event()
        self.first = threading.get_ident()

    def _is_owned(self):
        return self.lock._is_owned()

    def __enter__(self):
        if threading.get_ident() != self.first:
            self.wanted.set()
        return self.lock.__enter__()

    def __exit__(self, *raised):
        self.lock.__exit__(*raised)


class Failing(MemoryStore):
    """A store whose medium fails as long as it is told to."""

    fails = False

    def _persist(self, changes):
        if self.fails:
            raise StorageUnavailable("the disk is full")


def test_a_list_is_not_as_of_a_write_that_was_taken_back():
    """Its revision is given to another write, which would not count as a change."""
    store = Failing()
    store.lock = ToldLock()
    request = OptimisticStore(store)
    listing = threading.Thread(target=request.list, args=("pods", "default"))
    store.fails = True

    def write():
        with store.batch():
            store.create(DB, value())
            listing.start()
            assert store.lock.wanted.wait(PATIENCE)

    with pytest.raises(StorageUnavailable):
        write()
    listing.join()
    store.fails = False
    assert store.create(WEB, value()).revision == 2, "as that which was taken back"
    with request.lock, pytest.raises(Changed):
        request.create(Key("pods", "default", "new"), value())
