"""`dralab.SimulatedCluster`: objects applied, pods run on its nodes with their devices."""

import pytest

import dralab
from builders import claim, pod, request
from dralab.api.status import ApiError

CLASS = "gpu.dralab.dev"


@pytest.fixture
def cluster():
    return dralab.SimulatedCluster(nodes=["a"], drivers=["gpu"])


def gpu_class(cluster):
    return cluster.drivers[0].name


def test_a_pod_gets_its_device_and_runs(cluster, tmp_path):
    manifest = tmp_path / "claim.yaml"
    manifest.write_text(
        "apiVersion: resource.k8s.io/v1\nkind: ResourceClaim\nmetadata: {name: c}\nspec:\n"
        f"  devices: {{requests: [{{name: r, exactly: {{deviceClassName: {gpu_class(cluster)}}}}}]}}\n"
    )
    cluster.apply(manifest, pod("p", claims={"g": "c"}))
    cluster.wait(30)
    assert cluster.pods("default")["p"]["status"]["phase"] == "Running"
    assert cluster.pods()["default/p"]["spec"]["nodeName"] == "a"


def test_what_is_applied_twice_is_updated(cluster):
    stored = claim("c", request("r", gpu_class(cluster)))
    (first,) = cluster.apply(stored)
    (second,) = cluster.apply(stored | {"metadata": {"name": "c", "labels": {"a": "b"}}})
    assert second["metadata"]["uid"] == first["metadata"]["uid"]
    assert second["metadata"]["labels"] == {"a": "b"}


def test_what_cannot_be_applied_is_refused(cluster):
    with pytest.raises(ApiError, match='no matches for kind "Nothing" in version "x/v1"'):
        cluster.apply({"apiVersion": "x/v1", "kind": "Nothing", "metadata": {"name": "n"}})
    with pytest.raises(ValueError, match="no driver 'tpu'; there are fake, gpu"):
        dralab.SimulatedCluster(drivers=["tpu"])


def test_the_same_calls_give_the_same_objects():
    def run():
        found = dralab.SimulatedCluster(nodes=2, drivers=["gpu"], seed=4)
        found.apply(pod("p"))
        found.wait(60)
        return found.pods(), found.nodes()

    assert run() == run()


def test_pods_are_created_read_and_deleted(cluster):
    made = cluster.create(pod("p"))
    assert [each["metadata"]["name"] for each in made] == ["p"]
    assert cluster.pods("default")["p"]["status"]["phase"] == "Running"
    assert cluster.log("default", "p") == cluster.log("default", "p", "c")
    with pytest.raises(ApiError, match="already exists"):
        cluster.create(pod("p"))
    cluster.delete("default", "p")
    assert cluster.pods("default") == {}


def test_a_cluster_shows_what_it_is_and_is_of_a_release():
    found = dralab.SimulatedCluster(nodes=2, version="1.33")
    assert repr(found) == "<SimulatedCluster of 2 nodes, 0 pods>"
    assert found.server.resources.kinds.get("resource.k8s.io", "v1", "resourceclaims") is None


@pytest.mark.parametrize(
    ("call", "problem"),
    [
        (lambda: dralab.SimulatedCluster(nodes=-1), "nodes: -1 is not a number of nodes"),
        (lambda: dralab.SimulatedCluster().wait("1h"), "'1h' is not a number of seconds"),
        (lambda: dralab.SimulatedCluster().wait(-1), "-1 is not a number of seconds"),
        (lambda: dralab.SimulatedCluster().delete("p"), "name the pods after their namespace, 'p'"),
    ],
)
def test_calls_without_a_meaning_are_refused(call, problem):
    with pytest.raises(ValueError, match=problem):
        call()
