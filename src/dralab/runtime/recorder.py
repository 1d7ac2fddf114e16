"""Records a cluster: watches what decides who runs where, and appends each change to a file.

Of a server it asks for lists and watches alone (`ROLE`). What is kept of an object, and the form of
the file, is `dralab.api.snapshots`'s; what may come of a recording, that of `dralab.simulation`.
"""

import fcntl
import os
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from dralab.api.snapshots.errors import SnapshotError
from dralab.api.snapshots.kept_fields import KINDS, kept
from dralab.api.snapshots.recordings import (
    RecordedName,
    RecordedState,
    Recording,
    head,
    name_of,
    seen,
)
from dralab.files.reading import open_own
from dralab.kernel.clock import SECOND
from dralab.runtime.cache import Cache
from dralab.runtime.client import Client, WatchEvent
from dralab.runtime.engine import Engine
from dralab.runtime.reading import COLLECTIONS, ServedKind
from dralab.values.json_types import JsonDict

RECORDED: Final = tuple(each for each in COLLECTIONS if each.kind in KINDS)
# After so many seconds in which something has changed, it is noted how far the file goes.
MARKS: Final = 60
Rename = Callable[[JsonDict], JsonDict]


def role(name: str) -> JsonDict:
    """Return the ClusterRole that a recorder needs."""
    rules = [
        {"apiGroups": [group], "resources": [each.resource.plural for each in found],
         "verbs": ["list", "watch"]}
        for group, found in groupby(
            sorted(RECORDED, key=lambda each: each.resource), lambda each: each.resource.group
        )
    ]  # fmt: skip
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": name},
        "rules": rules,
    }


class RecordingFile:
    """A recording that is written, or continued. SnapshotError, OSError.

    `rename` gives objects other names. `metadata` is what a recording says of itself: one that is
    continued has to say the same. A line that was cut off is dropped.
    """

    def __init__(
        self, path: Path, metadata: Mapping[str, Any], rename: Rename = lambda item: item
    ) -> None:
        self.path = path
        self.rename = rename
        self.state = RecordedState()
        self.changes = 0
        self._lines: list[bytes] = []
        self._handle = open_own(path, os.O_RDWR | os.O_CREAT)
        try:
            try:
                fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise SnapshotError(f"{path}: another process records into it") from None
            self.size = self._continued(metadata) if os.fstat(self._handle).st_size else 0
            os.ftruncate(self._handle, self.size)
            os.lseek(self._handle, 0, os.SEEK_END)
        except BaseException:
            os.close(self._handle)
            raise
        self.is_continued = self.size > 0
        if not self.is_continued:
            self._add(head(metadata))
            self.flush()

    def _continued(self, metadata: Mapping[str, Any]) -> int:
        recording = Recording.open(self.path)
        for key in sorted({*metadata, *recording.metadata}):
            was, now = recording.metadata.get(key), metadata.get(key)
            if was != now:
                raise SnapshotError(
                    f"{self.path}: cannot be continued: its {key} is {was!r}, not {now!r}"
                )
        for _ in recording:
            pass
        self.state = recording.state
        return recording.whole

    def put(
        self, when: int, of: RecordedName, obj: JsonDict | None, *, listed: bool = False
    ) -> None:
        """Add the change of an object, under the names of the file."""
        before = self.state.objects.get(of)
        if obj is not None and before is not None:
            uid = before["metadata"].get("uid")
            if uid != obj["metadata"].get("uid"):
                # It was deleted and made anew, and nobody saw it.
                self._add(self.state.line(when, of, None, listed=True))
        if obj is not None or before is not None:
            self._add(self.state.line(when, of, obj, listed=listed))

    def mark(self, when: int) -> None:
        """Note that until `when` nothing else has happened."""
        self._lines.append(seen(when))
        self.size += len(self._lines[-1])

    def _add(self, line: bytes) -> None:
        if line:
            self._lines.append(line)
            self.size += len(line)
            self.changes += 1

    def flush(self) -> None:
        """Write what was added; it survives the end of this process, and of the machine."""
        if self._lines:
            content = memoryview(b"".join(self._lines))
            self._lines = []
            while content:
                content = content[os.write(self._handle, content) :]
            os.fsync(self._handle)

    def close(self) -> None:
        """Write what is left, and let others have the file."""
        self.flush()
        os.close(self._handle)


