"""The fake driver's demos on one node, in simulated time: the devices of each container."""

import re
from pathlib import Path

import yaml

from dralab.components.nodes import NodeOptions, assemble
from dralab.components.simulated import SimulatedCluster
from dralab.runtime.client import Resource
from dralab.runtime.resources import NAMESPACES, PODS

cluster = SimulatedCluster(profiles=("v1",))
nodes = assemble(cluster.manager, NodeOptions(drivers=("fake",), classic=False))
cluster.wait(5)


def apply(path):
    for obj in yaml.safe_load_all(path.read_text()):
        group, _, version = obj["apiVersion"].rpartition("/")
        kind = next(
            kind
            for kind in cluster.server.resources.kinds
            if (kind.group, kind.version, kind.kind) == (group, version, obj["kind"])
        )
        resource = Resource(group, version, kind.plural, kind.namespaced)
        cluster.client.create(resource, obj, obj["metadata"].get("namespace", ""))


def show(namespace):
    for pod in cluster.client.list(PODS, namespace).items:
        for number, container in enumerate(pod["spec"]["containers"]):
            lines, _ = nodes.find_container(pod, container["name"]).log.read()
            names = [
                found[1]
                for _, line in lines
                if (found := re.match(r"export FAKE_DEVICE_\d+='(.+)'", line))
            ]
            first = pod["metadata"]["name"] if "generateName" not in pod["metadata"] else "replica"
            print(namespace, first, number, pod["status"]["phase"], len(names), names[0])


for numbers in ([1, 2, 3, 4], [5], [6], [7]):
    for n in numbers:
        apply(Path(f"fake-test{n}.yaml"))
    cluster.wait(60)
    for n in numbers:
        show(f"test{n}")
        cluster.client.delete(NAMESPACES, f"test{n}")
    cluster.wait(60)
