"""Recordings: how the objects of a cluster changed over time, a JSON object a line.

    {"apiVersion":"dralab.dev/v1","kind":"ClusterRecording","metadata":{"anonymized":false}}
    {"at":"2026-11-02T08:00:00.000000Z","listed":true,"object":{"kind":"Pod",…}}
    {"at":"2026-11-02T08:00:07.120345Z","of":["Pod","ml","train"],"patch":{"spec":{"nodeName":"a"}}}
    {"at":"2026-11-02T08:10:00.000000Z","gone":true,"of":["Pod","ml","train"]}
    {"at":"2026-11-02T08:15:00.000000Z"}

`object` is an object whole, as `kept_fields` keeps it; `patch` is a merge patch (RFC 7386) of what
the lines before say. What was `listed` came about at some time before `at`, while nobody looked. A
line with a time alone says that until then nothing else has happened. Lines are only ever appended.
A last line without its end was cut off with its writer, and does not count. The file may be packed
with gzip. Watching a cluster is left to `dralab.runtime.recorder`.
"""

import gzip
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Final, NamedTuple

import orjson

from dralab.api.snapshots.errors import SnapshotError
from dralab.files.reading import open_file
from dralab.files.sources import GZIP
from dralab.kernel.times import from_rfc3339, rfc3339_micro
from dralab.values.json_types import JsonDict
from dralab.values.patches import merge_difference, merge_patch
from dralab.values.records import dataclass

VERSION: Final = "dralab.dev/v1"
KIND: Final = "ClusterRecording"
MARK: Final = f'{{"apiVersion":"{VERSION}","kind":"{KIND}"'.encode()
"""How every recording of this version begins."""
LONGEST_LINE: Final = 8 << 20
MOST_BYTES: Final = 16 << 30
"""What a recording may hold, unpacked."""


