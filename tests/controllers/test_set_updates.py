"""StatefulSets and DaemonSets are updated as by Kubernetes 1.36, in simulated time."""

import pytest

from dralab.controllers.stateful_sets import _ordinal
from dralab.objects.pods import is_ready
from dralab.runtime.resources import DAEMON_SETS, STATEFUL_SETS
from rollouts import THREE, added, counts, deleted, image_of, labelled, rolling, story, tainted, to

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


@pytest.mark.parametrize(
    ("name", "number"),
    [("d-0", 0), ("d-12", 12), ("d-x", None), ("d-", None), ("e-1", None), ("d-1-2", None)],
)
def test_pods_of_a_stateful_set_are_known_by_their_names(name, number):
    assert _ordinal({"metadata": {"name": "d"}}, {"metadata": {"name": name}}) == number
