"""What users of autoscalers ask about devices, in a cluster that runs.

The manifests are those of the issues that are named, written anew in short; what is decided about
them without a cluster is in `tests/capacity/test_autoscaling.py`.
"""

import pytest

import karpenterkinds
from autoscaledlab import autoscaled
from builders import (
    DRIVER,
    claim,
    counter_set,
    device,
    device_class,
    first_of,
    pod,
    request,
    worker,
)
from builders import ask as asking
from builders import pool as slices_of_pool
from dralab.runtime.client import Resource
from dralab.runtime.resources import CLAIM_TEMPLATES, CLAIMS, CLASSES, CONFIG_MAPS, JOBS, PODS
from dralab.simulation.live.karpenter_objects import NODE_CLASSES, NODE_POOLS

DEPLOYMENTS = Resource("apps", "v1", "deployments")
CLASS = device_class("gpu", f'device.driver == "{DRIVER}"')
QUICK = "autoscaler: {cluster-autoscaler: {unneeded: 60s, delay_after_add: 60s}}\n"


@pytest.fixture
def lab(tmp_path):
    (tmp_path / "quick.yaml").write_text(QUICK)
    with autoscaled("cluster-autoscaler", tmp_path / "quick.yaml") as found:
        yield found


def template(name="a100", **more):
    return worker(name, cpu="16", labels={"kwok-nodegroup": name}, **more)


def parts(name="a100", count=4):
    """A card that is one device, or quarters of it, as MIG makes them."""
    devices = [
        device("card", consumes={"card": {"memory": 4 * count}}, profile="whole"),
        *(
            device(f"part-{n}", consumes={"card": {"memory": 4}}, profile="1g.10gb")
            for n in range(count)
        ),
    ]
    return slices_of_pool(
        name, *devices, node=name, counters=[counter_set("card", memory=4 * count)]
    )


def of(profile):
    return f'device.attributes["{DRIVER}"].profile == "{profile}"'


def submit(lab, wire, **more):
    """Create a claim, and a pod that uses it."""
    name = wire["metadata"]["name"]
    lab.client.create(CLAIMS, wire)
    lab.client.create(PODS, pod(name, claims={"c": name}, **more), "default")


def wanting(name, *selectors, **more):
    return claim(name, request("r", "gpu", *selectors, **more), namespace="default")


def deployment(name, replicas, claim_template):
    labels = {"app": name}
    template = pod(name, terminationGracePeriodSeconds=0)["spec"]
    template["resourceClaims"] = [{"name": "c", "resourceClaimTemplateName": claim_template}]
    return {
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": template},
        },
    }


def test_a_group_scales_from_zero_once_its_template_says_how_many_slices_there_are(lab):
    """kubernetes/autoscaler #10199: MIG parts by a claim, and a slice count that was zero."""
    (counted, *others) = parts()
    spec = counted["spec"]
    wrong = {**counted, "spec": {**spec, "pool": {**spec["pool"], "resourceSliceCount": 0}}}
    lab.groups(template(), wrong, *others, CLASS)
    submit(lab, wanting("a", of("1g.10gb")))
    lab.wait(30)
    assert lab.nodes() == []
    assert lab.events("NotTriggerScaleUp") == {
        "a": "pod didn't trigger scale-up: 1 cannot allocate all claims"
    }
    lab.client.delete(CONFIG_MAPS, "kwok-provider-templates", "kube-system")
    lab.client.delete(CONFIG_MAPS, "kwok-provider-config", "kube-system")
    lab.groups(template(), *parts(), CLASS)
    lab.wait(30)
    assert lab.places() == {"a": "a100-0"}


def test_a_node_goes_by_the_parts_of_its_card_that_are_in_use(lab):
    """kubernetes/autoscaler #8053, #7781: parts count by the counters that they take."""
    lab.groups(template(), *parts(), CLASS)
    spec = {"spec": wanting("t", of("1g.10gb"))["spec"]}
    lab.client.create(CLAIM_TEMPLATES, {"metadata": {"name": "part"}, "spec": spec}, "default")
    lab.client.create(DEPLOYMENTS, deployment("serve", 8, "part"), "default")
    lab.wait(60)
    assert lab.nodes() == ["a100-0", "a100-1"]
    # Three parts of four are in use: more than the threshold.
    lab.client.patch(DEPLOYMENTS, "serve", {"spec": {"replicas": 6}}, "default")
    lab.wait(300)
    assert lab.nodes() == ["a100-0", "a100-1"]
    # One of four: the pod of one node moves to the other.
    lab.client.patch(DEPLOYMENTS, "serve", {"spec": {"replicas": 2}}, "default")
    lab.wait(300)
    assert len(lab.nodes()) == 1
    assert list(lab.places().values()) == lab.nodes() * 2


