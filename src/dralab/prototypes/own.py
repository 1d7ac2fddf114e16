"""A device API of your own: a class that turns its YAML into the allocation problem, and back.

Derive from `OwnGeneration`, and give the file to a command: `dralab allocate --api mine.py`.
Packages offer theirs as entry points of the group `dralab.generations`. The functions below make
the parts of the problem in a few words; `docs/guides/write-a-generation.md` shows all of it.
Names of attributes and capacities belong to the driver's domain, as in resource.k8s.io.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final

from dralab.allocation import problem as core
from dralab.allocation.outcome import ClaimAllocation
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.objects.metadata import spec_of, status_of
from dralab.prototypes.findings import (
    Finding,
    NormalizedDocument,
    identity,
    invalid,
    legacy,
    warning,
)
from dralab.prototypes.placement import PlacedDevice
from dralab.prototypes.searching import ClaimInProblem, SearchedCluster
from dralab.prototypes.shape import Shape, checked, standard
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.patches import copied
from dralab.values.quantity import parse_any
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.prototypes.conversion.neutral import Scene

__all__ = [
    "Objects",
    "OwnGeneration",
    "ask",
    "claim",
    "device",
    "distinct",
    "invalid",
    "legacy",
    "match",
    "pool",
    "request",
    "total",
    "warning",
]
ANY: Final = "any"
MANY: Final = 1 << 20


# --- words for the problem ------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnDevice:
    """A device before its driver is known."""

    name: str
    attributes: Mapping[str, core.Scalar] = field(default_factory=dict)
    capacity: Mapping[str, object] = field(default_factory=dict)


def device(
    name: str,
    attributes: Mapping[str, core.Scalar] | None = None,
    capacity: Mapping[str, object] | None = None,
) -> OwnDevice:
    """Return a device: attributes are str, int or bool, capacities quantities such as "40Gi"."""
    return OwnDevice(name=name, attributes=attributes or {}, capacity=capacity or {})


def pool(name: str, *, driver: str, devices: Iterable[OwnDevice], node: str = "") -> core.Slice:
    """Return the devices of a driver on a node; without a node they are for all nodes."""

    def full(key: str) -> str:
        return key if "/" in key else f"{driver}/{key}"

    return core.Slice(
        name=name,
        driver=driver,
        pool=name,
        node_scope=core.NodeScope(node=node) if node else core.NodeScope(everywhere=True),
        devices=tuple(
            core.Device(
                name=each.name,
                driver=driver,
                attributes={full(key): _attribute(each.attributes[key]) for key in each.attributes},
                capacity={
                    full(key): core.Capacity(parse_any(amount), str(amount))
                    for key, amount in each.capacity.items()
                },
                capacity_names={full(key): key for key in each.capacity},
            )
            for each in devices
        ),
    )


def _attribute(value: core.Scalar) -> core.Attribute:
    if isinstance(value, bool):
        return core.Attribute("bool", (value,))
    return core.Attribute("int" if isinstance(value, int) else "string", (value,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way to meet a request."""

    count: int
    where: tuple[str, ...]
    everything: bool
    admin: bool
    class_name: str


def ask(
    count: int = 1,
    *,
    where: str | Iterable[str] = (),
    everything: bool = False,
    admin: bool = False,
    device_class: str = ANY,
) -> Way:
    """Return one way to meet a request: a number of devices, or `everything` that matches.

    `where` are CEL expressions as in resource.k8s.io/v1.
    """
    texts = (where,) if isinstance(where, str) else tuple(where)
    return Way(
        count=count, where=texts, everything=everything, admin=admin, class_name=device_class
    )


def request(name: str, *ways: Way) -> core.Request:
    """Return a request: the first of several ways that can be met."""
    compiler = CelSelectorCompiler()
    return core.Request(
        name=name,
        prioritized=len(ways) > 1,
        subrequests=tuple(
            core.SubRequest(
                name=f"{name}/{number}" if len(ways) > 1 else name,
                class_name=way.class_name,
                selectors=tuple(compiler.selector(text) for text in way.where),
                mode="All" if way.everything else "ExactCount",
                count=way.count,
                admin=True if way.admin else None,
                written={},
            )
            for number, way in enumerate(ways)
        ),
    )


def match(attribute: str, *requests: str) -> core.Constraint:
    """Return a rule: the devices of some requests (none: of all) have one value in common."""
    return core.Constraint("match", attribute, requests, written="")


