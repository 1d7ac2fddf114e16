"""Which generations of the device API a server serves, and the objects of one of them.

Objects are returned as they are stored; a `Generation` reads them.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

from dralab.api.status import ApiError
from dralab.objects.metadata import spec_of
from dralab.prototypes.findings import identity
from dralab.prototypes.generations import GENERATIONS, KnownGeneration
from dralab.prototypes.placement import Generation
from dralab.runtime.client import Resource
from dralab.runtime.reading import Lister, listed, read_cluster
from dralab.runtime.resources import NODES, PODS
from dralab.values.json_types import JsonDict


class Reader(Lister, Protocol):
    """The verbs of a client that reading a generation needs; every client has them."""

    def get(self, resource: Resource, name: str, namespace: str = "") -> JsonDict:
        """Return one object. ApiError."""
        ...


def served(client: Lister) -> list[str]:
    """Return the generations that a server serves and lets this user list.

    Those that are always served say least about it, and come last.
    """
    ordered = sorted(GENERATIONS.values(), key=lambda each: each.is_always_served)
    return [
        each.name
        for each in ordered
        for resource in resources_of(each).values()
        if resource.plural == each.sign and _may_list(client, resource)
    ]


def older_with_pods(client: Lister, among: Sequence[str]) -> list[str]:
    """Return those of the older generations that have pods without a node on a server."""
    return [name for name in among if _waits(client, GENERATIONS[name])]


def resources_of(generation: Generation) -> dict[str, Resource]:
    """Return the collections of a generation by kind."""
    return {
        kind["kind"]: Resource(group, version, kind["plural"], kind["namespaced"])
        for api_version, kinds in GENERATIONS[generation.name].kinds.items()
        for group, _, version in [api_version.partition("/")]
        for kind in kinds
    }


def objects_of(
    client: Reader, generation: Generation, unreadable: Callable[[ApiError], None] = lambda _: None
) -> list[JsonDict]:
    """Return all objects of a generation, with nodes and pods. ApiError, ReadingError.

    `unreadable` is told of configs that claims and classes name and this user may not read.
    """
    if generation.name == "v1":
        items = list(read_cluster(client))
        pods = sorted((item for item in items if item["kind"] == "Pod"), key=_age)
        return [*pods, *(item for item in items if item["kind"] != "Pod")]
    found: list[JsonDict] = []
    resources = resources_of(generation)
    for kind, resource in {"Pod": PODS, "Node": NODES, **resources}.items():
        try:
            items = listed(client, resource, kind)
        except ApiError:
            if resource.group == generation.api_version.partition("/")[0] or not resource.group:
                raise
            continue  # a driver's own kind, and its driver is not there
        found += sorted(items, key=_age) if kind == "Pod" else items
    return found + _configs(client, found, unreadable)


def _may_list(client: Lister, resource: Resource) -> bool:
    try:
        client.list(resource)
    except ApiError:
        return False  # authorization comes first: what does not exist is forbidden, too
    return True


def _waits(client: Lister, generation: KnownGeneration) -> bool:
    try:
        pods = client.list(resources_of(generation).get("Pod", PODS)).items
    except ApiError:
        return False
    return any(not spec_of(pod).get("nodeName") and generation.asks(pod) for pod in pods)


def _configs(
    client: Reader, objects: list[JsonDict], unreadable: Callable[[ApiError], None]
) -> list[JsonDict]:
    """Return the objects that claims and classes name as configs."""
    known = {identity(item) for item in objects}
    found = []
    for key in sorted(_named(objects) - known):
        group, _, version = key[0].rpartition("/")
        resource = Resource(group, version, _plural(key[1]), namespaced=bool(key[2]))
        try:
            found.append(client.get(resource, key[3], key[2]))
        except ApiError as error:
            if error.reason != "NotFound":  # that it is missing says the claim
                unreadable(error)
    return found


def _named(value: object, namespace: str = "") -> set[tuple[str, str, str, str]]:
    """Return the references of all `configs` entries in some objects."""
    found: set[tuple[str, str, str, str]] = set()
    if isinstance(value, list):
        for item in value:
            found |= _named(item, namespace)
    elif isinstance(value, dict):
        metadata = value.get("metadata")
        if isinstance(metadata, dict):
            namespace = metadata.get("namespace") or namespace
        for key, part in value.items():
            if key in {"configs", "config"} and isinstance(part, list):
                found |= {
                    (c["apiVersion"], c["kind"], c.get("namespace") or namespace, c["name"])
                    for c in part
                    if isinstance(c, dict) and {"apiVersion", "kind", "name"} <= c.keys()
                }
            elif key != "status":
                found |= _named(part, namespace)
    return found


def _age(pod: JsonDict) -> tuple[str, int, str]:
    """Return a sort key: oldest pod first.

    Of those that were created in the same second, the one that was written first.
    """
    metadata = pod["metadata"]
    version = metadata.get("resourceVersion") or ""
    written = int(version) if version.isdecimal() else 0
    return metadata.get("creationTimestamp") or "", written, metadata["name"]


def _plural(kind: str) -> str:
    lower = kind.lower()
    return lower + ("es" if lower.endswith(("s", "x", "ch")) else "s")
