"""LeaderWorkerSet: groups of pods that live and end together."""

import pytest

from dralab.runtime.client import Resource
from dralab.runtime.resources import PODS, SECRETS, STATEFUL_SETS
from operatorlab import (
    NAMESPACE,
    admitted,
    configuration,
    free_port,
    holds,
    kustomized,
    mounted,
    names,
    running,
    there,
)
from waiting import until

PORT = free_port()
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.dralab(nodes=3, services=[f"lws-system/lws-webhook-service=127.0.0.1:{PORT}"]),
]

SETS = Resource("leaderworkerset.x-k8s.io", "v1", "leaderworkersets")
# It looks at pods that are being deleted: containers need a while to end, as real ones do.
SLOW = ["sh", "-c", "trap 'sleep 3; exit 0' TERM; sleep 86400"]
CONTAINER = {"name": "main", "image": "box", "command": SLOW}
GROUPS = {
    "metadata": {"name": "serve"},
    "spec": {
        "replicas": 2,
        "leaderWorkerTemplate": {
            "size": 3,
            "restartPolicy": "RecreateGroupOnPodRestart",
            "workerTemplate": {"spec": {"containers": [CONTAINER]}},
        },
    },
}


def test_a_leader_worker_set_keeps_groups_that_live_and_end_together(
    running_cluster, client, apply, start, operator, kubectl, tmp_path
):
    sources, program = operator("lws")
    apply(kustomized(kubectl, sources / "config/default"))
    folder = tmp_path / "certs"
    folder.mkdir()
    file = configuration(tmp_path / "lws.yaml", PORT, "lws.x-k8s.io/v1alpha1", folder)
    start(program, f"--config={file}")
    # It makes its certificates itself, and writes its authority into the webhooks.
    until(lambda: mounted(client, SECRETS, "lws-webhook-server-cert", "lws-system", folder))
    until(lambda: admitted(client, SETS, GROUPS, NAMESPACE))
    pods = {f"serve-{group}{pod}" for group in "01" for pod in ("", "-1", "-2")}
    until(lambda: running(client) == pods)
    until(lambda: holds(client.get(SETS, "serve", NAMESPACE), "Available"))
    assert client.get(SETS, "serve", NAMESPACE)["status"]["readyReplicas"] == 2
    assert names(client, STATEFUL_SETS) == {"serve", "serve-0", "serve-1"}
    # What its webhook of pods fills in.
    worker = client.get(PODS, "serve-1-2", NAMESPACE)
    given = {each["name"]: each.get("value") for each in worker["spec"]["containers"][0]["env"]}
    assert given["LWS_LEADER_ADDRESS"] == "serve-1.serve.default"
    assert given["LWS_GROUP_SIZE"] == "3"
    # A worker that goes takes its group with it, and no other.
    uids = {name: uid_of(client, name) for name in pods}
    client.delete(PODS, "serve-0-1", NAMESPACE)
    until(lambda: running(client) == pods and uid_of(client, "serve-0") != uids["serve-0"])
    until(
        lambda: all(
            uid_of(client, f"serve-0-{number}") != uids[f"serve-0-{number}"] for number in (1, 2)
        )
    )
    assert uid_of(client, "serve-1-1") == uids["serve-1-1"]
    client.patch(SETS, "serve", {"spec": {"replicas": 1}}, NAMESPACE)
    until(lambda: running(client) == {"serve-0", "serve-0-1", "serve-0-2"})
    client.delete(SETS, "serve", NAMESPACE)
    until(lambda: names(client, PODS) == set() and names(client, STATEFUL_SETS) == set())


def uid_of(client, name):
    """The uid of a pod; nothing while it is not there."""
    return (there(client, PODS, name) or {}).get("metadata", {}).get("uid")
