"""Rollouts second by second: Deployments, StatefulSets and DaemonSets on nodes in simulated time.

A pod is ready two seconds after its start. What is expected was read against the controllers of
Kubernetes 1.36.
"""

import pytest

from devicelab import DeviceLab
from dralab.node.node_spec import NodeSpec
from dralab.objects.conditions import condition_of
from dralab.objects.pods import is_ready
from dralab.runtime.resources import (
    DAEMON_SETS,
    DEPLOYMENTS,
    NODES,
    PODS,
    REPLICA_SETS,
    STATEFUL_SETS,
)

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
    lab = DeviceLab(nodes=nodes)
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


# --- Deployments: available/wanted of each set; replicas, updated, ready, available, unavailable ------


def of_deployment(lab, obj):
    sets = {
        image_of(one["spec"]["template"]): one
        for one in lab.client.list(REPLICA_SETS, "default").items
    }
    words = [
        f"{image}:{one['status'].get('availableReplicas', 0)}/{one['spec']['replicas']}"
        for image, one in sorted(sets.items())
    ]
    names = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
    words.append(counts(obj, *names, "unavailableReplicas"))
    words.append("available" if condition_of(obj, "Available")["status"] == "True" else "not")
    return " ".join([*words, condition_of(obj, "Progressing")["reason"]])


