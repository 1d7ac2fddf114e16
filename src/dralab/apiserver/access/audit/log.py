"""Where audit records go: lines of JSON in a file that is rotated by size, or standard output.

Source of flags and names: kube-apiserver `--audit-log-path`, `--audit-log-maxsize`,
`--audit-log-maxbackup`. Rotated files get a number, not a time: two equal runs leave equal files.
"""

import contextlib
import logging
import os
import sys
import threading
from pathlib import Path
from typing import BinaryIO, Protocol, cast

from dralab.files.reading import open_own

logger = logging.getLogger(__name__)

MEGABYTE = 1024 * 1024
MODE = 0o600


class AuditSink(Protocol):
    """Takes lines in the order in which they come."""

    def write(self, line: bytes) -> None:
        """Write a line that ends with a newline. Never fails: no request is refused for it."""
        ...

    def close(self) -> None:
        """Flush and close; later lines are dropped."""
        ...


class AuditFile:
    """A file of records; `-` is standard output. OSError if it cannot be opened.

    When it has grown to `max_size` megabytes, it becomes `NAME.1`, and what was `NAME.1` becomes
    `NAME.2`; more than `max_backups` of these are removed (0: none is). The file is readable for
    its owner alone: at the levels Request and RequestResponse it holds Secrets.
    """

    def __init__(self, path: str, *, max_size: int = 100, max_backups: int = 10) -> None:
        self._path = None if path == "-" else Path(path)
        self._max_size = max_size * MEGABYTE
        self._max_backups = max_backups
        self._lock = threading.Lock()
        self._lost = 0  # the size of the largest line that failed since one of that size was kept
        self._file = self._open()
        self._size = self._path.stat().st_size if self._path is not None else 0

    def write(self, line: bytes) -> None:
        """Write a line. A full disk is reported once, even if some small lines still fit."""
        with self._lock:
            try:
                failed: OSError | ValueError | None = None
                if self._path is not None and 0 < self._max_size < self._size + len(line):
                    failed = self._rotate()
                self._append(line)
            except (OSError, ValueError) as error:
                failed = error
            if failed is not None:
                if not self._lost:
                    where = self._path or "-"
                    logger.warning("cannot write to the audit log %s: %s", where, failed)
                self._lost = max(self._lost, len(line))
            elif len(line) >= self._lost:
                self._lost = 0

    def close(self) -> None:
        """Close the file."""
        with self._lock, contextlib.suppress(OSError):
            if self._path is not None:
                self._file.close()

    def _open(self) -> BinaryIO:
        if self._path is None:
            return sys.stdout.buffer
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = open_own(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, MODE)
        return cast("BinaryIO", os.fdopen(found, "ab", buffering=0))

    def _append(self, line: bytes) -> None:
        """Write a whole line or nothing, so that the next line is intact. OSError, ValueError."""
        written = 0
        try:
            while written < len(line):
                written += self._file.write(line[written:])
            self._file.flush()
        except OSError:
            if written and self._path is not None:
                os.ftruncate(self._file.fileno(), self._size)
            raise
        self._size += written

    def _rotate(self) -> OSError | None:
        """Begin a new file; return why that failed: then the old one continues."""
        if self._path is None or not self._size:
            return None
        try:
            if self._path.exists():  # else the last try came this far
                for number in sorted(self._numbers(), reverse=True):
                    old = self._backup(number)
                    if self._max_backups and number >= self._max_backups:
                        old.unlink()
                    else:
                        old.rename(self._backup(number + 1))
                self._path.rename(self._backup(1))
            new = self._open()
        except OSError as error:
            return error
        self._file.close()
        self._file, self._size = new, 0
        return None

    def _backup(self, number: int) -> Path:
        assert self._path is not None  # noqa: S101 - standard output is not rotated
        return self._path.with_name(f"{self._path.name}.{number}")

    def _numbers(self) -> list[int]:
        assert self._path is not None  # noqa: S101 - the same
        prefix = f"{self._path.name}."
        ends = (
            path.name.removeprefix(prefix)
            for path in self._path.parent.iterdir()
            if path.name.startswith(prefix)
        )
        return [int(end) for end in ends if end.isascii() and end.isdecimal()]
