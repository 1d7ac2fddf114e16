"""Workloads on nodes in simulated time, and what is told of them second by second.

A pod is ready two seconds after its start.
"""

from dralab import SimulatedCluster
from dralab.node.node_spec import NodeSpec
from dralab.runtime.resources import NODES, PODS

THREE = ("n1", "n2", "n3")


def to(image, *, ready_after=2, **spec):
    """Return the change of a template to another image."""
    probe = {"exec": {"command": ["true"]}, "initialDelaySeconds": ready_after, "periodSeconds": 1}
    container = {
        "name": "m",
        "image": image,
        "command": ["sleep", "infinity"],
        "readinessProbe": probe,
    }
    pods = {"terminationGracePeriodSeconds": 0, "containers": [container], **spec}
    return {"template": {"metadata": {"labels": {"app": "w"}}, "spec": pods}}


def rolling(**limits):
    return {"rollingUpdate": limits}


def deleted(name):
    return lambda lab: lab.client.delete(PODS, name, "default", options={"gracePeriodSeconds": 0})


def added(name):
    return lambda lab: lab.kubelets.add_node(NodeSpec(name=name))


def labelled(name, gpu):
    return lambda lab: lab.client.patch(NODES, name, {"metadata": {"labels": {"gpu": gpu}}})


def tainted(name, effect):
    taints = [{"key": "a", "effect": effect}]
    return lambda lab: lab.client.patch(NODES, name, {"spec": {"taints": taints}})


def image_of(obj):
    return obj["spec"]["containers"][0]["image"]


def story(resource, spec, changes, brief, *, nodes=("n1",), seconds=0):
    """Return what `brief` says whenever it changes, with its second, five seconds after the last."""
    lab = SimulatedCluster(nodes=nodes)
    selector = {"matchLabels": {"app": "w"}}
    body = {"metadata": {"name": "d"}, "spec": {"selector": selector, **to("v1"), **spec}}
    lab.client.create(resource, body, "default")
    found, last, second, quiet = [], "", 0, 0
    while quiet < 5 or second <= max([seconds, *changes]):
        lab.wait(1)
        if second in changes:
            change = changes[second]
            if callable(change):
                change(lab)
            else:
                lab.client.patch(resource, "d", {"spec": change}, "default")
            lab.wait(0.01)
        quiet += 1
        if (now := brief(lab, lab.client.get(resource, "d", "default"))) != last:
            found.append(f"{second} {now}")
            last, quiet = now, 0
        second += 1
    return found


def counts(obj, *names):
    return ",".join(str(obj["status"].get(name, 0)) for name in names)
