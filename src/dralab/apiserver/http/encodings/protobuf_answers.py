"""Responses in protobuf: objects, lists, Status, and the frames of a watch.

Objects are encoded when they are first asked for and kept for a while: a list, a watch and a get
of the same state share the bytes.
"""

from collections.abc import Mapping, Sequence
from threading import Lock
from typing import Any, Final

import orjson

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.scope import MustWait
from dralab.apiserver.http.encodings.encoding import INITIAL_END, list_metadata
from dralab.apiserver.protobuf import encoding
from dralab.apiserver.storage import Key, Stored
from dralab.apiserver.storage.watching.interfaces import EventType
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.apiserver.verbs.reading import ListPage, not_converted

KEPT: Final = 32 * 1024 * 1024  # bytes of all messages that are kept
OVERHEAD: Final = 200  # bytes that each of them takes beside its own
PARTIAL: Final = "PartialObjectMetadata"


class KeptMessages:
    """The messages of objects that were encoded recently, for one server and any thread."""

    def __init__(self, limit: int = KEPT) -> None:
        self.limit = limit
        self.size = 0
        self._messages: dict[tuple[str, Key, int], bytes] = {}
        self._lock = Lock()

    def find(self, place: tuple[str, Key, int]) -> bytes | None:
        """Return the message of a state in a version, by its apiVersion, key and revision."""
        return self._messages.get(place)

    def add(self, place: tuple[str, Key, int], message: bytes) -> None:
        """Keep a message; the oldest ones are dropped for it."""
        with self._lock:
            if place in self._messages:
                return
            self._messages[place] = message
            self.size += len(message) + OVERHEAD
            while self.size > self.limit:
                oldest = next(iter(self._messages))
                self.size -= len(self._messages.pop(oldest)) + OVERHEAD

    def clear(self) -> None:
        """Forget all: revisions may be used again after writes were taken back."""
        with self._lock:
            self._messages.clear()
            self.size = 0


class ProtobufEncoder:
    """Encodes the objects of one kind in one version, whole.

    Two of a kind are equal, so that watchers share their bytes. `kept` is for states that were
    read from the store: a dry run shows other content at the same revision.
    """

    shared = True

    def __init__(self, kind: Kind, rules: Rules, kept: KeptMessages | None) -> None:
        self.kind = kind
        self.rules = rules
        self._kept = kept
        self._writer = encoding.writer_of(kind.api_version, kind.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProtobufEncoder) and other.kind is self.kind

    def __hash__(self) -> int:
        return hash((ProtobufEncoder, id(self.kind)))

    def object(self, stored: Stored) -> bytes:
        """Return one object."""
        return self._enveloped(self._message(stored))

    def page(self, page: ListPage) -> Sequence[bytes]:
        """Return a list."""
        parts = encoding.list_parts(list_metadata(page), [self._message(one) for one in page.items])
        return (encoding.enveloped(self.kind.api_version, self.kind.list_kind, *parts),)

    def event(self, type: EventType, stored: Stored) -> bytes:
        """Return one change as a frame."""
        try:
            # What left a selection is shown as it was before, at the revision of what it is now.
            message = self._written(stored) if type == "DELETED" else self._message(stored)
            return encoding.frame(type, self._enveloped(message))
        except ApiError as error:
            return error_frame(error)
        except MustWait:
            return error_frame(not_converted(self.kind, stored))

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Return a bookmark as a frame."""
        return _bookmark(self.kind.api_version, self.kind.kind, revision, initial_end=initial_end)

    def _enveloped(self, message: bytes) -> bytes:
        return encoding.enveloped(self.kind.api_version, self.kind.kind, message)

    def _message(self, stored: Stored) -> bytes:
        if self._kept is None:
            return self._written(stored)
        place = (self.kind.api_version, stored.key, stored.revision)
        found = self._kept.find(place)
        if found is None:
            found = self._written(stored)
            self._kept.add(place, found)
        return found

    def _written(self, stored: Stored) -> bytes:
        # Not its `value`: a list would drop all others that are kept as mappings.
        value = stored.value if stored.parsed else orjson.loads(stored.encoded)
        return self._writer.write(self.rules.from_hub(self.kind, value))


class PartialProtobufEncoder:
    """Encodes objects as PartialObjectMetadata."""

    shared = True

    def __init__(self, version: str) -> None:
        self.version = f"meta.k8s.io/{version}"
        self._writer = encoding.writer_of(self.version, PARTIAL)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartialProtobufEncoder) and other.version == self.version

    def __hash__(self) -> int:
        return hash((PartialProtobufEncoder, self.version))

    def object(self, stored: Stored) -> bytes:
        """Return one object."""
        return encoding.enveloped(self.version, PARTIAL, self._message(stored))

    def page(self, page: ListPage) -> Sequence[bytes]:
        """Return a list."""
        parts = encoding.list_parts(list_metadata(page), [self._message(one) for one in page.items])
        return (encoding.enveloped(self.version, f"{PARTIAL}List", *parts),)

    def event(self, type: EventType, stored: Stored) -> bytes:
        """Return one change as a frame."""
        return encoding.frame(type, self.object(stored))

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Return a bookmark as a frame."""
        return _bookmark(self.version, PARTIAL, revision, initial_end=initial_end)

    def _message(self, stored: Stored) -> bytes:
        return self._writer.write({"metadata": stored.value["metadata"]})


def error_frame(error: ApiError) -> bytes:
    """Return the event of a watch that cannot go on."""
    return encoding.frame("ERROR", encoding.encode(error.status()))


def as_protobuf(data: bytes) -> bytes | None:
    """Return the JSON of an object as protobuf; None if no message is known of its kind."""
    value = orjson.loads(data)
    return encoding.encode(value) if is_known(value) else None


def is_known(value: Mapping[str, Any]) -> bool:
    """Whether there is a message for an object."""
    return encoding.has_message(value.get("apiVersion") or "", value.get("kind") or "")


def _bookmark(api_version: str, kind: str, revision: int, *, initial_end: bool) -> bytes:
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if initial_end:
        metadata["annotations"] = INITIAL_END
    value = {"apiVersion": api_version, "kind": kind, "metadata": metadata}
    return encoding.frame("BOOKMARK", encoding.encode(value))
