"""Operators as their authors publish them, at their main job. docs/guides/operators.md has the list.

Go modules come from the module proxy and are built as they are (minutes, the first time);
DRALAB_OPERATORS names a folder of programs that were built before. Python's come from PyPI.
"""

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gomodules
from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.resources import DEPLOYMENTS, PODS, SERVICES
from waiting import until

KUBECTL = shutil.which(os.environ.get("DRALAB_KUBECTL", "kubectl"))
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(KUBECTL is None, reason="no kubectl; DRALAB_KUBECTL names one"),
]
NAMESPACE = "default"


@pytest.fixture
def apply(kubeconfig):
    """Apply manifests as a person would: a text, a file or a folder."""

    def apply(what):
        text = what if isinstance(what, str) else None
        place = "-" if text is not None else str(what)
        words = [KUBECTL, "--kubeconfig", str(kubeconfig), "apply", "--server-side", "-f", place]
        done = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    return apply


@pytest.fixture
def start(kubeconfig, tmp_path):
    """Start an operator with the cluster's kubeconfig; it ends with the test."""
    with contextlib.ExitStack() as stack:

        def start(*words, **environment):
            log = stack.enter_context((tmp_path / f"{Path(words[0]).name}.log").open("w+"))
            process = subprocess.Popen(
                [str(word) for word in words],
                env={**os.environ, "KUBECONFIG": str(kubeconfig), **environment},
                stdout=log,
                stderr=subprocess.STDOUT,
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            stack.callback(lambda: sys.stdout.write(Path(log.name).read_text()[-4000:]))

        yield start


@pytest.fixture(scope="session")
def module(tmp_path_factory):
    """Return a Go module's sources and a program of it. Skips where they can't be had."""

    def module(path, version, package):
        name = path.rpartition("/")[2]
        sources = gomodules.sources(path, version)
        ready = Path(os.environ.get("DRALAB_OPERATORS", "")) / name
        if ready.is_file():
            return sources, ready
        place = tmp_path_factory.mktemp("operators") / name
        return sources, gomodules.program(sources, place, package)

    return module


def there(client, resource, name):
    """Return an object; nothing while it is not there."""
    try:
        return client.get(resource, name, NAMESPACE)
    except ApiError:
        return None


def names(client, resource):
    return {each["metadata"]["name"] for each in client.list(resource, NAMESPACE).items}


def patch(client, resource, name, spec):
    client.patch(resource, name, {"spec": spec}, NAMESPACE)


# --- kro ----------------------------------------------------------------------------------------

GRAPH = """
apiVersion: kro.run/v1alpha1
kind: ResourceGraphDefinition
metadata: {name: webapp}
spec:
  schema:
    apiVersion: v1alpha1
    kind: WebApp
    spec:
      replicas: integer | default=2
    status:
      available: ${deployment.status.availableReplicas}
      ip: ${service.spec.clusterIP}
  resources:
  - id: deployment
    template:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "${schema.metadata.name}"}
      spec:
        replicas: ${schema.spec.replicas}
        selector: {matchLabels: {app: "${schema.metadata.name}"}}
        template:
          metadata: {labels: {app: "${schema.metadata.name}"}}
          spec: {containers: [{name: web, image: nginx}]}
    readyWhen: ["${deployment.status.availableReplicas == deployment.spec.replicas}"]
  - id: service
    template:
      apiVersion: v1
      kind: Service
      metadata: {name: "${schema.metadata.name}"}
      spec:
        selector: "${deployment.spec.selector.matchLabels}"
        ports: [{port: 80}]
"""
GRAPHS = Resource("kro.run", "v1alpha1", "resourcegraphdefinitions", namespaced=False)
APPS = Resource("kro.run", "v1alpha1", "webapps")


def test_kro_makes_a_kind_of_a_graph_and_its_objects_of_an_instance(
    running_cluster, client, apply, start, module
):
    sources, program = module("github.com/kubernetes-sigs/kro", "v0.9.4", "./cmd/controller")
    apply(sources / "helm/crds")
    start(program, "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0")
    apply(GRAPH)
    until(lambda: (client.get(GRAPHS, "webapp").get("status") or {}).get("state") == "Active")
    client.create(APPS, {"metadata": {"name": "shop"}, "spec": {"replicas": 3}}, NAMESPACE)
    until(lambda: (there(client, APPS, "shop").get("status") or {}).get("available") == 3)
    status = client.get(APPS, "shop", NAMESPACE)["status"]
    address = client.get(SERVICES, "shop", NAMESPACE)["spec"]["clusterIP"]
    assert (status["state"], status["ip"]) == ("ACTIVE", address)
    patch(client, APPS, "shop", {"replicas": 1})
    until(lambda: client.get(DEPLOYMENTS, "shop", NAMESPACE)["status"].get("replicas") == 1)
    client.delete(APPS, "shop", NAMESPACE)
    until(lambda: there(client, APPS, "shop") is None)
    assert names(client, DEPLOYMENTS) == set()


# --- dask-kubernetes ----------------------------------------------------------------------------

WORKER = "{containers: [{name: worker, image: dask, args: [dask-worker]}]}"
SCHEDULER = """
      scheduler:
        spec:
          containers:
          - {name: scheduler, image: dask, args: [dask-scheduler], ports: [{name: comm, containerPort: 8786}]}
        service:
          type: ClusterIP
          selector: {dask.org/cluster-name: %s, dask.org/component: scheduler}
          ports: [{name: comm, port: 8786, targetPort: comm}]
"""
DASK = f"""
apiVersion: kubernetes.dask.org/v1
kind: DaskJob
metadata: {{name: sums}}
spec:
  job:
    spec:
      restartPolicy: Never
      containers: [{{name: job, image: dask, command: [sleep, "3600"]}}]
  cluster:
    spec:
      worker: {{replicas: 2, spec: {WORKER}}}
{SCHEDULER % "sums"}
"""
DASK_JOBS = Resource("kubernetes.dask.org", "v1", "daskjobs")
CLUSTERS = Resource("kubernetes.dask.org", "v1", "daskclusters")
GROUPS = Resource("kubernetes.dask.org", "v1", "daskworkergroups")


def test_dask_makes_a_cluster_for_a_job_scales_it_and_takes_it_away(
    running_cluster, client, clock, apply, start
):
    found = importlib.util.find_spec("dask_kubernetes")
    if found is None or importlib.util.find_spec("kopf") is None:
        pytest.skip("dask-kubernetes is not installed (PyPI)")
    folder = Path(found.submodule_search_locations[0]) / "operator/deployment/helm"
    apply(folder / "dask-kubernetes-operator/crds")
    start(sys.executable, "-m", "kopf", "run", "-m", "dask_kubernetes.operator.controller", "-A")
    apply(DASK)
    until(lambda: len(running(client)) == 4)
    assert "sums-scheduler" in names(client, SERVICES)
    assert {"sums-runner"} < running(client)
    patch(client, GROUPS, "sums-default", {"worker": {"replicas": 3}})
    until(lambda: len(running(client)) == 5)
    clock.advance("1h")  # the job ends
    until(lambda: client.get(DASK_JOBS, "sums", NAMESPACE)["status"]["jobStatus"] == "Successful")
    until(lambda: names(client, CLUSTERS) == set() and names(client, DEPLOYMENTS) == set())


def running(client):
    return {
        pod["metadata"]["name"]
        for pod in client.list(PODS, NAMESPACE).items
        if (pod.get("status") or {}).get("phase") == "Running"
    }
