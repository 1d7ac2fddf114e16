"""What cluster-autoscaler says of its groups in a ConfigMap."""

import pytest
import yaml

from autoscaledlab import autoscaled
from builders import pod, worker
from dralab.runtime.resources import CONFIG_MAPS, PODS

QUICK = (
    "autoscaler: {cluster-autoscaler: "
    "{unneeded: 60s, delay_after_add: 0s, provision_timeout: 120s}}\n"
)
STARTUP = "simulation.dralab.dev/startup"
MOST = "cluster-autoscaler.kwok.nodegroup/max-count"


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "quick.yaml").write_text(QUICK)
    with autoscaled("cluster-autoscaler", tmp_path / "quick.yaml") as found:
        yield found


def group(startup):
    node = worker("cpu", cpu="4", labels={"kwok-nodegroup": "cpu"})
    node["metadata"]["annotations"] = {STARTUP: startup, MOST: "5"}
    return node


def status(lab):
    found = lab.client.get(CONFIG_MAPS, "cluster-autoscaler-status", "kube-system")
    told = yaml.safe_load(found["data"]["status"])
    assert (
        told["time"]
        == found["metadata"]["annotations"]["cluster-autoscaler.kubernetes.io/last-updated"]
    )
    return told


def states(told):
    return {part: told[part]["status"] for part in ("health", "scaleUp", "scaleDown")}


def submit(lab, name):
    body = pod(name, requests={"cpu": "3"}, terminationGracePeriodSeconds=0)
    lab.client.create(PODS, body, "default")


def test_the_status_follows_a_group_that_grows_and_shrinks(lab):
    lab.groups(group("30s"))
    submit(lab, "a")
    lab.wait(15)
    told = status(lab)
    (cpu,) = told["nodeGroups"]
    assert told["autoscalerStatus"] == "Running"
    assert told["time"].startswith("2026-01-01 00:00:1")
    assert told["time"].endswith(" +0000 UTC")
    assert (cpu["name"], cpu["health"]["minSize"], cpu["health"]["maxSize"]) == ("cpu", 0, 5)
    assert cpu["health"]["cloudProviderTarget"] == 1
    assert cpu["health"]["nodeCounts"]["unregistered"] == 1
    assert cpu["health"]["nodeCounts"]["registered"]["total"] == 0
    assert states(cpu)["scaleUp"] == states(told["clusterWide"])["scaleUp"] == "InProgress"
    text = "Scale-up: setting group cpu size to 1 instead of 0 (max: 5)"
    assert lab.events("ScaledUpGroup") == {"cluster-autoscaler-status": text}
    lab.wait(60)
    (cpu,) = status(lab)["nodeGroups"]
    counts = cpu["health"]["nodeCounts"]["registered"]
    assert (counts["total"], counts["ready"]) == (1, 1)
    assert states(cpu) == {
        "health": "Healthy", "scaleUp": "NoActivity", "scaleDown": "NoCandidates",
    }  # fmt: skip
    since = cpu["scaleDown"]["lastTransitionTime"]
    lab.client.delete(PODS, "a", "default")
    lab.wait(30)
    told = status(lab)
    (cpu,) = told["nodeGroups"]
    assert (cpu["scaleDown"]["status"], cpu["scaleDown"]["candidates"]) == ("CandidatesPresent", 1)
    assert told["clusterWide"]["scaleDown"]["candidates"] == 1
    assert cpu["scaleDown"]["lastTransitionTime"] > since
    lab.wait(120)
    told = status(lab)
    assert told["nodeGroups"][0]["health"]["cloudProviderTarget"] == 0
    assert told["clusterWide"]["health"]["nodeCounts"]["registered"]["total"] == 0


def test_a_group_whose_node_does_not_come_in_time_is_left_alone(lab):
    lab.groups(group("1h"))
    submit(lab, "a")
    lab.wait(180)
    (cpu,) = status(lab)["nodeGroups"]
    assert cpu["scaleUp"]["status"] == "Backoff"
    assert cpu["scaleUp"]["backoffInfo"]["errorCode"] == "timeout"
