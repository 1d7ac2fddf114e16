"""descheduler: pods that are where they would not be put now are evicted, and find another place."""

import pytest

from dralab.runtime.client import Resource
from dralab.runtime.resources import DEPLOYMENTS, NODES, PODS
from operatorlab import NAMESPACE, running
from waiting import until

pytestmark = [pytest.mark.conformance, pytest.mark.dralab(nodes=3)]
POLICY = """
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
- name: lab
  pluginConfig:
  - name: DefaultEvictor
  - name: RemovePodsViolatingNodeTaints
  - name: RemoveDuplicates
  plugins:
    deschedule: {enabled: [RemovePodsViolatingNodeTaints]}
    balance: {enabled: [RemoveDuplicates]}
"""
BUDGETS = Resource("policy", "v1", "poddisruptionbudgets")


def deployment(name, replicas):
    labels = {"app": name}
    containers = [{"name": "main", "image": "nginx"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    spec = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
    return {"metadata": {"name": name}, "spec": spec}


def nodes_of(client, app):
    """Where the pods of an app run, sorted; empty while one of them does not."""
    found = client.list(PODS, NAMESPACE, label_selector=f"app={app}").items
    if {pod["metadata"]["name"] for pod in found} - running(client):
        return []
    return sorted(pod["spec"]["nodeName"] for pod in found)


def cordon(client, node, closed):
    client.patch(NODES, node, {"spec": {"unschedulable": closed}})


def test_duplicates_are_spread_and_a_taint_moves_pods_as_a_budget_allows(
    running_cluster, client, start, operator, kubeconfig, tmp_path
):
    _, program = operator("descheduler")
    for node in ("node-1", "node-2"):
        cordon(client, node, True)
    client.create(DEPLOYMENTS, deployment("web", 3), NAMESPACE)
    client.create(DEPLOYMENTS, deployment("kept", 1), NAMESPACE)
    until(lambda: nodes_of(client, "web") == ["node-0"] * 3)
    until(lambda: nodes_of(client, "kept") == ["node-0"])
    budget = {"minAvailable": 1, "selector": {"matchLabels": {"app": "kept"}}}
    client.create(BUDGETS, {"metadata": {"name": "kept"}, "spec": budget}, NAMESPACE)
    for node in ("node-1", "node-2"):
        cordon(client, node, False)
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY)
    flags = [f"--kubeconfig={kubeconfig}", "--secure-port=0", "--descheduling-interval=2s", "--v=3"]
    start(program, f"--policy-config-file={policy}", *flags)
    # Three of one Deployment on one node are two too many while others are free.
    until(lambda: nodes_of(client, "web") == ["node-0", "node-1", "node-2"])
    taint = {"key": "leave", "value": "now", "effect": "NoSchedule"}
    client.patch(NODES, "node-0", {"spec": {"taints": [taint]}})
    until(lambda: set(nodes_of(client, "web")) == {"node-1", "node-2"})
    # The budget refuses its eviction.
    assert nodes_of(client, "kept") == ["node-0"]
    client.delete(BUDGETS, "kept", NAMESPACE)
    until(
        lambda: set(nodes_of(client, "kept")) <= {"node-1", "node-2"} and nodes_of(client, "kept")
    )
