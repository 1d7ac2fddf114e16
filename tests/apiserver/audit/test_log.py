"""The file of the audit log: private, rotated by size, and no reason to refuse a request."""

from dralab.apiserver.audit.log import MEGABYTE, AuditFile


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
