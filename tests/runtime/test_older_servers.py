"""Components made for the newest device API, beside servers that have older versions of it."""

import pytest

from dralab.api.status import ApiError
from dralab.cluster import Cluster, Options
from dralab.runtime.client import Resource
from dralab.runtime.kubeconfig import ClusterAccess
from dralab.runtime.older_servers import AnyVersionClient
from dralab.runtime.resources import CLAIMS, PODS, SLICES, TAINT_RULES

EXACTLY = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
CLAIM = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {"devices": {"requests": [{"name": "r", "exactly": EXACTLY}]}},
}
DEVICE = {"name": "d", "attributes": {"model": {"string": "x"}}}
SLICE = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "gpu.example.com",
        "nodeName": "n",
        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1},
        "devices": [DEVICE],
    },
}


@pytest.mark.parametrize("version", ["1.32", "1.33", "1.34"])
def test_objects_are_sent_in_a_version_that_the_server_has_and_read_in_the_newest(version):
    with Cluster(Options(version=version)) as cluster:
        client = AnyVersionClient(ClusterAccess(server=cluster.url))
        made = client.create(CLAIMS, CLAIM)
        assert made["apiVersion"] == "resource.k8s.io/v1"
        assert made["spec"] == CLAIM["spec"]
        watch = client.watch(CLAIMS, revision=made["metadata"]["resourceVersion"])
        owner = {"resource": "pods", "name": "p", "uid": "u"}
        allocation = {"devices": {"results": []}}
        status = {"allocation": allocation, "reservedFor": [owner]}
        changed = client.update(CLAIMS, {**made, "status": status}, subresource="status")
        assert changed["status"]["reservedFor"] == [owner]
        event = watch.next(10)
        assert (event.type, event.object["spec"]) == ("MODIFIED", CLAIM["spec"])
        watch.close()
        patched = client.patch(CLAIMS, "c", {"metadata": {"labels": {"a": "b"}}}, "default")
        assert (patched["metadata"]["labels"], patched["spec"]) == ({"a": "b"}, CLAIM["spec"])
        client.create(SLICES, SLICE)
        (listed,) = client.list(SLICES).items
        assert listed["spec"]["devices"] == [DEVICE]
        client.delete(SLICES, "s")
        assert not client.list(SLICES).items
        client.close()


def test_what_no_version_has_is_not_found():
    with Cluster(Options(version="1.32")) as cluster:
        client = AnyVersionClient(ClusterAccess(server=cluster.url))
        with pytest.raises(ApiError) as found:
            client.list(TAINT_RULES)
        assert found.value.code == 404
        client.close()


def test_a_server_with_the_newest_version_is_asked_in_it():
    with Cluster(Options(version="1.37")) as cluster:
        client = AnyVersionClient(ClusterAccess(server=cluster.url))
        client.create(CLAIMS, CLAIM)
        for resource in (CLAIMS, SLICES, TAINT_RULES, PODS):
            assert client._place(resource) is resource
        beta = Resource("resource.k8s.io", "v1beta1", "resourceclaims")
        (request,) = client.get(beta, "c", "default")["spec"]["devices"]["requests"]
        assert "exactly" not in request
        client.close()
