"""A lab of each release of Kubernetes: its own versions outside, the same parts inside."""

import json
import urllib.request

import pytest

from dralab.api import releases
from dralab.runtime.client import Resource
from dralab.runtime.resources import NODES, PODS

CLAIMS = Resource("resource.k8s.io", "v1beta1", "resourceclaims")
VERSIONS = {
    "1.32": ["v1beta1"],
    "1.33": ["v1beta2", "v1beta1"],
    "1.34": ["v1", "v1beta2", "v1beta1"],
    "1.37": ["v1", "v1beta2", "v1beta1"],
}


def got(cluster, path):
    with urllib.request.urlopen(cluster.url + path) as response:
        return json.load(response)


@pytest.mark.thorough
@pytest.mark.parametrize("dralab_version", VERSIONS)
@pytest.mark.dralab(drivers=["gpu"])
def test_a_pod_gets_a_device_by_the_versions_of_each_release(
    running_cluster, clock, dralab_version
):
    group = got(running_cluster, "/apis/resource.k8s.io")
    served = [each["version"] for each in group["versions"]]
    assert [each for each in served if "alpha" not in each] == VERSIONS[dralab_version]
    (node,) = running_cluster.client.list(NODES).items
    assert node["status"]["nodeInfo"]["kubeletVersion"] == releases.version_of(dralab_version)

    (devices,) = got(running_cluster, "/apis/resource.k8s.io/v1beta1/deviceclasses")["items"]
    request = {"name": "r", "deviceClassName": devices["metadata"]["name"]}
    claim = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": [request]}}}
    running_cluster.client.create(CLAIMS, claim, "default")
    container = {"name": "c", "image": "i", "resources": {"claims": [{"name": "d"}]}}
    claims = [{"name": "d", "resourceClaimName": "c"}]
    pod = {"metadata": {"name": "p"}, "spec": {"containers": [container], "resourceClaims": claims}}
    running_cluster.client.create(PODS, pod, "default")
    clock.settle()

    phase = running_cluster.client.get(PODS, "p", "default")["status"]["phase"]
    assert phase == "Running"
    claim = got(
        running_cluster, "/apis/resource.k8s.io/v1beta1/namespaces/default/resourceclaims/c"
    )
    assert claim["apiVersion"] == "resource.k8s.io/v1beta1"
    assert claim["spec"]["devices"]["requests"][0]["deviceClassName"] == request["deviceClassName"]
    (result,) = claim["status"]["allocation"]["devices"]["results"]
    assert result["request"] == "r"
