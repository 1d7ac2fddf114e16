"""GPUs as devices, and pods' requests for them as claims (resource.k8s.io/v1).

A part of one GPU is a consumable capacity `share` of a device that several claims may have.
"""

from typing import Final

from dralab.simulation.workloads.openb import WHOLE_GPU, GpuNode, PodRequest
from dralab.values.json_types import JsonDict

DRIVER: Final = "gpu.simulation.dralab.dev"
CLASS: Final = "gpu"
PREFIX: Final = "gpu-"


def device_class() -> JsonDict:
    """Return the class of all simulated GPUs."""
    expression = f'device.driver == "{DRIVER}"'
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": CLASS},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def devices(count: int, model: str, *, shared: bool = True) -> list[JsonDict]:
    """Return so many GPUs of a model as devices; `shared`: parts of one can be had."""
    policy = {"default": str(WHOLE_GPU), "validRange": {"min": "1", "max": str(WHOLE_GPU)}}
    sharing = {
        "capacity": {"share": {"value": str(WHOLE_GPU), "requestPolicy": policy}},
        "allowMultipleAllocations": True,
    }
    return [
        {
            "name": f"{PREFIX}{index}",
            "attributes": {"model": {"string": model}},
            **(sharing if shared else {}),
        }
        for index in range(count)
    ]


def slice_of(node: GpuNode, *, shared: bool = True) -> JsonDict:
    """Return the GPUs of a node as its one ResourceSlice; `shared`: parts of one can be had."""
    pool = {"name": node.name, "generation": 1, "resourceSliceCount": 1}
    content = devices(node.gpus, node.model, shared=shared)
    spec = {"driver": DRIVER, "nodeName": node.name, "pool": pool, "devices": content}
    return {"metadata": {"name": f"{node.name}-gpus"}, "spec": spec}


def claim_of(
    name: str, request: PodRequest, namespace: str = "default", *, shared: bool = True
) -> JsonDict:
    """Return the claim for a pod's request."""
    exactly: JsonDict = {
        "deviceClassName": CLASS,
        "allocationMode": "ExactCount",
        "count": request.gpus,
    }
    if shared:
        exactly["capacity"] = {"requests": {"share": str(request.milli)}}
    if request.models:
        listed = ", ".join(f'"{model}"' for model in request.models.split("|"))
        expression = f'device.attributes["{DRIVER}"].model in [{listed}]'
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {
        "metadata": {"name": name, "namespace": namespace, "uid": name},
        "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
    }
