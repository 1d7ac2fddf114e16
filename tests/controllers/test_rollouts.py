"""Deployments are rolled as by Kubernetes 1.36, in simulated time."""

import pytest

from dralab.objects.conditions import condition_of
from dralab.runtime.resources import DEPLOYMENTS, REPLICA_SETS
from rollouts import counts, image_of, rolling, story, to

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
            "5 v1:2/2 v2:0/1 3,1,2,2,1 available ReplicaSetUpdated",
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
    "resized by one in the middle": (
        {"replicas": 6},
        {5: to("v2"), 6: {"replicas": 7}},
        [
            "0 v1:0/6 6,6,0,0,6 not ReplicaSetUpdated",
            "2 v1:6/6 6,6,6,6,0 available NewReplicaSetAvailable",
            "5 v1:5/5 v2:0/3 8,3,5,5,3 available ReplicaSetUpdated",
            "6 v1:5/6 v2:0/3 9,3,5,5,4 not ReplicaSetUpdated",
            "8 v1:3/3 v2:3/6 9,6,6,6,3 available ReplicaSetUpdated",
            "10 v1:0/0 v2:6/7 7,7,6,6,1 available ReplicaSetUpdated",
            "12 v1:0/0 v2:7/7 7,7,7,7,0 available NewReplicaSetAvailable",
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
            "5 v1:2/2 v2:0/1 3,1,2,2,1 available ReplicaSetUpdated",
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
            "4 v1:1/1 v2:0/1 2,1,1,1,1 available ReplicaSetUpdated",
            "7 v1:0/0 v2:1/1 1,1,1,1,0 available NewReplicaSetAvailable",
            "8 v1:0/0 v2:1/1 v3:0/1 2,1,1,1,1 available ReplicaSetUpdated",
            "11 v2:0/0 v3:1/1 1,1,1,1,0 available NewReplicaSetAvailable",
            "12 v2:0/0 v3:1/1 v4:0/1 2,1,1,1,1 available ReplicaSetUpdated",
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
            "8 v1:2/2 v2:0/1 3,1,2,2,1 available ReplicaSetUpdated",
            "11 v1:2/2 v2:0/1 3,1,3,2,1 available ReplicaSetUpdated",
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
