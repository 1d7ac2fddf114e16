"""The keys and values of objects in etcd, as kube-apiserver lays them out.

An object is at `/registry/<plural>/<namespace>/<name>`, one of a custom kind at
`/registry/<group>/<plural>/…`, as JSON without `metadata.resourceVersion`: that is the revision at
which etcd says the key was written. What a kube-apiserver has written itself, as JSON or as
protobuf, is read, too. Source: k8s.io/kubernetes `pkg/kubeapiserver` (the default storage factory),
k8s.io/apiserver `storage/etcd3`.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import orjson

from dralab.api.core import older_definitions
from dralab.api.decoding import decoder_of
from dralab.api.kinds import Kinds
from dralab.api.releases import versions
from dralab.api.scalar_decoding import DecodingError
from dralab.apiserver.made_once import made_once
from dralab.apiserver.protobuf.decoding import MAGIC, ProtobufError, decode
from dralab.apiserver.storage.errors import Unstorable
from dralab.apiserver.storage.etcd.revisions import version_of
from dralab.apiserver.storage.objects import Key, Stored
from dralab.values.json_types import JsonDict

# Collections that do not lie under their plural; the rest of the built-in ones do.
PLACES: Final[Mapping[str, str]] = {
    "apiextensions.k8s.io/customresourcedefinitions": (
        "apiextensions.k8s.io/customresourcedefinitions"
    ),
    "apiregistration.k8s.io/apiservices": "apiregistration.k8s.io/apiservices",
    "endpoints": "services/endpoints",
    "networking.k8s.io/ingresses": "ingress",
    "nodes": "minions",
    "replicationcontrollers": "controllers",
    "services": "services/specs",
}
# Two parts long, though no group.
DEEP: Final = frozenset({"services"})
# What servers say to each other; no plural begins with a dot.
OWN: Final = ".dralab"
REMEMBERED: Final = 4096  # prefixes of keys
DEVICES: Final = "resource.k8s.io"
_HEAD: Final = re.compile(rb'\{(?:"kind":"([^"\\]*)","apiVersion":"([^"\\]*)",)?"metadata":\{')
_REVISION: Final = b'"resourceVersion":'


class Layout:
    """The keys under a prefix, and what their values mean."""

    def __init__(self, prefix: str) -> None:
        self.prefix = prefix
        self.start = f"{prefix}/".encode()
        self.end = end_of(self.start)
        self._collections: dict[tuple[str, str], bytes] = {}  # some prefixes that were made

    @made_once
    def _types(self) -> Mapping[str, tuple[str, str]]:
        """The kind and apiVersion in which each built-in collection is stored."""
        found: dict[str, tuple[str, str]] = {}
        for kind in Kinds.standard():
            found.setdefault(kind.hub, (kind.kind, kind.api_version))
        return found

    @made_once
    def _older_types(self) -> Mapping[str, frozenset[tuple[str, str]]]:
        """The kinds and apiVersions in which other releases store the built-in collections.

        Such an object differs in its apiVersion alone; those of devices are stored in one form.
        """
        found: dict[str, set[tuple[str, str]]] = {}
        for release in versions():
            first: dict[str, tuple[str, str]] = {}
            for kind in Kinds.standard(release=release):
                if kind.group != DEVICES:
                    first.setdefault(kind.hub, (kind.kind, kind.api_version))
            for hub, typed in first.items():
                found.setdefault(hub, set()).add(typed)
        return {hub: frozenset(types) for hub, types in found.items()}

    @made_once
    def _places(self) -> Mapping[str, str]:
        return {hub: PLACES.get(hub, hub.rpartition("/")[2]) for hub in self._types}

    @made_once
    def _hubs(self) -> Mapping[str, str]:
        return {place: hub for hub, place in self._places.items()}

    def collection(self, resource: str, namespace: str = "") -> bytes:
        """Return the prefix of the keys of a collection, or of one namespace in it."""
        found = self._collections.get((resource, namespace))
        if found is None:
            place = self._places.get(resource, resource)
            inside = f"{namespace}/" if namespace else ""
            found = f"{self.prefix}/{place}/{inside}".encode()
            if len(self._collections) >= REMEMBERED:
                self._collections.clear()
            self._collections[resource, namespace] = found
        return found

    def path(self, key: Key) -> bytes:
        """Return the path of an object."""
        return self.collection(key.resource, key.namespace) + key.name.encode()

    def own(self, name: str) -> bytes:
        """Return a key of the servers' own."""
        return f"{self.prefix}/{OWN}/{name}".encode()

    def key(self, path: bytes) -> Key | None:
        """Return the key of the object at a path; None if it is not an object."""
        try:
            parts = path[len(self.start) :].decode().split("/")
        except UnicodeDecodeError:
            return None
        depth = 2 if "." in parts[0] or parts[0] in DEEP else 1
        place, rest = "/".join(parts[:depth]), parts[depth:]
        if parts[0] == OWN or len(rest) not in {1, 2} or not all(parts):
            return None
        return Key(self._hubs.get(place, place), *(rest if len(rest) == 2 else ("", rest[0])))

    def stored(self, key: Key, kv: Any) -> Stored | None:
        """Return the object that a key has; None if it cannot be read."""
        version = version_of(kv.mod_revision, kv.key)
        encoded = self._stamped(key, kv.value, version)
        if encoded is None:
            return None
        return Stored(key, None, version, version_of(kv.create_revision, kv.key), encoded)

    def check(self, key: Key, raw: bytes) -> None:
        """Refuse what could not be read again. Unstorable."""
        if self._stamped(key, raw, 0) is None:
            raise Unstorable(key, "its kind is stored in another version")

    def written(self, key: Key, value: JsonDict, raw: bytes, revision: int, created: int) -> Stored:
        """Return an object that was just written as `raw`, after `check`."""
        encoded = self._stamped(key, raw, revision)
        value["metadata"]["resourceVersion"] = str(revision)
        return Stored(key, value, revision, created, encoded).settle()

    def _stamped(self, key: Key, raw: bytes, revision: int) -> bytes | None:
        """Return an object's JSON with its revision, kind and apiVersion first."""
        wanted = self._types.get(key.resource)
        head = _HEAD.match(raw)
        if head is not None and _REVISION not in raw and _is_of(head, wanted):
            at = head.end()
            more = b"" if raw[at : at + 1] == b"}" else b","
            return b'%b"resourceVersion":"%d"%b%b' % (raw[:at], revision, more, raw[at:])
        try:
            value = _typed(decode(raw)) if raw.startswith(MAGIC) else orjson.loads(raw)
        except (ProtobufError, DecodingError, orjson.JSONDecodeError, RecursionError):
            return None
        return self._arranged(key, value, revision)

    def _arranged(self, key: Key, value: Any, revision: int) -> bytes | None:
        if not isinstance(value, dict) or not isinstance(value.get("metadata"), dict):
            return None
        wanted = self._types.get(key.resource)
        said = value.get("kind"), value.get("apiVersion")
        if said == older_definitions.OLDER:
            # In which a kube-apiserver stores definitions to this day.
            value = older_definitions.to_v1(value)
            said = value["kind"], value["apiVersion"]
        if (
            wanted
            and said not in {(None, None), wanted}
            and said not in self._older_types.get(key.resource, ())
        ):
            return None
        value["metadata"]["resourceVersion"] = str(revision)
        head = {part: value.pop(part) for part in ("kind", "apiVersion") if part in value}
        return orjson.dumps({**head, **value})


def _is_of(head: re.Match[bytes], wanted: tuple[str, str] | None) -> bool:
    """Whether a value is in the version in which its kind is stored here."""
    kind, version = head.groups()
    return not wanted or kind is None or (kind.decode(), version.decode()) == wanted


def _typed(value: JsonDict) -> JsonDict:
    """Return an object that was protobuf, with the fields that JSON always has. DecodingError."""
    decoder = decoder_of(str(value.get("apiVersion")), str(value.get("kind")))
    if decoder is not None:
        value, _ = decoder.decode(value)
    return value


def raw_of(key: Key, value: JsonDict) -> bytes:
    """Return an object as it is stored in etcd. Unstorable."""
    metadata = {part: item for part, item in value["metadata"].items() if part != "resourceVersion"}
    try:
        return orjson.dumps({**value, "metadata": metadata})
    except orjson.JSONEncodeError as error:
        raise Unstorable(key, str(error).lower()) from error


def end_of(prefix: bytes) -> bytes:
    """Return the first key behind all that begin with a prefix."""
    return prefix[:-1] + bytes([prefix[-1] + 1])
