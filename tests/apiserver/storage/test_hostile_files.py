"""A store, its backups and its keys beside files that another user has prepared."""

import os

import pytest

from dralab.apiserver.http.connections import tls
from dralab.apiserver.http.connections.listening import ServingError
from dralab.apiserver.storage import Key, StorageUnavailable, files
from dralab.apiserver.storage.copies import back_up, restore
from dralab.apiserver.storage.files import FILE, MARK, RESERVE
from dralab.apiserver.storage.inspection import check, repair
from dralab.apiserver.storage.sqlite import SqliteStore

A = Key("pods", "default", "a")
PRECIOUS = b"precious" * 140_000  # more than the reserve keeps
BESIDE = [FILE, f"{FILE}-wal", f"{FILE}-shm", f"{FILE}-journal", MARK, RESERVE]


@pytest.fixture(autouse=True)
def small_reserve(monkeypatch):
    """Have stores reserve a tenth of the room: there are a hundred of them here."""
    monkeypatch.setattr(files, "RESERVED", 2 * files.KEPT)


@pytest.fixture
def victim(tmp_path):
    found = tmp_path / "victim"
    found.write_bytes(PRECIOUS)
    yield found
    assert found.read_bytes() == PRECIOUS, "somebody's file was changed"


@pytest.fixture
def data(tmp_path):
    with_one = SqliteStore(tmp_path / "data")
    with_one.create(A, {"metadata": {"name": "a"}})
    with_one.close()
    return tmp_path / "data"


@pytest.mark.parametrize("name", BESIDE)
@pytest.mark.parametrize("use", [SqliteStore, check, repair, lambda at: back_up(at, at / "copy")])
@pytest.mark.parametrize("make", ["symlink_to", "hardlink_to", "pipe"])
def test_a_store_is_not_opened_beside_a_link_or_a_pipe(data, victim, name, use, make):
    path = data / name
    path.unlink(missing_ok=True)
    if make == "pipe":
        os.mkfifo(path)
    else:
        getattr(path, make)(victim)
    with pytest.raises(StorageUnavailable, match=f"cannot use .*{name}: it (is|has)"):
        use(data)


def test_a_new_store_follows_no_link(tmp_path, victim):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / FILE).symlink_to(tmp_path / "new")
    with pytest.raises(StorageUnavailable, match="it is a symbolic link"):
        SqliteStore(tmp_path / "data")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("ending", ["", ".unfinished"])
def test_a_backup_is_not_written_through_a_link(data, tmp_path, victim, ending):
    target = tmp_path / "copy"
    target.with_name(f"copy{ending}").symlink_to(victim)
    if ending:
        assert back_up(data, target) > 1
    else:
        with pytest.raises(StorageUnavailable, match="already exists"):
            back_up(data, target)


def test_a_backup_is_made_beside_no_links_for_sqlite(data, tmp_path, victim):
    # A user who may write there could otherwise choose what SQLite writes to.
    for ending in ("-journal", "-wal", "-shm"):
        (tmp_path / f"copy.unfinished{ending}").symlink_to(victim)
    assert back_up(data, tmp_path / "copy") > 1


def test_what_is_left_of_an_attempt_is_removed(data, tmp_path):
    left = tmp_path / "copy.unfinished"
    left.mkdir()
    (left / "copy").write_bytes(b"half")
    assert back_up(data, tmp_path / "copy") > 1
    assert not left.exists()


def test_nothing_is_restored_over_a_link_or_from_a_pipe(data, tmp_path, victim):
    back_up(data, tmp_path / "copy")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / FILE).symlink_to(tmp_path / "new")
    with pytest.raises(StorageUnavailable, match="already contains a store"):
        restore(tmp_path / "copy", tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(StorageUnavailable, match="there is no file"):
        restore(tmp_path / "pipe", tmp_path / "third")


@pytest.mark.parametrize("name", ["token", "sa.key"])
@pytest.mark.parametrize("kind", ["pipe", "another user's"])
def test_a_key_or_token_of_another_user_does_not_count(tmp_path, monkeypatch, name, kind):
    make = {"token": tls.token, "sa.key": tls.signing_key}[name]
    make(tmp_path)  # as it is made at first
    if kind == "pipe":
        (tmp_path / name).unlink()
        os.mkfifo(tmp_path / name)
    elif os.geteuid() == 0:
        os.chown(tmp_path / name, 4711, 4711)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: 4711)
    with pytest.raises(ServingError, match=r"not a regular file|belongs to another user"):
        make(tmp_path)
