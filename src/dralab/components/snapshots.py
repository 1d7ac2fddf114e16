"""Loads the objects of a snapshot into a server.

Uids, times and statuses stay, so that claims, pods and budgets still belong together. Nothing is
validated or admitted again: another server has done that. Reading the file is left to
`dralab.api.snapshots`.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, Protocol

import orjson

from dralab.api.status import ignoring
from dralab.apiserver.server import ApiServer
from dralab.apiserver.verbs.state.context import key_of
from dralab.objects.metadata import metadata_of, owners_of, uid_of
from dralab.runtime.client import Client
from dralab.runtime.resources import NAMESPACES
from dralab.values.json_types import JsonDict

IMAGE: Final = "registry.k8s.io/pause:3.10"
"""What pods run: a snapshot does not say which programs they were."""


class LoadableCluster(Protocol):
    """What loading needs from a cluster."""

    @property
    def client(self) -> Client:
        """A client of its server."""
        ...

    @property
    def server(self) -> ApiServer:
        """The server itself."""
        ...


def load(cluster: LoadableCluster, objects: Sequence[JsonDict]) -> None:
    """Store the objects of a snapshot; existing objects of the same names are kept.

    ValueError: the server does not serve a kind.
    """
    for name in sorted({metadata_of(item).get("namespace") or "" for item in objects} - {""}):
        with ignoring("AlreadyExists"):
            cluster.client.create(NAMESPACES, {"metadata": {"name": name}})
    store(cluster.server, objects)


def store(server: ApiServer, objects: Iterable[JsonDict]) -> None:
    """Store objects whose namespaces exist; existing objects of the same names are kept.

    ValueError as for `load`.
    """
    context = server.resources.context
    objects = list(objects)
    known = {uid_of(item) for item in objects}
    with context.store.lock:
        for item in map(_complete, _without_strangers(objects, known)):
            kind = context.kinds.of_object_within(item["apiVersion"], item["kind"])
            if kind is None:
                raise ValueError(f"{item['apiVersion']} {item['kind']} is not served")
            metadata = item["metadata"]
            if kind.namespaced:
                metadata.setdefault("namespace", "default")
            key = key_of(kind, metadata.get("namespace", ""), metadata["name"])
            if context.own.find(key) is not None:
                continue
            # A snapshot of files has objects that no server has completed.
            metadata["uid"] = metadata.get("uid") or context.uid()
            metadata["creationTimestamp"] = metadata.get("creationTimestamp") or context.now()
            if item["kind"] != "ResourceSlice":  # many, and whole as they are
                context.rules.default(kind, item)
            context.stored(kind, None, context.store.create(key, item).value)


def _without_strangers(objects: Iterable[JsonDict], known: set[str]) -> Iterator[JsonDict]:
    """Yield objects without owners that are missing: they would be garbage collected."""
    for item in objects:
        metadata = dict(metadata_of(item))
        if owners := [owner for owner in owners_of(item) if owner.get("uid") in known]:
            metadata["ownerReferences"] = owners
        else:
            metadata.pop("ownerReferences", None)
        yield {"kind": item["kind"], "apiVersion": item["apiVersion"], **item, "metadata": metadata}


def _complete(item: JsonDict) -> JsonDict:
    """Return a copy of an object, with required fields that the snapshot left out."""
    if item["kind"] == "ResourceSlice":
        return item
    copy: JsonDict = orjson.loads(orjson.dumps(item))
    if item["kind"] == "Pod":
        for name in ("containers", "initContainers"):
            for container in copy["spec"].get(name) or ():
                container["image"] = IMAGE
    return copy