def distinct(attribute: str, *requests: str) -> core.Constraint:
    """Return a rule: no two devices of some requests have the same value."""
    return core.Constraint("distinct", attribute, requests, written="")


def total(capacity: str, amount: object, *requests: str) -> core.Constraint:
    """Return a rule: the devices of some requests have so much of a capacity together."""
    return core.Constraint("total", capacity, requests, parse_any(amount), written="")


def claim(
    item: JsonObject, *requests: core.Request, rules: Iterable[core.Constraint] = ()
) -> core.Claim:
    """Return what a claim object asks for."""
    metadata = item["metadata"]
    return core.Claim(
        name=metadata["name"],
        namespace=metadata.get("namespace") or "default",
        requests=requests,
        constraints=tuple(rules),
        limit=MANY,
    )


# --- the generation -------------------------------------------------------------------------


class Objects:
    """The objects of the input, for an author's methods."""

    def __init__(self, cluster: "OwnCluster") -> None:
        self._cluster = cluster

    def of_kind(self, kind: str) -> list[JsonDict]:
        """Return the objects of a kind of the generation, in the order of the input."""
        return self._cluster.objects_of_kind(self._cluster.api_version, kind)

    def find(self, kind: str, name: str, pod: JsonObject | None = None) -> JsonDict:
        """Return an object by name, in a pod's namespace; without it the pod cannot be placed."""
        namespace = ((pod or {}).get("metadata") or {}).get("namespace") or "default"
        if kind in self._cluster.cluster_kinds:
            namespace = ""
        return self._cluster.named(kind, namespace, name)


class OwnGeneration(ABC):
    """A device API; `name` is how commands call it, `cluster_kinds` have no namespace.

    `schemas` are structural schemas by kind: what they do not allow is invalid. `pod_fields` and
    `container_fields` are those, with their schemas, that the API adds to pods and to their
    containers: no other API gets them.
    """

    name: str
    api_version: str
    cluster_kinds: Sequence[str] = ()
    schemas: Mapping[str, Mapping[str, Any]] = {}
    pod_fields: Mapping[str, dict[str, Any]] = {}
    container_fields: Mapping[str, dict[str, Any]] = {}

    @abstractmethod
    def pools(self, objects: Objects) -> Iterable[core.Slice]:
        """Yield the devices, made with `pool`."""

    @abstractmethod
    def claims(self, pod: JsonObject, objects: Objects) -> Iterable[tuple[JsonDict, core.Claim]]:
        """Yield each claim object of a pod with its requests, made with `claim`."""

    def classes(self, objects: Objects) -> Iterable[core.DeviceClass]:  # noqa: ARG002 - for authors
        """Yield the classes that ways to meet a request may name."""
        return ()

    def check(self, item: JsonObject) -> Iterable[Finding]:  # noqa: ARG002 - for authors
        """Yield findings about an object beyond its schema: `invalid`, `legacy`, `warning`."""
        return ()

    def uses(self, container: JsonObject) -> Sequence[str]:
        """Return the names of the claims that a container sees."""
        claims = (container.get("resources") or {}).get("claims") or ()
        return [use["name"] for use in claims]

    def write(self, scene: "Scene") -> Iterable[JsonDict]:
        """Yield the objects of this API for those of another one: for `convert --to`."""
        raise NotImplementedError

    @property
    def writes(self) -> bool:
        """Whether an author implemented `write`."""
        return type(self).write is not OwnGeneration.write

    # --- what commands ask

    def read(self, item: Mapping[str, Any]) -> NormalizedDocument:
        """Return a document with all of its errors."""
        return checked(item, self._read)

    def _read(self, item: Mapping[str, Any]) -> NormalizedDocument:
        document: JsonDict = copied(dict(item))
        api_version, kind, *_ = identity(item)
        found: list[Finding] = []
        if api_version == self.api_version:
            found = list(self._shape(document, kind))
            if not any(each.level == "invalid" for each in found):
                found += self.check(document)
        elif api_version.partition("/")[0] == self.api_version.partition("/")[0]:
            found = [invalid("apiVersion", f'"{api_version}" must be {self.api_version}')]
        else:
            pods = {f"spec.{field}": self.pod_fields[field] for field in self.pod_fields}
            pods |= {
                f"spec.containers[].{field}": self.container_fields[field]
                for field in self.container_fields
            }
            found = standard(document, pods)
        return NormalizedDocument(document=document, findings=tuple(found))

    def _shape(self, document: JsonDict, kind: str) -> Iterable[Finding]:
        schema = self.schemas.get(kind)
        if schema is not None:
            yield from Shape(_whole(schema), whole=True).findings(document)
        elif self.schemas:
            yield invalid("kind", f'"{kind}" is not one of {", ".join(sorted(self.schemas))}')

    def read_all(self, items: Sequence[Mapping[str, Any]]) -> list[NormalizedDocument]:
        """Return documents, each read by itself."""
        return [self.read(item) for item in items]

    def cluster(
        self, objects: Sequence[JsonDict], refused: Sequence[NormalizedDocument] = ()
    ) -> "OwnCluster":
        """Return the cluster that objects describe."""
        return OwnCluster(self, objects, refused)


