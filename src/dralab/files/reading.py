"""Opens files that another user may have prepared: without blocking, and without following links.

A pipe where a file is expected would block for ever, a link would have somebody's file overwritten,
and a token that another user wrote makes that user an administrator. `read` is for files that an
operator names, `read_within` for those that are found in a directory, `read_end` for what a program
wrote, `read_own` and `open_own` for those that dralab keeps for itself.

Every OSError has the path as its `filename` and says in `strerror` what is there instead.
"""

import contextlib
import errno
import io
import os
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

MOST: Final = 16 * 1024 * 1024
CHUNK: Final = 1024 * 1024
# What a shell's `<(…)` names: pipes that are open already.
INHERITED: Final = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
FLAGS: Final = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
KINDS: Final = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISLNK, "a symbolic link"),
    (lambda _: True, "a device"),
)


def read(path: str | Path, most: int = MOST) -> bytes:
    """Return the content of a regular file. OSError, which says what else it is.

    Links are followed: mounted Secrets consist of them. `most` is in bytes.
    """
    with open_file(path) as file:
        return _whole(file, most, path)


def open_file(path: str | Path) -> io.BufferedReader:
    """Open a regular file, or a pipe of the shell's, for reading. OSError.

    Links are followed.
    """
    if str(path).startswith(INHERITED):
        return Path(path).open("rb")
    _check_kind(Path(path).stat(), path)  # to open a device may do something
    return _opened(os.open(path, FLAGS), path)


def open_within(directory: Path, path: Path) -> io.BufferedReader:
    """Open a regular file below a directory for reading. OSError: also if a link leads out of it.

    No directory can be replaced by a link meanwhile: each is opened in the one before.
    """
    real = real_within(directory, path)
    *inner, name = real.relative_to(directory.resolve()).parts or (".",)
    with _directory_within(directory, inner) as place:
        _check_kind(os.stat(name, dir_fd=place, follow_symlinks=False), path)
        return _opened(os.open(name, FLAGS | os.O_NOFOLLOW, dir_fd=place), path)


def real_within(directory: Path, path: Path) -> Path:
    """Return a path without links, which need not exist. OSError: one leads out of a directory."""
    real = path.resolve()
    if not real.is_relative_to(directory.resolve()):
        raise PermissionError(
            errno.EPERM, f"it is a link that leads out of {directory}, to {real}", str(path)
        )
    return real


def make_within(directory: Path, path: Path) -> Path:
    """Make a directory below another one, with those between; return it without links. OSError."""
    real = real_within(directory, path)
    with _directory_within(directory, real.relative_to(directory.resolve()).parts, make=True):
        return real


def read_within(directory: Path, path: Path, most: int = MOST) -> bytes:
    """Return the content of a regular file below a directory. OSError, as of `open_within`."""
    with open_within(directory, path) as file:
        return _whole(file, most, path)


def read_end(path: Path, most: int, start: int = 0) -> bytes:
    """Return the last bytes of a file that a program wrote, none from before `start`. OSError.

    A program may leave anything there: a link is not followed.
    """
    _check_kind(os.lstat(path), path)
    with _opened(os.open(path, FLAGS | os.O_NOFOLLOW), path) as file:
        file.seek(max(start, file.seek(0, os.SEEK_END) - most))
        return file.read(most)


def read_own(path: Path, most: int = MOST) -> bytes:
    """Return the content of a regular file of this user or of root. OSError.

    Links are followed, to such a file.
    """
    _check_owner(path.stat(), path)
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
    """Raise OSError unless `open_own` could open or create the file."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return
    if stat.S_ISLNK(found.st_mode):
        raise _linked(path)
    _check_written(found, path)


@contextlib.contextmanager
def _directory_within(
    directory: Path, parts: Iterable[str], *, make: bool = False
) -> Iterator[int]:
    """Open a directory below another one: no part of the path is a link, without a race."""
    place = os.open(directory.resolve(), DIRECTORY)
    try:
        for part in parts:
            if make:
                with contextlib.suppress(FileExistsError):
                    os.mkdir(part, dir_fd=place)
            below = os.open(part, DIRECTORY | os.O_NOFOLLOW, dir_fd=place)
            os.close(place)
            place = below
        yield place
    finally:
        os.close(place)


def _opened(handle: int, path: str | Path) -> io.BufferedReader:
    try:
        _check_kind(os.fstat(handle), path)
    except BaseException:
        os.close(handle)
        raise
    return os.fdopen(handle, "rb")


def _check_written(found: os.stat_result, path: Path) -> None:
    _check_kind(found, path)
    _check_owner(found, path)
    if found.st_nlink > 1:
        raise OSError(errno.EPERM, "it has other names (hard links)", str(path))


def _check_kind(found: os.stat_result, path: str | Path) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(found.st_mode):
        kind = next(name for is_kind, name in KINDS if is_kind(found.st_mode))
        raise OSError(errno.EINVAL, f"it is {kind}, not a regular file", str(path))


def _check_owner(found: os.stat_result, path: Path) -> None:
    if found.st_uid not in {os.geteuid(), 0}:
        raise PermissionError(
            errno.EPERM, f"it belongs to another user (uid {found.st_uid})", str(path)
        )


def _linked(path: Path) -> OSError:
    return OSError(errno.ELOOP, "it is a symbolic link", str(path))


def _whole(file: io.BufferedReader, most: int, path: str | Path) -> bytes:
    parts: list[bytes] = []
    left = most
    while part := file.read(CHUNK):  # to read `most` bytes at once would take the memory for them
        left -= len(part)
        if left < 0:
            raise OSError(errno.EFBIG, f"it is larger than {most} bytes", str(path))
        parts.append(part)
    return b"".join(parts)
