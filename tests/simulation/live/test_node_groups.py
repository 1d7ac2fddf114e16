"""Node groups of cluster-autoscaler's provider kwok, in a cluster that runs."""

import pytest
import yaml

from autoscaledlab import CONFIG, autoscaled
from builders import claim, device, device_class, pod, request, worker
from builders import pool as slices_of_pool
from dralab.runtime.resources import CLAIMS, CONFIG_MAPS, EVENTS, NODES, PODS

GROUP = "cluster-autoscaler.kwok.nodegroup/"
QUICK = "autoscaler: {cluster-autoscaler: {unneeded: 60s, delay_after_add: 60s}}\n"


def template(name="gpu", *, cpu="16", notes=(), **more):
    found = worker(name, cpu=cpu, labels={"kwok-nodegroup": name}, **more)
    found["metadata"]["annotations"] = dict(notes)
    return found


def gpus(name="gpu", count=2):
    devices = [device(f"gpu-{n}") for n in range(count)]
    return slices_of_pool(name, *devices, node=name)


CLASS = device_class("gpu", 'device.driver == "gpu.example.com"')


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "quick.yaml").write_text(QUICK)
    with autoscaled("cluster-autoscaler", tmp_path / "quick.yaml") as found:
        yield found


def submit(lab, name, count=1, **more):
    """Create a pod that claims devices, of a kind that a controller would make again."""
    lab.client.create(CLAIMS, claim(name, request("r", "gpu", count=count), namespace="default"))
    lab.client.create(PODS, pod(name, claims={"c": name}, **more), "default")


def test_a_group_without_nodes_grows_for_claims_by_the_slices_of_its_template(lab):
    lab.groups(template(), *gpus(), CLASS)
    for name in "abc":
        submit(lab, name)
    lab.wait(15)
    assert lab.nodes() == ["gpu-0", "gpu-1"]
    assert set(lab.places().values()) == {"gpu-0", "gpu-1"}
    assert len(lab.slices()) == 2
    text = "pod triggered scale-up: [{gpu 0->2 (max: 200)}]"
    assert lab.events("TriggeredScaleUp") == dict.fromkeys("abc", text)
    node = lab.node("gpu-0")
    assert node["spec"]["providerID"] == "kwok:gpu-0"
    assert node["metadata"]["annotations"][f"{GROUP}name"] == "gpu"


def test_nodes_that_nobody_needs_go_with_their_devices(lab):
    lab.groups(template(), *gpus(), CLASS)
    for name in "ab":
        submit(lab, name, 2)
    lab.wait(30)
    assert lab.nodes() == ["gpu-0", "gpu-1"]
    gone = lab.places()["a"]
    lab.client.delete(PODS, "a", "default", options={"gracePeriodSeconds": 0})
    lab.wait(120)
    assert lab.nodes() == [lab.places()["b"]] != [gone]
    assert len(lab.slices()) == 1
    told = [
        (event["involvedObject"]["name"], event["message"])
        for event in lab.client.list(EVENTS).items
        if event["reason"] == "ScaleDown"
    ]
    assert sorted(told) == [
        (gone, "marked the node as toBeDeleted/unschedulable"),
        (gone, "nodes removed by cluster autoscaler"),
    ]


def test_a_group_has_at_most_so_many_nodes_and_pods_are_told_why_none_comes(lab):
    lab.groups(template(notes={f"{GROUP}max-count": "1"}), *gpus(), CLASS)
    for name in "ab":
        submit(lab, name, 2)
    submit(lab, "huge", 3)
    lab.wait(30)
    assert lab.nodes() == ["gpu-0"]
    told = lab.events("NotTriggerScaleUp")
    waits = {name for name, node in lab.places().items() if node is None}
    assert "huge" in waits
    assert told.keys() == waits
    assert told["huge"] == "pod didn't trigger scale-up: 1 max node group size reached"


def test_a_node_comes_after_its_start_up_and_its_devices_after_it(lab):
    notes = {"simulation.dralab.dev/startup": "60s", "simulation.dralab.dev/devices": "120s"}
    lab.groups(template(notes=notes), *gpus(), CLASS)
    submit(lab, "a")
    lab.wait(45)
    assert lab.nodes() == []
    lab.wait(60)
    assert lab.nodes() == ["gpu-0"]
    assert (lab.slices(), lab.places()["a"]) == ([], None)
    lab.wait(120)
    assert len(lab.slices()) == 1
    assert lab.places()["a"] == "gpu-0"
    assert lab.nodes() == ["gpu-0"]