def _whole(schema: Mapping[str, Any]) -> dict[str, Any]:
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    always = {"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": free}
    properties = {"status": free, **(schema.get("properties") or {}), **always}
    return {"type": "object", **schema, "properties": properties}


class OwnCluster(SearchedCluster[ClaimInProblem]):
    """The cluster of a user's own generation.

    A claim's result is `status.allocation{nodeName, devices[]{request, driver, pool, device}}`,
    its users are `status.reservedFor[]{name, uid}`.
    """

    pool_kind = "pool"

    def __init__(
        self,
        generation: OwnGeneration,
        objects: Iterable[JsonDict],
        refused: Iterable[NormalizedDocument] = (),
    ) -> None:
        self.generation = generation
        self.api_version = generation.api_version
        self.cluster_kinds = frozenset({*generation.cluster_kinds, "Node"})
        super().__init__(objects, refused)
        self.view = Objects(self)
        self.slices = tuple(generation.pools(self.view))
        self.classes = {ANY: core.DeviceClass(name=ANY)} | {
            each.name: each for each in generation.classes(self.view)
        }

    def pods(self) -> list[JsonDict]:
        """Return the pods, in the order in which they came."""
        return [*super().pods(), *self._of("Pod")]

    def _asked(self, pod: JsonDict) -> list[ClaimInProblem]:
        return [
            ClaimInProblem(item=item, wanted=wanted)
            for item, wanted in self.generation.claims(pod, self.view)
        ]

    def _in_use(self) -> core.InUse:
        held = {
            core.DeviceId(each["driver"], each["pool"], each["device"]): (item["metadata"]["name"],)
            for key, item in self.objects.items()
            if key[0] == self.api_version
            for each in _allocation(item).get("devices") or ()
            if not each.get("adminAccess")
        }
        return core.InUse(exclusive=frozenset(held), holders=held)

    def _write(
        self, claim: ClaimInProblem, item: JsonDict, allocation: ClaimAllocation, node: str
    ) -> list[PlacedDevice]:
        results = _results(claim.wanted, allocation)
        item["status"]["allocation"] = {"nodeName": node, "devices": results}
        return _devices(item)

    def _reserve(self, status: JsonDict, pod: JsonDict) -> None:
        user = {"name": pod["metadata"]["name"], "uid": pod["metadata"].get("uid", "")}
        users = status.setdefault("reservedFor", [])
        if user not in users:
            users.append(user)

    def _containers(
        self,
        pod: JsonDict,
        asked: Sequence[ClaimInProblem],  # noqa: ARG002 - the claims say it
        claims: Sequence[JsonDict],
        devices: Sequence[PlacedDevice],  # noqa: ARG002
    ) -> dict[str, tuple[str, ...]]:
        return {
            container["name"]: tuple(
                str(each)
                for name in self.generation.uses(container)
                for made in claims
                if made["metadata"]["name"] == name
                for each in _devices(made)
            )
            for container in spec_of(pod).get("containers") or ()
        }


def _allocation(item: JsonObject) -> JsonDict:
    found: JsonDict = status_of(item).get("allocation") or {}
    return found


def _results(wanted: core.Claim, allocation: ClaimAllocation) -> list[JsonDict]:
    watching = {way.name for each in wanted.requests for way in each.subrequests if way.admin}
    return [
        {
            "request": chosen.request,
            "driver": chosen.device.driver,
            "pool": chosen.device.pool,
            "device": chosen.device.device,
        }
        | ({"adminAccess": True} if chosen.request in watching else {})
        for chosen in allocation.chosen
    ]


def _devices(item: JsonObject) -> list[PlacedDevice]:
    return [
        PlacedDevice(
            claim=item["metadata"]["name"],
            request=each["request"].partition("/")[0],
            pool=each["pool"],
            device=each["device"],
            driver=each["driver"],
        )
        for each in _allocation(item).get("devices") or ()
    ]
