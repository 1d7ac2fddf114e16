"""Objects as a cluster would have completed them: uids, priorities, pods of workloads, claims.

Objects of a cluster are complete and stay as they are. Objects written by hand lack what
the API server and its controllers add; here they get it, with names that tell where it comes from.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Final

from dralab.allocation.problem import AllocationFeatures
from dralab.api.resource.features import ALL_COUNTS_FULL, CHANGES
from dralab.objects.claims import PodClaim, is_shared, pod_claims
from dralab.objects.extended_resources import classes_by_resource
from dralab.objects.metadata import (
    DEFAULT_NAMESPACE,
    NamespacedName,
    key_of,
    labels_of,
    metadata_of,
    owner_reference,
    owner_uids,
    spec_of,
    status_of,
    uid_of,
)
from dralab.objects.nodes import PODS, offered, release_of
from dralab.objects.pod_groups import COMPOSITE, POD_GROUP, PodGroups
from dralab.objects.pods import is_finished
from dralab.objects.requests import pod_requests
from dralab.objects.slices import devices_of
from dralab.objects.workloads import group_spec
from dralab.scheduling.backlog import Backlog, Key, bad_quantity
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import PodInfo, pod_info
from dralab.scheduling.reasons import Reason
from dralab.scheduling.volumes import Volumes
from dralab.values import labels
from dralab.values.json_types import JsonDict, JsonObject

CLUSTER_WIDE: Final = frozenset(
    {
        "DeviceClass",
        "DeviceTaintRule",
        "Namespace",
        "Node",
        "PersistentVolume",
        "PriorityClass",
        "ResourceSlice",
        "StorageClass",
    }
)
# Kubernetes has these two from the start.
PRIORITIES: Final = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
# What a node offers that does not say: more than all pods together ask for.
PLENTY: Final = 1 << 50


def features_of(nodes: Iterable[JsonObject]) -> AllocationFeatures:
    """Return the allocation features of a cluster's release, by its newest kubelet.

    No kubelet is newer than its API server. Gates are taken as on: a cluster does not tell them.
    """
    first = tuple(map(int, CHANGES[ALL_COUNTS_FULL].split(".")))
    newest = max(map(release_of, nodes), default=(0, 0))
    return AllocationFeatures(all_counts_full=newest >= first)


class ClusterObjects:
    """Objects of a cluster by kind, complete, in the order in which they were given.

    Without nodes, those that other objects name are taken to be there, unless it is said that
    `all_nodes` are given.
    """

    def __init__(self, objects: Iterable[JsonObject], *, all_nodes: bool = False) -> None:
        self.by_kind: dict[str, list[JsonDict]] = {}
        for item in objects:
            kind = str(item.get("kind"))
            self.by_kind.setdefault(kind, []).append(_identified(kind, item))
        self.priorities = PRIORITIES | {
            item["metadata"]["name"]: item.get("value") or 0 for item in self.of("PriorityClass")
        }
        self.usual_priority = next(
            (
                item.get("value") or 0
                for item in self.of("PriorityClass")
                if item.get("globalDefault")
            ),
            0,
        )
        self.claims: dict[Key, JsonDict] = {key_of(item): item for item in self.of("ResourceClaim")}
        for item in self.of("Job"):
            if (spec := group_spec(item)) is not None:
                made: JsonDict = {"metadata": {**item["metadata"], "uid": ""}, "spec": spec}
                self.by_kind.setdefault(POD_GROUP, []).append(_identified(POD_GROUP, made))
        self.groups = PodGroups()
        for kind in (POD_GROUP, COMPOSITE):
            for item in self.of(kind):
                self.groups.put(kind, item)
        self.nodes = list(self.of("Node")) if all_nodes else self._nodes()
        provided = classes_by_resource(self.of("DeviceClass"))
        self._backlog = Backlog(self.by_kind, self.claims, provided)
        names = [node["metadata"]["name"] for node in self.nodes]
        pods = self._backlog.pods(names)
        self.pods = [self.pod(item) for item in pods if _counts(item)]

    def of(self, kind: str) -> Sequence[JsonDict]:
        """Return the objects of a kind."""
        return self.by_kind.get(kind, ())

    def named(self, kind: str, key: NamespacedName) -> JsonDict | None:
        """Return the object of a kind and name; None if there is none."""
        return next((item for item in self.of(kind) if key_of(item) == key), None)

    def pod(self, given: JsonObject) -> JsonDict:
        """Return a pod with uid, priority and claims; missing claims are created."""
        pod = _identified("Pod", given)
        spec = dict(pod["spec"])
        if spec.get("priority") is None:
            name = spec.get("priorityClassName")
            spec["priority"] = self.priorities.get(name, 0) if name else self.usual_priority
        pod = {**pod, "spec": spec}
        made = [
            {"name": item.entry, "resourceClaimName": name}
            for item in pod_claims(pod)
            if item.template and item.made is None and (name := self._made(pod, item))
        ]
        if made:
            status = status_of(pod)
            known = status.get("resourceClaimStatuses") or ()
            pod["status"] = {**status, "resourceClaimStatuses": [*known, *made]}
        return pod

    def info(self, pod: JsonDict) -> PodInfo:
        """Read a pod as the scheduler does; volumes count where the input has their claims."""
        found = pod_info(pod, self._select_namespaces)
        if found.volume_claims and not self.of("PersistentVolumeClaim"):
            return replace(found, volume_claims=())
        return found

    def volumes(self, table: NodeTable) -> Volumes:
        """Return the volumes and their claims, for the nodes of a table."""
        return Volumes(
            table,
            FixedObjects(self.of("PersistentVolumeClaim")),
            FixedObjects(self.of("PersistentVolume")),
            FixedObjects(self.of("StorageClass")),
        )

    def _select_namespaces(self, selector: Any) -> list[str]:
        chosen = labels.from_mapping(selector)
        return [
            item["metadata"]["name"]
            for item in self.of("Namespace")
            if chosen.accepts(labels_of(item))
        ]

    def not_made(self, pod: PodInfo, item: PodClaim) -> Reason | None:
        """Return what prevents creating a claim for an entry of a pod; None if nothing does."""
        namespace = pod.key.namespace
        owner = self._backlog.owner_of_claim(item, pod.obj, namespace)
        found = self._backlog.claim_of(item, namespace, owner)
        return found if isinstance(found, Reason) else None

    def exceeded(self, claim: JsonObject, beside: Iterable[JsonObject]) -> Reason | None:
        """Return the quota that prevents a claim, counting claims that were created before."""
        return self._backlog.exceeded(claim, beside)

    def _made(self, pod: JsonDict, item: PodClaim) -> str:
        """Return the name of an entry's claim; empty if its template is missing."""
        namespace = key_of(pod).namespace
        name = self._backlog.owner_of_claim(item, pod, namespace)
        found = self._backlog.claim_of(item, namespace, name)
        if found is None or isinstance(found, Reason):
            return ""
        group = self.groups.get(NamespacedName(namespace, name))
        shared = group is not None and is_shared(item, group)
        owner, kind = (group, "PodGroup") if group is not None and shared else (pod, "Pod")
        found = _identified("ResourceClaim", found)
        if uid_of(owner) not in owner_uids(found):
            reference = owner_reference(owner, api_version="v1", kind=kind)
            found["metadata"]["ownerReferences"] = [reference]
        self.claims[key_of(found)] = found
        return str(found["metadata"]["name"])

    def _nodes(self) -> list[JsonDict]:
        given = self.of("Node")
        if given:
            return list(given)
        names = {spec_of(item).get("nodeName") for item in self.of("ResourceSlice")}
        names |= {
            device.get("nodeName")
            for item in self.of("ResourceSlice")
            for device in devices_of(item)
        }
        names |= {spec_of(item).get("nodeName") for item in self.of("Pod")}
        found = sorted(name for name in names if name)
        if not found and self.of("ResourceSlice"):
            found = ["any-node"]  # only devices of the network: any node would do
        return [
            {
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
            }
            for name in found
        ]

    def with_room(self, node: JsonObject, provided: Iterable[str] = ()) -> JsonDict:
        """Return a node with amounts: unlimited ones if it states none."""
        offer = offered(node)
        if PODS in offer:
            return dict(node)
        lacking = {PODS: PLENTY}
        if not offer:
            lacking |= {"cpu": PLENTY, "memory": PLENTY}
            lacking |= {name: PLENTY for name in self._requested() if name not in provided}
        more = {name: str(amount) for name, amount in lacking.items()}
        return {**node, "status": {**status_of(node), "allocatable": {**offer, **more}}}

    def _requested(self) -> list[str]:
        found: Counter[str] = Counter()
        for pod in self.pods:
            found.update(pod_requests(spec_of(pod)))
        return sorted(found)