class RecordedName(NamedTuple):
    """Which object."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return "/".join(filter(None, self))


class RecordedChange(NamedTuple):
    """An object as it is from `when` on, in nanoseconds since the epoch; None: it is gone.

    `listed`: so it was found at that time; since when is not known.
    """

    when: int
    of: RecordedName
    object: JsonDict | None
    listed: bool = False


def name_of(obj: Mapping[str, Any]) -> RecordedName:
    """Return the name of an object."""
    metadata = obj["metadata"]
    return RecordedName(obj["kind"], metadata.get("namespace") or "", metadata["name"])


@dataclass(slots=True)
class RecordedState:
    """The objects as the lines so far say: what a line is written from, and read into."""

    objects: dict[RecordedName, JsonDict] = field(default_factory=dict)

    def line(
        self, when: int, of: RecordedName, obj: JsonDict | None, *, listed: bool = False
    ) -> bytes:
        """Return the line of a change, and take it over; empty where nothing changes."""
        before = self.objects.get(of)
        if obj == before:
            return b""
        found: JsonDict = {"at": rfc3339_micro(when)}
        if listed:
            found["listed"] = True
        if obj is None:
            del self.objects[of]
            found |= {"of": list(of), "gone": True}
        else:
            self.objects[of] = obj
            patch = None if before is None else merge_difference(before, obj)
            # A merge patch cannot write null.
            if patch is None or merge_patch(before, patch) != obj:
                found["object"] = obj
            else:
                found |= {"of": list(of), "patch": patch}
        return orjson.dumps(found, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)

    def read(self, line: bytes) -> RecordedChange | int:
        """Return the change of a line, and take it over, or its time alone.

        ValueError, KeyError, TypeError.
        """
        found = orjson.loads(line)
        if len(found) == 1:
            return from_rfc3339(found["at"])
        obj: JsonDict | None = found.get("object")
        of = name_of(obj) if obj is not None else RecordedName(*map(str, found["of"]))
        if "patch" in found:
            if of not in self.objects:
                raise ValueError(f"it patches {of}, which does not exist at that time")
            patched = merge_patch(self.objects[of], found["patch"])
            if not isinstance(patched, dict) or name_of(patched) != of:
                raise ValueError(f"the patch changes the kind or name of {of}")
            obj = patched
        if obj is None:
            self.objects.pop(of, None)
        else:
            self.objects[of] = obj
        return RecordedChange(from_rfc3339(found["at"]), of, obj, bool(found.get("listed")))


def seen(when: int) -> bytes:
    """Return the line that until `when` nothing else has happened."""
    return orjson.dumps({"at": rfc3339_micro(when)}, option=orjson.OPT_APPEND_NEWLINE)


def head(metadata: Mapping[str, Any]) -> bytes:
    """Return the first line of a recording."""
    content = {"apiVersion": VERSION, "kind": KIND, "metadata": metadata}
    return orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)


def problem_of(error: Exception) -> str:
    """Describe the error of a line that could not be read."""
    if isinstance(error, KeyError):
        return f"it has no field {error.args[0]!r}"
    if isinstance(error, orjson.JSONDecodeError):
        return f"it is not JSON: {error.msg}"
    if isinstance(error, AttributeError | TypeError):
        return "a field is of the wrong kind"
    return str(error)


def is_recording(content: bytes) -> bool:
    """Return whether a file, unpacked, is a recording of this version."""
    return content.startswith(MARK)


class Recording:
    """A recording that is read, once: first its `metadata`, then its changes.

    SnapshotError: it is not one, or a line of it is wrong. After the changes, `state` is what there
    was at the end, `until`, and `whole` the size of the lines that count.
    """

    def __init__(self, lines: Iterable[bytes], name: str = "") -> None:
        self._lines = iter(lines)
        self._name = f"{name}: " if name else ""
        self.state = RecordedState()
        self.whole = self.until = 0
        first = next(self._lines, b"")
        if not is_recording(first) or not first.endswith(b"\n"):
            raise SnapshotError(f"{self._name}is not a recording: make one with dralab record")
        self.whole = len(first)
        try:
            self.metadata: Mapping[str, Any] = dict(orjson.loads(first)["metadata"])
        except (KeyError, TypeError, ValueError) as error:
            raise SnapshotError(f"{self._name}line 1: {problem_of(error)}") from error

    @classmethod
    def open(cls, path: Path) -> "Recording":
        """Return the recording of a file."""
        return cls(_lines(path), str(path))

    def __iter__(self) -> Iterator[RecordedChange]:
        for number, line in enumerate(self._lines, start=2):
            if not line.endswith(b"\n"):
                if len(line) >= LONGEST_LINE:
                    raise SnapshotError(
                        f"{self._name}line {number}: is longer than {LONGEST_LINE} bytes"
                    )
                return  # the last one, whose writer was ended
            try:
                change = self.state.read(line)
            except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
                raise SnapshotError(f"{self._name}line {number}: {problem_of(error)}") from error
            self.whole += len(line)
            if self.whole > MOST_BYTES:
                raise SnapshotError(f"{self._name}is larger than {MOST_BYTES} bytes")
            # A clock that was set back does not turn the order of changes around.
            when = change if isinstance(change, int) else change.when
            self.until = max(self.until, when)
            if not isinstance(change, int):
                yield change._replace(when=self.until)


def objects_at_the_end(content: bytes) -> list[JsonDict]:
    """Return the objects that there were at the end of a recording, unpacked. SnapshotError."""
    recording = Recording(content.splitlines(keepends=True))
    for _ in recording:
        pass
    return list(recording.state.objects.values())


def _lines(path: Path) -> Iterator[bytes]:
    try:
        with open_file(path) as plain:
            packed = plain.peek(2).startswith(GZIP)
            with gzip.GzipFile(fileobj=plain) if packed else plain as file:
                while line := file.readline(LONGEST_LINE):
                    yield line
    except (OSError, EOFError) as error:
        why = getattr(error, "strerror", None) or error
        raise SnapshotError(f"{path}: cannot be read: {why}") from error
