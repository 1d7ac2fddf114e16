"""The contents of an etcd when a server starts or has missed changes, and its version check."""

from collections.abc import Iterator
from typing import Final

from dralab.apiserver.storage.errors import StorageUnavailable
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.client import EtcdClient
from dralab.apiserver.storage.etcd.layout import Layout

PAGE: Final = 500  # objects read at a time
# Before these, a member could say that all had been sent when it had not (etcd#15220).
PROGRESS_SINCE: Final = {(3, 4): 25, (3, 5): 8}


def everything(client: EtcdClient, layout: Layout) -> Iterator[tuple[pb.KeyValue, int]]:
    """Yield all keys as of one revision, and the revision."""
    request = pb.RangeRequest(key=layout.start, range_end=layout.end, limit=PAGE)
    while True:
        page = client.range(request)
        request.revision = request.revision or page.header.revision
        for kv in page.kvs:
            yield kv, request.revision
        if not page.more:
            return
        request.key = page.kvs[-1].key + b"\0"


def deletion(path: bytes, revision: int) -> pb.Event:
    """Return the event of a key that is gone."""
    return pb.Event(type=pb.Event.DELETE, kv=pb.KeyValue(key=path, mod_revision=revision))


def check_version(version: str, address: str) -> None:
    """Refuse an etcd with a bug in the progress of watches. StorageUnavailable."""
    parts = version.split(".")
    try:
        major, minor, patch = int(parts[0]), int(parts[1]), int(parts[2].split("-")[0])
    except (IndexError, ValueError) as error:
        raise StorageUnavailable(
            f"{address} has the version {version!r}, which is unknown"
        ) from error
    if (major, minor) < (3, 4) or patch < PROGRESS_SINCE.get((major, minor), 0):
        raise StorageUnavailable(
            f"{address} has version {version}: 3.4.25, 3.5.8 or a later one is needed"
        )
