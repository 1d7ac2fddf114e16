"""Kueue as an operator: Jobs wait until their queue has room."""

import pytest

from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.resources import JOBS, SECRETS
from operatorlab import (
    NAMESPACE,
    admitted,
    configuration,
    free_port,
    holds,
    kustomized,
    mounted,
    running,
    there,
)
from waiting import until

PORT = free_port()
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.dralab(nodes=3, services=[f"kueue-system/kueue-webhook-service=127.0.0.1:{PORT}"]),
]

VERSION = "v1beta2"
FLAVORS, CLUSTER_QUEUES = (
    Resource("kueue.x-k8s.io", VERSION, plural, namespaced=False)
    for plural in ("resourceflavors", "clusterqueues")
)
LOCAL_QUEUES, WORKLOADS = (
    Resource("kueue.x-k8s.io", VERSION, plural) for plural in ("localqueues", "workloads")
)
QUEUE = {
    "metadata": {"name": "team"},
    "spec": {
        "namespaceSelector": {},
        "resourceGroups": [
            {
                "coveredResources": ["cpu"],
                "flavors": [{"name": "any", "resources": [{"name": "cpu", "nominalQuota": 2}]}],
            }
        ],
    },
}


def queued(name):
    """A Job of two cores and one minute."""
    container = {
        "name": "main",
        "image": "box",
        "command": ["sleep", "60"],
        "resources": {"requests": {"cpu": "1"}},
    }
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    metadata = {"name": name, "labels": {"kueue.x-k8s.io/queue-name": "mine"}}
    return {
        "metadata": metadata,
        "spec": {"parallelism": 2, "completions": 2, "template": template},
    }


def test_kueue_admits_jobs_as_their_queue_has_room(
    running_cluster, client, clock, apply, start, operator, kubectl, tmp_path
):
    sources, program = operator("kueue")
    manifests = kustomized(kubectl, sources / "config/default")
    # The server of its metrics of queues wants /visibility, on this machine's disk.
    apply([each for each in manifests if each["kind"] != "APIService"])
    folder = tmp_path / "certs"
    folder.mkdir()
    file = configuration(
        tmp_path / "kueue.yaml",
        PORT,
        "kueue.x-k8s.io/v1beta2",
        folder,
        namespace="kueue-system",
        integrations={"frameworks": ["batch/job"]},
    )
    start(program, f"--config={file}", "--feature-gates=VisibilityOnDemand=false")
    until(lambda: mounted(client, SECRETS, "kueue-webhook-server-cert", "kueue-system", folder))
    until(lambda: admitted(client, FLAVORS, {"metadata": {"name": "any"}}))
    client.create(CLUSTER_QUEUES, QUEUE)
    client.create(
        LOCAL_QUEUES, {"metadata": {"name": "mine"}, "spec": {"clusterQueue": "team"}}, NAMESPACE
    )
    until(lambda: holds(client.get(CLUSTER_QUEUES, "team"), "Active"))
    for name in ("first", "second"):
        made = client.create(JOBS, queued(name), NAMESPACE)
        assert made["spec"]["suspend"] is True  # by its webhook
        until(lambda name=name: workload(client, name))
    until(lambda: len(running(client)) == 2)
    assert holds(workload(client, "first"), "Admitted")
    assert client.get(JOBS, "second", NAMESPACE)["spec"]["suspend"] is True
    until(lambda: client.get(CLUSTER_QUEUES, "team")["status"].get("pendingWorkloads") == 1)
    # Its webhook converts what is stored for those who still ask for the older version.
    older = Resource("kueue.x-k8s.io", "v1beta1", "clusterqueues", namespaced=False)
    assert client.get(older, "team")["apiVersion"] == "kueue.x-k8s.io/v1beta1"
    clock.advance("61s")
    until(lambda: holds(there(client, JOBS, "first"), "Complete"))
    until(lambda: holds(workload(client, "second"), "Admitted") and len(running(client)) == 2)
    clock.advance("61s")
    until(lambda: holds(there(client, JOBS, "second"), "Complete"))
    until(lambda: client.get(CLUSTER_QUEUES, "team")["status"].get("reservingWorkloads") == 0)
    wrong = {"metadata": {"name": "wrong"}, "spec": {**QUEUE["spec"], "cohortName": "A b"}}
    with pytest.raises(ApiError):
        client.create(CLUSTER_QUEUES, wrong)


def workload(client, job):
    """The Workload that Kueue made for a Job; nothing while it is not there."""
    found = client.list(WORKLOADS, NAMESPACE).items
    return next(
        (
            each
            for each in found
            for owner in each["metadata"].get("ownerReferences") or ()
            if owner["name"] == job
        ),
        None,
    )
