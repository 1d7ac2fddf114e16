"""What a store holds: keys, stored objects, changes, listings."""

from collections import deque
from collections.abc import Sequence
from threading import Lock
from typing import Final, NamedTuple

import orjson

from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


class Key(NamedTuple):
    """Where an object lives.

    `resource` is the hub name of its collection, "group/plural" ("pods" alone in the core group);
    `namespace` is empty for objects of the cluster.
    """

    resource: str
    namespace: str
    name: str


# How many objects of the process are kept as mappings; the others are kept as JSON alone, which
# takes a fifth of the memory and gives the garbage collector nothing to walk through. With 10,000
# pods as mappings a full collection stops the server for 60 ms. Reading an older object
# parses it again, in 5 to 10 microseconds.
WARM: Final = 4096
WARM_BYTES: Final = 8 * 1024 * 1024  # of their JSON


class Stored:
    """One state of one object. Never changed once stored: a change makes a new one.

    `revision` is that of the write that made this state, `created` that of the object's first.
    The value and its JSON are each made from the other when they are asked for: an object read
    from disk costs no parsing until it is read, and every watcher shares one encoding. Values
    that were not looked at lately are forgotten, and made again from the JSON.
    """

    __slots__ = ("_encoded", "_value", "created", "key", "revision")

    def __init__(
        self,
        key: Key,
        value: JsonDict | None,
        revision: int,
        created: int,
        encoded: bytes | None = None,
    ) -> None:
        self.key = key
        self.revision = revision
        self.created = created
        self._value = value
        self._encoded = encoded

    @property
    def value(self) -> JsonDict:
        """The object as a mapping. It must not be changed."""
        found = self._value
        if found is None:
            found = orjson.loads(self.encoded)
            self._value = found
            _warm.add(self)
        return found

    @property
    def encoded(self) -> bytes:
        """The object as compact JSON."""
        found = self._encoded
        if found is None:
            found = self._encoded = _encoded(self._value)
        return found

    @property
    def parsed(self) -> bool:
        """Whether the value is there, so that looking at it costs no parsing."""
        return self._value is not None

    def settle(self) -> "Stored":
        """Encode the JSON, and keep the value for now; a store calls it once.

        TypeError if the value nests too deeply to be written.
        """
        if self._encoded is None:
            self._encoded = _encoded(self._value)
        _warm.add(self)
        return self

    def forget_value(self) -> None:
        """Keep only the JSON: a fifth of the memory; the next reader of `value` parses it."""
        if self._encoded is None:
            self._encoded = _encoded(self._value)
        self._value = None  # holders of the mapping may go on reading it

    def restamped(self, revision: int) -> "Stored":
        """Return the same state as of another revision: what watchers see of an object's end."""
        found = Stored(self.key, stamped(self.value, revision), revision, self.created)
        return found.settle()

    def __repr__(self) -> str:
        return f"<{'/'.join(self.key)} at {self.revision}>"


class _Warm:
    """The objects of the process that have a mapping: the oldest mapping is dropped first."""

    def __init__(self) -> None:
        self.objects: deque[tuple[Stored, int]] = deque()
        self.weight = 0
        self.lock = Lock()

    def add(self, stored: Stored) -> None:
        weight = len(stored.encoded)
        with self.lock:
            self.objects.append((stored, weight))
            self.weight += weight
            while len(self.objects) > WARM or self.weight > WARM_BYTES:
                oldest, weight = self.objects.popleft()
                self.weight -= weight
                oldest.forget_value()

    def clear(self) -> None:
        with self.lock:
            for stored, _ in self.objects:
                stored.forget_value()
            self.objects.clear()
            self.weight = 0


_warm = _Warm()


def forget_values() -> None:
    """Keep only the JSON of all objects of the process; those that are read are parsed again."""
    _warm.clear()


class Change:
    """One write: `before` is None for a creation, `after` is None for a deletion.

    Both are None if an object was deleted that could not be read: no watcher saw it. Then
    `erased` is the revision at which it was written.
    """

    __slots__ = ("_departed", "after", "before", "erased", "key", "revision")

    def __init__(
        self,
        key: Key,
        revision: int,
        before: Stored | None,
        after: Stored | None,
        departed: Stored | None = None,
    ) -> None:
        self.key = key
        self.erased = 0
        self.revision = revision
        self.before = before
        self.after = after
        self._departed = departed

    @property
    def departed(self) -> Stored:
        """What a watcher sees in a DELETED event: the state before, at this change's revision.

        For an object that is gone as well as for one that merely left the watcher's selection.
        A deletion may bring its own last state.
        """
        found = self._departed
        if found is None:
            if self.before is None:
                raise ValueError(f"{self} ended nothing")
            found = self._departed = self.before.restamped(self.revision)
        return found

    def __repr__(self) -> str:
        verb = "deleted" if self.after is None else "created" if self.before is None else "updated"
        return f"<{'/'.join(self.key)} {verb} at {self.revision}>"


@dataclass(frozen=True, slots=True)
class Listing:
    """A page of a collection, in key order, as of `revision`.

    `remaining` counts the objects after the page; None if there may be more but a filter
    hides how many. `more` says whether there is a next page.
    """

    items: Sequence[Stored]
    revision: int
    remaining: int | None = 0
    more: bool = False


def _encoded(value: JsonDict | None) -> bytes:
    """Return an object as compact JSON, in no more memory than it needs.

    What orjson returns keeps the room in which it was written, 8 KiB at the least: a copy of an
    event takes a ninth of it.
    """
    return bytes(memoryview(orjson.dumps(value)))


def stamped(value: JsonDict, revision: int) -> JsonDict:
    """Return a shallow copy of an object with another `metadata.resourceVersion`."""
    metadata = {**(value.get("metadata") or {}), "resourceVersion": str(revision)}
    return {**value, "metadata": metadata}
