"""Nodes and pods of a scenario as objects that any scheduler understands."""

from collections.abc import Mapping
from typing import Any, Final

from dralab.kernel.clock import rfc3339
from dralab.simulation.pods.model import Pod
from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode

GPU: Final = "nvidia.com/gpu"
MODEL_LABEL: Final = "nvidia.com/gpu.product"
Object = dict[str, Any]


def node(spec: GpuNode, now: int) -> Object:
    """Return a node that is ready, with what it can allocate."""
    labels = dict(label.split("=", 1) for label in sorted(spec.labels))
    labels["kubernetes.io/hostname"] = spec.name
    amounts = {"cpu": f"{spec.cpu}m", "memory": str(spec.memory), "pods": str(spec.pods)}
    if spec.gpus:
        amounts[GPU] = str(spec.gpus)
        labels[MODEL_LABEL] = spec.model
    condition = {
        "type": "Ready",
        "status": "True",
        "reason": "KubeletReady",
        "message": "simulated",
        "lastHeartbeatTime": rfc3339(now),
        "lastTransitionTime": rfc3339(now),
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": spec.name, "labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [condition]},
    }


def pod(spec: Pod, scheduler: str) -> Object:
    """Return a pod that asks for what it needs; GPUs are counted, parts of one count as one."""
    requests = {"cpu": f"{spec.shape.cpu}m"} if spec.shape.cpu else {}
    if spec.memory:
        requests["memory"] = str(spec.memory)
    limits = {GPU: str(spec.shape.gpus)} if spec.shape.gpus else {}
    selector = dict(label.split("=", 1) for label in spec.shape.labels.split(",") if label)
    if spec.shape.models and "|" not in spec.shape.models:
        selector[MODEL_LABEL] = spec.shape.models
    body: Object = {
        "schedulerName": scheduler,
        "restartPolicy": "Never",
        "containers": [
            {
                "name": "main",
                "image": "simulated",
                "resources": {"requests": requests | limits, "limits": limits},
            }
        ],
    }
    if selector:
        body["nodeSelector"] = selector
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": spec.name, "namespace": spec.namespace},
        "spec": body,
    }


def whole_gpus(spec: Pod) -> int:
    """Return how many GPUs a pod holds when GPUs are only counted."""
    return -(-spec.shape.demand // WHOLE_GPU) if spec.shape.gpus else 0


def status(phase: str, now: int, reason: str = "", message: str = "") -> Mapping[str, Any]:
    """Return what the kubelet sets in a pod's status."""
    found: Object = {"phase": phase}
    if reason:
        found |= {"reason": reason, "message": message}
    if phase == "Running":
        found["startTime"] = rfc3339(now)
    if phase in {"Running", "Succeeded"}:
        state: Object = {"running": {"startedAt": rfc3339(now)}}
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
