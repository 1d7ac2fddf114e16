"""`dralab store`, `backup` and `restore` with files that the disk has changed."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from dralab.apiserver.storage import Key
from dralab.apiserver.storage.files import FILE
from dralab.apiserver.storage.sqlite import SqliteStore
from dralab.cli.main import main


def dralab(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """A data directory in which the pod b is damaged, and a backup of it from before."""
    store = SqliteStore(tmp_path / "lab")
    for name in "abc":
        store.create(Key("pods", "default", name), {"metadata": {}})
    store.close()
    assert (
        dralab("store", "backup", tmp_path / "copy.db", "--data", tmp_path / "lab").exit_code == 0
    )
    for file in ("lab/" + FILE, "copy.db"):
        with closing(sqlite3.connect(tmp_path / file)) as db, db:
            db.execute("UPDATE log SET value = x'7b' WHERE name = 'b'")
    return tmp_path


def test_check_names_what_is_damaged_and_repair_leaves_it_out(damaged):
    found = dralab("store", "check", "--data", damaged / "lab")
    assert found.exit_code == 1
    assert found.stdout == "revision 3: pods/default/b cannot be read\n"
    repaired = dralab("store", "repair", "--data", damaged / "lab")
    assert (repaired.exit_code, repaired.stdout) == (0, "pods/default/b\n")
    assert "kept 2 objects, lost 1" in repaired.stderr
    again = dralab("store", "check", "--data", damaged / "lab")
    assert (again.exit_code, again.stdout) == (0, "")


def test_a_damaged_copy_is_refused_and_leaves_nothing(damaged):
    found = dralab("store", "restore", damaged / "copy.db", "--data", damaged / "new")
    assert (found.exit_code, found.stdout) == (1, "")
    assert "copy.db is damaged: revision 3: pods/default/b cannot be read" in found.stderr
    assert list((damaged / "new").iterdir()) == []


def test_what_is_no_store_is_told(tmp_path):
    for command in ("check", "repair"):
        found = dralab("store", command, "--data", tmp_path)
        assert found.exit_code == 2
        assert FILE in found.stderr
