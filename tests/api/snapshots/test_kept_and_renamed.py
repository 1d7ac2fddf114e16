"""A snapshot of a real dump: nothing in it that nobody asked for, and the same answers."""

import functools
import re

import orjson
import pytest

from builders import cel, device, pool
from dralab.api.snapshots.anonymous import anonymous
from dralab.api.snapshots.kept_fields import kept
from dralab.scheduling.snapshot import Snapshot
from realdump import SECRET, dump

OWN_WORDS = ("payroll", "finance", "mergers", "acme", "h100-0", "ex-gpu", "5f3c", "pod0")


@functools.cache
def saved():
    return [part for item in dump() if (part := kept(item)) is not None]


@functools.cache
def renamed():
    return anonymous(saved())


def answers(objects):
    """What every waiting pod gets when all are served in turn: a node's number, and devices."""
    snapshot = Snapshot(objects)
    nodes = {name: number for number, name in enumerate(sorted(snapshot.nodes))}
    found = []
    for each in snapshot.pending():
        placed = snapshot.place(each)
        if placed is None:
            found.append(None)
            continue
        snapshot.accept(placed)
        found.append(
            (
                nodes[placed.node],
                [
                    [result["device"] for result in given["devices"]["results"]]
                    for given in placed.allocations
                ],
            )
        )
    return found


@functools.cache
def answers_when_saved():
    return answers(saved())


@pytest.mark.thorough
def test_the_dump_is_of_forty_nodes_and_has_what_must_not_be_saved():
    assert sum(item["kind"] == "Node" for item in dump()) == 40
    running = [item for item in dump() if item["kind"] == "Pod" and item["spec"].get("nodeName")]
    assert len(running) > 20
    assert orjson.dumps(dump()).count(SECRET.encode()) > 200


def test_no_secret_value_address_image_or_annotation_is_saved():
    assert SECRET.encode() not in orjson.dumps(saved())
    assert {item["kind"] for item in saved()} == {item["kind"] for item in dump()} - {"Secret"}


@pytest.mark.thorough
def test_a_snapshot_gives_the_answers_of_its_cluster():
    expected = answers(item for item in dump() if item["kind"] != "Secret")
    assert None in expected
    assert len(expected) > 5
    assert answers_when_saved() == expected


@pytest.mark.thorough
def test_under_other_names_the_answers_are_the_same():
    assert answers(renamed()) == answers_when_saved()


@pytest.mark.parametrize("word", OWN_WORDS)
def test_no_name_of_ones_own_is_left(word):
    assert word.encode() in orjson.dumps(saved())
    assert word.encode() not in orjson.dumps(renamed())


def test_no_identifier_of_a_device_is_left():
    uuids = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    assert re.search(uuids, orjson.dumps(saved()).decode())
    left = set(re.findall(uuids, orjson.dumps(renamed()).decode()))
    assert {text[:24] for text in left} == {"00000000-0000-4000-8000-"}


def test_what_belongs_together_still_does():
    claims = {
        item["metadata"]["uid"]: item for item in renamed() if item["kind"] == "ResourceClaim"
    }
    pods = {item["metadata"]["uid"]: item for item in renamed() if item["kind"] == "Pod"}
    held = [claim for claim in claims.values() if claim.get("status", {}).get("reservedFor")]
    assert len(held) > 20
    for claim in held:
        (user,) = claim["status"]["reservedFor"]
        pod = pods[user["uid"]]
        assert pod["metadata"]["name"] == user["name"]
        (entry,) = pod["spec"]["resourceClaims"]
        assert entry["resourceClaimName"] == claim["metadata"]["name"]
    nodes = {
        (old["spec"].get("nodeName"), new["spec"].get("nodeName"))
        for old, new in zip(saved(), renamed(), strict=True)
        if old["kind"] == "ResourceSlice"
    } | {
        (old["metadata"]["name"], new["metadata"]["name"])
        for old, new in zip(saved(), renamed(), strict=True)
        if old["kind"] == "Node"
    }
    assert len(nodes) == len(dict(nodes)) == len({new for _, new in nodes}) >= 40


def test_an_expression_that_names_a_device_names_it_by_its_new_name():
    uuid = "GPU-8f93acdb-e033-4034-8359-941b1f98439f"
    expression = f"device.attributes['gpu.example.com'].uuid == '{uuid}' && true"
    wanted = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "mine"},
        "spec": {"selectors": cel(expression)},
    }
    (named, given) = anonymous([wanted, *pool("p", device("d0", uuid=uuid, model="a100"))])
    attributes = given["spec"]["devices"][0]["attributes"]
    assert attributes == {"uuid": {"string": "identifier-1"}, "model": {"string": "a100"}}
    assert named["spec"]["selectors"] == cel(
        "device.attributes['gpu.example.com'].uuid == 'identifier-1' && true"
    )


def test_a_quota_names_what_it_counts_by_the_new_names():
    scope = {"scopeName": "PriorityClass", "operator": "In", "values": ["payroll"]}
    quota = {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": {"name": "of-payroll", "namespace": "finance"},
        "spec": {
            "hard": {
                "gpu.deviceclass.resource.k8s.io/devices": "4",
                "acme.storageclass.storage.k8s.io/requests.storage": "1Ti",
            },
            "scopeSelector": {"matchExpressions": [scope]},
        },
        "status": {"used": {"gpu.deviceclass.resource.k8s.io/devices": "2"}},
    }
    (found,) = anonymous([kept(quota)])
    assert found["metadata"] == {"name": "quota-1", "namespace": "namespace-1"}
    assert found["spec"] == {
        "hard": {
            "gpu.deviceclass.resource.k8s.io/devices": "4",
            "storage-1.storageclass.storage.k8s.io/requests.storage": "1Ti",
        },
        "scopeSelector": {"matchExpressions": [scope | {"values": ["priority-1"]}]},
    }


def test_new_names_sort_as_the_old_ones_did():
    nodes = [
        {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"rack-{n}"}} for n in range(12)
    ]
    order = sorted(range(12), key=lambda number: f"rack-{number}")
    found = [item["metadata"]["name"] for item in anonymous(nodes)]
    assert sorted(range(12), key=lambda number: found[number]) == order
