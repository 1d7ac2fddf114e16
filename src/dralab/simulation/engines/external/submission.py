"""Submits pods as written or by their requests, and the objects that they refer to.

It also does the work of controllers: creates missing namespaces and claims from templates, and
deallocates claims that are no longer used.
"""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.storage import Key
from dralab.cluster import Cluster
from dralab.objects.claims import pod_claims
from dralab.objects.metadata import metadata_of, spec_of, status_of
from dralab.runtime.resources import (
    CLAIM_TEMPLATES,
    CLAIMS,
    NAMESPACES,
    PODS,
    PRIORITY_CLASSES,
    resource_of,
)
from dralab.scenarios.errors import InputError
from dralab.simulation.engines import objects
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario.manifests import QUEUE_LABEL, RUNS
from dralab.values.json_types import JsonDict

CLAIMS_KEPT_AT: Final = "resource.k8s.io/resourceclaims"
# Those that follow others are created after them; whose work is done otherwise, not at all.
FIRST: Final = ("CustomResourceDefinition", "Namespace", "PriorityClass", "DeviceClass")
PLAYED: Final = frozenset({("", "Pod"), ("batch", "Job"), ("", "Node"), ("", "List")})
JOB: Final = ("batch", "Job")
# Fields of specs; Volcano's Jobs have tasks.
TEMPLATES: Final = frozenset({"template", "jobTemplate", "tasks"})


@dataclass(frozen=True, slots=True, kw_only=True)
class PodOptions:
    """How pods become objects.

    `claims`: GPUs are devices, and pods bring claims for them; otherwise GPUs are counted.
    `overcommit`: pods may be bound where there is no room, otherwise the kubelet refuses them.
    `jobs`: a controller makes the pods of Jobs; otherwise they are submitted in its place.
    """

    scheduler_name: str = "default-scheduler"
    claims: bool = False
    overcommit: bool = False
    jobs: bool = False


