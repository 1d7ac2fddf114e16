"""The sources of a command: files, directories, archives at any depth, standard input.

Archives are read from start to end and never unpacked onto the disk. The author of a directory or
an archive may be hostile: what it may hold is bounded, and a name or a link that leads out of it is
refused.
"""

import gzip
import io
import os
import tarfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from typing import Any, Final, Protocol

from dralab.files.reading import open_file, open_within

SUFFIXES: Final = (".yaml", ".yml", ".json")
PACKED: Final = (".tar", ".tar.gz", ".tgz", *(f"{suffix}.gz" for suffix in SUFFIXES))
STDIN: Final = "-"
MAX_BYTES: Final = 512 * 1024 * 1024
"""What all sources of one command may hold together, unpacked."""
MAX_FILES: Final = 100_000  # a tar with so many costs four seconds
"""Files with objects that a directory or archive may hold, all its folders together."""
MAX_ENTRIES: Final = 10 * MAX_FILES
"""Files and folders of all kinds that are looked at in a directory: some seconds."""
MAX_DEPTH: Final = 32
"""Directories within directories; symbolic links to directories are not followed."""
FEWER: Final = "name only the files and folders that matter"
GZIP: Final = b"\x1f\x8b"
TAR: Final = b"ustar"
TAR_AT: Final = 257


class SourceError(ValueError):
    """A source that cannot be read; `name` is the file, the message says why in one line."""

    def __init__(self, name: str, why: str) -> None:
        super().__init__(why)
        self.name = name
        self.why = why


@dataclass(frozen=True, slots=True)
class SourceFile:
    """The bytes of one file; `gathered` if it was found in an archive or below a subdirectory.

    What is gathered may hold much besides Kubernetes objects; a file that a user names, or that
    lies in a directory that a user names, is meant.
    """

    name: str
    content: bytes
    gathered: bool = False


def files_of(
    sources: Iterable[str | Path],
    stdin: Callable[[], bytes] | None = None,
    *,
    max_bytes: int = MAX_BYTES,
) -> Iterator[SourceFile | SourceError]:
    """Yield the files of all sources in order, or the error of a source.

    Directories are in the order of their names, archives in their own. Nothing follows the error
    that `max_bytes` is exceeded.
    """
    budget = _Budget(max_bytes)
    for source in sources:
        try:
            yield from _of_source(source, stdin, budget)
        except _TooLargeError:
            why = f"the input is larger than {max_bytes:,} bytes: {FEWER}"
            yield SourceError(_shown(source, stdin), why)
            return
        except SourceError as error:
            yield error


def _of_source(
    source: str | Path, stdin: Callable[[], bytes] | None, budget: "_Budget"
) -> Iterator[SourceFile | SourceError]:
    if str(source) == STDIN and stdin is not None:
        given = io.BufferedReader(io.BytesIO(stdin()))
        yield from _unpacked(_shown(source, stdin), given, budget, gathered=False)
        return
    path = Path(source)
    if not path.is_dir():
        yield from _of_path(path, lambda: open_file(path), budget, gathered=False)
        return
    # All of them first: that there are too many is known before minutes of reading.
    items = list(found_in(path, (*SUFFIXES, *PACKED)))
    for item in items:
        try:
            yield from _of_path(
                item, partial(open_within, path, item), budget, gathered=item.parent != path
            )
        except SourceError as error:
            yield error
    if not items:
        wanted = ", ".join((*SUFFIXES, ".tar", ".gz", ".tgz"))
        raise SourceError(str(source), f"contains no file that ends with {wanted}")


@dataclass(slots=True)
class _FolderWalk:
    """What may still be found in a directory."""

    suffixes: tuple[str, ...]
    most: int
    files: int = 0
    entries: int = 0

    def below(self, directory: Path, depth: int = 0) -> Iterator[Path]:
        if depth > MAX_DEPTH:
            raise SourceError(str(directory), f"more than {MAX_DEPTH} directories deep")
        room = MAX_ENTRIES - self.entries
        try:
            with os.scandir(directory) as entries:
                items = sorted(islice(entries, room + 1), key=lambda entry: entry.name)
        except OSError as error:
            raise SourceError(str(directory), error.strerror or str(error)) from error
        if len(items) > room:
            raise SourceError(str(directory), f"more than {MAX_ENTRIES:,} files: {FEWER}")
        self.entries += len(items)
        for item in items:
            path = directory / item.name
            if item.is_dir():
                # Mounted ConfigMaps keep what their links lead to in directories called `..2026_…`.
                if not item.is_symlink() and not item.name.startswith(".."):
                    yield from self.below(path, depth + 1)
            elif item.name.endswith(self.suffixes):
                self.files += 1
                if self.files > self.most:
                    raise SourceError(str(directory), f"more than {self.most:,} files: {FEWER}")
                yield path


