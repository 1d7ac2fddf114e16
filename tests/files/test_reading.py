"""Files that another user has prepared: refused with a reason, never waited for, never followed."""

import os

import pytest

from dralab.files import reading


@pytest.fixture
def other(monkeypatch):
    """Make this user another one than who owns the test's files (root's are everybody's)."""

    def become(path):
        if os.geteuid() == 0:
            os.chown(path, 4711, 4711)
        else:
            monkeypatch.setattr(os, "geteuid", lambda: 4711)

    return become


def hostile(kind, path, other):
    victim = path.with_name("victim")
    victim.write_text("precious")
    match kind:
        case "link":
            path.symlink_to(victim)
        case "dangling link":
            path.symlink_to(path.with_name("new"))
        case "hard link":
            path.hardlink_to(victim)
        case "pipe":
            os.mkfifo(path)
        case "directory":
            path.mkdir()
        case "device":
            path.symlink_to("/dev/zero")
        case "another user's":
            path.write_text("theirs")
            other(path)


WRITTEN = {
    "link": "it is a symbolic link",
    "dangling link": "it is a symbolic link",
    "device": "it is a symbolic link",
    "hard link": "it has other names",
    "pipe": "not a regular file",
    "directory": "Is a directory",
    "another user's": "it belongs to another user",
}


@pytest.mark.parametrize(("kind", "why"), WRITTEN.items(), ids=WRITTEN)
def test_what_is_written_is_a_file_of_this_user_without_other_names(tmp_path, kind, why, other):
    path = tmp_path / "file"
    hostile(kind, path, other)
    with pytest.raises(OSError, match=why):
        reading.open_own(path, os.O_RDWR | os.O_CREAT)
    assert (tmp_path / "victim").read_text() == "precious"
    assert not (tmp_path / "new").exists()


def test_what_is_written_is_made_privately_and_opened_again(tmp_path):
    path = tmp_path / "file"
    for text in (b"ab", b"c"):
        handle = reading.open_own(path, os.O_RDWR | os.O_CREAT)
        os.write(handle, text)
        os.close(handle)
    assert path.read_bytes() == b"cb"
    assert path.stat().st_mode & 0o777 == 0o600


READ = {
    "dangling link": "No such file",
    "device": "not a regular file",
    "pipe": "not a regular file",
    "directory": "Is a directory",
}


@pytest.mark.parametrize(("kind", "why"), READ.items(), ids=READ)
@pytest.mark.parametrize("read", [reading.read, reading.read_own])
def test_nothing_but_a_file_is_read(tmp_path, read, kind, why, other):
    path = tmp_path / "file"
    hostile(kind, path, other)
    with pytest.raises(OSError, match=why):
        read(path)


def test_an_operator_may_name_a_link_and_another_users_file(tmp_path, other):
    link, given = tmp_path / "link", tmp_path / "given"
    given.write_text("theirs")
    link.symlink_to(given)
    assert reading.read(link) == reading.read_own(link) == b"theirs"
    other(given)
    assert reading.read(link) == b"theirs"
    with pytest.raises(PermissionError, match="it belongs to another user"):
        reading.read_own(link)


def test_a_file_is_read_up_to_a_bound(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"x" * 11)
    assert reading.read(path, most=11) == b"x" * 11
    with pytest.raises(OSError, match="it is larger than 10 bytes"):
        reading.read(path, most=10)


def test_a_pipe_that_the_shell_has_opened_is_read():
    source, writing = os.pipe()
    os.write(writing, b"token")
    os.close(writing)
    assert reading.read(f"/dev/fd/{source}") == b"token"
    os.close(source)


def test_no_directory_on_the_way_is_a_link_that_leads_out(tmp_path):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    outside.mkdir()
    (outside / "a").write_bytes(b"secret")
    (folder / "in" / "side").mkdir(parents=True)
    (folder / "in" / "side" / "a").write_bytes(b"given")
    (folder / "near").symlink_to("in/side")
    (folder / "out").symlink_to(outside)
    for name in ("in/side/a", "near/a"):
        assert reading.read_within(folder, folder / name) == b"given"
    with pytest.raises(PermissionError, match=f"it is a link that leads out of {folder}, to "):
        reading.read_within(folder, folder / "out" / "a")
    with pytest.raises(PermissionError, match="leads out"):
        reading.read_within(folder, folder / ".." / "outside" / "a")
    for name in ("in", "."):
        with pytest.raises(IsADirectoryError):
            reading.read_within(folder, folder / name)


def test_a_directory_that_becomes_a_link_meanwhile_is_not_followed(tmp_path, monkeypatch):
    outside, folder = tmp_path / "outside", tmp_path / "folder"
    (folder / "in").mkdir(parents=True)
    outside.mkdir()
    for place in (outside, folder / "in"):
        (place / "a").touch()
    opened = os.open

    def swapping(path, *rest, **more):
        if path == "in":
            (folder / "in").rename(folder / "before")
            (folder / "in").symlink_to(outside)
        return opened(path, *rest, **more)

    monkeypatch.setattr(os, "open", swapping)
    with pytest.raises(OSError, match=r"Not a directory|Too many levels"):
        reading.read_within(folder, folder / "in" / "a")


def test_the_end_of_what_a_program_wrote_is_read(tmp_path):
    log = tmp_path / "log"
    log.write_bytes(b"0123456789")
    assert reading.read_end(log, 4) == b"6789"
    assert reading.read_end(log, 4, start=8) == b"89"
    assert reading.read_end(log, 100) == b"0123456789"
    (tmp_path / "link").symlink_to(log)
    with pytest.raises(OSError, match="it is a symbolic link, not a regular file"):
        reading.read_end(tmp_path / "link", 4)
