"""The file of the audit log: private, rotated by size, and no reason to refuse a request."""

import errno
import resource
import signal

from dralab.apiserver.access.audit import log as audit_log
from dralab.apiserver.access.audit.log import MEGABYTE, AuditFile


def test_a_file_is_private_and_goes_on_where_it_was(tmp_path):
    path = tmp_path / "logs" / "audit.log"
    for number in range(2):
        log = AuditFile(str(path))
        log.write(b"%d\n" % number)
        log.close()
    assert path.read_bytes() == b"0\n1\n"
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_full_file_is_numbered_and_the_oldest_removed(tmp_path):
    path = tmp_path / "audit.log"
    log = AuditFile(str(path), max_size=1, max_backups=2)
    line = b"x" * (MEGABYTE - 2)
    for number in range(5):
        log.write(b"%d" % number + line + b"\n")
    log.close()
    found = {file.name: file.read_bytes()[:1] for file in tmp_path.iterdir()}
    assert found == {"audit.log": b"4", "audit.log.1": b"3", "audit.log.2": b"2"}


def test_what_cannot_be_written_is_told_once(tmp_path, caplog):
    log = AuditFile(str(tmp_path / "audit.log"))
    log.close()
    log.write(b"lost\n")
    log.write(b"lost\n")
    assert len(caplog.records) == 1
    assert "cannot write to the audit log" in caplog.text


def test_a_disk_with_room_for_small_records_alone_is_told_once(tmp_path, caplog, monkeypatch):
    log = AuditFile(str(tmp_path / "audit.log"))
    append = log._append
    room = [4]

    def appended(line):
        if len(line) > room[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        append(line)

    monkeypatch.setattr(log, "_append", appended)
    for line in (b"large record\n", b"ok\n") * 5:
        log.write(line)
    assert len(caplog.records) == 1
    room[0] = 100
    log.write(b"large record\n")
    room[0] = 4
    log.write(b"another one\n")
    assert len(caplog.records) == 2  # it was well in between
    log.close()


def test_a_file_that_cannot_be_rotated_goes_on_and_is_rotated_later(tmp_path, caplog, monkeypatch):
    path = tmp_path / "audit.log"
    log = AuditFile(str(path), max_size=1)
    line = b"x" * (MEGABYTE - 2) + b"\n"
    log.write(b"0" + line)
    rename, refused = type(path).rename, [True]

    def no_room(self, target):
        if refused[0]:
            raise OSError(errno.ENOSPC, "No space left on device")
        return rename(self, target)

    monkeypatch.setattr(type(path), "rename", no_room)
    log.write(b"1" + line)
    log.write(b"2" + line)
    assert len(caplog.records) == 1
    assert [found[:1] for found in path.read_bytes().splitlines()] == [b"0", b"1", b"2"]
    refused[0] = False
    log.write(b"3" + line)
    log.close()
    assert path.read_bytes()[:1] == b"3"
    assert (tmp_path / "audit.log.1").read_bytes()[:1] == b"0"


def test_a_new_file_that_cannot_be_opened_is_opened_later(tmp_path, monkeypatch):
    path = tmp_path / "audit.log"
    log = AuditFile(str(path), max_size=1)
    line = b"x" * (MEGABYTE - 2) + b"\n"
    log.write(b"0" + line)
    open_own = audit_log.open_own

    def none_left(*_):
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(audit_log, "open_own", none_left)
    log.write(b"1" + line)
    monkeypatch.setattr(audit_log, "open_own", open_own)
    log.write(b"2" + line)
    log.close()
    assert path.read_bytes()[:1] == b"2"
    kept = (tmp_path / "audit.log.1").read_bytes().splitlines()
    assert [found[:1] for found in kept] == [b"0", b"1"]


def test_a_record_that_the_disk_has_no_room_for_leaves_no_half_of_it(tmp_path):
    path = tmp_path / "audit.log"
    log = AuditFile(str(path))
    log.write(b"first\n")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))
        log.write(b"second\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)
    log.write(b"third\n")
    log.close()
    assert path.read_bytes() == b"first\nthird\n"
