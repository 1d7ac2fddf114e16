"""Every shape of a fleet serves pods: on each of its nodes, a device of each of its classes."""

import pytest

from builders import claim, request
from dralab.components.nodes import NodeOptions, assemble
from dralab.components.simulated import SimulatedCluster
from dralab.fleet import shapes
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, PODS


@pytest.mark.parametrize("shape", shapes.names())
def test_pods_of_a_fleet_get_devices_of_each_class(shape):
    cluster = SimulatedCluster()
    kubelets = assemble(cluster.manager, NodeOptions(nodes=2, fleet=shape))
    cluster.wait(2)
    classes = [obj["metadata"]["name"] for obj in cluster.client.list(CLASSES).items]
    nodes = [obj["metadata"]["name"] for obj in cluster.client.list(NODES).items]
    assert classes
    assert len(nodes) == 2
    cases = [(each, node) for each in classes for node in nodes]
    for number, (name, node) in enumerate(cases):
        cluster.client.create(CLAIMS, claim(f"c{number}", request("r", name)), "default")
        container = {
            "name": "c",
            "image": "x",
            "command": ["sh", "-c", "env; sleep infinity"],
            "resources": {"claims": [{"name": "d"}]},
        }
        spec = {
            "containers": [container],
            "resourceClaims": [{"name": "d", "resourceClaimName": f"c{number}"}],
            "nodeSelector": {"kubernetes.io/hostname": node},
        }
        body = {"metadata": {"name": f"p{number}"}, "spec": spec}
        cluster.client.create(PODS, body, "default")
    cluster.wait(5)
    for number in range(len(cases)):
        pod = cluster.client.get(PODS, f"p{number}", "default")
        assert pod["status"]["phase"] == "Running", pod["status"]
        run = kubelets.find_container(pod, "c")
        assert any(line.startswith("DEVICE_") for _, line in run.log.read()[0])
