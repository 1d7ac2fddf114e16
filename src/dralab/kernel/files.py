"""Files that another user may have prepared: opened without waiting, and without being led astray.

A pipe where a file is expected would block for ever, a link would have somebody's file overwritten,
and a token that another user wrote makes that user an administrator. `read` is for files that an
operator names, `read_own` and `open_own` for those that a program keeps for itself.
"""

import errno
import os
import stat
from pathlib import Path
from typing import Final

MOST: Final = 16 * 1024 * 1024
# What a shell's `<(…)` names: pipes that are open already.
INHERITED: Final = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")


def read(path: str | Path, most: int = MOST) -> bytes:
    """Return the content of a regular file. OSError, which says what it is instead.

    Links are followed: mounted Secrets consist of them. `most` is in bytes.
    """
    if str(path).startswith(INHERITED):
        with Path(path).open("rb") as file:
            return _whole(file.read(most + 1), most)
    _check_kind(Path(path).stat())  # to open a device may do something
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        _check_kind(os.fstat(handle))
        return _whole(file.read(most + 1), most)


def read_own(path: Path, most: int = MOST) -> bytes:
    """Return the content of a regular file of this user or of root. OSError.

    Links are followed, to such a file.
    """
    _check_owner(path.stat())
    return read(path, most)


def open_own(path: Path, flags: int, mode: int = 0o600) -> int:
    """Open a regular file of this user, to write into it, for example. OSError.

    Neither a link nor a file that has other names: it may be somebody's file.
    """
    check_own(path)
    try:
        handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode)
    except OSError as error:
        raise _linked(path) if error.errno == errno.ELOOP else error from error
    try:
        _check_written(os.fstat(handle), path)
    except BaseException:
        os.close(handle)
        raise
    return handle


def check_own(path: Path) -> None:
    """Raise OSError unless `open_own` would open the file, or make it."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise _linked(path)
    _check_written(found, path)


def _check_written(found: os.stat_result, path: Path) -> None:
    _check_kind(found)
    _check_owner(found)
    if found.st_nlink > 1:
        raise OSError(errno.EPERM, "it has other names (hard links)", str(path))


def _check_kind(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise OSError(errno.EINVAL, "it is not a regular file")


def _check_owner(found: os.stat_result) -> None:
    if found.st_uid not in {os.geteuid(), 0}:
        raise PermissionError(errno.EPERM, f"it belongs to another user (uid {found.st_uid})")


def _linked(path: Path) -> OSError:
    return OSError(errno.ELOOP, "it is a symbolic link", str(path))


def _whole(content: bytes, most: int) -> bytes:
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it is larger than {most} bytes")
    return content