class Submission:
    """Creates objects; the store's lock is held."""

    def __init__(self, cluster: Cluster, pod_options: PodOptions, *, shares: bool) -> None:
        self.cluster = cluster
        self.pod_options = pod_options
        self.shares = shares

    def bring(self, given: Sequence[Mapping[str, Any]]) -> None:
        """Create objects as they were written; InputError if the server refuses one."""
        for body in sorted(given, key=lambda body: body.get("kind") not in FIRST):
            kind = group_of(body), str(body.get("kind"))
            if kind in PLAYED and not (kind == JOB and self.pod_options.jobs):
                if kind == JOB:
                    _refuse_if_held(body)
                continue
            made: JsonDict = copy.deepcopy(dict(body))
            if kind == JOB:
                _pass_on_run_time(made)
            metadata = made.setdefault("metadata", {})
            metadata.pop("resourceVersion", None)
            metadata.pop("uid", None)
            try:
                resource = resource_of(self.cluster.server.resources.kinds, made)
                namespace = (metadata.get("namespace") or "default") if resource.namespaced else ""
                self.namespace(namespace)
                self.cluster.client.create(resource, made, namespace)
            except ApiError as error:
                title = f"{made.get('kind')} {metadata.get('name')}"
                raise InputError("workload", str(error), where=title) from None

    def namespace(self, name: str) -> None:
        """Create a namespace if it is missing."""
        if name and self.cluster.server.store.get(Key("namespaces", "", name)) is None:
            self.cluster.client.create(NAMESPACES, {"metadata": {"name": name}})

    def pod(self, pod: Pod) -> tuple[str, list[str]]:
        """Create a pod and its own claims; return its uid and the claims' names."""
        self.namespace(pod.namespace)
        body = self._made(pod) if pod.body is None else self._given(pod)
        try:
            uid = self.cluster.client.create(PODS, body, pod.namespace)["metadata"]["uid"]
        except ApiError as error:
            raise InputError("workload", str(error), where=f"Pod {pod.key}") from None
        made = {
            item.entry: self._from_template(pod, uid, item.entry, item.template)
            for item in pod_claims(body)
            if item.template
        }
        if made:
            status = [{"name": k, "resourceClaimName": v} for k, v in sorted(made.items())]
            patch = {"status": {"resourceClaimStatuses": status}}
            self.cluster.client.patch(PODS, pod.name, patch, pod.namespace, subresource="status")
        if pod.body is None and self.pod_options.claims and pod.request.gpus:
            return uid, [_gpus(pod)]
        return uid, sorted(made.values())

    def _made(self, pod: Pod) -> JsonDict:
        claim = ""
        if self.pod_options.claims and pod.request.gpus:
            claim = _gpus(pod)
            wanted = objects.gpu_claim_of(claim, pod.request, pod.namespace, shared=self.shares)
            wanted["metadata"].pop("uid", None)
            self.cluster.client.create(CLAIMS, wanted, pod.namespace)
        return objects.pod(pod, pod.scheduler or self.pod_options.scheduler_name, claim=claim)

    def _given(self, pod: Pod) -> JsonDict:
        body: JsonDict = copy.deepcopy({k: v for k, v in (pod.body or {}).items() if k != "status"})
        metadata, spec = body.setdefault("metadata", {}), body.setdefault("spec", {})
        metadata |= {"name": pod.name, "namespace": pod.namespace}
        metadata.pop("resourceVersion", None)
        metadata.pop("uid", None)
        if annotations := metadata.get("annotations"):
            metadata["annotations"] = {str(k): str(v) for k, v in annotations.items()}
        spec["restartPolicy"] = "Never"  # it is over when it is over
        spec["schedulerName"] = pod.scheduler or self.pod_options.scheduler_name
        for container in spec.get("containers") or ():
            container.setdefault("image", "simulated")
        if pod.priority and not spec.get("priorityClassName"):
            spec["priorityClassName"] = objects.priority_class_name(pod.priority)
        spec.pop("priority", None)  # admission looks it up
        return body

    def _from_template(self, pod: Pod, uid: str, entry: str, template: str) -> str:
        try:
            found = self.cluster.client.get(CLAIM_TEMPLATES, template, pod.namespace)
        except ApiError as error:
            raise InputError("workload", str(error), where=f"Pod {pod.key}") from None
        name = f"{pod.name}-{entry}"
        described = copy.deepcopy(dict(found["spec"]))
        # Schedulers look at the owner: a claim of that name may be another pod's.
        owner = {"apiVersion": "v1", "kind": "Pod", "name": pod.name, "uid": uid}
        metadata = {
            **metadata_of(described),
            "name": name,
            "namespace": pod.namespace,
            "ownerReferences": [owner | {"controller": True, "blockOwnerDeletion": True}],
        }
        body = {"metadata": metadata, "spec": described["spec"]}
        self.cluster.client.create(CLAIMS, body, pod.namespace)
        return name

    def priorities(self, pods: Sequence[Pod]) -> None:
        """Create a class for every priority without a class in the manifests."""
        known = self.cluster.client.list(PRIORITY_CLASSES).items
        names = {item["metadata"]["name"] for item in known}
        for priority in sorted({pod.priority for pod in pods} - {0}):
            if objects.priority_class_name(priority) not in names:
                self.cluster.client.create(PRIORITY_CLASSES, objects.priority_class(priority))

    def release(self, pod: Pod, own: Sequence[str]) -> None:
        """Release a finished pod's claims; its own claims are deleted."""
        store = self.cluster.server.store
        for item in pod_claims(pod.body or {}):
            if item.claim:
                self._forget(pod, item.claim)
        for name in own:
            where = Key(CLAIMS_KEPT_AT, pod.namespace, name)
            if (stored := store.get(where)) is not None:
                if stored.value.get("status"):
                    # Schedulers look at claims that lose their devices, not at those that go.
                    store.update(where, {**stored.value, "status": {}})
                store.delete(where)

    def _forget(self, pod: Pod, name: str) -> None:
        """Remove a pod from a shared claim; the last one releases the devices."""
        store, where = self.cluster.server.store, Key(CLAIMS_KEPT_AT, pod.namespace, name)
        stored = store.get(where)
        if stored is None:
            return
        status = status_of(stored.value)
        users = status.get("reservedFor") or []
        left = [user for user in users if user.get("name") != pod.name]
        if left != users:
            store.update(
                where, {**stored.value, "status": {**status, "reservedFor": left} if left else {}}
            )


def group_of(body: Mapping[str, Any]) -> str:
    """Return the API group of an object; empty for those of core/v1."""
    return str(body.get("apiVersion", "")).rpartition("/")[0]


def makes_pods(body: Mapping[str, Any]) -> bool:
    """Whether an object has a template that a controller makes pods of."""
    return not TEMPLATES.isdisjoint(spec_of(body))


def _refuse_if_held(job: Mapping[str, Any]) -> None:
    """Refuse a suspended or queued Job: as plain pods it would not wait for admission."""
    metadata = metadata_of(job)
    held = "spec.suspend is true" if spec_of(job).get("suspend") is True else ""
    if QUEUE_LABEL in (metadata.get("labels") or {}):
        held = f"its label {QUEUE_LABEL} asks for a queue"
    if held:
        raise InputError(
            "workload",
            f"{held}, and without a job controller Jobs are played as pods at once: "
            "set external.controllers to [job-controller], or to external where a program has one",
            where=f"Job {metadata.get('name')}",
        )


def _pass_on_run_time(job: JsonDict) -> None:
    """Copy a Job's run time to its pods."""
    template = job.setdefault("spec", {}).setdefault("template", {})
    inner = template.setdefault("metadata", {})
    own = (job.get("metadata") or {}).get("annotations") or {}
    times = {key: value for key, value in own.items() if key == RUNS}
    if times or inner.get("annotations"):
        inner["annotations"] = {**times, **(inner.get("annotations") or {})}


def _gpus(pod: Pod) -> str:
    return f"{pod.name}-gpus"
