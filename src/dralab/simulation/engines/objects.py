"""Nodes and pods of a scenario as objects that any scheduler understands."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from dralab.kernel.clock import rfc3339
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario.fleet import taint_of
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode, PodRequest
from dralab.values.json_types import JsonDict

GPU: Final = "nvidia.com/gpu"
MODEL_LABEL: Final = "nvidia.com/gpu.product"
# A part of one GPU is a consumable capacity `share` of a device that several claims may have.
GPU_DRIVER: Final = "gpu.simulation.dralab.dev"
GPU_CLASS: Final = "gpu"
GPU_PREFIX: Final = "gpu-"
# GPUs that a pod has on a node come again and again.
MOST_NAMES: Final = 1 << 12
UNREACHABLE: Final = "node.kubernetes.io/unreachable"


def node(spec: GpuNode, now: int, given: Mapping[str, Any] | None = None) -> JsonDict:
    """Return a node that is ready, with what it can allocate; `given` is how it was written."""
    labels = dict(label.split("=", 1) for label in sorted(spec.labels))
    labels["kubernetes.io/hostname"] = spec.name
    amounts = {"cpu": f"{spec.cpu}m", "memory": str(spec.memory), "pods": str(spec.pods)}
    if spec.gpus:
        amounts[GPU] = str(spec.gpus)
        labels[MODEL_LABEL] = spec.model
    written = (given or {}).get("status") or {}
    amounts |= written.get("allocatable") or written.get("capacity") or {}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels},
        "spec": {"taints": [taint_of(text) for text in spec.taints]},
        "status": {
            "capacity": {**amounts, **(written.get("capacity") or {})},
            "allocatable": dict(amounts),
            "conditions": [condition_of(now, up=True)],
        },
    }


def condition_of(now: int, *, up: bool) -> JsonDict:
    """Return the conditions of a node, or those of one that stopped reporting."""
    told = ("True", "KubeletReady", "simulated")
    silent = ("Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.")
    status, reason, message = told if up else silent
    return {
        "type": "Ready",
        "status": status,
        "reason": reason,
        "message": message,
        "lastHeartbeatTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
    }


def taints_of_a_lost_node(now: int) -> list[JsonDict]:
    """Return the taints of a node that stopped reporting."""
    effects = ("NoSchedule", "NoExecute")
    return [{"key": UNREACHABLE, "effect": effect, "timeAdded": rfc3339(now)} for effect in effects]


def priority_class(priority: int) -> JsonDict:
    """Return the class of pods of a priority: admission takes the number from there alone."""
    name = priority_class_name(priority)
    return {"metadata": {"name": name}, "value": priority, "description": "of a scenario's pods"}


def priority_class_name(priority: int) -> str:
    """Return the name of the class of pods of a priority."""
    return f"priority-{priority}" if priority >= 0 else f"priority-minus-{-priority}"


def pod(spec: Pod, scheduler: str, *, claim: str = "") -> JsonDict:
    """Return a pod that asks for what it needs.

    With a `claim` its GPUs are devices; otherwise they are counted, and parts of one count as one.
    """
    requests = {"cpu": f"{spec.request.cpu}m"} if spec.request.cpu else {}
    if spec.memory:
        requests["memory"] = str(spec.memory)
    limits = {GPU: str(spec.request.gpus)} if spec.request.gpus and not claim else {}
    resources: JsonDict = {"requests": requests | limits, "limits": limits}
    body: JsonDict = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "containers": [{"name": "main", "image": "simulated", "resources": resources}],
    }
    if claim:
        resources["claims"] = [{"name": "gpus"}]
        body["resourceClaims"] = [{"name": "gpus", "resourceClaimName": claim}]
    selector = dict(label.split("=", 1) for label in spec.request.labels.split(",") if label)
    models = [] if claim else list(filter(None, spec.request.models.split("|")))
    if len(models) == 1:
        selector[MODEL_LABEL] = models[0]
    elif models:
        rule = {"key": MODEL_LABEL, "operator": "In", "values": models}
        terms = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
        wanted = {"requiredDuringSchedulingIgnoredDuringExecution": terms}
        body["affinity"] = {"nodeAffinity": wanted}
    if selector:
        body["nodeSelector"] = selector
    if spec.priority:
        body["priorityClassName"] = priority_class_name(spec.priority)
    metadata = {"name": spec.name, "namespace": spec.namespace}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": body}


def whole_gpus(spec: Pod) -> int:
    """Return how many GPUs a pod holds when GPUs are only counted."""
    return -(-spec.request.demand // WHOLE_GPU) if spec.request.gpus else 0


def status(phase: str, now: int, reason: str = "", message: str = "") -> Mapping[str, Any]:
    """Return what the kubelet sets in a pod's status."""
    found: JsonDict = {"phase": phase}
    if reason:
        found |= {"reason": reason, "message": message}
    if phase == "Running":
        found["startTime"] = rfc3339(now)
    if phase in {"Running", "Succeeded"}:
        state: JsonDict = {"running": {"startedAt": rfc3339(now)}}
        if phase == "Succeeded":
            state = {
                "terminated": {"exitCode": 0, "reason": "Completed", "finishedAt": rfc3339(now)}
            }
        found["containerStatuses"] = [
            {
                "name": "main",
                "image": "simulated",
                "imageID": "simulated",
                "ready": phase == "Running",
                "restartCount": 0,
                "state": state,
            }
        ]
    return found