ROLLOUTS = {
    "one more at a time": (
        {"replicas": 2, "strategy": rolling(maxSurge=1, maxUnavailable=0)},
        {5: to("v2")},
        [
            "0 v1:0/2 2,2,0,0,2 not ReplicaSetUpdated",
            "2 v1:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
            "5 v1:2/2 v2:0/1 3,1,2,2,1 available NewReplicaSetCreated",
            "8 v1:1/1 v2:1/2 3,2,2,2,1 available ReplicaSetUpdated",
            "10 v1:0/0 v2:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
        ],
    ),
    "one fewer at a time": (
        {"replicas": 2, "strategy": rolling(maxSurge=0, maxUnavailable=1)},
        {5: to("v2")},
        [
            "0 v1:0/2 2,2,0,0,2 not ReplicaSetUpdated",
            "2 v1:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
            "5 v1:1/1 v2:0/1 2,1,1,1,1 available ReplicaSetUpdated",
            "8 v1:0/0 v2:1/2 2,2,1,1,1 available ReplicaSetUpdated",
            "10 v1:0/0 v2:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
        ],
    ),
    "neither more nor fewer is one fewer": (
        {"replicas": 2, "strategy": rolling(maxSurge="0%", maxUnavailable="25%")},
        {5: to("v2")},
        [
            "0 v1:0/2 2,2,0,0,2 not ReplicaSetUpdated",
            "2 v1:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
            "5 v1:1/1 v2:0/1 2,1,1,1,1 available ReplicaSetUpdated",
            "8 v1:0/0 v2:1/2 2,2,1,1,1 available ReplicaSetUpdated",
            "10 v1:0/0 v2:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
        ],
    ),
    "a quarter by default": (
        {"replicas": 10},
        {5: to("v2")},
        [
            "0 v1:0/10 10,10,0,0,10 not ReplicaSetUpdated",
            "2 v1:10/10 10,10,10,10,0 available NewReplicaSetAvailable",
            "5 v1:8/8 v2:0/5 13,5,8,8,5 available ReplicaSetUpdated",
            "8 v1:3/3 v2:5/10 13,10,8,8,5 available ReplicaSetUpdated",
            "10 v1:0/0 v2:10/10 10,10,10,10,0 available NewReplicaSetAvailable",
        ],
    ),
    "in parts, rounded up and down": (
        {"replicas": 3, "strategy": rolling(maxSurge="50%", maxUnavailable="34%")},
        {5: to("v2")},
        [
            "0 v1:0/3 3,3,0,0,3 not ReplicaSetUpdated",
            "2 v1:3/3 3,3,3,3,0 available NewReplicaSetAvailable",
            "5 v1:2/2 v2:0/3 5,3,2,2,3 available ReplicaSetUpdated",
            "8 v1:0/0 v2:3/3 3,3,3,3,0 available NewReplicaSetAvailable",
        ],
    ),
    "all at once": (
        {"replicas": 2, "strategy": rolling(maxSurge=0, maxUnavailable=5)},
        {5: to("v2")},
        [
            "0 v1:0/2 2,2,0,0,2 available ReplicaSetUpdated",
            "2 v1:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
            "5 v1:0/0 v2:0/2 2,2,0,0,2 available ReplicaSetUpdated",
            "8 v1:0/0 v2:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
        ],
    ),
    "the old ones first": (
        {"replicas": 2, "strategy": {"type": "Recreate"}},
        {5: to("v2")},
        [
            "0 v1:0/2 2,2,0,0,2 not ReplicaSetUpdated",
            "2 v1:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
            "5 v1:0/0 v2:0/2 2,2,0,0,2 not ReplicaSetUpdated",
            "8 v1:0/0 v2:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
        ],
    ),
    "paused it is resized and not rolled": (
        {"replicas": 2},
        {5: {**to("v2"), "paused": True}, 7: {"replicas": 3}, 12: {"paused": False}},
        [
            "0 v1:0/2 2,2,0,0,2 not ReplicaSetUpdated",
            "2 v1:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
            "5 v1:2/2 2,0,2,2,0 available DeploymentPaused",
            "7 v1:2/3 3,0,2,2,1 not DeploymentPaused",
            "10 v1:3/3 3,0,3,3,0 available DeploymentPaused",
            "12 v1:3/3 v2:0/1 4,1,3,3,1 available ReplicaSetUpdated",
            "15 v1:2/2 v2:1/2 4,2,3,3,1 available ReplicaSetUpdated",
            "17 v1:1/1 v2:2/3 4,3,3,3,1 available ReplicaSetUpdated",
            "19 v1:0/0 v2:3/3 3,3,3,3,0 available NewReplicaSetAvailable",
        ],
    ),
    "resized in the middle each set has its share": (
        {"replicas": 6},
        {5: to("v2"), 6: {"replicas": 12}},
        [
            "0 v1:0/6 6,6,0,0,6 not ReplicaSetUpdated",
            "2 v1:6/6 6,6,6,6,0 available NewReplicaSetAvailable",
            "5 v1:5/5 v2:0/3 8,3,5,5,3 available ReplicaSetUpdated",
            "6 v1:5/9 v2:0/6 15,6,5,5,10 not ReplicaSetUpdated",
            "8 v1:5/6 v2:3/9 15,9,8,8,7 not ReplicaSetUpdated",
            "9 v1:3/3 v2:6/12 15,12,9,9,6 available ReplicaSetUpdated",
            "10 v1:0/0 v2:9/12 12,12,9,9,3 available ReplicaSetUpdated",
            "11 v1:0/0 v2:12/12 12,12,12,12,0 available NewReplicaSetAvailable",
        ],
    ),
    "shrunk in the middle": (
        {"replicas": 12},
        {5: to("v2"), 6: {"replicas": 5}},
        [
            "0 v1:0/12 12,12,0,0,12 not ReplicaSetUpdated",
            "2 v1:12/12 12,12,12,12,0 available NewReplicaSetAvailable",
            "5 v1:9/9 v2:0/6 15,6,9,9,6 available ReplicaSetUpdated",
            "6 v1:0/0 v2:0/5 5,5,0,0,5 not ReplicaSetUpdated",
            "8 v1:0/0 v2:3/5 5,5,3,3,2 not ReplicaSetUpdated",
            "9 v1:0/0 v2:5/5 5,5,5,5,0 available NewReplicaSetAvailable",
        ],
    ),
    "to none in the middle": (
        {"replicas": 4},
        {5: to("v2"), 6: {"replicas": 0}, 9: {"replicas": 1}},
        [
            "0 v1:0/4 4,4,0,0,4 not ReplicaSetUpdated",
            "2 v1:4/4 4,4,4,4,0 available NewReplicaSetAvailable",
            "5 v1:3/3 v2:0/2 5,2,3,3,2 available ReplicaSetUpdated",
            "6 v1:0/0 v2:0/0 0,0,0,0,0 available NewReplicaSetAvailable",
            "9 v1:0/0 v2:0/1 1,1,0,0,1 not ReplicaSetUpdated",
            "12 v1:0/0 v2:1/1 1,1,1,1,0 available NewReplicaSetAvailable",
        ],
    ),
    "the deadline of its progress": (
        {
            "replicas": 2,
            "progressDeadlineSeconds": 10,
            "strategy": rolling(maxSurge=1, maxUnavailable=0),
        },
        {5: to("v2", ready_after=999), 20: to("v3")},
        [
            "0 v1:0/2 2,2,0,0,2 not ReplicaSetUpdated",
            "2 v1:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
            "5 v1:2/2 v2:0/1 3,1,2,2,1 available NewReplicaSetCreated",
            "15 v1:2/2 v2:0/1 3,1,2,2,1 available ProgressDeadlineExceeded",
            "20 v1:2/2 v2:0/0 v3:0/1 3,1,2,2,1 available ReplicaSetUpdated",
            "23 v1:1/1 v2:0/0 v3:1/2 3,2,2,2,1 available ReplicaSetUpdated",
            "25 v1:0/0 v2:0/0 v3:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
        ],
    ),
    "back before it was over": (
        {
            "replicas": 3,
            "revisionHistoryLimit": 1,
            "strategy": rolling(maxSurge=1, maxUnavailable=1),
        },
        {5: to("v2"), 7: to("v3"), 8: to("v1")},
        [
            "0 v1:0/3 3,3,0,0,3 not ReplicaSetUpdated",
            "2 v1:3/3 3,3,3,3,0 available NewReplicaSetAvailable",
            "5 v1:2/2 v2:0/2 4,2,2,2,2 available ReplicaSetUpdated",
            "7 v1:2/2 v2:0/0 v3:0/2 4,2,2,2,2 available ReplicaSetUpdated",
            "8 v1:2/3 v3:0/0 3,3,2,2,1 available ReplicaSetUpdated",
            "11 v1:3/3 v3:0/0 3,3,3,3,0 available NewReplicaSetAvailable",
        ],
    ),
    "old sets are forgotten": (
        {"replicas": 1, "revisionHistoryLimit": 1},
        {4: to("v2"), 8: to("v3"), 12: to("v4")},
        [
            "0 v1:0/1 1,1,0,0,1 not ReplicaSetUpdated",
            "2 v1:1/1 1,1,1,1,0 available NewReplicaSetAvailable",
            "4 v1:1/1 v2:0/1 2,1,1,1,1 available NewReplicaSetCreated",
            "7 v1:0/0 v2:1/1 1,1,1,1,0 available NewReplicaSetAvailable",
            "8 v1:0/0 v2:1/1 v3:0/1 2,1,1,1,1 available NewReplicaSetCreated",
            "11 v2:0/0 v3:1/1 1,1,1,1,0 available NewReplicaSetAvailable",
            "12 v2:0/0 v3:1/1 v4:0/1 2,1,1,1,1 available NewReplicaSetCreated",
            "15 v3:0/0 v4:1/1 1,1,1,1,0 available NewReplicaSetAvailable",
        ],
    ),
    "ready for some seconds": (
        {"replicas": 2, "minReadySeconds": 4, "strategy": rolling(maxSurge=1, maxUnavailable=0)},
        {8: to("v2")},
        [
            "0 v1:0/2 2,2,0,0,2 not ReplicaSetUpdated",
            "2 v1:0/2 2,2,2,0,2 not ReplicaSetUpdated",
            "5 v1:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
            "8 v1:2/2 v2:0/1 3,1,2,2,1 available NewReplicaSetCreated",
            "11 v1:2/2 v2:0/1 3,1,3,2,1 available NewReplicaSetCreated",
            "14 v1:1/1 v2:1/2 3,2,2,2,1 available ReplicaSetUpdated",
            "16 v1:1/1 v2:1/2 3,2,3,2,1 available ReplicaSetUpdated",
            "20 v1:0/0 v2:2/2 2,2,2,2,0 available NewReplicaSetAvailable",
        ],
    ),
}


