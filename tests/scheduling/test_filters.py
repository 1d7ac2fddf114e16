"""Which nodes may run a pod: the same answers for the scheduler and for commands on files."""

import pytest

from builders import device_class
from dralab.objects.taints import UNSCHEDULABLE
from dralab.scheduling.filters import reasons_by_node
from dralab.scheduling.model import ClusterModel


def node(name="n", labels=None, taints=(), cordoned=False, **allocatable):
    spec = {"taints": [*taints]} | ({"unschedulable": True} if cordoned else {})
    made = {"metadata": {"name": name, "labels": labels or {}}, "spec": spec}
    return made | ({"status": {"allocatable": allocatable}} if allocatable else {})


def pod(name="p", cpu="", on="", phase="", **spec):
    resources = {"requests": {"cpu": cpu}} if cpu else {}
    spec = {"containers": [{"name": "c", "resources": resources}], **spec}
    if on:
        spec["nodeName"] = on
    return {"metadata": {"name": name}, "spec": spec, "status": {"phase": phase}}


def affinity(key, operator, *values, field="matchExpressions"):
    term = {field: [{"key": key, "operator": operator, "values": [*values]}]}
    required = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}


WORN = {"key": "worn", "value": "out", "effect": "NoSchedule"}
NO_MATCH = ["node(s) didn't match Pod's node affinity/selector"]


@pytest.mark.parametrize(
    ("of", "wanted", "why"),
    [
        (node(), pod(cpu="64"), []),
        (node(cpu="2", pods="9"), pod(cpu="2"), []),
        (node(cpu="2", pods="9"), pod(cpu="64"), ["Insufficient cpu"]),
        (node(cpu="2", pods="0"), pod(cpu="64"), ["Too many pods", "Insufficient cpu"]),
        (node(cpu="2"), pod(cpu="1"), []),
        (node(memory="1Gi"), pod(cpu="1"), ["Insufficient cpu"]),
        (node(taints=[WORN]), pod(), ["node(s) had untolerated taint {worn: out}"]),
        (node(taints=[WORN]), pod(tolerations=[{"key": "worn", "operator": "Exists"}]), []),
        (node(taints=[WORN | {"effect": "PreferNoSchedule"}]), pod(), []),
        (node(cordoned=True, taints=[WORN]), pod(), ["node(s) were unschedulable"]),
        (
            node(cordoned=True),
            pod(tolerations=[{"key": UNSCHEDULABLE["key"], "operator": "Exists"}]),
            [],
        ),
        (node(), pod(nodeSelector={"zone": "a"}), NO_MATCH),
        (node(labels={"zone": "a"}), pod(nodeSelector={"zone": "a"}), []),
        (node(labels={"zone": "a"}), pod(affinity=affinity("zone", "In", "a", "b")), []),
        (node(labels={"zone": "c"}), pod(affinity=affinity("zone", "In", "a", "b")), NO_MATCH),
        (
            node(),
            pod(affinity=affinity("metadata.name", "In", "n", field="matchFields")),
            [],
        ),
        (node(taints=[WORN], cpu="1"), pod(cpu="64", on="n"), []),
        (node(), pod(on="m"), ["node(s) didn't match the requested node name"]),
    ],
)
def test_a_node_says_why_it_may_not_run_a_pod(of, wanted, why):
    assert refusals([of], wanted) == why


def refusals(nodes, wanted, running=(), more=()):
    """Return kube-scheduler's reason against the first node for a pod."""
    made = [
        *({"kind": "Node", **each} for each in nodes),
        *({"kind": "Pod", **each} for each in running),
    ]
    model = ClusterModel([*made, *more])
    info = model.info(model.objects.pod(wanted))
    demand = model.state.demands.demand_of(info)
    found = reasons_by_node(model.state, info, demand).get(nodes[0]["metadata"]["name"], ())
    return [str(reason) for reason in found]


def test_bound_pods_take_room_until_they_are_finished():
    running = [pod("a", "1", on="n"), pod("b", "1", on="n", phase="Succeeded")]
    small = node(cpu="2", pods="2")
    assert refusals([small], pod("c", "1"), running) == []
    running.append(pod("c", "1", on="n"))
    assert refusals([small], pod("d", "1"), running) == ["Too many pods", "Insufficient cpu"]


@pytest.mark.parametrize(("offered", "fits"), [({}, True), ({"g": "0"}, True), ({"g": "1"}, False)])
def test_devices_provide_what_the_node_itself_does_not_have(offered, fits):
    offered = {f"example.com/{name}": amount for name, amount in offered.items()}
    wanted = pod()
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"example.com/g": "2"}}
    kind = device_class("g") | {"spec": {"extendedResourceName": "example.com/g"}}
    short = refusals([node(cpu="1", **offered)], wanted, more=[kind])
    assert short == ([] if fits else ["Insufficient example.com/g"])
