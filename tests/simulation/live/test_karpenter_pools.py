"""NodePools of Karpenter in a cluster that runs, with its provider kwok."""

import pytest

import karpenterkinds
from autoscaledlab import autoscaled
from builders import claim, pod, request
from dralab.runtime.client import amend
from dralab.runtime.resources import CLAIMS, NODES, PODS
from dralab.simulation.live.instance_types import usual_types
from dralab.simulation.live.karpenter_objects import NODE_CLASSES, NODE_POOLS

TYPES = """
pools:
- {name: small, cpu: 4, price: 1}
- {name: large, cpu: 16, price: 3}
- {name: gpu, cpu: 16, gpus: 2, model: L4, price: 9, startup: 30s, devices: 60s}
"""


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "types.yaml").write_text(TYPES)
    with autoscaled("karpenter", tmp_path / "types.yaml") as found:
        found.client.create(NODE_CLASSES, karpenterkinds.node_class())
        yield found


def pool(name="default", *, shape="", template=(), **more):
    """A NodePool; `template` goes into its template's spec."""
    found = karpenterkinds.pool(name, shape=shape, **more)
    found["spec"]["template"]["spec"] |= dict(template)
    return found


def submit(lab, name, cpu="2", gpus=0, **more):
    claims = {}
    if gpus:
        wire = claim(name, request("r", "gpu", count=gpus), namespace="default")
        lab.client.create(CLAIMS, wire)
        claims = {"claims": {"c": name}}
    body = pod(name, requests={"cpu": cpu}, **claims, **more)
    lab.client.create(PODS, body, "default")


def shapes(lab):
    return sorted(
        node["metadata"]["labels"]["node.kubernetes.io/instance-type"]
        for node in lab.client.list(NODES).items
    )


def delete(lab, *names):
    for name in names:
        lab.client.delete(PODS, name, "default", options={"gracePeriodSeconds": 0})


def conditions(lab, name="default"):
    status = lab.client.get(NODE_POOLS, name).get("status") or {}
    return {each["type"]: (each["status"], each["message"]) for each in status["conditions"]}


def test_pods_get_the_cheapest_node_that_fits_them_and_are_told_which(lab):
    lab.client.create(NODE_POOLS, pool())
    for name in "abc":
        submit(lab, name)
    lab.wait(15)
    assert shapes(lab) == ["large"]
    assert set(lab.places().values()) == {"default-large-0"}
    text = "Pod should schedule on: nodeclaim/default-large-0"
    assert lab.events("Nominated") == dict.fromkeys("abc", text)
    node = lab.node("default-large-0")
    assert node["metadata"]["labels"]["karpenter.sh/nodepool"] == "default"
    assert node["spec"]["providerID"] == "kwok://default-large-0"
    status = lab.client.get(NODE_POOLS, "default")["status"]
    assert (status["nodes"], status["resources"]["cpu"]) == (1, "16")
    assert set(conditions(lab).values()) == {("True", "")}


def test_claims_get_nodes_with_devices_after_start_up_and_publishing(lab):
    lab.client.create(NODE_POOLS, pool())
    submit(lab, "a", gpus=2)
    lab.wait(45)
    assert (lab.nodes(), lab.slices(), lab.places()["a"]) == (["default-gpu-0"], [], None)
    lab.wait(60)
    assert lab.places()["a"] == "default-gpu-0"
    assert lab.nodes() == ["default-gpu-0"]


def test_empty_nodes_go_and_one_that_is_too_large_is_replaced(lab):
    lab.client.create(NODE_POOLS, pool(after="30s"))
    for name in "abc":
        submit(lab, name, terminationGracePeriodSeconds=0)
    lab.wait(15)
    delete(lab, "b", "c")
    lab.wait(120)
    # The pod is evicted when the smaller node is ready; nobody makes it again, so that one goes, too.
    lab.wait(120)
    assert lab.nodes() == []
    assert lab.events("DisruptionTerminating") == {
        "default-large-0": "Disrupting Node: Underutilized",
        "default-small-0": "Disrupting Node: Empty",
    }
    assert lab.client.get(NODE_POOLS, "default")["status"]["nodes"] == 0


def test_the_heavier_node_pool_comes_first_until_its_limits_are_reached(lab):
    lab.client.create(NODE_POOLS, pool("heavy", shape="small", weight=10, limits={"cpu": "8"}))
    lab.client.create(NODE_POOLS, pool("light", shape="small"))
    for name in "abc":
        submit(lab, name, cpu="3")
    lab.wait(15)
    assert lab.nodes() == ["heavy-small-0", "heavy-small-1", "light-small-0"]


