"""The pods of kube-system that only look like those of a cluster."""

from dralab.components import system_pods
from dralab.components.nodes import NodeOptions, assemble
from dralab.components.simulated import SimulatedCluster
from dralab.objects.pods import is_ready
from dralab.runtime.resources import PODS


def test_the_pods_of_the_system_get_ready_on_the_nodes_and_stay():
    cluster = SimulatedCluster()
    assemble(cluster.manager, NodeOptions(nodes=2))
    cluster.wait(2)
    for _ in range(2):  # A cluster that starts again has them.
        system_pods.load(cluster.client, "node-0")
        cluster.wait(5)
    pods = cluster.client.list(PODS, namespace="kube-system").items
    assert all(map(is_ready, pods))
    labels = [pod["metadata"]["labels"] for pod in pods]
    assert sorted(each.get("component") or each["k8s-app"] for each in labels) == [
        "etcd",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-dns",
        "kube-dns",
        "kube-proxy",
        "kube-proxy",
        "kube-scheduler",
    ]
