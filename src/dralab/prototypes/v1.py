"""Today's resource.k8s.io/v1 behind the same interface as the older generations.

Reading, rules and search are those of `api.resource` and `allocation`; this is only their common
face, so that one command schedules and compares every generation.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.allocation.cel_compiler import compiled
from dralab.allocation.problem import Node, Problem
from dralab.api.resource.files import ResourceCheck
from dralab.objects.claims import allocation_of, pod_claims, results_of, uses_of
from dralab.objects.extended_resources import SYNTHETIC
from dralab.objects.metadata import annotations_of, full_key, status_of
from dralab.prototypes.findings import NormalizedDocument, invalid
from dralab.prototypes.placement import (
    PlacedDevice,
    PlacedPod,
    PlacementResult,
    UnplacedPod,
)
from dralab.prototypes.shape import standard
from dralab.scheduling.snapshot import Placed, Snapshot
from dralab.scheduling.state import Refusal
from dralab.values.json_types import JsonDict
from dralab.values.patches import copied

API_VERSION: Final = "resource.k8s.io/v1"
VERSIONS: Final = (API_VERSION, "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2")
KINDS: Final = (
    {"kind": "DeviceClass", "plural": "deviceclasses", "namespaced": False},
    {"kind": "ResourceSlice", "plural": "resourceslices", "namespaced": False},
    {"kind": "DeviceTaintRule", "plural": "devicetaintrules", "namespaced": False},
    {"kind": "ResourceClaim", "plural": "resourceclaims", "namespaced": True},
    {"kind": "ResourceClaimTemplate", "plural": "resourceclaimtemplates", "namespaced": True},
)
ENTRY: Final = "resource.kubernetes.io/pod-claim-name"
# Reading fills in `timeAdded` of taints; the moment makes no difference to a placement.
NOW: Final = "1970-01-01T00:00:00Z"
CHECK: Final = ResourceCheck(now=NOW, expressions=compiled)


def read(item: Mapping[str, Any]) -> NormalizedDocument:
    """Return a document in the hub's form, or everything that is wrong with it."""
    document = dict(item)
    found = CHECK(document)
    if found is None:
        return NormalizedDocument(document=document, findings=tuple(standard(document)))
    errors = tuple(invalid(error.field, error.body) for error in found.errors)
    return NormalizedDocument(document=dict(found.object), findings=errors)


class V1Cluster:
    """The cluster of v1 objects. Pods go where the scheduler would bind them."""

    def __init__(
        self,
        objects: Iterable[JsonDict],
        refused: Sequence[NormalizedDocument] = (),  # noqa: ARG002 - as if they were not there
    ) -> None:
        self.snapshot = Snapshot(objects)
        self._placed: dict[tuple[str, str], Placed] = {}

    def pods(self) -> list[JsonDict]:
        """Return the pods, in the order in which they came."""
        return list(self.snapshot.by_kind.get("Pod", ()))

    def place(self, pod: JsonDict) -> PlacementResult:
        """Return where the scheduler would bind a pod, with the others of its gang."""
        pending = self.snapshot.pending_of(pod)
        if pending.missing is not None:
            return UnplacedPod(pod=pod, reason=str(pending.missing))
        decision = self.snapshot.decide(pending)
        if isinstance(decision, Refusal):
            return UnplacedPod(pod=pod, reason=decision.message)
        found = self._placed[full_key(pod)] = self.snapshot.placed(pending, decision)
        claims = [*found.objects(), *(dict(claim) for claim in pending.allocated)]
        for claim in claims:
            _reserve(claim, pod)
            _own(claim, pod)
        bound = copied(pod)
        bound["spec"]["nodeName"] = decision.node
        mappings = [mapping for plan in decision.plans for mapping in plan.mappings]
        for claim in claims:
            if mappings and SYNTHETIC in annotations_of(claim):
                told = {"resourceClaimName": claim["metadata"]["name"], "requestMappings": mappings}
                bound["status"] = {**status_of(bound), "extendedResourceClaimStatus": told}
        return PlacedPod(
            pod=bound,
            node=decision.node,
            devices=tuple(_devices(found.objects())),
            claims=tuple(claims),
            containers=_containers(pod, claims),
        )

    def apply(self, placed: PlacedPod) -> None:
        """Apply a placement: its claims hold their devices from now on."""
        self.snapshot.accept(self._placed.pop(full_key(placed.pod)))

    def problems(self, pod: JsonDict) -> list[tuple[Node, Problem]]:
        """Return the allocation problem of a pod on every node that it may run on."""
        pending = self.snapshot.pending_of(pod)
        if pending.missing is not None:
            raise ValueError(str(pending.missing))
        problem = self.snapshot.problem(pending)
        return [(node, problem) for node in self.snapshot.candidates(pending)]

    def fleet(self) -> Problem:
        """Return a problem without claims: all devices, and which of them are in use."""
        snapshot = self.snapshot
        return Problem(
            claims=(),
            classes=snapshot.fleet.classes,
            slices=snapshot.slices,
            in_use=snapshot.in_use,
            features=snapshot.features,
        )


def _devices(claims: Iterable[JsonDict]) -> Iterable[PlacedDevice]:
    for claim in claims:
        for chosen in results_of(allocation_of(claim)):
            yield PlacedDevice(
                claim=claim["metadata"]["name"],
                request=chosen["request"],
                pool=chosen["pool"],
                device=chosen["device"],
                driver=chosen["driver"],
            )


def _own(claim: JsonDict, pod: JsonDict) -> None:
    """Set the owner of a claim that is made for a pod.

    The resource claim controller makes those of templates, the scheduler that of extended
    resources.
    """
    metadata = claim["metadata"] = copied(claim["metadata"])
    owner = {"apiVersion": "v1", "kind": "Pod", "name": pod["metadata"]["name"]}
    owner |= {"uid": pod["metadata"].get("uid", ""), "controller": True}
    if SYNTHETIC in annotations_of(claim):
        metadata.setdefault("ownerReferences", [owner])
    for item in pod_claims(pod):
        made = f"{pod['metadata']['name']}-{item.entry}"
        if item.template and metadata["name"] == made:
            metadata.setdefault("annotations", {})[ENTRY] = item.entry
            metadata.setdefault("ownerReferences", [owner])


def _reserve(claim: JsonDict, pod: JsonDict) -> None:
    status = claim["status"] = dict(claim.get("status") or {})
    reserved = list(status.get("reservedFor") or ())
    consumer = {
        "resource": "pods",
        "name": pod["metadata"]["name"],
        "uid": pod["metadata"].get("uid", ""),
    }
    if consumer not in reserved:
        reserved.append(consumer)
    status["reservedFor"] = reserved


def _containers(pod: JsonDict, claims: Sequence[JsonDict]) -> dict[str, tuple[str, ...]]:
    by_name = {claim["metadata"]["name"]: claim for claim in claims}
    of_entry: dict[str, JsonDict] = {}
    for item in pod_claims(pod):
        generated = f"{pod['metadata']['name']}-{item.entry}"
        found = by_name.get(item.claim) or next(
            (claim for name, claim in by_name.items() if name.startswith(generated)), None
        )
        if found is not None:
            of_entry[item.entry] = found
    return {
        container["name"]: tuple(
            f"{result['pool']}/{result['device']}"
            for entry, request in uses_of(container)
            if entry in of_entry
            for result in results_of(allocation_of(of_entry[entry]))
            if request in {"", result["request"], result["request"].split("/")[0]}
        )
        for container in pod["spec"].get("containers") or ()
    }