class ClusterRecorder:
    """Follows a cluster on an engine, and writes what changes to a file.

    Beyond `rate` changes a second, those of one object are taken together; at `most` bytes, or if
    the file cannot be written (`failed`), `full` is called, and nothing more is written.
    """

    def __init__(
        self,
        engine: Engine,
        client: Client,
        file: RecordingFile,
        *,
        rate: int,
        most: int,
        full: Callable[[], None],
    ) -> None:
        self.engine = engine
        self.file = file
        self.rate = rate
        self.most = most
        self._full = full
        self.is_full = False
        self.failed: OSError | None = None
        self._written = self._ticks = self._marked = 0
        self._late: dict[RecordedName, JsonDict | None] = {}
        self.collections = [_Followed(self, client, each) for each in RECORDED]

    def start(self) -> None:
        """Begin to list and watch."""
        for each in self.collections:
            each.cache.start()
        self.engine.after(SECOND, self._tick)

    def stop(self) -> None:
        """Stop watching, and write what is left."""
        for each in self.collections:
            each.cache.stop()
        if not self.is_full:
            self._flush()
            self._mark()

    @property
    def unread(self) -> Sequence[str]:
        """The kinds that could not be listed so far: no right to, or no answer."""
        return [each.served.kind for each in self.collections if not each.cache.synced]

    def take(self, of: RecordedName, obj: JsonDict | None, *, listed: bool) -> None:
        """Take a change, under the names of the file; a list is not bounded."""
        if self.is_full:
            return
        if of in self._late or (self._written >= self.rate and not listed):
            self._late[of] = obj
            return
        self._written += 1
        self.file.put(self.engine.clock.now(), of, obj, listed=listed)
        if self.file.size >= self.most:
            self._save()
            self._end()

    def _flush(self) -> None:
        self._written = 0
        late, self._late = self._late, {}
        for of, obj in late.items():
            self.take(of, obj, listed=False)
        self._save()

    def _save(self) -> None:
        try:
            self.file.flush()
        except OSError as error:  # a full disk, most of all
            self.failed = error
            self._end()

    def _end(self) -> None:
        self.is_full = True
        self._full()

    def _mark(self) -> None:
        self.file.mark(self.engine.clock.now())
        self._save()
        self._marked = self.file.size

    def _tick(self) -> None:
        if self.is_full:
            return
        self._flush()
        self._ticks += 1
        if self._ticks % MARKS == 0 and self.file.size != self._marked:
            self._mark()
        self.engine.after(SECOND, self._tick)


class _Followed:
    """One collection; it follows its own cache to know what was listed."""

    def __init__(self, recorder: ClusterRecorder, client: Client, served: ServedKind) -> None:
        self.served = served
        self._recorder = recorder
        self._listed = False
        # What the file has of a run before, and no list has confirmed yet.
        self._unseen = {of for of in recorder.file.state.objects if of.kind == served.kind}
        self.cache = Cache(recorder.engine, client, served.resource, reduced=self._kept)
        self.cache.subscribe(self._change)
        self.cache.follow(self)

    def listed(self, items: Sequence[JsonDict], revision: str) -> None:  # noqa: ARG002 - a Follower
        """Take what comes until the cache has caught up to be found, not seen to happen."""
        self._listed = True

    def changed(self, event: WatchEvent) -> None:
        """Do nothing: the cache says what has become of an object."""

    def caught_up(self) -> None:
        """What was there before and is not in the list is gone."""
        if self._listed:
            unseen, self._unseen = sorted(self._unseen), set()
            for of in unseen:
                self._recorder.take(of, None, listed=True)
        self._listed = False

    def _kept(self, item: JsonDict) -> JsonDict:
        resource = self.cache.resource
        version = f"{resource.group}/{resource.version}".lstrip("/")
        found = kept({**item, "apiVersion": version, "kind": self.served.kind}) or {}
        revision = item["metadata"].get("resourceVersion")
        return {**found, "metadata": {**found["metadata"], "resourceVersion": revision}}

    def _change(self, old: JsonDict | None, new: JsonDict | None) -> None:
        item = new or old or {}
        metadata = {key: each for key, each in item["metadata"].items() if key != "resourceVersion"}
        written = self._recorder.file.rename({**item, "metadata": metadata})
        of = name_of(written)
        self._unseen.discard(of)
        self._recorder.take(of, None if new is None else written, listed=self._listed)
