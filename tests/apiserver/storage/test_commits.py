"""Group commit: which writes share a transaction of etcd, and what comes of each."""

import threading
from contextlib import contextmanager

import pytest

pytest.importorskip("grpc")

from dralab.apiserver.storage import Key, KeyExists, StorageError, StorageUnavailable, Undecided
from dralab.apiserver.storage.etcd import client as etcd_client
from dralab.apiserver.storage.etcd import commits
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.client import Called, EtcdRefused
from dralab.apiserver.storage.etcd.commits import Commits, Write
from dralab.apiserver.storage.etcd.revisions import place, revision_of
from etcds import etcd_store
from fakeetcd import FakeEtcd
from waiting import until


def write(path=b"/r/pods/a", *, at=0, keys=(), ranges=(), size=1):
    what = pb.RequestOp(request_put=pb.PutRequest(key=path))
    return Write(
        path=path, what=what, keys={path: at, **dict(keys)}, ranges=dict(ranges), size=size,
        after=lambda _: None,
    )  # fmt: skip


def joined(first, *others):
    return [each.path for each in commits._joined(first, others)]


# --- which writes are joined --------------------------------------------------------------------


def test_independent_writes_are_joined():
    namespace = (b"/r/namespaces/default", 5)
    limits = ((b"/r/limitranges/default/", b"/r/limitranges/default0"), 9)
    later = ((b"/r/limitranges/default/", b"/r/limitranges/default0"), 7)
    first, second = (
        write(b"/r/pods/a", keys=[namespace], ranges=[limits]),
        write(b"/r/pods/b", keys=[namespace], ranges=[later]),
    )
    assert joined(first, second) == [b"/r/pods/a", b"/r/pods/b"]
    request = commits._request([first, second])
    compared = {(c.key, c.range_end): (c.result, c.mod_revision) for c in request.compare}
    assert compared == {
        (b"/r/pods/a", b""): (pb.Compare.EQUAL, 0),
        (b"/r/pods/b", b""): (pb.Compare.EQUAL, 0),
        (namespace[0], b""): (pb.Compare.EQUAL, 5),
        limits[0]: (pb.Compare.LESS, 8),  # as the one that read first has seen it
    }
    assert [op.request_put.key for op in request.success] == [b"/r/pods/a", b"/r/pods/b"]


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(write(b"/r/pods/a", at=1), id="the same key"),
        pytest.param(write(b"/r/namespaces/default", at=5), id="it writes what the first read"),
        pytest.param(write(b"/r/limits/x"), id="it writes into a list that the first read"),
        pytest.param(write(b"/r/pods/b", keys=[(b"/r/pods/a", 0)]), id="it read what is written"),
        pytest.param(
            write(b"/r/pods/b", ranges=[((b"/r/pods/", b"/r/pods0"), 9)]), id="it read a list of it"
        ),
        pytest.param(
            write(b"/r/pods/b", keys=[(b"/r/namespaces/default", 6)]),
            id="it has seen another state",
        ),
        pytest.param(write(b"/r/pods/b", size=commits.BYTES), id="too large together"),
        pytest.param(
            write(b"/r/pods/b", keys=[(b"/%d" % n, 1) for n in range(commits.OPERATIONS)]),
            id="too many comparisons",
        ),
    ],
)
def test_a_write_that_depends_on_another_is_sent_apart(other):
    first = write(
        keys=[(b"/r/namespaces/default", 5)], ranges=[((b"/r/limits/", b"/r/limits0"), 9)]
    )
    assert joined(first, other, write(b"/r/pods/c")) == [b"/r/pods/a", b"/r/pods/c"]


def test_keys_with_the_same_place_are_sent_apart():
    paths = [b"/r/pods/%d" % number for number in range(3000)]
    places = {}
    same = next(
        (places[place(path)], path)
        for path in paths
        if places.setdefault(place(path), path) != path
    )
    assert joined(write(same[0]), write(same[1])) == [same[0]]


def test_no_more_are_joined_than_a_transaction_takes():
    paths = {place(path): path for path in (b"/r/pods/%d" % number for number in range(90))}
    first, *rest = map(write, paths.values())
    assert len(joined(first, *rest)) == commits.MOST


# --- what comes of each -------------------------------------------------------------------------


