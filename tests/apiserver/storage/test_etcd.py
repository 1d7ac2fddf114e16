"""What servers that share an etcd see of each other, and what they make of what etcd does.

Each test runs on an etcd in this process, and in `make conformance` on a real one.
"""

import itertools
import json
from types import SimpleNamespace

import pytest

pytest.importorskip("grpc")

from dralab.api.kinds import Kinds
from dralab.apiserver.guarded import is_held
from dralab.apiserver.http.connections import tls
from dralab.apiserver.storage import (
    Changed,
    Key,
    KeyExists,
    KeyMissing,
    RevisionConflict,
    StorageUnavailable,
    TooLarge,
    Undecided,
    Unstorable,
)
from dralab.apiserver.storage.etcd import EtcdStore
from dralab.apiserver.storage.etcd import client as etcd_client
from dralab.apiserver.storage.etcd import store as etcd_store_module
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.address import AddressError, EtcdAddress
from dralab.apiserver.storage.etcd.client import EtcdClient
from dralab.apiserver.storage.etcd.compaction import Compactor
from dralab.apiserver.storage.etcd.layout import Layout
from dralab.apiserver.storage.etcd.revisions import revision_of, version_of
from dralab.kernel.clock import WallClock
from etcds import etcd_store
from fakeetcd import FakeEtcd

WEB, DB = Key("pods", "default", "web"), Key("pods", "default", "db")
NAMESPACE = Key("namespaces", "", "default")
places = (f"/pair-{number}" for number in itertools.count())


def value(**more):
    return {"metadata": {"name": "x"}, **more}


@pytest.fixture(params=["fake", pytest.param("real", marks=pytest.mark.conformance)])
def url(request):
    return request.getfixturevalue("fake_etcd" if request.param == "fake" else "etcd")


@pytest.fixture
def pair(url):
    """Two servers' stores over one etcd."""
    prefix = next(places)
    stores = etcd_store(url, prefix), etcd_store(url, prefix)
    yield stores
    for store in stores:
        store.close()


@pytest.fixture
def failing():
    """An etcd that can be made to fail, and a store in it."""
    with FakeEtcd() as etcd:
        store = etcd_store(etcd.url)
        yield etcd, store
        store.close()


@pytest.fixture
def impatient(monkeypatch):
    """A store that gives up soon."""
    monkeypatch.setattr(etcd_client, "PATIENCE", 0.05)
    monkeypatch.setattr(etcd_store_module, "BEHIND", 0.01)
    monkeypatch.setattr(etcd_store_module, "ASKED", 2)


def put(url, path, text):
    """Write to etcd beside all servers."""
    client = EtcdClient(EtcdAddress.read(url))
    request = pb.PutRequest(key=path.encode(), value=text)
    client.transact(pb.TxnRequest(success=[pb.RequestOp(request_put=request)]))
    client.close()


def raw(url, path):
    client = EtcdClient(EtcdAddress.read(url))
    found = client.range(pb.RangeRequest(key=path.encode())).kvs
    client.close()
    return found[0] if found else None


# --- servers beside each other ----------------------------------------------------------------


def test_a_server_reads_what_another_has_acknowledged(pair):
    here, there = pair
    made = here.create(WEB, value(spec=1))
    there.refresh()
    seen = there.get(WEB)
    assert (seen.revision, seen.created, seen.value["spec"]) == (made.revision, made.created, 1)
    gone = there.delete(WEB)
    here.refresh()
    assert here.get(WEB) is None
    assert here.revision >= gone.revision


def test_watchers_of_all_servers_hear_the_same(pair):
    here, there = pair
    heard = [], []
    for store, told in zip(pair, heard, strict=True):
        store.subscribe(lambda changes, told=told: told.extend(changes))
    here.create(WEB, value())
    there.refresh()
    there.update(WEB, value(spec=2))
    there.create(DB, value())
    here.refresh()
    here.delete(WEB)
    there.refresh()
    first, second = (
        [(c.key, c.revision, *(one and one.encoded for one in (c.before, c.after))) for c in told]
        for told in heard
    )
    assert len(first) == 4
    assert first == second


