"""Kubernetes 1.30's own test driver, unmodified, under our server, scheduler, controllers and node.

It speaks resource.k8s.io/v1alpha2 and `v1alpha3.Node`: classic claims by its controller, and
structured parameters by its kubelet plugin alone.
"""

import json
import os
import shutil
from pathlib import Path

import pytest
import yaml

from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.resources import CLASSIC_CLAIMS, NAMED_SLICES, PODS
from processes import Processes

BINARY = os.environ.get("DRALAB_OLD_DRIVER") or shutil.which("dra-test-driver")
DRIVER = "test-driver.cdi.k8s.io"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not BINARY,
        reason="DRALAB_OLD_DRIVER names no driver; tools/build_clients.py FOLDER dra-test-driver",
    ),
]
SHARED = """
apiVersion: v1
kind: ConfigMap
metadata: {name: wishes, namespace: default}
data: {a: b}
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClass
metadata: {name: classic}
driverName: test-driver.cdi.k8s.io
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClass
metadata: {name: structured}
driverName: test-driver.cdi.k8s.io
structuredParameters: true
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {name: classic, namespace: default}
spec:
  spec:
    resourceClassName: classic
    parametersRef: {kind: ConfigMap, name: wishes}
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimParameters
metadata: {name: made, namespace: default}
generatedFrom: {kind: ConfigMap, name: wishes}
driverRequests:
- driverName: test-driver.cdi.k8s.io
  vendorParameters: {a: b}
---
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaimTemplate
metadata: {name: structured, namespace: default}
spec:
  spec:
    resourceClassName: structured
    parametersRef: {kind: ConfigMap, name: wishes}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: NAME, namespace: default}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: ctr0
    image: busybox
    command: [sh, -c, "export; sleep 9999"]
    resources: {claims: [{name: wish}]}
  resourceClaims: [{name: wish, source: {resourceClaimTemplateName: TEMPLATE}}]
"""
IMMEDIATE = """
apiVersion: resource.k8s.io/v1alpha2
kind: ResourceClaim
metadata: {name: now, namespace: default}
spec: {resourceClassName: classic, allocationMode: Immediate}
"""


@pytest.fixture
def lab():
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    with Processes("--api", "v1,classic") as running:
        running.node("n1")
        create(running, SHARED)
        config = running.root / "resources.json"
        limits = {"NodeLocal": True, "Nodes": ["n1"], "MaxAllocations": 2, "Shareable": True}
        config.write_text(json.dumps(limits))
        shared = ["--kubeconfig", running.kubeconfig, "-v=5"]
        running.run("controller", [BINARY, "controller", *shared, "--resource-config", config])
        kubelet = running.root / "k"
        endpoint = kubelet / "plugins/test-driver/dra.sock"
        places = {
            "--plugin-registration-path": kubelet / "plugins_registry",
            "--endpoint": endpoint,
            "--dra-address": endpoint,
            "--cdi-dir": running.root / "cdi",
        }
        words = [word for pair in places.items() for word in pair]
        running.run("plugin", [BINARY, "kubelet-plugin", *shared, *words])
        running.until(lambda: running.client.list(NAMED_SLICES).items, "plugin")
        yield running


def create(lab, text):
    for obj in yaml.safe_load_all(text):
        group, _, version = obj["apiVersion"].rpartition("/")
        plural = obj["kind"].lower()
        plural += "" if plural.endswith("parameters") else "es" if plural.endswith("s") else "s"
        namespace = obj["metadata"].get("namespace", "")
        lab.client.create(Resource(group, version, plural, bool(namespace)), obj, namespace)


def pod(lab, name, template):
    create(lab, POD.replace("NAME", name).replace("TEMPLATE", template))


def phase(lab, name):
    return (lab.client.get(PODS, name, "default").get("status") or {}).get("phase")


def log(lab, name):
    files = list((lab.root / "k/logs").glob(f"default_{name}_*/ctr0/0.log"))
    return files[0].read_text() if files else ""


def is_gone(lab, name):
    try:
        lab.client.get(PODS, name, "default")
    except ApiError as error:
        return error.reason == "NotFound"
    return False


@pytest.mark.parametrize("flavour", ["classic", "structured"])
def test_a_pod_gets_what_its_claim_says_and_everything_comes_back(lab, flavour):
    pod(lab, "p", flavour)
    lab.until(lambda: phase(lab, "p") == "Running")
    (claim,) = lab.client.list(CLASSIC_CLAIMS).items
    assert claim["status"]["driverName"] == DRIVER
    assert [user["name"] for user in claim["status"]["reservedFor"]] == ["p"]
    (handle,) = claim["status"]["allocation"]["resourceHandles"]
    assert ("structuredData" in handle) is (flavour == "structured")
    lab.until(lambda: "export user_a='b'" in log(lab, "p"))
    (file,) = lab.cdi()
    assert claim["metadata"]["uid"] in Path(file).name
    lab.client.delete(PODS, "p", "default")
    lab.until(lambda: is_gone(lab, "p"))
    lab.until(lambda: not lab.client.list(CLASSIC_CLAIMS).items, "controller")
    assert lab.cdi() == []


def test_what_the_plugin_lists_is_published_for_its_node(lab):
    (found,) = lab.client.list(NAMED_SLICES).items
    assert (found["nodeName"], found["driverName"]) == ("n1", DRIVER)
    assert found["namedResources"] == {"instances": []}
    lab.stop("plugin")
    pod(lab, "p", "structured")
    lab.until(lambda: "PodScheduled" in str(lab.client.get(PODS, "p", "default")["status"]))
    assert phase(lab, "p") == "Pending"


def test_a_pod_waits_while_the_driver_says_that_its_node_will_not_do(lab):
    for name in ("one", "two"):
        pod(lab, name, "classic")
        lab.until(lambda name=name: phase(lab, name) == "Running")
    pod(lab, "three", "classic")

    def told():
        status = lab.client.get(PODS, "three", "default").get("status") or {}
        conditions = status.get("conditions") or ()
        return [
            c["message"]
            for c in conditions
            if "excluded by the resource driver" in c.get("message", "")
        ]

    assert lab.until(told)
    lab.client.delete(PODS, "one", "default")
    lab.until(lambda: phase(lab, "three") == "Running")


def test_an_immediate_claim_is_allocated_by_the_driver_at_once(lab):
    create(lab, IMMEDIATE)

    def allocated():
        (claim,) = lab.client.list(CLASSIC_CLAIMS).items
        return (claim.get("status") or {}).get("allocation")

    assert lab.until(allocated, "controller")["shareable"]
    lab.client.delete(CLASSIC_CLAIMS, "now", "default")
    lab.until(lambda: not lab.client.list(CLASSIC_CLAIMS).items, "controller")