@pytest.mark.parametrize("name", ROLLOUTS)
def test_a_deployment_is_rolled(name):
    spec, changes, expected = ROLLOUTS[name]
    assert story(DEPLOYMENTS, spec, changes, of_deployment) == expected


# --- StatefulSets: replicas, ready, available, current, updated; `!` while revisions differ ---------------


def of_stateful_set(lab, obj):
    words = [
        f"{name[2:]}:{image_of(pod)}{'+' if is_ready(pod) else ''}"
        for name, pod in sorted(lab.pods("default").items())
    ]
    names = ("replicas", "readyReplicas", "availableReplicas", "currentReplicas")
    words.append(counts(obj, *names, "updatedReplicas"))
    same = obj["status"]["currentRevision"] == obj["status"]["updateRevision"]
    return " ".join(words) + ("" if same else " !")


UPDATES = {
    "in order, the last one is updated first": (
        {"replicas": 2},
        {6: to("v2")},
        [
            "0 0:v1 1,0,0,1,1",
            "1 0:v1+ 1:v1 2,1,1,2,2",
            "3 0:v1+ 1:v1+ 2,2,2,2,2",
            "6 0:v1+ 1:v2 2,1,1,1,1 !",
            "8 0:v2 1:v2+ 2,1,1,0,2 !",
            "10 0:v2+ 1:v2+ 2,2,2,2,2",
        ],
    ),
    "in parallel": (
        {"replicas": 3, "podManagementPolicy": "Parallel"},
        {4: to("v2")},
        [
            "0 0:v1 1:v1 2:v1 3,0,0,3,3",
            "1 0:v1+ 1:v1+ 2:v1+ 3,3,3,3,3",
            "4 0:v1+ 1:v1+ 2:v2 3,2,2,2,1 !",
            "6 0:v1+ 1:v2 2:v2+ 3,2,2,1,2 !",
            "8 0:v2 1:v2+ 2:v2+ 3,2,2,0,3 !",
            "10 0:v2+ 1:v2+ 2:v2+ 3,3,3,3,3",
        ],
    ),
    "in parallel, whatever holds the others up": (
        {"replicas": 2, "podManagementPolicy": "Parallel", **to("v1", ready_after=999)},
        {4: to("v2")},
        [
            "0 0:v1 1:v1 2,0,0,2,2",
            "4 0:v1 1:v2 2,0,0,1,1 !",
            "6 0:v2 1:v2+ 2,1,1,0,2 !",
            "8 0:v2+ 1:v2+ 2,2,2,2,2",
        ],
    ),
    "a partition": (
        {"replicas": 2},
        {
            6: {**to("v2"), "updateStrategy": rolling(partition=1)},
            10: deleted("d-0"),
            14: {"updateStrategy": rolling(partition=0)},
        },
        [
            "0 0:v1 1,0,0,1,1",
            "1 0:v1+ 1:v1 2,1,1,2,2",
            "3 0:v1+ 1:v1+ 2,2,2,2,2",
            "6 0:v1+ 1:v2 2,1,1,1,1 !",
            "8 0:v1+ 1:v2+ 2,2,2,1,1 !",
            "10 0:v1 1:v2+ 2,1,1,1,1 !",
            "12 0:v1+ 1:v2+ 2,2,2,1,1 !",
            "14 0:v2 1:v2+ 2,1,1,0,2 !",
            "16 0:v2+ 1:v2+ 2,2,2,2,2",
        ],
    ),
    "a partition counts from the first number": (
        {"replicas": 2, "ordinals": {"start": 3}, "updateStrategy": rolling(partition=1)},
        {6: to("v2"), 10: deleted("d-3")},
        [
            "0 3:v1 1,0,0,1,1",
            "1 3:v1+ 4:v1 2,1,1,2,2",
            "3 3:v1+ 4:v1+ 2,2,2,2,2",
            "6 3:v1+ 4:v2 2,1,1,1,1 !",
            "8 3:v1+ 4:v2+ 2,2,2,1,1 !",
            "10 3:v1 4:v2+ 2,1,1,1,1 !",
            "12 3:v1+ 4:v2+ 2,2,2,1,1 !",
        ],
    ),
    "as pods are deleted": (
        {"replicas": 2, "updateStrategy": {"type": "OnDelete"}},
        {6: to("v2"), 7: deleted("d-1")},
        [
            "0 0:v1 1,0,0,1,1",
            "1 0:v1+ 1:v1 2,1,1,2,2",
            "3 0:v1+ 1:v1+ 2,2,2,2,2",
            "6 0:v1+ 1:v1+ 2,2,2,2,0 !",
            "7 0:v1+ 1:v2 2,1,1,1,1 !",
            "9 0:v1+ 1:v2+ 2,2,2,1,1 !",
        ],
    ),
    "more and fewer": (
        {"replicas": 2, "ordinals": {"start": 3}},
        {6: {"replicas": 3}, 10: {"replicas": 1}},
        [
            "0 3:v1 1,0,0,1,1",
            "1 3:v1+ 4:v1 2,1,1,2,2",
            "3 3:v1+ 4:v1+ 2,2,2,2,2",
            "6 3:v1+ 4:v1+ 5:v1 3,2,2,3,3",
            "8 3:v1+ 4:v1+ 5:v1+ 3,3,3,3,3",
            "10 3:v1+ 1,1,1,1,1",
        ],
    ),
    "fewer, in parallel": (
        {"replicas": 3, "podManagementPolicy": "Parallel"},
        {4: {"replicas": 1}},
        [
            "0 0:v1 1:v1 2:v1 3,0,0,3,3",
            "1 0:v1+ 1:v1+ 2:v1+ 3,3,3,3,3",
            "4 0:v1+ 1,1,1,1,1",
        ],
    ),
    "ready for some seconds": (
        {"replicas": 2, "minReadySeconds": 3},
        {},
        [
            "0 0:v1 1,0,0,1,1",
            "1 0:v1+ 1,1,0,1,1",
            "4 0:v1+ 1:v1 2,1,1,2,2",
            "6 0:v1+ 1:v1+ 2,2,1,2,2",
            "9 0:v1+ 1:v1+ 2,2,2,2,2",
        ],
    ),
    "an update that does not become ready": (
        {"replicas": 2},
        {6: to("v2", ready_after=999), 9: to("v3")},
        [
            "0 0:v1 1,0,0,1,1",
            "1 0:v1+ 1:v1 2,1,1,2,2",
            "3 0:v1+ 1:v1+ 2,2,2,2,2",
            "6 0:v1+ 1:v2 2,1,1,1,1 !",
            "9 0:v1+ 1:v2 2,1,1,1,0 !",
        ],
    ),
}