def test_of_two_writes_upon_one_state_the_second_is_refused(pair):
    here, there = pair
    seen = here.create(WEB, value())
    there.refresh()
    made = here.update(WEB, value(spec="mine"))
    # The other server has not heard of it, or has: what counts is what it had seen.
    with pytest.raises(RevisionConflict) as refused:
        there.update(WEB, value(spec="theirs"), expect=seen.revision)
    assert refused.value.current.revision == made.revision
    with pytest.raises(RevisionConflict):
        there.delete(WEB, expect=seen.revision)
    with pytest.raises(KeyExists):
        there.create(WEB, value())
    here.delete(WEB)
    with pytest.raises(KeyMissing):
        there.update(WEB, value()), there.update(WEB, value())
    assert here.get(WEB) is None


GUARDS = {
    "an object": (
        lambda store: store.get(NAMESPACE),
        lambda store: store.update(NAMESPACE, value(phase="Terminating")),
    ),
    "an object that goes": (
        lambda store: store.get(NAMESPACE),
        lambda store: store.delete(NAMESPACE),
    ),
    "an object that comes": (lambda store: store.get(DB), lambda store: store.create(DB, value())),
    "the object itself": (lambda store: store.get(WEB), lambda store: store.create(WEB, value())),
    "a list": (lambda store: store.list("pods"), lambda store: store.create(DB, value())),
    "a namespace's list": (
        lambda store: store.list("pods", "default"),
        lambda store: store.create(DB, value()),
    ),
}


@pytest.mark.parametrize(("read", "change"), GUARDS.values(), ids=GUARDS)
def test_a_request_writes_only_where_no_server_has_changed_what_it_read(pair, read, change):
    here, there = pair
    there.create(NAMESPACE, value())
    here.refresh()
    view = here.view()
    read(view)
    with here.lock:  # so that this server does not hear of it
        change(there)
        with pytest.raises(Changed):
            view.create(WEB, value())
    here.refresh()
    again = here.view()
    read(again)
    if here.get(WEB) is None:
        assert again.create(WEB, value()).revision == here.get(WEB).revision


def test_what_happens_elsewhere_in_etcd_keeps_no_reader_waiting(pair, url):
    here, there = pair
    put(url, "/elsewhere", b"{}")
    here.refresh()
    there.create(WEB, value())
    put(url, "/elsewhere", b"{}")
    here.refresh()
    assert here.get(WEB) is not None


def test_one_of_all_servers_compacts_in_each_round(url):
    client = EtcdClient(EtcdAddress.read(url))
    servers = [Compactor(client) for _ in range(3)]
    for server in servers:
        server.stop()
    put(url, "/x", b"1")
    assert sum(server.look() for server in servers) <= 1, "some know of no round yet"
    for _ in range(3):
        servers.append(servers.pop(0))
        assert sum(server.look() for server in servers) == 1
    past = pb.RangeRequest(key=b"/x", revision=1)
    with pytest.raises(StorageUnavailable, match="compacted"):
        client.range(past)
    client.close()


def test_who_is_told_of_changes_may_not_write(pair):
    here, _ = pair
    refused = []

    def answer(changes):
        with pytest.raises(RuntimeError) as error:
            here.create(DB, value())
        refused.append(str(error.value))

    here.subscribe(answer)
    here.create(WEB, value())
    assert refused == ["an observer of a shared store may not write to it"]


def test_events_end_by_leases(pair, url):
    here, _ = pair
    event, lasting = Key("events", "default", "e"), WEB
    here.create(event, value())
    here.create(lasting, value())
    assert raw(url, here.layout.path(event).decode()).lease
    assert not raw(url, here.layout.path(lasting).decode()).lease


# --- what lies in etcd --------------------------------------------------------------------------


def test_objects_lie_where_a_kube_apiserver_lays_them():
    layout = Layout("/registry")
    paths = {
        Key("pods", "default", "a"): "/registry/pods/default/a",
        Key("services", "default", "a"): "/registry/services/specs/default/a",
        Key("endpoints", "default", "a"): "/registry/services/endpoints/default/a",
        Key("nodes", "", "a"): "/registry/minions/a",
        Key("apps/deployments", "default", "a"): "/registry/deployments/default/a",
        Key("networking.k8s.io/ingresses", "d", "a"): "/registry/ingress/d/a",
        Key("resource.k8s.io/resourceslices", "", "a"): "/registry/resourceslices/a",
        Key("coordination.k8s.io/leases", "d", "a"): "/registry/leases/d/a",
        Key("rbac.authorization.k8s.io/roles", "d", "a:b"): "/registry/roles/d/a:b",
        Key("example.com/foos", "d", "a"): "/registry/example.com/foos/d/a",
        Key("apiextensions.k8s.io/customresourcedefinitions", "", "foos.example.com"): (
            "/registry/apiextensions.k8s.io/customresourcedefinitions/foos.example.com"
        ),
    }
    assert {key: layout.path(key).decode() for key in paths} == paths
    assert {layout.key(path.encode()) for path in paths.values()} == set(paths)


