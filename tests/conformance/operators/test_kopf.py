"""Operators that are written with kopf."""

import pytest

from dralab.runtime.client import Resource
from dralab.runtime.resources import DEPLOYMENTS, SERVICES
from operatorlab import NAMESPACE, names, patch, running
from waiting import until

pytestmark = pytest.mark.conformance

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
    running_cluster, client, clock, apply, start, installed
):
    programs = installed("dask-kubernetes==2026.3.0")
    [folder] = programs.parent.glob("lib/*/site-packages/dask_kubernetes/operator/deployment/helm")
    apply(folder / "dask-kubernetes-operator/crds")
    start(programs / "kopf", "run", "-m", "dask_kubernetes.operator.controller", "-A")
    apply(DASK)
    until(lambda: len(running(client)) == 4)
    assert "sums-scheduler" in names(client, SERVICES)
    assert {"sums-runner"} < running(client)
    patch(client, GROUPS, "sums-default", {"worker": {"replicas": 3}})
    until(lambda: len(running(client)) == 5)
    clock.advance("1h")  # the job ends
    until(lambda: client.get(DASK_JOBS, "sums", NAMESPACE)["status"]["jobStatus"] == "Successful")
    until(lambda: names(client, CLUSTERS) == set() and names(client, DEPLOYMENTS) == set())
