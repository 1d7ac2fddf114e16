"""Snapshot files: gzip of one JSON document; equal objects give equal bytes.

Fleets repeat themselves: each distinct device is written once, among the `devices` of the document,
and slices have their numbers. Who reads gets the same mapping each time and must not change it.
"""

import gzip
import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.api.snapshots.errors import SnapshotError
from dralab.api.snapshots.recordings import is_recording, objects_at_the_end
from dralab.files.sources import MAX_BYTES, SourceError, files_of
from dralab.values.json_types import JsonDict

GROUP: Final = "dralab.dev"
VERSION: Final = 1
KIND: Final = "ClusterSnapshot"
MARK: Final = b'{"apiVersion":"dralab.dev/v'
"""How every snapshot begins, of whatever version."""


def written(objects: Iterable[JsonDict], *, anonymized: bool = False) -> bytes:
    """Return the file of some objects, which are sorted by kind, namespace and name.

    >>> node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n"}}
    >>> read(written([node])) == [node]
    True
    """
    numbers: dict[bytes, int] = {}
    devices: list[Any] = []

    def number(device: Any) -> int:
        content = orjson.dumps(device, option=orjson.OPT_SORT_KEYS)
        found = numbers.setdefault(content, len(devices))
        if found == len(devices):
            devices.append(device)
        return found

    ordered = sorted(objects, key=_order)
    packed = [
        _with_devices(item, lambda given: [number(each) for each in given]) for item in ordered
    ]
    document = {
        "apiVersion": f"{GROUP}/v{VERSION}",
        "kind": KIND,
        "metadata": {"anonymized": anonymized},
        "devices": devices,
        "objects": packed,
    }
    out = io.BytesIO()
    # No name and no time: the same objects give the same bytes.
    with gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0) as file:
        file.write(orjson.dumps(document, option=orjson.OPT_SORT_KEYS))
    return out.getvalue()


def read(packed: bytes) -> list[JsonDict]:
    """Return the objects of a snapshot file. SnapshotError."""
    return _read("-", lambda: packed)


def read_file(path: Path) -> list[JsonDict]:
    """Return the objects of a snapshot file. SnapshotError, which names the file."""
    try:
        return _read(path)
    except SnapshotError as error:
        raise SnapshotError(f"{path}: {error}") from error


def _read(source: str | Path, stdin: Callable[[], bytes] | None = None) -> list[JsonDict]:
    """Read one file, up to the size limit of all inputs."""
    for found in files_of([source], stdin, max_bytes=MAX_BYTES):
        if isinstance(found, SourceError):
            raise SnapshotError(f"cannot be read: {found.why}")
        if not found.gathered:
            return unpacked(found.content)
    raise SnapshotError("is not a snapshot: make one with dralab snapshot")


def is_snapshot(content: bytes) -> bool:
    """Return whether a file, unpacked, is a snapshot or recording, of this or another version."""
    return content.startswith(MARK)


def unpacked(content: bytes) -> list[JsonDict]:
    """Return the objects of a snapshot, or those at the end of a recording. SnapshotError."""
    if is_recording(content):
        return objects_at_the_end(content)
    if not is_snapshot(content):
        raise SnapshotError("is not a snapshot: make one with dralab snapshot")
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise SnapshotError(f"is damaged: it is not JSON: {error}") from error
    version = str(document["apiVersion"]).removeprefix(f"{GROUP}/v")
    if version != str(VERSION):
        raise SnapshotError(
            f"is a snapshot of version {version}, which a newer dralab has written; this one reads "
            f"version {VERSION}"
        )
    try:
        return _objects(document)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise SnapshotError(f"is damaged: {type(error).__name__}: {error}") from error


def _objects(document: Mapping[str, Any]) -> list[JsonDict]:
    devices = document["devices"]
    lists: dict[tuple[int, ...], list[Any]] = {}

    def named(numbers: Sequence[int]) -> list[Any]:
        key = tuple(numbers)
        found = lists.get(key)
        if found is None:
            if not all(type(each) is int and 0 <= each < len(devices) for each in key):
                raise ValueError("a slice has devices that are not there")
            found = lists[key] = [devices[each] for each in key]
        return found

    if not isinstance(document["objects"], list):
        raise TypeError("no list of objects")
    found = []
    for item in document["objects"]:
        metadata = item["metadata"]
        if not all(isinstance(each, str) for each in (item["apiVersion"], item["kind"])):
            raise TypeError("an object without a kind")
        if not isinstance(metadata["name"], str) or not metadata["name"]:
            raise TypeError("an object without a name")
        found.append(_with_devices(item, named))
    return found


def _with_devices(item: JsonDict, change: Any) -> JsonDict:
    """Return an object whose devices are replaced; only slices have devices."""
    if item["kind"] != "ResourceSlice" or not item["spec"].get("devices"):
        return item
    return item | {"spec": item["spec"] | {"devices": change(item["spec"]["devices"])}}


def _order(item: JsonDict) -> tuple[str, str, str]:
    metadata = item["metadata"]
    return item["kind"], metadata.get("namespace") or "", metadata["name"]
