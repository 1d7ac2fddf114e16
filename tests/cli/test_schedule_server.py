"""`dralab schedule --kubeconfig`: results are written as real status updates and bindings."""

import pytest
import yaml
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from dralab.runtime.client import Resource

PODS = Resource("", "v1", "pods")


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def apply(client, text, group_plurals):
    for item in yaml.safe_load_all(text):
        group, _, version = item["apiVersion"].rpartition("/")
        plural = group_plurals[item["kind"]]
        namespaced = item["kind"] in {
            "Pod",
            "DeviceClaim",
            "ResourceClaim",
            "ResourceClaimTemplate",
        }
        resource = Resource(group, version, plural, namespaced)
        client.create(resource, item, "default" if namespaced else "")


K8SRM = """\
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: pool-a}
spec: {driver: toys, nodeName: node-a, devices: [{name: d0}]}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: toy}
spec: {definition: {driver: toys}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, devices: [{name: toy}]}]
  deviceClaims: {devices: [{name: toy, class: toy}]}
"""
EVOLUTION = """\
apiVersion: resource.k8s.io/v1alpha2
kind: ResourcePool
metadata: {name: pool-a}
spec: {driverName: toys, nodeName: node-a, devices: [{name: d0}]}
---
apiVersion: resource.k8s.io/v1alpha2
kind: DeviceClass
metadata: {name: toy}
requirements: [{deviceSelector: "device.driverName == 'toys'"}]
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {requests: [{name: r, deviceClassName: toy}]}}
---
apiVersion: resource.k8s.io/v1alpha2
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: toy}]}}]
  resourceClaims: [{name: toy, resourceClaimTemplateName: t}]
"""
TODAY = """\
apiVersion: v1
kind: Node
metadata: {name: node-a}
---
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata: {name: slice-a}
spec: {driver: toys, nodeName: node-a, pool: {name: pool-a, generation: 1, resourceSliceCount: 1}, devices: [{name: d0}]}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: toy}
spec: {selectors: [{cel: {expression: "device.driver == 'toys'"}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: t}
spec: {spec: {devices: {requests: [{name: r, exactly: {deviceClassName: toy}}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: p}
spec:
  containers: [{name: c, image: i, resources: {claims: [{name: toy}]}}]
  resourceClaims: [{name: toy, resourceClaimTemplateName: t}]
"""
PLURALS = {
    "DevicePool": "devicepools",
    "DeviceClass": "deviceclasses",
    "Pod": "pods",
    "ResourcePool": "resourcepools",
    "ResourceClaimTemplate": "resourceclaimtemplates",
    "ResourceSlice": "resourceslices",
    "Node": "nodes",
}


@pytest.mark.parametrize(
    ("api", "profiles", "text"),
    [
        ("k8srm", ("v1", "k8srm"), K8SRM),
        ("evolution", ("evolution",), EVOLUTION),
        ("v1", ("v1", "k8srm"), TODAY),
    ],
)
def test_a_pod_is_bound_and_its_claim_allocated_on_the_server(api, profiles, text):
    with Cluster(Options(profiles=profiles)) as cluster:
        client = cluster.client
        apply(client, text, PLURALS)
        result = run("schedule", "--kubeconfig", str(cluster.kubeconfig), "--api", api, "p")
        assert result.exit_code == 0, result.output
        if api == "evolution":
            pod = client.get(Resource("resource.k8s.io", "v1alpha2", "pods"), "p", "default")
            [claim] = client.list(Resource("resource.k8s.io", "v1alpha2", "resourceclaims")).items
            assert claim["status"]["allocation"]["driverData"][0]["data"]["results"] == [
                {"deviceName": "d0", "requestName": "r"}
            ]
        elif api == "k8srm":
            pod = client.get(PODS, "p", "default")
            [claim] = client.list(Resource("devmgmtproto.k8s.io", "v1alpha1", "deviceclaims")).items
            assert claim["status"]["allocations"] == [
                {"devicePoolName": "pool-a", "deviceName": "d0"}
            ]
            assert claim["status"]["podNames"] == ["p"]
        else:
            pod = client.get(PODS, "p", "default")
            [claim] = client.list(Resource("resource.k8s.io", "v1", "resourceclaims")).items
            assert claim["status"]["allocation"]["devices"]["results"][0]["device"] == "d0"
            assert claim["status"]["reservedFor"][0]["name"] == "p"
            assert pod["status"]["resourceClaimStatuses"] == [
                {"name": "toy", "resourceClaimName": claim["metadata"]["name"]}
            ]
        assert pod["spec"]["nodeName"] == "node-a"
        again = run("schedule", "--kubeconfig", str(cluster.kubeconfig), "--api", api)
        assert again.exit_code == 0
        assert "pod" not in again.stdout
