"""Clusters with pods on them: nodes of GPUs, pods that hold some, and pods that wait for some."""

from builders import DRIVER, claim, device, device_class, pod, pool, request, worker

GPU = device_class("gpu", f'device.driver == "{DRIVER}"')


def gpu_node(name, gpus=4, **more):
    """A node of so many GPUs, half of them on each NUMA node, and its slices."""
    devices = [device(f"gpu-{n}", numa=n * 2 // gpus) for n in range(gpus)]
    return [worker(name, **more), *pool(f"{name}-gpus", *devices, node=name)]


def holder(name, node, *gpus, priority=0, namespace="default", labels=None, **more):
    """A pod on a node that holds GPUs there, and its claim."""
    wire = claim(f"{name}-gpus", request("gpus", count=len(gpus)), namespace=namespace)
    results = [
        {"request": "gpus", "driver": DRIVER, "pool": f"{node}-gpus", "device": f"gpu-{number}"}
        for number in gpus
    ]
    user = {"resource": "pods", "name": name, "uid": f"pod/{namespace}/{name}"}
    wire["status"] = {"allocation": {"devices": {"results": results}}, "reservedFor": [user]}
    made = pod(
        name,
        claims={"gpus": f"{name}-gpus"},
        namespace=namespace,
        labels=labels,
        nodeName=node,
        priority=priority,
        **more,
    )
    made["metadata"]["uid"] = user["uid"]
    return [made, wire]


def waiter(name, count=1, *, match=None, priority=0, namespace="default", **more):
    """A pod that waits for so many GPUs, and its claim."""
    wire = claim(f"{name}-gpus", request("gpus", count=count), match=match, namespace=namespace)
    made = pod(
        name, claims={"gpus": f"{name}-gpus"}, namespace=namespace, priority=priority, **more
    )
    return [made, wire]


def flat(*groups):
    """The objects of several groups, and the class of GPUs."""
    return [GPU, *(item for group in groups for item in group)]
