"""NodeClaims of Karpenter in a cluster that runs, and nodes that have drifted."""

from copy import deepcopy

import pytest
import yaml

import karpenterkinds
from autoscaledlab import autoscaled
from builders import claim, pod, request
from dralab.objects.metadata import owners_of, status_of
from dralab.runtime.client import amend
from dralab.runtime.resources import CLAIMS, DISRUPTION_BUDGETS, NODES, PODS
from dralab.simulation.live.karpenter_objects import NODE_CLAIMS, NODE_CLASSES, NODE_POOLS
from dralab.simulation.live.node_claims import FINALIZER

TYPES = [
    {"name": "small", "cpu": 4, "price": 1, "startup": "30s"},
    {"name": "gpu", "cpu": 16, "gpus": 2, "model": "L4", "price": 9, "devices": "60s"},
]
FIRST = "default-small-0"


@pytest.fixture
def types(tmp_path):
    path = tmp_path / "types.yaml"
    path.write_text(yaml.safe_dump({"pools": TYPES}))
    return path


@pytest.fixture
def lab(types):
    with autoscaled("karpenter", types) as found:
        found.client.create(NODE_CLASSES, karpenterkinds.node_class())
        found.client.create(NODE_POOLS, karpenterkinds.pool(after="60s"))
        yield found


def submit(lab, name, cpu="3", **more):
    body = pod(name, requests={"cpu": cpu}, terminationGracePeriodSeconds=0, **more)
    lab.client.create(PODS, body, "default")


def claims(lab):
    return {each["metadata"]["name"]: each for each in lab.client.list(NODE_CLAIMS).items}


def conditions(found):
    return {
        each["type"]: each["status"] if each["status"] == "True" else each["reason"]
        for each in status_of(found)["conditions"]
    }


def node_pool(lab):
    return deepcopy(lab.client.get(NODE_POOLS, "default"))


def change(lab, *, budgets=None, metadata=None, **spec):
    """Change the NodePool and its template, while others write its status."""

    def changed(held):
        if budgets is not None:
            held["spec"]["disruption"]["budgets"] = budgets
        if metadata is not None:
            held["spec"]["template"]["metadata"] = metadata
        held["spec"]["template"]["spec"] |= spec
        return True

    amend(lab.client, NODE_POOLS, node_pool(lab), changed)


def test_a_node_claim_tells_how_far_its_machine_is(lab):
    submit(lab, "a")
    lab.wait(15)
    asked = claims(lab)[FIRST]
    assert conditions(asked) == {
        "Launched": "True",
        "Registered": "NodeNotFound",
        "Initialized": "AwaitingReconciliation",
        "Ready": "ReconcilingDependents",
    }
    assert "nodeName" not in asked["status"]
    (ready,) = [each for each in asked["status"]["conditions"] if each["type"] == "Ready"]
    assert ready["message"] == "Registered=Unknown, Initialized=Unknown"
    lab.wait(30)
    there = claims(lab)[FIRST]
    assert set(conditions(there).values()) == {"True"}
    assert (there["status"]["nodeName"], there["status"]["providerID"]) == (
        FIRST, f"kwok://{FIRST}",
    )  # fmt: skip
    assert there["status"]["capacity"]["cpu"] == "4"


def test_a_node_claim_has_the_labels_owner_and_requests_that_karpenter_gives_it(lab):
    submit(lab, "a")
    submit(lab, "b", cpu="1")
    lab.wait(60)
    found = claims(lab)[FIRST]
    labels = found["metadata"]["labels"]
    wanted = {
        "karpenter.sh/nodepool": "default",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.kwok.sh/kwoknodeclass": "default",
        "node.kubernetes.io/instance-type": "small",
    }
    assert wanted.items() <= labels.items()
    (owner,) = owners_of(found)
    assert (owner["kind"], owner["name"]) == ("NodePool", "default")
    assert found["spec"]["resources"]["requests"] == {"cpu": "4", "pods": "2"}
    assert found["spec"]["nodeClassRef"]["name"] == "default"
    node = lab.node(FIRST)
    assert labels.items() <= node["metadata"]["labels"].items()
    (owner,) = owners_of(node)
    assert (owner["kind"], owner["uid"]) == ("NodeClaim", found["metadata"]["uid"])


