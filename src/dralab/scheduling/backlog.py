"""What waits for devices among some objects: pods with their claims, and other claims.

Objects as users write them: pods, and those of workloads, in the order of the input. Objects as a
cluster has them: pods without a node, by priority and age, as kube-scheduler's queue has them;
pods that run, have ended or are being deleted do not wait, and a workload stands for no further
pods where its own are there. Where the devices come from is left to `snapshot`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from dralab.objects import quota
from dralab.objects.claims import (
    PodClaim,
    allocation_of,
    claim_names,
    claims_for_scheduler,
    extended_claim,
    is_shared,
)
from dralab.objects.extended_resources import synthetic_claim
from dralab.objects.metadata import (
    DEFAULT_NAMESPACE,
    controller_of,
    full_key,
    is_deleting,
    metadata_of,
    namespace_of,
    spec_of,
    uid_of,
)
from dralab.objects.pods import group_of, is_finished
from dralab.objects.requests import pod_requests
from dralab.objects.workloads import KINDS, job_end, pods_of
from dralab.scheduling.reasons import (
    BAD_QUANTITY,
    CLAIM_NOT_FOUND,
    QUOTA_EXCEEDED,
    TEMPLATE_NOT_FOUND,
    Reason,
)
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.quantity import QuantityError, parse_any
from dralab.values.records import dataclass

CLAIMS: Final = ("resourceclaims", "resource.k8s.io")
Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending:
    """A pod with its unallocated claims, or one claim alone.

    `missing` says what the pod refers to that is not there; such a pod cannot be served.
    """

    kind: str
    namespace: str
    name: str
    claims: tuple[JsonDict, ...]
    allocated: tuple[JsonDict, ...] = ()
    pod: Mapping[str, Any] = field(default_factory=dict)
    missing: Reason | None = None

    @property
    def title(self) -> str:
        """Kind and name, as messages call it: `pod ml/train`."""
        return f"{self.kind} {self.namespace}/{self.name}"

    @property
    def wants_devices(self) -> bool:
        """Whether it has claims, or requests extended resources such as example.com/gpu."""
        if self.claims or self.allocated or self.missing is not None:
            return True
        return any("/" in name for name in pod_requests(spec_of(self.pod)))


class Backlog:
    """The pods and claims of some objects that want devices.

    `claims` is read anew by each question: its owner replaces claims that get devices. `provided`
    maps extended resources to the names of classes.
    """

    def __init__(
        self,
        by_kind: Mapping[str, Sequence[JsonDict]],
        claims: Mapping[Key, JsonDict],
        provided: Mapping[str, str],
    ) -> None:
        self._by_kind = by_kind
        self._claims = claims
        self._provided = provided
        self._templates: dict[Key, JsonDict] = {
            full_key(item): item for item in by_kind.get("ResourceClaimTemplate", ())
        }
        self._groups: dict[Key, JsonDict] = {
            full_key(item): item for item in by_kind.get("PodGroup", ())
        }

    def pending(self, nodes: Sequence[str], *, every: bool = False) -> list[Pending]:
        """Return everything that waits for devices: pods in their order, then other claims.

        A DaemonSet has a pod for each of the nodes. With `every` pods that wait for anything else,
        or are being deleted, are in it too.
        """
        found: list[Pending] = []
        used: set[Key] = set()
        for pod in self.pods(nodes):
            one = self.of_pod(pod)
            if one is None and not every:
                continue
            one = one or self.without_devices(pod)
            used.update(full_key(claim) for claim in (*one.claims, *one.allocated))
            unplaced = not spec_of(pod).get("nodeName") and not is_finished(pod)
            if (every and unplaced) or _waits(pod, one):
                found.append(one)
        for name, claim in self._claims.items():
            if name not in used and not allocation_of(claim) and not is_deleting(claim):
                found.append(
                    Pending(kind="claim", namespace=name[0], name=name[1], claims=(claim,))
                )
        return found

    @staticmethod
    def without_devices(pod: JsonDict) -> Pending:
        """Return a pod without claims as a waiting one."""
        namespace, name = full_key(pod)
        return Pending(kind="pod", namespace=namespace, name=name, claims=(), pod=pod)

    def of_pod(self, pod: JsonDict) -> Pending | None:
        """Return the claims of a pod, whether it waits for them or not; None if it has none."""
        metadata = pod["metadata"]
        namespace = metadata.get("namespace") or DEFAULT_NAMESPACE
        if held := self._held(pod, namespace):
            return Pending(
                kind="pod",
                namespace=namespace,
                name=metadata["name"],
                claims=(),
                allocated=tuple(held),
                pod=pod,
            )
        claims: list[JsonDict] = []
        missing: Reason | None = None
        for item in claims_for_scheduler(pod):
            found = self.claim_of(item, namespace, self.owner_of_claim(item, pod, namespace))
            if isinstance(found, Reason):
                missing = missing or found
            elif found is not None:
                claims.append(found)
        bad = bad_quantity(pod)
        extended = None if bad else self._extended(pod, namespace)
        if extended is not None:
            claims.append(extended)
        if not claims and not missing:
            return None
        missing = missing or bad
        return Pending(
            kind="pod",
            namespace=namespace,
            name=metadata["name"],
            claims=tuple(claim for claim in claims if not allocation_of(claim)),
            allocated=tuple(claim for claim in claims if allocation_of(claim)),
            pod=pod,
            missing=missing,
        )

    def _held(self, pod: JsonDict, namespace: str) -> list[JsonDict]:
        """Return the claims of a pod that runs in a cluster if all of them have devices.

        A quick look, because most pods of a cluster run.
        """
        if not (spec_of(pod).get("nodeName") and _is_stored(pod)):
            return []
        names = claim_names(pod)
        claims = [self._claims.get((namespace, name)) or {} for name in names]
        whole = len(names) >= len(spec_of(pod).get("resourceClaims") or ())
        return claims if whole and all(allocation_of(claim) for claim in claims) else []

    def pods(self, nodes: Sequence[str]) -> list[JsonDict]:
        """Return the pods of the input, and those of its workloads."""
        pods = self._by_kind.get("Pod", ())
        stored = sorted((pod for pod in pods if _is_stored(pod)), key=_queued)
        written = [pod for pod in pods if not _is_stored(pod)]
        return [*stored, *written, *self._of_workloads(nodes)]

    def _of_workloads(self, nodes: Sequence[str]) -> Iterator[JsonDict]:
        workloads = [item for kind in sorted(KINDS) for item in self._by_kind.get(kind, ())]
        owner_of = {uid_of(item): _owner_uid(item) for item in workloads if uid_of(item)}
        busy: set[str] = set()
        for pod in self._by_kind.get("Pod", ()):
            uid = _owner_uid(pod)
            while uid and uid not in busy:
                busy.add(uid)
                uid = owner_of.get(uid, "")
        for workload in workloads:
            # A ReplicaSet's pods are its Deployment's.
            over = workload["kind"] == "Job" and job_end(workload) is not None
            if _owner_uid(workload) not in owner_of and uid_of(workload) not in busy and not over:
                yield from pods_of(workload, nodes)

    def owner_of_claim(self, entry: PodClaim, pod: JsonDict, namespace: str) -> str:
        """Return the owner of a claim from a template: the pod, or its PodGroup.

        KEP-5729: an entry that equals one of the group is the group's, one claim for all.
        """
        own = str(pod["metadata"]["name"])
        group = group_of(pod)
        item = self._groups.get((namespace, group)) if group else None
        return group if item is not None and is_shared(entry, item) else own

    def claim_of(self, entry: PodClaim, namespace: str, owner: str) -> JsonDict | Reason | None:
        """Return the claim of a pod's entry, an error, or None if it needs no claim."""
        if entry.made == "":
            return None
        named = entry.claim or entry.made
        if named:
            found = self._claims.get((namespace, named))
            return found or Reason(CLAIM_NOT_FOUND, (named,))
        template = self._templates.get((namespace, entry.template))
        if template is None:
            return Reason(TEMPLATE_NOT_FOUND, (entry.template,))
        spec = template["spec"]
        made: JsonDict = {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            # A cluster would add five random characters.
            "metadata": dict(metadata_of(spec))
            | {"name": f"{owner}-{entry.entry}", "namespace": namespace},
            "spec": spec["spec"],
        }
        stored = self._claims.get(full_key(made))
        return stored or self.exceeded(made) or made

    def exceeded(self, claim: JsonObject, beside: Iterable[JsonObject] = ()) -> Reason | None:
        """Return the ResourceQuota that prevents a claim, `beside` others that are not stored."""
        namespace = namespace_of(claim)
        every = [*self._claims.values(), *beside]
        for item in self._by_kind.get("ResourceQuota", ()):
            if full_key(item)[0] != namespace:
                continue
            spec = spec_of(item)
            asked = quota.usage(*CLAIMS, claim)
            hard = {name: parse_any(limit) for name, limit in (spec.get("hard") or {}).items()}
            stored = ((*CLAIMS, each) for each in every if namespace_of(each) == namespace)
            used = quota.total(spec, stored, [name for name in hard if asked.get(name)])
            for name, amount in used.items():
                if amount + asked[name] > hard[name]:
                    counts = (asked[name], amount, hard[name])
                    quota_name = item["metadata"]["name"]
                    return Reason(QUOTA_EXCEEDED, (quota_name, name, *map(str, counts)))
        return None

    def _extended(self, pod: JsonDict, namespace: str) -> JsonDict | None:
        """Return the claim that stands for a pod's extended resources (KEP-5004), if it has any."""
        made, mappings = synthetic_claim(pod, self._provided)
        if not mappings:
            return None
        named = extended_claim(pod).get("resourceClaimName")
        if named and (namespace, named) in self._claims:
            return self._claims[namespace, named]
        # A cluster would add five random characters.
        name = made["metadata"]["generateName"].removesuffix("-")
        annotations = made["metadata"]["annotations"]
        made["metadata"] = {"name": name, "namespace": namespace, "annotations": annotations}
        return self._claims.get(full_key(made), made)