def ready_conditions(status: Mapping[str, Any], now: int) -> list[JsonDict]:
    """Return the conditions of a pod that runs from now on: controllers wait for these."""
    names = ("Initialized", "ContainersReady", "Ready")
    kept = [one for one in status.get("conditions") or () if one.get("type") not in names]
    ready = {"status": "True", "lastTransitionTime": rfc3339(now)}
    return [*kept, *({"type": name, **ready} for name in names)]


def gpu_class() -> JsonDict:
    """Return the class of all simulated GPUs."""
    expression = f'device.driver == "{GPU_DRIVER}"'
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": GPU_CLASS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def gpu_devices(count: int, model: str, *, shared: bool = True) -> list[JsonDict]:
    """Return GPUs of a model as devices; `shared`: parts of one can be allocated."""
    policy = {"default": str(WHOLE_GPU), "validRange": {"min": "1", "max": str(WHOLE_GPU)}}
    sharing = {
        "capacity": {"share": {"value": str(WHOLE_GPU), "requestPolicy": policy}},
        "allowMultipleAllocations": True,
    }
    return [
        {
            "name": f"{GPU_PREFIX}{index}",
            "attributes": {"model": {"string": model}},
            **(sharing if shared else {}),
        }
        for index in range(count)
    ]


def gpu_slice_of(node: GpuNode, *, shared: bool = True) -> JsonDict:
    """Return the GPUs of a node as one ResourceSlice; `shared`: parts can be allocated."""
    pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
    content = gpu_devices(node.gpus, node.model, shared=shared)
    spec = {"driver": GPU_DRIVER, "nodeName": node.name, "pool": pool, "devices": content}
    return {"metadata": {"name": f"{node.name}-gpus"}, "spec": spec}


def gpu_claim_of(
    name: str, request: PodRequest, namespace: str = "default", *, shared: bool = True
) -> JsonDict:
    """Return the claim for a pod's request."""
    exactly: JsonDict = {
        "deviceClassName": GPU_CLASS,
        "allocationMode": "ExactCount",
        "count": request.gpus,
    }
    if shared:
        exactly["capacity"] = {"requests": {"share": str(request.milli)}}
    if request.models:
        listed = ", ".join(f'"{model}"' for model in request.models.split("|"))
        expression = f'device.attributes["{GPU_DRIVER}"].model in [{listed}]'
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }


@lru_cache(maxsize=MOST_NAMES)
def gpu_names(numbers: tuple[int, ...]) -> tuple[str, ...]:
    """Return the names of GPUs of a node.

    >>> gpu_names((0, 3))
    ('gpu-0', 'gpu-3')
    """
    return tuple([f"{GPU_PREFIX}{number}" for number in numbers])
