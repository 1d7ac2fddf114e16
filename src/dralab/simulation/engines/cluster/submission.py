"""Tasks as objects of a cluster: pods with claims, groups, priorities, gates of a queue."""

import copy
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from dralab.components.simulated import SimulatedCluster
from dralab.runtime.resources import CLAIM_TEMPLATES, NAMESPACES, POD_GROUPS, PRIORITY_CLASSES
from dralab.simulation.engines import objects
from dralab.simulation.engines.cluster.containers import annotation
from dralab.simulation.engines.cluster.nodes import create_if_missing
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario.manifests import ALIBABA, RUNS, STARTS
from dralab.simulation.workloads.openb import PodRequest
from dralab.values.json_types import JsonDict

SCHEDULER: Final = "default-scheduler"
GATE: Final = "simulation.dralab.dev/quota"


class TaskObjects:
    """Creates the objects of tasks, and first the objects that they refer to.

    `parts`: claims may ask for parts of a GPU.
    """

    def __init__(
        self,
        cluster: SimulatedCluster,
        gangs: Mapping[tuple[str, str], int],
        *,
        parts: bool = True,
    ) -> None:
        self.cluster = cluster
        self.gangs = gangs
        self.parts = parts
        self._there: set[tuple[str, str, str]] = set()

    def pod(self, pod: Pod, name: str, *, gated: bool) -> JsonDict:
        """Return the pod of a task; ApiError if a referenced object cannot be created."""
        self.namespace(pod.namespace)
        body = self._given(pod) if pod.body is not None else self._made(pod)
        metadata, spec = body["metadata"], body["spec"]
        metadata |= {"name": name, "namespace": pod.namespace}
        metadata.pop("resourceVersion", None)
        metadata.pop("uid", None)
        if pod.duration is not None:
            metadata.setdefault("annotations", {})[RUNS] = annotation(pod.duration)
        if pod.starting:
            metadata.setdefault("annotations", {})[STARTS] = annotation(pod.starting)
        if pod.gang:
            self._gang(pod)
            spec.setdefault("schedulingGroup", {"podGroupName": pod.gang})
        if gated:
            spec["schedulingGates"] = [*(spec.get("schedulingGates") or ()), {"name": GATE}]
        return body

    def namespace(self, name: str) -> None:
        """Create a namespace if it is missing."""
        if self._first("Namespace", "", name):
            create_if_missing(self.cluster, NAMESPACES, {"metadata": {"name": name}})

    def _given(self, pod: Pod) -> JsonDict:
        """Return the pod as written; GPUs in annotations become a claim."""
        body: JsonDict = copy.deepcopy({k: v for k, v in (pod.body or {}).items() if k != "status"})
        metadata = body.setdefault("metadata", {})
        spec = body.setdefault("spec", {})
        spec.setdefault("restartPolicy", "Never")
        # The scheduler it names does not take part: one scheduler decides for all.
        spec["schedulerName"] = SCHEDULER
        if pod.priority and "priorityClassName" not in spec:
            self._prioritize(pod, spec)
        if pod.duration is not None:
            # A simulated task is over when it is over, whatever its manifest says of restarts.
            spec["restartPolicy"] = "Never"
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            container.setdefault("image", "simulated")
        annotations = metadata.get("annotations") or {}
        metadata["annotations"] = {str(k): str(v) for k, v in annotations.items()}
        if f"{ALIBABA}gpu-count" in annotations and pod.request.gpus:
            self._claim(pod, spec)
        return body

    def _made(self, pod: Pod) -> JsonDict:
        if not pod.request.gpus:
            body = objects.pod(pod, SCHEDULER)
            self._prioritize(pod, body["spec"])
            return body
        template = self._template(pod.namespace, pod.request)
        body = objects.pod(pod, SCHEDULER, claim=template)
        body["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimTemplateName": template}]
        self._prioritize(pod, body["spec"])
        return body

    def _prioritize(self, pod: Pod, spec: JsonDict) -> None:
        """Give a pod its priority by a class, since servers reject numbers."""
        if not pod.priority:
            return
        if self._first("PriorityClass", "", str(pod.priority)):
            priority = objects.priority_class(pod.priority)
            create_if_missing(self.cluster, PRIORITY_CLASSES, priority)
        spec["priorityClassName"] = objects.priority_class_name(pod.priority)
        spec.pop("priority", None)

    def _claim(self, pod: Pod, spec: JsonDict) -> None:
        template = self._template(pod.namespace, pod.request)
        claims = [*(spec.get("resourceClaims") or ())]
        spec["resourceClaims"] = [*claims, {"name": "gpus", "resourceClaimTemplateName": template}]
        resources = spec["containers"][0].setdefault("resources", {})
        resources["claims"] = [*(resources.get("claims") or ()), {"name": "gpus"}]

    def _template(self, namespace: str, request: PodRequest) -> str:
        models = "".join(c if c.isalnum() else "-" for c in request.models.lower()).strip("-")
        name = f"gpus-{request.gpus}-{request.milli}" + (f"-{models}" if models else "")
        if self._first("ResourceClaimTemplate", namespace, name):
            claim = objects.gpu_claim_of(name, request, namespace, shared=self.parts)
            body = {
                "metadata": {"name": name, "namespace": namespace},
                "spec": {"spec": claim["spec"]},
            }
            self.cluster.client.create(CLAIM_TEMPLATES, body, namespace)
        return name

    def _gang(self, pod: Pod) -> None:
        if self._first("PodGroup", pod.namespace, pod.gang):
            least = self.gangs[pod.namespace, pod.gang]
            spec: JsonDict = {"schedulingPolicy": {"gang": {"minCount": least}}}
            if pod.topology:
                spec["schedulingConstraints"] = {"topology": [{"key": pod.topology}]}
            body = {"metadata": {"name": pod.gang, "namespace": pod.namespace}, "spec": spec}
            create_if_missing(self.cluster, POD_GROUPS, body)

    def _first(self, kind: str, namespace: str, name: str) -> bool:
        key = (kind, namespace, name)
        if key in self._there:
            return False
        self._there.add(key)
        return True


def gangs_of(pods: Any) -> Counter[tuple[str, str]]:
    """Return the size of each gang."""
    return Counter((pod.namespace, pod.gang) for pod in pods if pod.gang)