def bad_quantity(pod: Mapping[str, Any]) -> Reason | None:
    """Return the invalid quantity of a pod's requests; None if all are valid."""
    try:
        pod_requests(spec_of(pod))
    except QuantityError as error:
        return Reason(BAD_QUANTITY, (error.text,))
    return None


def _waits(pod: JsonDict, claims: Pending) -> bool:
    """Return whether a pod with claims waits for devices, or for a node."""
    if is_finished(pod) or (_is_stored(pod) and is_deleting(pod)):
        return False
    runs = bool(spec_of(pod).get("nodeName")) and (_is_stored(pod) or not claims.wants_devices)
    return not runs or bool(claims.claims)


def _is_stored(obj: JsonDict) -> bool:
    """Return whether an object comes from a cluster: a server gave it a uid and a time."""
    return bool(uid_of(obj) and metadata_of(obj).get("creationTimestamp"))


def _owner_uid(obj: JsonDict) -> str:
    """Return the uid of what controls an object; empty if nothing does."""
    return str((controller_of(obj) or {}).get("uid") or "")


def _queued(pod: JsonDict) -> tuple[int, str, str, str]:
    """Return a sort key: the order of kube-scheduler's queue (PrioritySort), ties by name."""
    metadata = pod["metadata"]
    created = str(metadata["creationTimestamp"])
    return -int(spec_of(pod).get("priority") or 0), created, *full_key(pod)
