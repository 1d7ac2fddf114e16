"""JobSet: Jobs that start, fail and complete together, with webhooks that check and complete them."""

import pytest

from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.resources import JOBS, PODS, SERVICES
from operatorlab import (
    NAMESPACE,
    admitted,
    certificate_of,
    configuration,
    free_port,
    holds,
    kustomized,
    names,
    running,
    there,
    trusting,
)
from waiting import until

PORT = free_port()
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.dralab(
        nodes=3, services=[f"jobset-system/jobset-webhook-service=127.0.0.1:{PORT}"]
    ),
]

JOB_SETS = Resource("jobset.x-k8s.io", "v1alpha2", "jobsets")


def replicated(name, replicas, pods, command):
    """Some Jobs of a JobSet."""
    containers = [{"name": "main", "image": "box", "command": command}]
    template = {"spec": {"restartPolicy": "Never", "containers": containers}}
    spec = {"parallelism": pods, "completions": pods, "backoffLimit": 0, "template": template}
    return {"name": name, "replicas": replicas, "template": {"spec": spec}}


def job_set(name, *jobs, **spec):
    return {"metadata": {"name": name}, "spec": {"replicatedJobs": list(jobs), **spec}}


def test_a_job_set_runs_its_jobs_starts_again_after_a_failure_and_completes(
    running_cluster, client, clock, apply, start, operator, kubectl, tmp_path
):
    sources, program = operator("jobset")
    pem = certificate_of("jobset-webhook-service", "jobset-system", tmp_path / "certs")
    apply(trusting(kustomized(kubectl, sources / "config/default"), pem))
    off = {"enable": False}  # as with cert-manager: the certificates are given
    file = configuration(
        tmp_path / "jobset.yaml",
        PORT,
        "jobset.x-k8s.io/v1alpha1",
        tmp_path / "certs",
        internalCertManagement=off,
    )
    start(program, f"--config={file}")
    training = job_set(
        "train",
        replicated("leader", 1, 1, ["sleep", "60"]),
        replicated("workers", 2, 2, ["sleep", "3600"]),
        successPolicy={"operator": "All", "targetReplicatedJobs": ["leader"]},
        failurePolicy={"maxRestarts": 1},
    )
    made = until(lambda: admitted(client, JOB_SETS, training, NAMESPACE))
    # What its mutating webhook fills in.
    assert made["spec"]["network"]["enableDNSHostnames"] is True
    template = made["spec"]["replicatedJobs"][0]["template"]
    assert template["spec"]["completionMode"] == "Indexed"
    until(lambda: len(running(client)) == 5)
    assert names(client, JOBS) == {"train-leader-0", "train-workers-0", "train-workers-1"}
    assert client.get(SERVICES, "train", NAMESPACE)["spec"]["clusterIP"] == "None"
    hosts = {pod["spec"]["hostname"] for pod in client.list(PODS, NAMESPACE).items}
    assert hosts == {"train-leader-0-0"} | {f"train-workers-{i}-{j}" for i in "01" for j in "01"}
    # One pod fails: all start again.
    before = {job["metadata"]["uid"] for job in client.list(JOBS, NAMESPACE).items}
    [victim] = [
        pod["metadata"]["name"]
        for pod in client.list(PODS, NAMESPACE).items
        if pod["spec"]["hostname"] == "train-workers-1-0"
    ]
    client.patch(PODS, victim, {"status": {"phase": "Failed"}}, NAMESPACE, subresource="status")
    until(lambda: client.get(JOB_SETS, "train", NAMESPACE)["status"].get("restarts") == 1)
    until(lambda: len(running(client)) == 5)
    jobs = client.list(JOBS, NAMESPACE).items
    assert before.isdisjoint(job["metadata"]["uid"] for job in jobs)
    clock.advance("2m")  # the leader ends, and with it the whole
    until(lambda: holds(there(client, JOB_SETS, "train"), "Completed"))
    until(lambda: running(client) == set())
    # What its validating webhook refuses.
    with pytest.raises(ApiError, match=r"vjobset\.kb\.io.*denied the request"):
        client.create(
            JOB_SETS,
            job_set(
                "wrong",
                replicated("a", 1, 1, ["true"]),
                successPolicy={"operator": "All", "targetReplicatedJobs": ["b"]},
            ),
            NAMESPACE,
        )
    client.delete(JOB_SETS, "train", NAMESPACE)
    until(lambda: names(client, JOBS) == set() and names(client, SERVICES) == {"kubernetes"})
