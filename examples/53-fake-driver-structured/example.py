"""Structured parameters: a node's name sets its model, and a claim selects it by model."""

import re
from pathlib import Path

import yaml

from dralab.components.nodes import NodeOptions, assemble
from dralab.components.simulated import SimulatedCluster
from dralab.runtime.client import Resource
from dralab.runtime.resources import CLAIM_PARAMETERS, NAMED_SLICES, PODS

WORKERS = ("fake-dra-driver-cluster-worker", "fake-dra-driver-cluster-worker2")
cluster = SimulatedCluster(profiles=("v1", "classic"))
nodes = assemble(cluster.manager, NodeOptions(drivers=("fake",), classic=True, named=WORKERS))
cluster.wait(5)

for obj in cluster.client.list(NAMED_SLICES).items:
    instances = obj["namedResources"]["instances"]
    models = {
        each["string"] for i in instances for each in i["attributes"] if each["name"] == "model"
    }
    print(obj["nodeName"], len(instances), *models)

for obj in yaml.safe_load_all(Path("fake-test7.yaml").read_text()):
    group, _, version = obj["apiVersion"].rpartition("/")
    kind = next(
        kind
        for kind in cluster.server.resources.kinds
        if (kind.group, kind.version, kind.kind) == (group, version, obj["kind"])
    )
    resource = Resource(group, version, kind.plural, kind.namespaced)
    cluster.client.create(resource, obj, obj["metadata"].get("namespace", ""))
cluster.wait(60)

[made] = cluster.client.list(CLAIM_PARAMETERS, "test7").items
for request in made["driverRequests"][0]["requests"]:
    print(request["namedResources"]["selector"])

pod = cluster.client.get(PODS, "pod0", "test7")
print(pod["spec"]["nodeName"], pod["status"]["phase"])
for _, line in nodes.find_container(pod, "ctr0").log.read()[0]:
    if re.match("export FAKE_DEVICE_", line):
        print(line)
