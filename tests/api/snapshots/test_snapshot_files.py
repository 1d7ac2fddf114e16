"""Snapshot files: equal bytes for equal clusters, every object back, and one line for what is wrong."""

import gzip
import random

import orjson
import pytest

from builders import device, node, pod, pool
from dralab.api.snapshots.errors import SnapshotError
from dralab.api.snapshots.files import MARK, read, read_file, written

OBJECTS = [
    node("node-1"),
    pod("p", namespace="b"),
    pod("p", namespace="a"),
    *pool("one", device("d0", model="a"), device("d1", model="a"), node="node-1"),
    *pool("two", device("d0", model="a"), device("d1", model="a"), node="node-2"),
]


def canonical(item):
    return orjson.dumps(item, option=orjson.OPT_SORT_KEYS)


def document(**changes):
    found = orjson.loads(gzip.decompress(written(OBJECTS))) | changes
    return gzip.compress(orjson.dumps(found, option=orjson.OPT_SORT_KEYS))


def test_everything_comes_back_sorted_by_kind_namespace_and_name():
    found = read(written(OBJECTS))
    assert sorted(map(canonical, found)) == sorted(map(canonical, OBJECTS))
    assert [item["metadata"]["name"] for item in found] == ["node-1", "p", "p", "one", "two"]
    assert [item["metadata"].get("namespace") for item in found[1:3]] == ["a", "b"]


def test_the_same_objects_give_the_same_bytes_in_whatever_order_they_come():
    turned = [dict(reversed(item.items())) for item in OBJECTS]
    random.Random(1).shuffle(turned)
    assert written(turned) == written(OBJECTS)


def test_equal_devices_are_written_once_and_read_as_one():
    packed = written(OBJECTS)
    assert gzip.decompress(packed).count(b'"d0"') == 1
    one, two = [item["spec"]["devices"] for item in read(packed) if item["kind"] == "ResourceSlice"]
    assert one is two


@pytest.mark.parametrize(
    ("packed", "message"),
    [
        (document(apiVersion="dralab.dev/v2"), "is a snapshot of version 2, which a newer dralab"),
        (document(devices=[]), "is damaged: ValueError: a slice has devices that are not there"),
        (document(objects=[{"kind": "Pod"}]), "is damaged: KeyError: 'metadata'"),
        (document(objects=[7]), "is damaged: TypeError"),
        (document(objects={}), "is damaged: TypeError: no list of objects"),
        (
            document(objects=[{"kind": 1, "apiVersion": "v1", "metadata": {"name": "x"}}]),
            "is damaged: TypeError: an object without a kind",
        ),
        (written(OBJECTS)[:-20], "cannot be read: the archive is damaged or breaks off"),
        (gzip.decompress(written(OBJECTS))[:-1], "is damaged: it is not JSON"),
        (b"apiVersion: v1", "is not a snapshot: make one with dralab snapshot"),
        (b"", "is not a snapshot: make one with dralab snapshot"),
    ],
)
def test_what_cannot_be_read_is_told_in_one_line(packed, message, tmp_path):
    with pytest.raises(SnapshotError, match=f"^{message}"):
        read(packed)
    file = tmp_path / "a.snapshot"
    file.write_bytes(packed)
    with pytest.raises(SnapshotError, match=f"^{file}: {message}"):
        read_file(file)


def test_no_more_is_read_than_of_any_other_input(tmp_path, monkeypatch):
    monkeypatch.setattr("dralab.api.snapshots.files.MAX_BYTES", 1000)
    file = tmp_path / "bomb.snapshot"
    file.write_bytes(gzip.compress(MARK + b" " * 2000))
    with pytest.raises(SnapshotError, match="the input is larger than 1,000 bytes"):
        read_file(file)


def test_a_directory_is_not_a_snapshot(tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.json").write_bytes(b"{}")
    with pytest.raises(SnapshotError, match="is not a snapshot: make one with"):
        read_file(tmp_path)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(SnapshotError, match=r"none: cannot be read: No such file"):
        read_file(tmp_path / "none")