class Etcd:
    """Holds back the first transaction, so that the next writes gather; then answers as told."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.sizes = []

    def __call__(self, request, done):
        self.sizes.append(len(request.success))
        if len(self.sizes) == 1:
            self.release = lambda: done(_done(1))
        else:
            done(self.answers.pop(0) if self.answers else _done(len(self.sizes)))


def _done(revision):
    header = pb.ResponseHeader(revision=revision)
    return Called(pb.TxnResponse(succeeded=True, header=header), repeated=False)


def _refused(*, repeated=False):
    return Called(
        pb.TxnResponse(responses=[pb.ResponseOp(response_range=pb.RangeResponse())]), repeated
    )


def outcome(etcd, count=3):
    """Return the writes that gathered behind the first transaction, after all are done."""
    found = Commits(etcd)
    first, *rest = writes = [write(b"/r/pods/%d" % number) for number in range(count + 1)]
    assert len({place(each.path) for each in writes}) == count + 1
    errors = {}

    def carry_out(each):
        try:
            found.carry_out(each)
        except StorageUnavailable as error:
            errors[each.path] = error

    threads = [threading.Thread(target=carry_out, args=(first,))]
    threads[0].start()
    until(lambda: etcd.sizes)
    threads += [threading.Thread(target=carry_out, args=(each,)) for each in rest]
    for thread in threads[1:]:
        thread.start()
    until(lambda: len(found._waiting) == count)
    etcd.release()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert (found._waiting, found._busy) == ([], 0)
    return rest, errors


def test_writes_that_wait_become_one_transaction():
    etcd = Etcd()
    writes, errors = outcome(etcd)
    assert (etcd.sizes, errors) == ([1, 3], {})
    assert {each.revision for each in writes} == {2}
    assert [place(each.path) for each in writes[0].together] == sorted(
        place(each.path) for each in writes
    )


def test_of_a_refused_transaction_each_write_is_sent_alone():
    etcd = Etcd(_refused(), _refused())
    writes, errors = outcome(etcd)
    assert sorted(etcd.sizes) == [1, 1, 1, 1, 3]
    assert errors == {}
    assert sorted(each.revision for each in writes) == [0, 4, 5], "one was refused, not the others"
    assert not any(each.repeated for each in writes)


def test_writes_of_a_transaction_that_was_repeated_know_it_when_they_are_alone():
    writes, _ = outcome(Etcd(_refused(repeated=True)))
    assert all(each.repeated for each in writes)


def test_a_transaction_that_etcd_does_not_take_is_sent_in_parts():
    etcd = Etcd(EtcdRefused(None, "request is too large"), EtcdRefused(None, "it is this one"))
    writes, errors = outcome(etcd)
    assert [error.details for error in errors.values()] == ["it is this one"]
    assert sum(each.revision > 0 for each in writes) == 2


def test_a_transaction_without_an_answer_leaves_all_its_writes_open():
    writes, errors = outcome(Etcd(StorageUnavailable("no answer")))
    assert len(errors) == 3
    assert not any(each.revision for each in writes)


# --- over an etcd -------------------------------------------------------------------------------


@contextmanager
def gathered(store, count):
    """Let so many writes gather before the first transaction is answered."""
    real, sizes, held = store._commits._transact, [], []

    def transact(request, done):
        sizes.append(len(request.success))
        if len(sizes) == 1:
            held.append(lambda: real(request, done))
        else:
            real(request, done)

    store._commits._transact = transact
    errors, threads = {}, []

    def run(name):
        try:
            store.create(Key("pods", "default", name), {"metadata": {}, "spec": name})
        except StorageError as error:
            errors[name] = error

    for number in range(count + 1):
        threads.append(threading.Thread(target=run, args=(f"p{number}",)))
        threads[-1].start()
        until(lambda: sizes and len(store._commits._waiting) == number)  # noqa: B023 - waits here
    yield sizes, errors
    held[0]()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


@pytest.fixture
def pair():
    with FakeEtcd() as etcd:
        stores = etcd_store(etcd.url, "/group"), etcd_store(etcd.url, "/group")
        yield etcd, *stores
        for store in stores:
            store.close()


def test_all_servers_tell_the_writes_of_a_transaction_alike(pair):
    _, here, there = pair
    heard = [], []
    for store, told in zip((here, there), heard, strict=True):
        store.subscribe(lambda changes, told=told: told.extend(changes))
    with gathered(here, 5) as (sizes, errors):
        pass
    there.refresh()
    assert (sizes, errors) == ([1, 5], {})
    first, second = ([(c.key, c.revision, c.after.encoded) for c in told] for told in heard)
    assert first == second
    revisions = [revision for _, revision, _ in first]
    assert revisions == sorted(set(revisions))
    assert len({revision_of(each) for each in revisions}) == 2
    later = etcd_store(pair[0].url, "/group")
    assert {one.key: one.revision for one in later.list("pods").items} == {
        key: revision for key, revision, _ in first
    }, "a server that starts later reads the same revisions"
    assert here.revision == there.revision == later.revision >= revisions[-1]
    # A watcher that has seen the first of the transaction is told of the rest.
    assert [c.revision for c in there.changes(revisions[1], "pods")] == revisions[2:]
    later.close()


def test_one_write_that_fails_takes_no_other_with_it(pair):
    etcd, here, there = pair
    etcd.hold.clear()  # so that this server does not hear of it
    there.create(Key("pods", "default", "p3"), {"metadata": {}, "spec": "theirs"})
    with gathered(here, 5) as (_, errors):
        etcd.hold.set()
    assert {name: type(error) for name, error in errors.items()} == {"p3": KeyExists}
    specs = {one.key.name: one.value["spec"] for one in here.list("pods").items}
    assert specs == {f"p{n}": f"p{n}" for n in (0, 1, 2, 4, 5)} | {"p3": "theirs"}


def test_a_transaction_whose_answer_was_lost_happens_once(pair):
    etcd, here, _ = pair
    heard = []
    here.subscribe(heard.extend)
    with gathered(here, 5) as (_, errors):
        etcd.fail("Txn", "lost", "lost")  # of the first write, and of the others
    assert errors == {}
    assert len(heard) == len({change.key for change in heard}) == 6


def test_a_transaction_without_an_answer_is_undecided_for_each_write(pair, monkeypatch):
    monkeypatch.setattr(etcd_client, "PATIENCE", 0.01)
    etcd, here, _ = pair
    with gathered(here, 2) as (_, errors):
        etcd.fail("Txn", *["lost"] * 20)
    assert {type(error) for error in errors.values()} == {Undecided}
    assert len(errors) == 3
