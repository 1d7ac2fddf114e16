"""Directories that go with their process: what a killed one leaves is swept, and nothing else."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from dralab.files.owned import OWNER, OwnedDirectory, sweep


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path


def killed(place):
    """Return the directory of a process that was killed."""
    script = (
        "import sys, pathlib; from dralab.files.owned import OwnedDirectory;"
        "made = OwnedDirectory.new('pods', pathlib.Path(sys.argv[1]));"
        "(made.path / 'token').write_text('secret'); print(made.path, flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", script, str(place)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        path = Path(process.stdout.readline().strip())
        yield path
        process.send_signal(signal.SIGKILL)
        process.wait()
    yield path


def test_a_directory_is_its_users_alone_and_goes_at_the_end(place):
    made = OwnedDirectory.new("pods")
    assert made.path.parent == place
    assert made.path.name.startswith("dralab-pods-")
    assert made.path.stat().st_mode & 0o777 == 0o700
    (made.path / "a").mkdir()
    made.close()
    assert list(place.iterdir()) == []


def test_what_a_killed_process_left_is_removed_by_the_next_one_and_not_before(place):
    states = killed(place)
    left = next(states)
    sweep()
    assert (left / "token").exists()  # it lives
    next(states)
    made = OwnedDirectory.new()
    assert not left.exists()
    sweep()
    assert made.path.exists()
    made.close()


@pytest.mark.parametrize(
    "change",
    [
        lambda path: (path / OWNER).unlink(),
        lambda path: path.chmod(0o755),
        lambda path: path.rename(path.with_name("dralab-notes")),
        lambda path: path.rename(path.with_name("other-pods-abcd1234")),
    ],
    ids=["no owner", "open to others", "another form", "another name"],
)
def test_what_may_be_somebody_elses_is_left(place, change):
    states = killed(place)
    left = next(states)
    next(states)
    change(left)
    sweep()
    assert len(list(place.iterdir())) == 1


def test_links_are_not_followed(place):
    precious = place / "precious"
    precious.mkdir()
    (precious / OWNER).touch()
    precious.chmod(0o700)
    (place / "dralab-pods-abcd1234").symlink_to(precious)
    sweep()
    assert precious.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make directories of others")
def test_another_users_directory_is_left(place):
    states = killed(place)
    left = next(states)
    next(states)
    os.chown(left, 4711, 4711)
    sweep()
    assert left.exists()
