"""MPI operator: a launcher and its workers, who find each other by a host file and a key."""

import pytest

from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.resources import CONFIG_MAPS, JOBS, PODS, SECRETS, SERVICES
from operatorlab import NAMESPACE, holds, names, running, there, without_deployments
from waiting import until

MANIFEST = "deploy/v2beta1/mpi-operator.yaml"
MPI_JOBS = Resource("kubeflow.org", "v2beta1", "mpijobs")
pytestmark = [pytest.mark.conformance, pytest.mark.dralab(nodes=3)]


def replicas(number, *command):
    containers = [{"name": "main", "image": "mpioperator/mpi-pi:openmpi", "command": [*command]}]
    return {"replicas": number, "template": {"spec": {"containers": containers}}}


def mpi_job(name, workers, *launched):
    specs = {
        "Launcher": replicas(1, *launched),
        "Worker": replicas(workers, "/usr/sbin/sshd", "-De"),
    }
    policy = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    return {"metadata": {"name": name}, "spec": {"runPolicy": policy, "mpiReplicaSpecs": specs}}


def test_a_launcher_runs_beside_its_workers_and_the_job_succeeds(
    running_cluster, client, clock, apply, start, operator
):
    sources, program = operator("mpi-operator")
    apply(without_deployments((sources / MANIFEST).read_text()))
    start(program)
    client.create(MPI_JOBS, mpi_job("pi", 2, "sleep", "60"), NAMESPACE)
    until(lambda: holds((there(client, MPI_JOBS, "pi") or {}), "Running"))
    workers = {"pi-worker-0", "pi-worker-1"}
    until(lambda: workers < running(client) and len(running(client)) == 3)
    hosts = client.get(CONFIG_MAPS, "pi-config", NAMESPACE)["data"]["hostfile"]
    assert [line.split()[0] for line in hosts.splitlines()] == [
        f"pi-worker-{number}.pi.{NAMESPACE}.svc" for number in range(2)
    ]
    assert client.get(SECRETS, "pi-ssh", NAMESPACE)["type"] == "kubernetes.io/ssh-auth"
    assert client.get(SERVICES, "pi", NAMESPACE)["spec"]["clusterIP"] == "None"
    assert names(client, JOBS) == {"pi-launcher"}
    clock.advance("2m")  # the launcher ends, and the operator stops the workers
    until(lambda: holds(client.get(MPI_JOBS, "pi", NAMESPACE), "Succeeded"))
    until(lambda: running(client) == set())
    status = client.get(MPI_JOBS, "pi", NAMESPACE)["status"]
    assert status["replicaStatuses"]["Launcher"]["succeeded"] == 1
    client.delete(MPI_JOBS, "pi", NAMESPACE)
    until(lambda: names(client, JOBS) == names(client, PODS) == names(client, SECRETS) == set())


def test_a_suspended_job_starts_when_it_is_resumed_and_fails_with_its_launcher(
    running_cluster, client, apply, start, operator
):
    sources, program = operator("mpi-operator")
    apply(without_deployments((sources / MANIFEST).read_text()))
    start(program)
    job = mpi_job("waits", 1, "sleep", "3600")
    job["spec"]["runPolicy"]["suspend"] = True
    client.create(MPI_JOBS, job, NAMESPACE)
    until(lambda: holds((there(client, MPI_JOBS, "waits") or {}), "Suspended"))
    assert running(client) == set()
    client.patch(MPI_JOBS, "waits", {"spec": {"runPolicy": {"suspend": False}}}, NAMESPACE)
    until(lambda: len(running(client)) == 2)
    [launcher] = running(client) - {"waits-worker-0"}
    failed = {"status": {"phase": "Failed"}}
    client.patch(PODS, launcher, failed, NAMESPACE, subresource="status")
    until(lambda: holds(client.get(MPI_JOBS, "waits", NAMESPACE), "Failed"))
    with pytest.raises(ApiError, match="runPolicy"):
        client.create(MPI_JOBS, {"metadata": {"name": "x"}, "spec": {"runPolicy": 1}}, NAMESPACE)