def test_every_kind_has_a_place_of_its_own():
    layout = Layout("/registry")
    keys = {Key(kind.hub, "ns" if kind.namespaced else "", "name") for kind in Kinds.standard()}
    assert len(keys) > 50
    assert {layout.key(layout.path(key)) for key in keys} == keys


@pytest.mark.parametrize(
    "path", ["/registry/a", "/registry/.dralab/x", "/registry/pods//a", "/registry/\xff"]
)
def test_what_is_not_an_object_is_passed_by(path):
    assert Layout("/registry").key(path.encode("latin-1")) is None


def test_a_value_has_no_revision_and_is_read_with_etcds(pair, url):
    here, _ = pair
    body = {"kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web", "uid": "u"}, "spec": {}}
    made = here.create(WEB, body)
    kv = raw(url, here.layout.path(WEB).decode())
    assert json.loads(kv.value) == {
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": "web", "uid": "u"}, "spec": {},
    }  # fmt: skip
    assert kv.mod_revision == revision_of(made.revision)
    assert made.value["metadata"]["resourceVersion"] == str(made.revision)
    assert made.encoded.startswith(b'{"kind":"Pod","apiVersion":"v1","metadata":{"resourceVersion"')


FOREIGN = {
    "JSON of a kube-apiserver": b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web"}}\n',
    "keys in another order": b'{"apiVersion":"v1","metadata":{"name":"web"},"kind":"Pod"}',
    "a revision within": (
        b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"web","resourceVersion":"1"}}'
    ),
    "empty metadata": b'{"kind":"Pod","apiVersion":"v1","metadata":{},"spec":{}}',
    # runtime.Unknown around a core/v1 Pod whose metadata.name is "web".
    "protobuf": (b'k8s\x00\n\t\n\x02v1\x12\x03Pod\x12\x07\n\x05\n\x03web\x1a\x00"\x00'),
}


@pytest.mark.parametrize("text", FOREIGN.values(), ids=FOREIGN)
def test_what_a_kube_apiserver_has_written_is_read(pair, url, text):
    here, _ = pair
    put(url, here.layout.path(WEB).decode(), text)
    here.refresh()
    found = here.get(WEB)
    assert found.value["metadata"]["resourceVersion"] == str(found.revision)
    assert found.encoded.startswith(b'{"kind":"Pod","apiVersion":"v1",'), "as lists cut it"
    assert json.loads(found.encoded) == found.value


def test_protobuf_is_read_with_the_fields_that_json_always_has():
    raw = FOREIGN["protobuf"]
    stored = Layout("/registry").stored(
        WEB, pb.KeyValue(value=raw, mod_revision=7, create_revision=5)
    )
    assert stored.value == {
        "kind": "Pod",
        "apiVersion": "v1",
        "metadata": {"name": "web", "resourceVersion": str(version_of(7, b""))},
        "spec": {"containers": None},
        "status": {},
    }


def test_definitions_are_read_in_the_older_version_in_which_they_are_stored():
    column = {"name": "X", "type": "string", "JSONPath": ".spec.x"}
    schema = {"openAPIV3Schema": {"type": "object"}}
    names = {"plural": "foos", "kind": "Foo"}
    older = {
        "kind": "CustomResourceDefinition",
        "apiVersion": "apiextensions.k8s.io/v1beta1",
        "metadata": {"name": "foos.example.com"},
        "spec": {
            "group": "example.com",
            "version": "v1",
            "names": names,
            "scope": "Namespaced",
            "validation": schema,
            "additionalPrinterColumns": [column],
            "versions": [{"name": "v1", "served": True, "storage": True}],
            "conversion": {"strategy": "None"},
            "preserveUnknownFields": False,
        },
    }
    key = Key("apiextensions.k8s.io/customresourcedefinitions", "", "foos.example.com")
    raw = json.dumps(older, separators=(",", ":")).encode()
    stored = Layout("/registry").stored(
        key, pb.KeyValue(value=raw, mod_revision=7, create_revision=5)
    )
    assert stored.value["apiVersion"] == "apiextensions.k8s.io/v1"
    assert stored.value["spec"] == {
        "group": "example.com",
        "names": names,
        "scope": "Namespaced",
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": schema,
                "additionalPrinterColumns": [
                    {"name": "X", "type": "string", "jsonPath": ".spec.x"}
                ],
            }
        ],
        "conversion": {"strategy": "None"},
    }