def found_in(directory: Path, suffixes: tuple[str, ...], most: int = MAX_FILES) -> Iterator[Path]:
    """Yield the files with these suffixes below a directory, in the order of names.

    `open_within` opens them: nothing is known yet of what they are. Links to directories are not
    followed. SourceError: there are more than `most`, or the directory is huge.
    """
    return _FolderWalk(suffixes, most).below(directory)


def _of_path(
    path: Path, opened: "Callable[[], io.BufferedReader[Any]]", budget: "_Budget", *, gathered: bool
) -> Iterator[SourceFile]:
    try:
        with opened() as file:
            yield from _unpacked(str(path), file, budget, gathered=gathered)
    except OSError as error:
        raise SourceError(str(path), error.strerror or str(error)) from error


def _unpacked(
    name: str, file: "io.BufferedReader[Any]", budget: "_Budget", *, gathered: bool
) -> Iterator[SourceFile]:
    """Yield a file as it is, without its compression, or the members of an archive."""
    try:
        if file.peek(len(GZIP)).startswith(GZIP):
            with closing(gzip.GzipFile(fileobj=file, mode="rb")) as plain:
                yield from _members_or_file(name, budget.watching(plain), budget, gathered=gathered)
        else:
            yield from _members_or_file(name, budget.watching(file), budget, gathered=gathered)
    except (EOFError, zlib.error, gzip.BadGzipFile, tarfile.TarError) as error:
        raise SourceError(name, f"the archive is damaged or breaks off: {error}") from error


def _members_or_file(
    name: str, stream: "_Watched", budget: "_Budget", *, gathered: bool
) -> Iterator[SourceFile]:
    head = stream.read(TAR_AT + len(TAR))
    stream.push_back(head)
    if head[TAR_AT:] != TAR:
        yield SourceFile(name, stream.read(), gathered)
        return
    with tarfile.open(fileobj=stream, mode="r|") as archive:
        for number, member in enumerate(archive):
            if number >= MAX_FILES:
                raise SourceError(name, f"more than {MAX_FILES:,} files: {FEWER}")
            path = PurePosixPath(member.name)
            if path.is_absolute() or ".." in path.parts:
                raise SourceError(name, f"refused: {member.name!r} leads out of the archive")
            if not (member.isreg() and member.size and member.name.endswith(SUFFIXES)):
                continue  # links are not followed; logs and empty files have no objects
            if member.issparse():
                raise SourceError(name, f"refused: {member.name!r} is larger than what is stored")
            if member.size > budget.left:
                raise _TooLargeError
            opened = archive.extractfile(member)
            if opened is not None:
                yield SourceFile(f"{name}:{member.name}", opened.read(), gathered=True)
    # What is behind the members is read too: a break in the middle must not look like the end.
    while stream.read(1 << 20):
        pass


def _shown(source: str | Path, stdin: object) -> str:
    return "standard input" if str(source) == STDIN and stdin is not None else str(source)


class _Readable(Protocol):
    def read(self, size: int = ..., /) -> bytes: ...


class _TooLargeError(Exception):
    """The sources hold more than the budget."""


@dataclass(slots=True)
class _Budget:
    """How many bytes may still be read, after decompression."""

    left: int

    def watching(self, file: "_Readable") -> "_Watched":
        """Return a stream that takes from the budget what is read. _TooLargeError."""
        return _Watched(file, self)


class _Watched(io.RawIOBase):
    """A stream with look-ahead that stops when the budget is used up."""

    def __init__(self, file: _Readable, budget: _Budget) -> None:
        super().__init__()
        self._file = file
        self._budget = budget
        self._ahead = b""

    def readable(self) -> bool:
        return True

    def push_back(self, data: bytes) -> None:
        """Push `data` back, to be read again."""
        self._ahead = data + self._ahead

    def read(self, size: int | None = -1) -> bytes:
        """Return `size` bytes, fewer at the end; all that follow without a size. _TooLargeError."""
        size = None if size is None or size < 0 else size
        taken, self._ahead = self._ahead[:size], self._ahead[len(self._ahead[:size]) :]
        parts = [taken]
        missing = None if size is None else size - len(taken)
        while missing is None or missing > 0:
            most = self._budget.left + 1
            part = self._file.read(most if missing is None else min(missing, most))
            if not part:
                break
            parts.append(part)
            missing = None if missing is None else missing - len(part)
            self._budget.left -= len(part)
            if self._budget.left < 0:
                raise _TooLargeError
        return b"".join(parts)
