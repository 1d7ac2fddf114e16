"""Pods that nobody will end go, and nothing is looked at while there is nothing to find."""

import pytest

from dralab.components.simulated import SimulatedCluster
from dralab.controllers import pod_gc
from dralab.runtime.resources import NODES, PODS


@pytest.fixture
def cluster():
    return SimulatedCluster(without=["scheduler"])


def node(cluster, name):
    status = {"conditions": [{"type": "Ready", "status": "True"}]}
    cluster.client.create(NODES, {"metadata": {"name": name}, "status": status})


def pod(cluster, name, on="", **more):
    spec = {"containers": [{"name": "c", "image": "x"}], **({"nodeName": on} if on else {})}
    body = {"metadata": {"name": name, **more}, "spec": spec}
    return cluster.client.create(PODS, body, "default")


def names(cluster):
    return [item["metadata"]["name"] for item in cluster.client.list(PODS).items]


def test_pods_of_a_node_that_is_gone_are_deleted_after_its_quarantine(cluster):
    node(cluster, "n")
    pod(cluster, "p", on="n")
    cluster.wait(120)
    assert names(cluster) == ["p"]
    cluster.client.delete(NODES, "n")
    cluster.wait(39)
    assert names(cluster) == ["p"]
    cluster.wait(41)
    assert names(cluster) == []


def test_a_node_that_comes_back_in_time_keeps_its_pods(cluster):
    node(cluster, "n")
    pod(cluster, "p", on="n")
    cluster.client.delete(NODES, "n")
    cluster.wait(30)
    node(cluster, "n")
    cluster.wait(300)
    assert names(cluster) == ["p"]


def test_a_pod_of_a_node_that_never_was_is_deleted_too(cluster):
    pod(cluster, "p", on="nowhere")
    cluster.wait(100)
    assert names(cluster) == []


def test_a_pod_that_was_deleted_before_it_had_a_node_goes(cluster):
    pod(cluster, "p", finalizers=["example.com/hold"])
    cluster.client.delete(PODS, "p", "default")
    cluster.wait(60)
    (held,) = cluster.client.list(PODS).items
    cluster.client.update(PODS, {**held, "metadata": {**held["metadata"], "finalizers": []}})
    cluster.wait(60)
    assert names(cluster) == []


def test_the_oldest_of_too_many_finished_pods_go(cluster, monkeypatch):
    monkeypatch.setattr(pod_gc, "MOST_FINISHED", 3)
    node(cluster, "n")
    for number in range(5):
        made = pod(cluster, f"p{number}", on="n")
        status = {**made.get("status", {}), "phase": "Succeeded"}
        cluster.client.update(PODS, {**made, "status": status}, subresource="status")
        cluster.wait(1)
    cluster.wait(60)
    assert names(cluster) == ["p2", "p3", "p4"]


def test_nothing_is_looked_at_while_there_is_nothing_to_find(cluster, monkeypatch):
    node(cluster, "n")
    pod(cluster, "p", on="n")
    cluster.wait(60)
    looked = []
    monkeypatch.setattr(pod_gc, "is_finished", looked.append)
    cluster.wait(3600)
    assert not looked