UNREADABLE = {
    "no JSON": b'{"kind":"Pod"',
    "no object": b"[]",
    "another version": b'{"kind":"Pod","apiVersion":"v2","metadata":{"name":"web"}}',
    "another kind": b'{"apiVersion":"v1","kind":"Node","metadata":{"name":"web"}}',
    "protobuf that ends": b"k8s\x00\n\t\n\x02v1",
}


@pytest.mark.parametrize("text", UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_named_and_can_be_deleted(pair, url, text):
    here, there = pair
    here.create(DB, value())
    here.create(WEB, value())
    put(url, here.layout.path(WEB).decode(), text)
    here.refresh()
    late = etcd_store(url, here.address.prefix)
    for store in (here, late):
        assert store.damaged("pods") == [WEB]
        assert [one.key for one in store.list("pods").items] == [DB]
    late.close()
    here.delete(WEB)
    there.refresh()
    assert not there.damaged("pods")
    assert not here.damaged("pods")


# --- when etcd fails ----------------------------------------------------------------------------


def test_a_write_is_tried_again_at_another_member(failing):
    etcd, store = failing
    etcd.fail("Txn", "refused", "refused")
    made = store.create(WEB, value())
    assert revision_of(made.revision) == revision_of(store.revision) == etcd.revision
    assert etcd.calls.count("Txn") == 3


def test_a_write_whose_answer_was_lost_happens_once(failing):
    etcd, store = failing
    heard = []
    store.subscribe(heard.extend)
    etcd.fail("Txn", "lost")
    made = store.create(WEB, value(spec=1))
    etcd.fail("Txn", "lost", "refused")
    changed = store.update(WEB, value(spec=2))
    etcd.fail("Txn", "lost")
    gone = store.delete(WEB)
    assert [change.revision for change in heard] == [
        made.revision, changed.revision, gone.revision,
    ]  # fmt: skip
    assert revision_of(gone.revision) == revision_of(made.revision) + 2 == etcd.revision


def test_a_lost_answer_does_not_take_anothers_write_for_its_own(failing):
    etcd, store = failing
    other = etcd_store(etcd.url, store.address.prefix)
    store.create(WEB, value())
    other.refresh()
    with store.lock:  # so that this server does not hear of it
        other.update(WEB, value(spec="theirs"))
        etcd.fail("Txn", "refused")
        with pytest.raises(RevisionConflict):
            store.update(WEB, value(spec="mine"))
    with store.lock:
        other.update(WEB, value(spec="last"))
        etcd.fail("Txn", "refused")
        with pytest.raises(RevisionConflict):
            store.delete(WEB)
    assert store.get(WEB).value["spec"] == "last"
    other.close()


def test_a_write_without_an_answer_is_undecided(failing, impatient):
    etcd, store = failing
    etcd.fail("Txn", *["lost"] * 10)
    with pytest.raises(Undecided, match="does not answer"):
        store.create(WEB, value())
    etcd.faults.clear()
    store.refresh()
    assert store.get(WEB) is not None, "this one had happened"


def test_a_full_etcd_takes_no_writes_and_nothing_happens(failing):
    etcd, store = failing
    before = store.revision
    etcd.fail("Txn", "full")
    with pytest.raises(StorageUnavailable, match="database space exceeded") as refused:
        store.create(WEB, value())
    assert not isinstance(refused.value, Undecided)
    assert (store.get(WEB), store.revision) == (None, before)


def test_a_server_that_is_behind_reads_nothing_and_writes_on(failing, impatient):
    etcd, store = failing
    other = etcd_store(etcd.url, store.address.prefix)
    etcd.hold.clear()
    made = other.create(WEB, value())
    changed = other.update(WEB, value(spec=2))
    assert revision_of(changed.revision) == revision_of(made.revision) + 1, "its own are next"
    with pytest.raises(Undecided, match="did not report revision 3 in time"):
        store.refresh()
    with pytest.raises(Undecided, match="did not report revision 4 in time"):
        store.create(DB, value())
    etcd.hold.set()
    store.refresh()
    seen = {one.key: revision_of(one.revision) for one in store.list("pods").items}
    assert seen == {DB: 4, WEB: 3}
    other.close()


def test_what_a_writer_here_knows_is_not_decoded_again(failing, monkeypatch):
    _, store = failing
    raw = b'{"metadata":{"name":"x"},"spec":1}'
    mine = value(spec=1)
    kv = pb.KeyValue(key=store.layout.path(WEB), value=raw, mod_revision=9, create_revision=7)
    plain = store._stored(WEB, kv)
    store._written[kv.key] = raw, mine
    known = store._stored(WEB, kv)
    assert (known.encoded, known.value) == (plain.encoded, plain.value)
    assert (known.revision, known.created) == (plain.revision, plain.created)
    assert known.value["spec"] is mine["spec"]
    assert mine == value(spec=1), "its writer may have to write it again"
    kv.value = raw.replace(b"1", b"2")
    assert store._stored(WEB, kv).value["spec"] == 2, "that is another's"
    monkeypatch.setattr(store.layout, "stored", None)
    store.create(DB, value())
    assert set(store._written) == {kv.key}, "nothing is kept of what is written"


def test_what_is_not_in_the_stored_version_is_not_written(failing):
    etcd, store = failing
    with pytest.raises(Unstorable, match="its kind is stored in another version"):
        store.create(WEB, {"kind": "Pod", "apiVersion": "v2", "metadata": {}})
    assert (etcd.keys, store.get(WEB)) == ({}, None)


def test_a_watch_that_breaks_goes_on_where_it_was(failing):
    etcd, store = failing
    heard = []
    store.subscribe(heard.extend)
    store.create(WEB, value())
    etcd.cut_watches()
    store.create(DB, value())
    etcd.cut_watches()
    store.delete(WEB)
    assert [revision_of(change.revision) for change in heard] == [2, 3, 4]


def test_a_watch_that_missed_what_was_compacted_tells_the_difference(failing):
    etcd, store = failing
    third = Key("pods", "a", "third")
    again = Key("pods", "default", "again")
    for key in (WEB, DB, again):
        store.create(key, value())
    heard = []
    store.subscribe(heard.extend)
    etcd.fail("Watch", *["refused"] * 100)
    etcd.cut_watches()
    path = store.layout.path
    etcd.write(delete=path(WEB))
    etcd.write(path(DB), b'{"metadata":{"name":"db"},"spec":1}')
    etcd.write(path(DB), b'{"metadata":{"name":"db"},"spec":2}')
    etcd.write(delete=path(again))
    etcd.write(path(again), b'{"metadata":{"name":"again"}}')
    etcd.write(path(third), b'{"metadata":{"name":"third"}}')
    etcd.compact(pb.CompactionRequest(revision=etcd.revision), None)
    etcd.faults.clear()
    store.refresh()
    told = [(change.key, revision_of(change.revision)) for change in heard]
    assert told[:3] == [(DB, 7), (again, 9), (again, 9)]
    # What has one revision comes in an order that depends on the folder of the test in the etcd.
    assert sorted(told[3:]) == sorted([(WEB, 10), (third, 10)])
    assert [change.revision for change in heard] == sorted(change.revision for change in heard)
    assert {one.key: revision_of(one.revision) for one in store.list("pods").items} == {
        DB: 7, again: 9, third: 10,
    }  # fmt: skip


def test_what_is_too_large_for_etcd_is_refused_as_such(failing):
    etcd, store = failing
    etcd.fail("Txn", "large")
    with pytest.raises(TooLarge, match=r"pods/default/web cannot be stored: .*too large"):
        store.create(WEB, value())


def test_no_store_begins_without_an_etcd(impatient):
    with FakeEtcd() as etcd:
        url = etcd.url
    with pytest.raises(StorageUnavailable, match=r"etcd://127.0.0.1:\d+ does not answer"):
        etcd_store(url)


@pytest.mark.parametrize(
    ("version", "good"),
    [("3.4.23", False), ("3.4.25", True), ("3.5.7", False), ("3.5.8", True), ("3.7.3", True),
     ("2.3.8", False), ("4.0.0-rc.1", True)],
)  # fmt: skip
def test_an_etcd_whose_watches_say_too_much_is_refused(monkeypatch, version, good):
    monkeypatch.setattr(FakeEtcd, "status", lambda *_: pb.StatusResponse(version=version))
    with FakeEtcd() as etcd:
        if good:
            etcd_store(etcd.url).close()
            return
        with pytest.raises(StorageUnavailable, match=f"has version {version}: 3.4.25, 3.5.8 or"):
            etcd_store(etcd.url)


# --- addresses ----------------------------------------------------------------------------------


def test_an_address_names_members_prefix_and_files():
    found = EtcdAddress.read("etcd://a:2379,b,[::1]:79?prefix=/lab&cafile=ca.pem")
    assert found.endpoints == ("a:2379", "b:2379", "[::1]:79")
    assert (found.prefix, found.cafile, found.secure) == ("/lab", "ca.pem", True)
    assert EtcdAddress.read("etcd://a", prefix="/x").prefix == "/x"
    assert not EtcdAddress.read("etcd://a").secure


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("http://a:2379", "expected etcd://HOST:2379"),
        ("etcd://", "expected etcd://HOST:2379"),
        ("etcd://a:x", "'a:x' is not a HOST:PORT"),
        ("etcd://a,,b", "'' is not a HOST:PORT"),
        ("etcd://me:secret@a", "user names and passwords are not supported"),
        ("etcd://a?prefx=/x", "unknown parameter 'prefx'; known: cafile, certfile, keyfile"),
        ("etcd://a?prefix=x", "the prefix 'x' is not usable"),
        ("etcd://a?prefix=/", "the prefix '/' is not usable"),
        ("etcd://a?certfile=c", "needs both certfile and keyfile"),
        ("etcd://a?certfile=c&keyfile=k", "give the cafile too"),
    ],
)
def test_what_is_not_an_address_is_refused_with_what_would_be(text, said):
    with pytest.raises(AddressError) as refused:
        EtcdAddress.read(text)
    assert said in str(refused.value)


