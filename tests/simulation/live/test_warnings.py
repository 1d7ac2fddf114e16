"""Who creates what only an autoscaler acts on is told so, unless it runs."""

import json
import urllib.request

import pytest

import karpenterkinds
from autoscaledlab import autoscaled
from dralab.cluster import Cluster, Options
from dralab.components.control_plane import ControlPlane
from dralab.runtime.resources import CRDS

CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
TEXT = "stored only, unless it runs with `dralab up --autoscaler"


def warning(cluster, path, body):
    head = {"Content-Type": "application/json"}
    asked = urllib.request.Request(cluster.url + path, json.dumps(body).encode(), head)
    with urllib.request.urlopen(asked) as answer:
        return answer.headers["Warning"]


def config_map(name):
    return {"metadata": {"name": name}}


@pytest.fixture(scope="module")
def without():
    with Cluster(Options(), components=[ControlPlane()]) as cluster:
        for body in karpenterkinds.definitions():
            cluster.client.create(CRDS, body)
        yield cluster


def test_a_node_pool_warns_unless_karpenter_runs(without):
    path = "/apis/karpenter.sh/v1/nodepools"
    text = f"karpenter.sh/v1 NodePool: {TEXT} karpenter`"
    assert text in warning(without, path, karpenterkinds.pool())
    with autoscaled("karpenter") as lab:
        assert warning(lab.cluster, path, karpenterkinds.pool()) is None


@pytest.mark.parametrize("name", ["kwok-provider-config", "kwok-provider-templates"])
def test_a_config_map_of_the_kwok_provider_warns_unless_cluster_autoscaler_runs(without, name):
    text = f"v1 ConfigMap {name}: {TEXT} cluster-autoscaler`"
    assert text in warning(without, CONFIG_MAPS, config_map(name))
    with autoscaled("cluster-autoscaler") as lab:
        assert warning(lab.cluster, CONFIG_MAPS, config_map(name)) is None


def test_another_config_map_does_not_warn(without):
    assert warning(without, CONFIG_MAPS, config_map("kwok")) is None
