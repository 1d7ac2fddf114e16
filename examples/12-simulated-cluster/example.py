"""Two nodes, six GPUs and a queue of pods: a day on a cluster, simulated in a second."""

from dralab.components.simulated import SimulatedCluster
from dralab.kernel.clock import rfc3339
from dralab.runtime.resources import CLAIM_TEMPLATES, CLASSES, EVENTS, NODES, PODS, SLICES

cluster = SimulatedCluster(seed=1)
client = cluster.client

expression = 'device.driver == "gpu.example.com"'
spec = {"selectors": [{"cel": {"expression": expression}}]}
client.create(CLASSES, {"metadata": {"name": "gpu"}, "spec": spec})
request = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}
client.create(
    CLAIM_TEMPLATES,
    {"metadata": {"name": "one-gpu"}, "spec": {"spec": {"devices": {"requests": [request]}}}},
    "default",
)
for name in ("node-a", "node-b"):
    offer = {"cpu": "8", "memory": "32Gi", "pods": "110"}
    status = {"allocatable": offer, "conditions": [{"type": "Ready", "status": "True"}]}
    client.create(NODES, {"metadata": {"name": name}, "status": status})
    pool = {"name": name, "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": f"gpu-{number}"} for number in range(3)]
    spec = {"driver": "gpu.example.com", "nodeName": name, "pool": pool, "devices": devices}
    client.create(SLICES, {"metadata": {"name": f"{name}-gpu"}, "spec": spec})

for number in range(8):
    container = {"name": "main", "image": "train", "resources": {"claims": [{"name": "gpu"}]}}
    claims = [{"name": "gpu", "resourceClaimTemplateName": "one-gpu"}]
    client.create(
        PODS,
        {
            "metadata": {"name": f"train-{number}"},
            "spec": {"containers": [container], "resourceClaims": claims},
        },
        "default",
    )
cluster.wait(3600)


def show(what):
    print(f"{rfc3339(cluster.now)}  {what}")
    for pod in client.list(PODS).items:
        node = pod["spec"].get("nodeName", "waits")
        print(f"  {pod['metadata']['name']}  {node}")


show("eight pods, six GPUs:")

# The first two pods are done; waiting pods get their GPUs.
for name in ("train-0", "train-1"):
    pod = client.get(PODS, name, "default")
    status = {**pod["status"], "phase": "Succeeded"}
    client.update(PODS, {**pod, "status": status}, subresource="status")
cluster.wait(23 * 3600)
show("a day later:")
print(f"events of the last hour: {len(client.list(EVENTS).items)}")
