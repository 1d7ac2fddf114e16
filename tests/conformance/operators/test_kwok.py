"""KWOK's controller: its nodes are ready, and their pods run and end as its stages say."""

import pytest

from dralab.runtime.resources import DEPLOYMENTS, NODES, PODS
from operatorlab import NAMESPACE, running
from waiting import until

LABEL = {"type": "kwok"}
STAGES = (
    "node/fast/node-initialize",
    "node/heartbeat-with-lease/node-heartbeat-with-lease",
    "pod/fast/pod-complete",
    "pod/fast/pod-delete",
    "pod/fast/pod-ready",
)
pytestmark = [pytest.mark.conformance, pytest.mark.dralab(nodes=1)]


def node(name):
    capacity = {"cpu": "32", "memory": "256Gi", "pods": "110"}
    return {
        "metadata": {"name": name, "annotations": {"kwok.x-k8s.io/node": "fake"}, "labels": LABEL},
        "spec": {},
        "status": {"allocatable": capacity, "capacity": capacity},
    }


def is_ready(found):
    conditions = (found.get("status") or {}).get("conditions") or ()
    return any((each["type"], each["status"]) == ("Ready", "True") for each in conditions)


def test_pods_run_on_the_nodes_of_kwok(running_cluster, client, start, operator, kubeconfig):
    sources, program = operator("kwok")
    stages = [f"--config={sources}/kustomize/stage/{each}.yaml" for each in STAGES]
    selector = "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake"
    leases = "--node-lease-duration-seconds=40"
    start(program, f"--kubeconfig={kubeconfig}", selector, leases, *stages)
    for number in range(3):
        client.create(NODES, node(f"kwok-{number}"))
    until(
        lambda: all(is_ready(each) for each in client.list(NODES, label_selector="type=kwok").items)
    )
    labels = {"app": "web"}
    containers = [{"name": "main", "image": "nginx"}]
    pod = {"containers": containers, "nodeSelector": LABEL}
    template = {"metadata": {"labels": labels}, "spec": pod}
    spec = {"replicas": 6, "selector": {"matchLabels": labels}, "template": template}
    client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, NAMESPACE)
    until(lambda: len(running(client)) == 6)
    pods = client.list(PODS, NAMESPACE).items
    assert {pod["spec"]["nodeName"] for pod in pods} <= {"kwok-0", "kwok-1", "kwok-2"}
    assert all(pod["status"]["podIP"].startswith("10.") for pod in pods)
    client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 2}}, NAMESPACE)
    until(lambda: len(client.list(PODS, NAMESPACE).items) == 2)