def test_there_are_always_as_many_nodes_as_the_least(lab):
    lab.groups(template("plain", notes={f"{GROUP}min-count": "2"}))
    lab.wait(15)
    assert lab.nodes() == ["plain-0", "plain-1"]


def test_nodes_are_tainted_unless_the_configuration_says_otherwise(lab):
    lab.groups(template("plain"), config={**CONFIG, "nodes": {}})
    lab.client.create(PODS, pod("a"), "default")
    lab.wait(30)
    assert lab.nodes() == []
    [message] = lab.events("NotTriggerScaleUp").values()
    assert "untolerated taint" in message
    tolerant = pod("b", tolerations=[{"key": "kwok-provider", "operator": "Exists"}])
    lab.client.create(PODS, tolerant, "default")
    lab.wait(30)
    assert lab.places() == {"a": None, "b": "plain-0"}


def test_templates_may_change_while_the_cluster_runs(lab):
    lab.groups(template("small", cpu="2"))
    lab.client.create(PODS, pod("a", requests={"cpu": "8"}), "default")
    lab.wait(30)
    assert lab.nodes() == []
    held = lab.client.get(CONFIG_MAPS, "kwok-provider-templates", "kube-system")
    text = yaml.safe_dump({"kind": "List", "items": [template("large")]})
    lab.client.update(CONFIG_MAPS, {**held, "data": {"templates": text}})
    lab.wait(30)
    assert lab.nodes() == ["large-0"]


def test_the_nodes_of_the_cluster_may_be_the_templates(lab):
    config = {**CONFIG, "readNodesFrom": "cluster"}
    lab.client.create(NODES, template("seed", cpu="4"))
    lab.config_map("kwok-provider-config", "config", config)
    for name in "ab":
        lab.client.create(PODS, pod(name, requests={"cpu": "3"}), "default")
    lab.wait(30)
    assert sorted(lab.places().values()) == ["seed", "seed-0"]


def test_nodes_of_before_a_restart_are_taken_over(tmp_path):
    (tmp_path / "quick.yaml").write_text(QUICK)
    how = {"file": tmp_path / "quick.yaml", "data": tmp_path / "data"}
    with autoscaled("cluster-autoscaler", **how) as lab:
        lab.groups(template(), *gpus(), CLASS)
        submit(lab, "a")
        lab.wait(30)
        assert lab.places() == {"a": "gpu-0"}
    with autoscaled("cluster-autoscaler", **how) as lab:
        lab.wait(30)
        assert len(lab.slices()) == 1
        lab.client.delete(PODS, "a", "default", options={"gracePeriodSeconds": 0})
        # It is looked at again five minutes after its pod kept it.
        lab.wait(420)
        assert (lab.nodes(), lab.slices()) == ([], [])


@pytest.mark.parametrize(
    ("config", "objects", "problem"),
    [
        ({"readNodesFrom": "here"}, (), "readNodesFrom: 'here' is not one of configmap, cluster"),
        ({"nodegroups": {}}, (), "fromNodeLabelKey, fromNodeAnnotationKey"),
        ({"configmap": {"name": "other"}}, (), "there is no ConfigMap other in kube-system"),
        ({}, (), "data.templates: must be given"),
        (
            {},
            (template(notes={f"{GROUP}max-count": "many"}),),
            f"templates: Node gpu: {GROUP}max-count is 'many': give a whole number",
        ),
        (
            {},
            (template(notes={f"{GROUP}max-count": "1", f"{GROUP}min-count": "2"}),),
            f"{GROUP}min-count is 2, and {GROUP}max-count only 1",
        ),
        (
            {},
            (template(notes={f"{GROUP}max-count": "1000000"}),),
            f"{GROUP}max-count is 1000000, and a group has at most 5000 nodes",
        ),
        (
            {},
            (template(notes={"simulation.dralab.dev/price": "nan"}),),
            "price is 'nan': give a number from 0 on",
        ),
        ({}, (template("Big_One"),), "the group 'Big_One' cannot name nodes"),
        ({}, (worker("plain"),), "Node plain is in no group: it has no label kwok-nodegroup"),
        ({}, (template(), *gpus("other")), "names node other, which is not a template"),
        ({"nodes": {"gpuConfig": {"gpuLabelKey": "x"}}}, (template(),), "gpuConfig is not acted"),
    ],
)
def test_what_is_wrong_with_groups_or_not_acted_on_is_an_event_of_their_config_map(
    lab, config, objects, problem
):
    lab.groups(*objects, config={**CONFIG, **config})
    lab.wait(15)
    said = {**lab.events("InvalidConfiguration"), **lab.events("NotActedOn")}
    assert problem in " ".join(said.values())
