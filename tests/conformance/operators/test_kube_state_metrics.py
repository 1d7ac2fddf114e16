"""kube-state-metrics: what it says of a cluster is what is in it, also after changes."""

import re
import urllib.request

import pytest

from dralab.runtime.client import Resource
from dralab.runtime.resources import DEPLOYMENTS, JOBS
from operatorlab import NAMESPACE, free_port, patch, running
from waiting import until

RUNS = Resource("example.com", "v1", "runs")
LINE = re.compile(r"(\w+)\{(.*)\} (\S+)")
LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
pytestmark = [pytest.mark.conformance, pytest.mark.dralab(nodes=2)]
# A kind of its own, and a metric of its objects.
DEFINITION = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: runs.example.com}
spec:
  group: example.com
  names: {kind: Run, plural: runs}
  scope: Namespaced
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
"""
OF_RUNS = """
kind: CustomResourceStateMetrics
spec:
  resources:
  - groupVersionKind: {group: example.com, version: v1, kind: Run}
    labelsFromPath: {run: [metadata, name]}
    metrics:
    - name: gpus
      each: {type: Gauge, gauge: {path: [spec, gpus]}}
"""


class Metrics:
    """The metrics of a program, as it says them at this moment."""

    def __init__(self, port):
        self.url = f"http://127.0.0.1:{port}/metrics"

    def of(self, name, **labels):
        """Return the values of a metric, where these labels are so."""
        try:
            with urllib.request.urlopen(self.url) as answer:
                text = answer.read().decode()
        except OSError:
            return []
        lines = (LINE.fullmatch(line) for line in text.splitlines() if line.startswith(f"{name}{{"))
        samples = [(dict(LABEL.findall(line[2])), float(line[3])) for line in lines]
        return [value for shown, value in samples if labels.items() <= shown.items()]


def template(*command):
    resources = {"requests": {"cpu": "250m", "memory": "64Mi"}}
    container = {"name": "main", "image": "box", "command": [*command], "resources": resources}
    return {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}}


def test_the_metrics_of_objects_follow_them(
    running_cluster, client, clock, apply, start, operator, kubeconfig, tmp_path
):
    _, program = operator("kube-state-metrics")
    runs = tmp_path / "runs.yaml"
    runs.write_text(OF_RUNS)
    apply(DEFINITION)
    port = free_port()
    start(
        program,
        f"--kubeconfig={kubeconfig}",
        "--host=127.0.0.1",
        f"--port={port}",
        "--telemetry-host=127.0.0.1",
        f"--telemetry-port={free_port()}",
        "--metric-labels-allowlist=pods=[app]",
        f"--custom-resource-state-config-file={runs}",
    )
    spec = {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}}
    spec["template"] = template("sleep", "3600")
    client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, NAMESPACE)
    job = template("sleep", "60")
    job["spec"]["restartPolicy"] = "Never"
    client.create(JOBS, {"metadata": {"name": "once"}, "spec": {"template": job}}, NAMESPACE)
    run = {"metadata": {"name": "one"}, "spec": {"gpus": 8}}
    client.create(RUNS, run, NAMESPACE)
    until(lambda: len(running(client)) == 4)
    metrics = Metrics(port)
    ready = {"condition": "Ready", "status": "true"}
    until(lambda: metrics.of("kube_node_status_condition", **ready) == [1, 1])
    web = {"namespace": NAMESPACE, "deployment": "web"}
    until(lambda: metrics.of("kube_deployment_status_replicas_available", **web) == [3])
    until(lambda: sum(metrics.of("kube_pod_status_phase", phase="Running")) == 4)
    cores = metrics.of("kube_pod_container_resource_requests", resource="cpu", unit="core")
    assert cores == [0.25] * 4
    owned = {"owner_kind": "ReplicaSet", "owner_is_controller": "true"}
    assert metrics.of("kube_pod_owner", **owned) == [1, 1, 1]
    assert metrics.of("kube_pod_labels", label_app="web") == [1] * 4
    assert metrics.of("kube_job_status_active", job_name="once") == [1]
    until(lambda: metrics.of("kube_customresource_gpus", run="one") == [8])
    clock.advance("2m")  # the Job ends
    until(lambda: metrics.of("kube_job_status_succeeded", job_name="once") == [1])
    assert metrics.of("kube_pod_status_phase", phase="Succeeded").count(1) == 1
    patch(client, DEPLOYMENTS, "web", {"replicas": 1})
    until(lambda: sum(metrics.of("kube_pod_status_phase", phase="Running")) == 1)
    assert metrics.of("kube_deployment_spec_replicas", **web) == [1]
    client.delete(DEPLOYMENTS, "web", NAMESPACE)
    until(lambda: metrics.of("kube_deployment_spec_replicas") == [])
