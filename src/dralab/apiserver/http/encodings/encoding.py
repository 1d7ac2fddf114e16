"""The encoding of responses: objects, lists, and the lines of a watch.

Objects keep their JSON beside them, so a get, a list and a watch of the stored version encode
nothing: a list cuts kind and apiVersion off the front of each object, which is why the verbs
put them there.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Final

import orjson

from dralab.api.decoding import decoder_of
from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.scope import MustWait, RequestScope
from dralab.apiserver.storage import Stored
from dralab.apiserver.storage.watching.interfaces import EventType
from dralab.apiserver.verbs.kinds.rules import Rules
from dralab.apiserver.verbs.reading import ListPage, not_converted

INITIAL_END: Final = {"k8s.io/initial-events-end": "true"}


class ObjectEncoder:
    """Encodes the objects of one kind in one version, whole.

    Two encoders of a kind are equal, so that watchers share their bytes.
    """

    shared = True

    def __init__(self, kind: Kind, rules: Rules, scope: RequestScope | None = None) -> None:
        self.kind = kind
        self.rules = rules
        self._scope = scope
        version, name = rules.hub_type(kind)
        self._prefix = len(orjson.dumps({"kind": name, "apiVersion": version})) - 1

    @property
    def plain(self) -> bool:
        """Whether objects are sent as they are stored: that may change while a watch goes on."""
        return self.rules.is_hub(self.kind)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ObjectEncoder) and other.kind is self.kind

    def __hash__(self) -> int:
        return id(self.kind)

    def object(self, stored: Stored) -> bytes:
        """Return one object."""
        if self.plain:
            return stored.encoded
        return orjson.dumps(self.rules.from_hub(self.kind, stored.value, self._scope))

    def item(self, stored: Stored, *, plain: bool) -> bytes:
        """Return one object as an item of a list: built-in ones leave out kind and apiVersion."""
        if self.kind.custom is not None:
            return stored.encoded if plain else self.object(stored)
        if plain:
            encoded = stored.encoded
            return b"{" + encoded[self._prefix + 1 :]
        value = dict(self.rules.from_hub(self.kind, stored.value, self._scope))
        value.pop("kind", None)
        value.pop("apiVersion", None)
        return orjson.dumps(value)

    def page(self, page: ListPage) -> Sequence[bytes]:
        """Return a list, in parts."""
        head = list_head(self.kind, page)
        if not page.items:
            return [head + b"]}"]
        plain = self.plain
        items = b",".join([self.item(stored, plain=plain) for stored in page.items])
        return [head, items, b"]}"]

    def event(self, type: EventType, stored: Stored) -> bytes:
        """Return one change as a line."""
        try:
            return b'{"type":"%b","object":%b}\n' % (type.encode(), self.object(stored))
        except ApiError as error:
            status = error.status()
        except MustWait:
            status = not_converted(self.kind, stored).status()
        return orjson.dumps({"type": "ERROR", "object": status}, option=orjson.OPT_APPEND_NEWLINE)

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Return a bookmark as a line."""
        return bookmark(self.kind.kind, self.kind.api_version, revision, initial_end=initial_end)


def list_metadata(page: ListPage) -> dict[str, Any]:
    """Return the metadata of a list."""
    metadata: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.cont:
        metadata["continue"] = page.cont
    if page.remaining:
        metadata["remainingItemCount"] = page.remaining
    return metadata


def list_head(kind: Kind, page: ListPage) -> bytes:
    """Return the beginning of a list, up to its items."""
    metadata = list_metadata(page)
    if kind.custom is not None:
        first = {"resourceVersion": metadata["resourceVersion"], "continue": page.cont}
        metadata = {**first, **metadata}
    head = {"kind": kind.list_kind, "apiVersion": kind.api_version, "metadata": metadata}
    return orjson.dumps(head)[:-1] + b',"items":['


def bookmark(kind: str, api_version: str, revision: int, *, initial_end: bool) -> bytes:
    """Return a bookmark line."""
    metadata: dict[str, Any] = {"resourceVersion": str(revision)}
    if initial_end:
        metadata["annotations"] = INITIAL_END
    value = {"kind": kind, "apiVersion": api_version, "metadata": metadata}
    value |= _always_there(api_version, kind)
    return orjson.dumps({"type": "BOOKMARK", "object": value}, option=orjson.OPT_APPEND_NEWLINE)


@lru_cache(maxsize=256)
def _always_there(api_version: str, kind: str) -> dict[str, Any]:
    """Return what Go writes for an empty object of a kind, without its metadata."""
    decoder = decoder_of(api_version, kind)
    found: dict[str, Any] = {} if decoder is None else decoder.decode({})[0]
    return {name: item for name, item in found.items() if name != "metadata"}


class PartialEncoder:
    """Encodes objects as PartialObjectMetadata."""

    shared = True

    def __init__(self, version: str) -> None:
        self.version = f"meta.k8s.io/{version}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PartialEncoder) and other.version == self.version

    def __hash__(self) -> int:
        return hash(self.version)

    def value(self, stored: Stored) -> dict[str, Any]:
        """Return what is shown of one object."""
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": self.version,
            "metadata": stored.value["metadata"],
        }

    def object(self, stored: Stored) -> bytes:
        """Return one object."""
        return orjson.dumps(self.value(stored))

    def page(self, page: ListPage) -> bytes:
        """Return a list."""
        return orjson.dumps(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": self.version,
                "metadata": list_metadata(page),
                "items": [self.value(stored) for stored in page.items],
            }
        )

    def event(self, type: EventType, stored: Stored) -> bytes:
        """Return one change as a line."""
        event = {"type": type, "object": self.value(stored)}
        return orjson.dumps(event, option=orjson.OPT_APPEND_NEWLINE)

    def bookmark(self, revision: int, *, initial_end: bool = False) -> bytes:
        """Return a bookmark as a line."""
        return bookmark("PartialObjectMetadata", self.version, revision, initial_end=initial_end)


def as_yaml(data: bytes) -> bytes:
    """Return JSON as YAML, keys sorted as a server does."""
    from dralab.apiserver.http.encodings import yaml_text

    return yaml_text.dump(orjson.loads(data))