def test_shares_of_the_cpus_of_numa_nodes_are_devices_of_new_nodes(lab):
    """kubernetes-sigs/kwok #1654, #1733: nodes of a simulation with devices of the driver dra.cpu."""
    name = "dra.cpu/cpu"
    cpus = [
        device(f"cpudevnuma{n:03}", shared=True, capacity={name: "8"}, numa=n) for n in range(2)
    ]
    slices = slices_of_pool("a100", *cpus, node="a100", driver="dra.cpu")
    lab.groups(template(), *slices, device_class("cpu", 'device.driver == "dra.cpu"'))
    for each in "abcde":
        wire = claim(
            each, request("r", "cpu", capacity={"requests": {name: "4"}}), namespace="default"
        )
        submit(lab, wire)
    lab.wait(30)
    assert lab.nodes() == ["a100-0", "a100-1"]
    assert None not in lab.places().values()
    shares = [
        result["shareID"]
        for item in lab.client.list(CLAIMS).items
        for result in item["status"]["allocation"]["devices"]["results"]
    ]
    assert len(set(shares)) == 5
    phases = {item["status"]["phase"] for item in lab.client.list(PODS).items}
    assert phases == {"Running"}


def test_pods_that_are_held_back_ask_for_no_nodes(lab):
    """Kueue holds Jobs by `suspend`, and pods by a scheduling gate, until it admits them."""
    lab.groups(template(), *parts(), CLASS)
    spec = {"spec": wanting("t", of("whole"))["spec"]}
    lab.client.create(CLAIM_TEMPLATES, {"metadata": {"name": "whole"}, "spec": spec}, "default")
    wanted = deployment("x", 1, "whole")["spec"]["template"]
    wanted["spec"]["restartPolicy"] = "Never"
    job = {
        "metadata": {"name": "train"},
        "spec": {
            "suspend": True,
            "parallelism": 2,
            "completions": 2,
            "template": {"spec": wanted["spec"]},
        },
    }
    lab.client.create(JOBS, job, "default")
    gated = pod("gated", schedulingGates=[{"name": "kueue.x-k8s.io/admission"}])
    lab.client.create(PODS, gated, "default")
    lab.wait(60)
    assert lab.nodes() == []
    lab.client.patch(JOBS, "train", {"spec": {"suspend": False}}, "default")
    lab.wait(30)
    assert lab.nodes() == ["a100-0", "a100-1"]


def test_karpenter_asks_for_instance_types_by_the_devices_they_will_publish(tmp_path):
    """kubernetes-sigs/karpenter #3228: alternatives, and one claim of several pods."""
    (tmp_path / "types.yaml").write_text(
        "pools: [{name: one, cpu: 8, gpus: 1, model: L4, price: 2}, "
        "{name: four, cpu: 16, gpus: 4, model: H100, price: 20}]\n"
    )
    with autoscaled("karpenter", tmp_path / "types.yaml") as lab:
        lab.client.create(NODE_CLASSES, karpenterkinds.node_class())
        lab.client.create(NODE_POOLS, karpenterkinds.pool())
        either = first_of("r", big=asking("gpu", count=8), small=asking("gpu", count=3))
        submit(lab, claim("either", either, namespace="default"))
        lab.client.create(CLAIMS, wanting("shared"))
        for name in "ab":
            body = pod(name, claims={"c": "shared"}, requests={"cpu": "3"})
            lab.client.create(PODS, body, "default")
        lab.wait(30)
        places = lab.places()
        # The three devices are on a large node, which has one more for the claim of the others.
        assert set(places.values()) == {"default-four-0"}
        assert lab.client.list(CLASSES).items


@pytest.mark.parametrize("name", ["karpenter", "cluster-autoscaler"])
def test_gangs_of_claims_get_their_nodes_together(name, tmp_path):
    """Pods of one arrival that need a node each are asked for at once, not one after the other."""
    (tmp_path / "types.yaml").write_text("pools: [{name: two, cpu: 8, gpus: 2, model: A100}]\n")
    with autoscaled(name, tmp_path / "types.yaml") as lab:
        if name == "karpenter":
            lab.client.create(NODE_CLASSES, karpenterkinds.node_class())
            lab.client.create(NODE_POOLS, karpenterkinds.pool())
        for each in "abc":
            submit(lab, wanting(each, count=2))
        lab.wait(25)
        assert len(set(lab.places().values())) == 3
        assert len(lab.nodes()) == 3
