"""Reads from a cluster what questions about devices need, with get and list only.

The lists are taken one after the other, not at one revision: the claims come last, so that no
device looks free that was in use all the time. What the objects mean is left to those who ask.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Protocol

from dralab.api.resource.conversion import convert, hub_version
from dralab.api.resource.types import GROUP
from dralab.api.status import ApiError
from dralab.objects.metadata import metadata_of
from dralab.runtime import resources
from dralab.runtime.client import ObjectList, Resource
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


class Lister(Protocol):
    """The one verb that reading needs; every client has it."""

    def list(self, resource: Resource, namespace: str = "") -> ObjectList:
        """Return the objects of a namespace, or of all where it is empty."""
        ...


@dataclass(frozen=True, slots=True)
class ServedKind:
    """A kind and where it is served; `also` are older versions, for servers without the first.

    A collection that is not `needed` may be missing from a cluster. One that is `judged` only where
    it may be read need not be allowed either: answers then leave out what it is about.
    """

    kind: str
    resource: Resource
    also: Sequence[str] = ()
    needed: bool = True
    judged: str = ""

    def places(self) -> Iterator[Resource]:
        """Yield the collections to try, the newest version first."""
        first = self.resource
        for version in (first.version, *self.also):
            yield Resource(first.group, version, first.plural, first.namespaced)


BETAS: Final = ("v1beta2", "v1beta1")
GROUPS: Final = resources.NEWER[resources.POD_GROUPS]
COLLECTIONS: Final = (
    ServedKind("Node", resources.NODES),
    ServedKind("ResourceSlice", resources.SLICES, BETAS),
    ServedKind("DeviceClass", resources.CLASSES, BETAS),
    ServedKind("DeviceTaintRule", resources.TAINT_RULES, ("v1beta2", "v1alpha3"), needed=False),
    ServedKind("PriorityClass", resources.PRIORITY_CLASSES, needed=False),
    ServedKind("PodDisruptionBudget", resources.DISRUPTION_BUDGETS, needed=False),
    ServedKind("PodGroup", resources.POD_GROUPS, GROUPS, needed=False),
    ServedKind("CompositePodGroup", resources.COMPOSITE_POD_GROUPS, needed=False),
    ServedKind("StorageClass", resources.STORAGE_CLASSES, needed=False, judged="volumes"),
    ServedKind("PersistentVolume", resources.VOLUMES, needed=False, judged="volumes"),
    ServedKind("PersistentVolumeClaim", resources.VOLUME_CLAIMS, needed=False, judged="volumes"),
    ServedKind("Namespace", resources.NAMESPACES, needed=False, judged="namespace selectors"),
    ServedKind("ResourceQuota", resources.RESOURCE_QUOTAS, needed=False, judged="quotas"),
    ServedKind("Pod", resources.PODS),
    ServedKind("ResourceClaimTemplate", resources.CLAIM_TEMPLATES, BETAS),
    ServedKind("ResourceClaim", resources.CLAIMS, BETAS),
)
"""Everything that decides which pod gets which device; in this order it is read."""


class ReadingError(Exception):
    """A collection that cannot be read; `resource` names it, `why` is one line.

    `missing`: the cluster does not serve it.
    """

    def __init__(self, resource: Resource, why: str, *, missing: bool = False) -> None:
        super().__init__(f"cannot list {resource.plural}: {why}")
        self.resource = resource
        self.why = why
        self.missing = missing


def read_cluster(
    client: Lister, *, not_judged: Callable[[str], None] | None = None
) -> Iterator[JsonDict]:
    """Yield the objects of a cluster, each with its apiVersion and kind. ReadingError.

    `not_judged` is called once for each subject, such as volumes, that may not be read.
    """
    refused: set[str] = set()
    for collection in COLLECTIONS:
        if collection.judged in refused:
            continue  # half of what it takes to judge is worse than nothing
        found = read_collection(client, collection)
        if found.refused:
            refused.add(collection.judged)
            if not_judged is not None:
                not_judged(collection.judged)
        yield from found.items


@dataclass(frozen=True, slots=True)
class ServedCollection:
    """The objects of a collection as of one revision, and where it was found.

    `resource` is None where a cluster does not serve it; `refused` where it may not be read.
    """

    items: Sequence[JsonDict]
    revision: str = ""
    resource: Resource | None = None
    refused: bool = False


def read_collection(client: Lister, collection: ServedKind) -> ServedCollection:
    """Return the objects of a collection in the hub's version. ReadingError."""
    for resource in collection.places():
        try:
            found = client.list(resource)
        except ApiError as error:
            if error.code == 403 and collection.judged:
                return ServedCollection((), refused=True)
            if error.code != 404:
                raise ReadingError(resource, error.message) from error
            continue
        items = [in_hub(item, resource, collection.kind) for item in _objects(found, resource)]
        return ServedCollection(items, found.revision, resource)
    if collection.needed:
        first = collection.resource
        versions = ", ".join(each.version for each in collection.places())
        why = f"the cluster serves none of {first.group or 'v1'} {versions}"
        raise ReadingError(first, why, missing=True)
    return ServedCollection(())


def listed(client: Lister, resource: Resource, kind: str) -> list[JsonDict]:
    """Return the objects of a collection in the form of files. ApiError, ReadingError."""
    return [_named(item, resource, kind) for item in _objects(client.list(resource), resource)]


def _objects(found: ObjectList, resource: Resource) -> Sequence[JsonDict]:
    if not all(isinstance(item, dict) and metadata_of(item).get("name") for item in found.items):
        raise ReadingError(resource, "the answer is not a list of objects")
    return found.items


def _named(item: JsonDict, resource: Resource, kind: str) -> JsonDict:
    """Return an item of a list with apiVersion and kind, which lists omit."""
    api_version = f"{resource.group}/{resource.version}".lstrip("/")
    return {**item, "apiVersion": api_version, "kind": kind}


def in_hub(item: JsonDict, resource: Resource, kind: str) -> JsonDict:
    """Return an object of a collection in the hub's version."""
    item = _named(item, resource, kind)
    group, _, version = item["apiVersion"].partition("/")
    if group != GROUP or version == (hub := hub_version(item["kind"])):
        return item
    return convert(item, hub)
