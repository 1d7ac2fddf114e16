"""The files of a volume, written as a kubelet writes them."""

import os

import pytest

from dralab.node.atomic_files import DATA, write_files
from dralab.node.containers import VolumeFile


def seen(place):
    """Return what a reader finds, by path."""
    return {
        str(each.relative_to(place)): each.read_text()
        for name in place.iterdir()
        if not name.name.startswith("..")
        for each in ([name] if name.is_file() else name.rglob("*"))
        if each.is_file()
    }


def files(**contents):
    return {name.replace("_", "/"): VolumeFile(text.encode()) for name, text in contents.items()}


def test_all_files_change_at_once_and_what_is_gone_vanishes(tmp_path):
    assert write_files(tmp_path, files(a="1", deep_b="2"))
    assert seen(tmp_path) == {"a": "1", "deep/b": "2"}
    first = (tmp_path / DATA).readlink()
    assert write_files(tmp_path, files(deep_b="3", c="4"))
    assert seen(tmp_path) == {"deep/b": "3", "c": "4"}
    assert (tmp_path / DATA).readlink() != first
    assert not (tmp_path / first).exists()
    assert write_files(tmp_path, {})
    assert seen(tmp_path) == {}


def test_files_that_did_not_change_are_left_alone(tmp_path):
    write_files(tmp_path, files(a="1"))
    before = (tmp_path / DATA).readlink()
    assert not write_files(tmp_path, files(a="1"))
    assert (tmp_path / DATA).readlink() == before


def test_modes_are_those_of_the_volume(tmp_path):
    write_files(tmp_path, {"a": VolumeFile(b"", 0o400), "b": VolumeFile(b"", 0o755)})
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o400, 0o755]


def test_a_link_that_a_container_left_leads_nowhere_else(tmp_path):
    place, other = tmp_path / "volume", tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("yes")
    write_files(place, files(a="1"))
    (place / DATA).unlink()
    (place / DATA).symlink_to(other)
    write_files(place, files(a="2"))
    assert (other / "kept").read_text() == "yes"
    assert seen(place) == {"a": "2"}


@pytest.mark.parametrize("path", ["../../out", "/out", "a/../../out"])
def test_no_path_leads_out(tmp_path, path):
    write_files(tmp_path / "v", {path: VolumeFile(b"x")})
    assert (tmp_path / "v" / "out").read_text() == "x"
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("left", ["link", "pipe", "more"])
def test_what_a_container_put_in_place_of_a_file_is_replaced_unread(tmp_path, left):
    place, other = tmp_path / "volume", tmp_path / "other"
    other.write_text("1")
    write_files(place, files(a="1"))
    held = place / (place / DATA).readlink() / "a"
    if left != "more":
        held.unlink()
    if left == "link":
        held.symlink_to(other)
    elif left == "pipe":
        os.mkfifo(held)
    else:
        (held.parent / "b").symlink_to(place)
    assert write_files(place, files(a="1"))
    assert seen(place) == {"a": "1"}
    assert not (place / "a").resolve().is_symlink()
    assert other.read_text() == "1"