def test_a_node_is_initialized_when_its_drivers_have_published(lab):
    lab.client.create(CLAIMS, claim("c", request("r", "gpu", count=2), namespace="default"))
    submit(lab, "a", claims={"c": "c"})
    lab.wait(30)
    (found,) = claims(lab).values()
    assert conditions(found)["Initialized"] == "DRADriverPoolsNotPublished"
    lab.wait(60)
    (found,) = claims(lab).values()
    assert conditions(found)["Initialized"] == "True"


@pytest.mark.parametrize("resource", [NODE_CLAIMS, NODES])
def test_who_deletes_a_node_claim_or_its_node_drains_it(lab, resource):
    submit(lab, "a")
    lab.wait(60)
    assert lab.places() == {"a": FIRST}
    lab.client.delete(resource, FIRST)
    assert FIRST in claims(lab)
    assert FINALIZER in lab.node(FIRST)["metadata"]["finalizers"]
    lab.wait(15)
    assert (lab.nodes(), lab.places(), claims(lab)) == ([], {}, {})
    assert lab.events("DisruptionTerminating") == {}


def test_a_budget_of_pods_delays_the_end_of_a_deleted_node_claim(lab):
    budget = {
        "metadata": {"name": "b"},
        "spec": {"minAvailable": 1, "selector": {"matchLabels": {"app": "a"}}},
    }
    lab.client.create(DISRUPTION_BUDGETS, budget, "default")
    submit(lab, "a", labels={"app": "a"})
    lab.wait(60)
    lab.client.delete(NODE_CLAIMS, FIRST)
    lab.wait(60)
    found = claims(lab)[FIRST]
    assert conditions(found)["Drained"] == "Draining"
    assert lab.places() == {"a": FIRST}
    assert lab.node(FIRST)["spec"]["taints"] == [
        {"key": "karpenter.sh/disrupted", "effect": "NoSchedule"}
    ]
    lab.client.delete(DISRUPTION_BUDGETS, "b", "default")
    lab.wait(15)
    # Another machine was asked for while the pod could not leave.
    assert list(claims(lab)) == ["default-small-1"]


def test_an_empty_node_becomes_consolidatable_and_goes_with_its_node_claim(lab):
    submit(lab, "a")
    lab.wait(60)
    lab.client.delete(PODS, "a", "default")
    lab.wait(30)
    assert "Consolidatable" not in conditions(claims(lab)[FIRST])
    lab.wait(40)
    assert conditions(claims(lab)[FIRST])["Consolidatable"] == "True"
    assert "lastPodEventTime" in claims(lab)[FIRST]["status"]
    lab.wait(60)
    assert (lab.nodes(), claims(lab)) == ([], {})
    status = lab.client.get(NODE_POOLS, "default")["status"]
    assert (status["nodes"], status["resources"]["cpu"]) == (0, "0")