def test_a_key_that_is_not_the_certificate_s_is_refused_before_etcd_is_asked(tmp_path):
    now = WallClock().now()
    one, other = (tls.certificate(tmp_path / name, now) for name in "ab")
    files = {"cafile": str(one.ca), "certfile": str(one.certificate)}
    EtcdAddress.read("etcd://a", keyfile=str(one.key), **files).context()
    for key in (other.key, one.ca):
        address = EtcdAddress.read("etcd://a", keyfile=str(key), **files)
        with pytest.raises(StorageUnavailable, match=f"{key.name}, is not the key of"):
            EtcdStore(address)
    files["cafile"] = str(one.key)
    with pytest.raises(StorageUnavailable, match="is not a certificate in PEM"):
        EtcdStore(EtcdAddress.read("etcd://a", keyfile=str(one.key), **files))


def test_a_file_for_tls_that_is_missing_is_named():
    with pytest.raises(StorageUnavailable, match="the cafile of etcd, /nowhere, cannot be read"):
        etcd_store("etcd://127.0.0.1:1?cafile=/nowhere")


def test_writes_are_timed_by_what_they_do(pair):
    store = pair[0]
    made = store.create(WEB, value())
    store.update(WEB, value(spec=1), expect=made.revision)
    store.delete(WEB)
    (calls,) = store.measured
    counted = [line for line in calls.counts("etcd_requests_total", "Writes.") if line[0] != "#"]
    assert counted == [
        f'etcd_requests_total{{group="",operation="{name}",resource="pods"}} 1'
        for name in ("create", "delete", "update")
    ]


def test_nobody_waits_for_the_lock_while_etcd_answers_a_later_write(pair, monkeypatch):
    store, _ = pair
    view, held = store.view(), []
    view.create(WEB, value())
    monkeypatch.setattr(
        store, "_commits", SimpleNamespace(carry_out=_noting(store, held, store._commits.carry_out))
    )
    monkeypatch.setattr(store, "_header", _noting(store, held, store._header))
    with view.lock, view.batch():
        assert is_held(store.lock)
        view.create(DB, value())
        view.delete(WEB)
        store.refresh()
        assert is_held(store.lock)
    assert held == [False] * 3
    assert not is_held(store.lock)


def _noting(store, held, call):
    def noted(*arguments):
        held.append(is_held(store.lock))
        return call(*arguments)

    return noted