def test_taints_keep_pods_away_and_startup_taints_until_the_node_is_ready(lab):
    taint = {"key": "team", "value": "a", "effect": "NoSchedule"}
    starting = {"key": "starting", "effect": "NoSchedule"}
    lab.client.create(NODE_POOLS, pool(template={"taints": [taint], "startupTaints": [starting]}))
    submit(lab, "a")
    submit(lab, "b", tolerations=[{"key": "team", "operator": "Exists"}])
    lab.wait(20)
    assert lab.places() == {"a": None, "b": "default-small-0"}
    assert [each["key"] for each in lab.node("default-small-0")["spec"]["taints"]] == ["team"]
    assert "a" in lab.events("FailedScheduling")


def test_a_budget_keeps_empty_nodes(lab):
    lab.client.create(NODE_POOLS, pool(after="0s", budgets=({"nodes": "0"},)))
    submit(lab, "a")
    lab.wait(15)
    delete(lab, "a")
    lab.wait(300)
    assert lab.nodes() == ["default-small-0"]


def test_a_node_pool_may_change_and_the_nodes_of_one_that_is_deleted_go(lab):
    lab.client.create(NODE_POOLS, pool(shape="small"))
    submit(lab, "huge", cpu="8")
    lab.wait(15)
    assert lab.nodes() == []
    spec = pool(shape="large")["spec"]
    held = lab.client.get(NODE_POOLS, "default")
    amend(lab.client, NODE_POOLS, held, lambda latest: not latest.update(spec=spec))
    lab.wait(15)
    assert lab.places() == {"huge": "default-large-0"}
    lab.client.delete(NODE_POOLS, "default")
    lab.wait(60)
    assert lab.nodes() == []


def test_a_node_expires(lab):
    lab.client.create(NODE_POOLS, pool(template={"expireAfter": "5m"}))
    submit(lab, "a", terminationGracePeriodSeconds=0)
    lab.wait(60)
    assert lab.nodes() == ["default-small-0"]
    lab.wait(300)
    assert lab.nodes() == []


def test_a_node_registers_as_late_as_its_class_says(lab):
    late = karpenterkinds.node_class("90s")
    late["metadata"]["name"] = "late"
    lab.client.create(NODE_CLASSES, late)
    ref = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "late"}
    lab.client.create(NODE_POOLS, pool(template={"nodeClassRef": ref}))
    submit(lab, "a")
    lab.wait(60)
    assert lab.nodes() == []
    lab.wait(60)
    assert lab.places() == {"a": "default-small-0"}


@pytest.mark.parametrize(
    ("template", "condition", "problem"),
    [
        (
            {"nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "x"}},
            "NodeClassReady",
            "'x' does not exist",
        ),
        (
            {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "x"}},
            "NodeClassReady",
            "must be of karpenter.kwok.sh KWOKNodeClass, and is of karpenter.k8s.aws EC2NodeClass",
        ),
        ({"expireAfter": "soon"}, "ValidationSucceeded", "spec.template.spec.expireAfter"),
        ({"taintz": []}, "ValidationSucceeded", "spec.template.spec.taintz: is unknown"),
    ],
)
def test_what_is_wrong_with_a_node_pool_is_in_its_status_and_an_event(
    lab, template, condition, problem
):
    lab.client.create(NODE_POOLS, pool(template=template))
    submit(lab, "a")
    lab.wait(15)
    found = conditions(lab)
    assert found[condition][0] == found["Ready"][0] == "False"
    assert problem in found[condition][1]
    assert problem in lab.events("InvalidConfiguration")["default"]
    assert lab.nodes() == []


def test_what_is_not_acted_on_is_an_event(lab):
    lab.client.create(NODE_POOLS, pool(template={"terminationGracePeriod": "1h"}))
    lab.wait(15)
    text = "spec.template.spec.terminationGracePeriod is not acted on"
    assert lab.events("NotActedOn") == {"default": text}


def test_without_a_file_there_are_the_types_of_kwok_and_of_the_catalogue():
    found = {each.name: each for each in usual_types()}
    assert {"c-1x-amd64-linux", "m-256x-arm64-linux-spot", "h100", "a100-40-spot"} <= set(found)
    # 0.025 for each CPU, 0.001 for each 10^9 bytes; spot machines cost 70 %.
    plain, spot = found["s-4x-amd64-linux"], found["s-4x-amd64-linux-spot"]
    assert plain.price == pytest.approx(0.1 + 16 * 2**30 / 10**12)
    assert spot.price == pytest.approx(0.7 * plain.price)
    (node,) = plain.fleet.nodes
    assert node.cpu == 3900