class FixedObjects:
    """Objects that do not change, looked up as in a cache."""

    def __init__(self, objects: Iterable[JsonDict]) -> None:
        self._objects = {key_of(item): item for item in objects}
        self._indexes: dict[str, dict[str, list[JsonDict]]] = {}

    def get(self, key: NamespacedName) -> JsonDict | None:
        """Return an object, or None if there is none."""
        return self._objects.get(key)

    def index(self, name: str, values: Callable[[JsonDict], Iterable[str]]) -> None:
        """Make an index."""
        found: dict[str, list[JsonDict]] = {}
        for item in self._objects.values():
            for value in values(item):
                found.setdefault(value, []).append(item)
        self._indexes[name] = found

    def find(self, index: str, value: str) -> list[JsonDict]:
        """Return the objects that an index has under a value."""
        return self._indexes[index].get(value, [])


def _identified(kind: str, item: JsonObject) -> JsonDict:
    metadata = dict(metadata_of(item))
    if kind not in CLUSTER_WIDE:
        metadata["namespace"] = metadata.get("namespace") or DEFAULT_NAMESPACE
    if not metadata.get("uid"):
        where = metadata.get("namespace")
        name = f"{where}/{metadata['name']}" if where else metadata["name"]
        metadata["uid"] = f"{kind.lower()}/{name}"
    return {**item, "metadata": metadata}


def _counts(pod: JsonObject) -> bool:
    """Return whether a pod counts: not if its requests are invalid."""
    return not is_finished(pod) and bad_quantity(pod) is None