def test_a_changed_template_replaces_nodes_within_the_budget_for_drift(lab):
    change(lab, requirements=[karpenterkinds.only("node.kubernetes.io/instance-type", "small")])
    for name in "ab":
        submit(lab, name)
    lab.wait(90)
    assert lab.nodes() == [FIRST, "default-small-1"]
    budget = {"nodes": "1", "reasons": ["Drifted"]}
    change(lab, budgets=[budget], metadata={"labels": {"team": "a"}})
    lab.wait(15)
    drifted = [name for name, each in claims(lab).items() if "Drifted" in conditions(each)]
    assert drifted == [FIRST, "default-small-1"]
    # The replacement comes first, and no new pod goes to the node that it replaces.
    assert len(claims(lab)) == 3
    (going,) = [
        each for each in claims(lab).values() if conditions(each).get("DisruptionReason") == "True"
    ]
    taints = lab.node(going["metadata"]["name"])["spec"]["taints"]
    assert [each["key"] for each in taints] == ["karpenter.sh/disrupted"]
    lab.wait(120)
    assert all(lab.node(name)["metadata"]["labels"]["team"] == "a" for name in lab.nodes())
    events = lab.events("DisruptionTerminating")
    assert {events[FIRST], events["default-small-1"]} == {"Disrupting Node: Drifted"}
    events = lab.events("DisruptionTerminating", of_claims=True)
    assert events[FIRST] == "Disrupting NodeClaim: Drifted"


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ({"expireAfter": "240h"}, "NodePoolDrifted"),
        ({"taints": [{"key": "a", "effect": "NoSchedule"}]}, "NodePoolDrifted"),
        (
            {"requirements": [karpenterkinds.only("node.kubernetes.io/instance-type", "gpu")]},
            "RequirementsDrifted",
        ),
        ({"requirements": [karpenterkinds.only("kubernetes.io/os", "linux")]}, ""),
        ({"expireAfter": "Never", "taints": []}, ""),
    ],
)
def test_a_node_drifts_by_the_fields_that_karpenter_compares(lab, template, reason):
    change(lab, budgets=[{"nodes": "0"}])
    before = node_pool(lab)["spec"]["template"]["spec"]
    submit(lab, "a")
    lab.wait(60)
    change(lab, **template)
    lab.wait(15)
    told = [
        each["reason"]
        for each in claims(lab)[FIRST]["status"]["conditions"]
        if each["type"] == "Drifted"
    ]
    assert told == ([reason] if reason else [])
    change(lab, **before | {"taints": []})
    lab.wait(15)
    assert "Drifted" not in conditions(claims(lab)[FIRST])


def test_a_node_claim_of_a_user_is_not_acted_on_and_says_so(lab):
    lab.client.create(NODE_CLAIMS, {"metadata": {"name": "mine"}, "spec": {}})
    lab.wait(15)
    assert "create a NodePool" in lab.events("NotActedOn", of_claims=True)["mine"]
    lab.client.delete(NODE_CLAIMS, "mine")
    assert claims(lab) == {}


def test_node_claims_outlive_a_restart_and_those_without_a_machine_go(types, tmp_path):
    data = str(tmp_path / "data.db")
    with autoscaled("karpenter", types, data=data) as lab:
        lab.client.create(NODE_CLASSES, karpenterkinds.node_class())
        lab.client.create(NODE_POOLS, karpenterkinds.pool(after="60s"))
        submit(lab, "a")
        lab.wait(60)
        submit(lab, "b")
        lab.wait(15)
        before = claims(lab)
        assert sorted(before) == [FIRST, "default-small-1"]
    with autoscaled("karpenter", types, data=data) as lab:
        lab.wait(5)
        after = claims(lab)
        assert after[FIRST]["metadata"]["uid"] == before[FIRST]["metadata"]["uid"]
        assert conditions(after[FIRST])["Ready"] == "True"
        lab.wait(60)
        assert set(lab.places()) == {"a", "b"}
        assert None not in lab.places().values()
        assert sorted(claims(lab)) == lab.nodes()


@pytest.mark.parametrize("resource", [NODES, NODE_CLAIMS])
def test_a_node_of_a_type_that_is_gone_goes_when_it_is_deleted(types, tmp_path, resource):
    data = str(tmp_path / "data.db")
    with autoscaled("karpenter", types, data=data) as lab:
        lab.client.create(NODE_CLASSES, karpenterkinds.node_class())
        lab.client.create(NODE_POOLS, karpenterkinds.pool(after="60s"))
        submit(lab, "a")
        lab.wait(60)
        assert lab.nodes() == [FIRST]
    types.write_text(yaml.safe_dump({"pools": TYPES[1:]}))
    with autoscaled("karpenter", types, data=data) as lab:
        lab.wait(5)
        assert lab.nodes() == sorted(claims(lab)) == [FIRST]
        lab.client.delete(resource, FIRST)
        lab.wait(5)
        assert lab.nodes() == sorted(claims(lab)) == []