@pytest.mark.parametrize("name", UPDATES)
def test_a_stateful_set_is_updated(name):
    spec, changes, expected = UPDATES[name]
    assert story(STATEFUL_SETS, spec, changes, of_stateful_set) == expected


# --- DaemonSets: desired, current, misscheduled, ready, available, unavailable, updated --------------


def of_daemon_set(lab, obj):
    words = sorted(
        f"{pod['spec'].get('nodeName')}:{image_of(pod)}{'+' if is_ready(pod) else ''}"
        for pod in lab.pods("default").values()
    )
    names = [f"{each}NumberScheduled" for each in ("desired", "current")]
    names += [f"number{each}" for each in ("Misscheduled", "Ready", "Available", "Unavailable")]
    return " ".join([*words, counts(obj, *names, "updatedNumberScheduled")])


DAEMONS = {
    "one fewer at a time": (
        {},
        {4: to("v2")},
        [
            "0 n1:v1 n2:v1 n3:v1 3,3,0,0,0,3,3",
            "1 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,3,0,3",
            "4 n1:v1+ n2:v1+ n3:v2 3,3,0,2,2,1,1",
            "6 n1:v2 n2:v1+ n3:v2+ 3,3,0,2,2,1,2",
            "8 n1:v2+ n2:v2 n3:v2+ 3,3,0,2,2,1,3",
            "10 n1:v2+ n2:v2+ n3:v2+ 3,3,0,3,3,0,3",
        ],
    ),
    "two fewer at a time": (
        {"updateStrategy": rolling(maxUnavailable=2)},
        {4: to("v2")},
        [
            "0 n1:v1 n2:v1 n3:v1 3,3,0,0,0,3,3",
            "1 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,3,0,3",
            "4 n1:v2 n2:v1+ n3:v2 3,3,0,1,1,2,2",
            "6 n1:v2+ n2:v2 n3:v2+ 3,3,0,2,2,1,3",
            "8 n1:v2+ n2:v2+ n3:v2+ 3,3,0,3,3,0,3",
        ],
    ),
    "a part of them, rounded up": (
        {"updateStrategy": rolling(maxUnavailable="34%")},
        {4: to("v2")},
        [
            "0 n1:v1 n2:v1 n3:v1 3,3,0,0,0,3,3",
            "1 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,3,0,3",
            "4 n1:v2 n2:v1+ n3:v2 3,3,0,1,1,2,2",
            "6 n1:v2+ n2:v2 n3:v2+ 3,3,0,2,2,1,3",
            "8 n1:v2+ n2:v2+ n3:v2+ 3,3,0,3,3,0,3",
        ],
    ),
    "one more at a time": (
        {"updateStrategy": rolling(maxSurge=1, maxUnavailable=0)},
        {4: to("v2")},
        [
            "0 n1:v1 n2:v1 n3:v1 3,3,0,0,0,3,3",
            "1 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,3,0,3",
            "4 n1:v1+ n1:v2 n2:v1+ n3:v1+ 3,3,0,3,3,0,0",
            "6 n1:v2+ n2:v1+ n2:v2 n3:v1+ 3,3,0,3,3,0,1",
            "8 n1:v2+ n2:v2+ n3:v1+ n3:v2 3,3,0,3,3,0,2",
            "10 n1:v2+ n2:v2+ n3:v2+ 3,3,0,3,3,0,3",
        ],
    ),
    "two more at a time": (
        {"updateStrategy": rolling(maxSurge="50%", maxUnavailable=0)},
        {4: to("v2")},
        [
            "0 n1:v1 n2:v1 n3:v1 3,3,0,0,0,3,3",
            "1 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,3,0,3",
            "4 n1:v1+ n1:v2 n2:v1+ n2:v2 n3:v1+ 3,3,0,3,3,0,0",
            "6 n1:v2+ n2:v2+ n3:v1+ n3:v2 3,3,0,3,3,0,2",
            "8 n1:v2+ n2:v2+ n3:v2+ 3,3,0,3,3,0,3",
        ],
    ),
    "as pods are deleted": (
        {"updateStrategy": {"type": "OnDelete"}},
        {4: to("v2")},
        [
            "0 n1:v1 n2:v1 n3:v1 3,3,0,0,0,3,3",
            "1 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,3,0,3",
            "4 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,3,0,0",
        ],
    ),
    "what is not ready goes at once": (
        to("v1", ready_after=999),
        {4: to("v2")},
        [
            "0 n1:v1 n2:v1 n3:v1 3,3,0,0,0,3,3",
            "4 n1:v2 n2:v2 n3:v2 3,3,0,0,0,3,3",
            "6 n1:v2+ n2:v2+ n3:v2+ 3,3,0,3,3,0,3",
        ],
    ),
    "nodes come and go": (
        to("v1", nodeSelector={"gpu": "y"}),
        {2: labelled("n2", "y"), 4: added("n4"), 5: labelled("n4", "y"), 8: labelled("n2", None)},
        [
            "0 0,0,0,0,0,0,0",
            "2 n2:v1 1,1,0,0,0,1,1",
            "4 n2:v1+ 1,1,0,1,1,0,1",
            "5 n2:v1+ n4:v1 2,2,0,1,1,1,2",
            "7 n2:v1+ n4:v1+ 2,2,0,2,2,0,2",
            "8 n4:v1+ 1,1,0,1,1,0,1",
        ],
    ),
    "taints": (
        {},
        {4: tainted("n1", "NoSchedule"), 6: tainted("n2", "NoExecute")},
        [
            "0 n1:v1 n2:v1 n3:v1 3,3,0,0,0,3,3",
            "1 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,3,0,3",
            "4 n1:v1+ n2:v1+ n3:v1+ 2,2,1,2,2,0,2",
            "6 n1:v1+ n3:v1+ 1,1,1,1,1,0,1",
        ],
    ),
    "ready for some seconds": (
        {"minReadySeconds": 3},
        {},
        [
            "0 n1:v1 n2:v1 n3:v1 3,3,0,0,0,3,3",
            "1 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,0,3,3",
            "4 n1:v1+ n2:v1+ n3:v1+ 3,3,0,3,3,0,3",
        ],
    ),
}


@pytest.mark.parametrize("name", DAEMONS)
def test_a_daemon_set_is_updated(name):
    spec, changes, expected = DAEMONS[name]
    assert story(DAEMON_SETS, spec, changes, of_daemon_set, nodes=THREE) == expected
