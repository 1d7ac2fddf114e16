"""A node of 32 CPUs, whose NUMA nodes are devices of four: a claim for three leaves 29."""

from pathlib import Path

import yaml

from dralab.api.resource.features import with_gates
from dralab.components.nodes import NodeOptions, assemble
from dralab.components.simulated import SimulatedCluster
from dralab.runtime.client import Resource
from dralab.runtime.resources import PODS

cluster = SimulatedCluster(features=with_gates("DRANodeAllocatableResources=true"))
assemble(cluster.manager, NodeOptions(nodes=1, drivers=("cpu",)))
cluster.wait(5)
resources = {
    "ResourceClaimTemplate": Resource("resource.k8s.io", "v1", "resourceclaimtemplates"),
    "Pod": PODS,
}
for obj in yaml.safe_load_all(Path("cpus.yaml").read_text()):
    cluster.client.create(resources[obj["kind"]], obj, "default")
    cluster.wait(5)
for pod in cluster.client.list(PODS, "default").items:
    status = pod["status"]
    print(pod["metadata"]["name"], status["phase"])
    for entry in status.get("nodeAllocatableResourceClaimStatuses", ()):
        print("  ", entry["containers"], "cpu of the node:", entry["resources"]["cpu"])
    for condition in status["conditions"]:
        if condition["type"] == "PodScheduled" and condition["status"] == "False":
            print("  ", condition["message"])
