"""Scenarios of the Python clients: the official one, kr8s, lightkube and kopf, unmodified."""

import importlib.util
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.conformance
PATIENCE = 20


def needs(name):
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"{name} is not installed"
    )


def eventually(holds):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if found := holds():
            return found
        time.sleep(0.05)
    raise AssertionError("it never came to be")


POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "box", "labels": {"app": "box"}},
    "spec": {"containers": [{"name": "c", "image": "registry.example/box:1"}]},
}
CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "racks.lab.example"},
    "spec": {
        "group": "lab.example",
        "scope": "Namespaced",
        "names": {"plural": "racks", "singular": "rack", "kind": "Rack"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"slots": {"type": "integer"}},
                            },
                            "status": {
                                "type": "object",
                                "x-kubernetes-preserve-unknown-fields": True,
                            },
                        },
                    }
                },
            }
        ],
    },
}


# --- the official client ----------------------------------------------------------------------


@pytest.fixture
def official(kubeconfig):
    kubernetes = pytest.importorskip("kubernetes")
    client = kubernetes.config.new_client_from_config(str(kubeconfig))
    yield client
    client.close()


@needs("kubernetes")
def test_the_official_client_creates_reads_changes_and_deletes(official):
    from kubernetes.client import CoreV1Api
    from kubernetes.client.exceptions import ApiException

    core = CoreV1Api(official)
    made = core.create_namespaced_pod("default", POD)
    assert made.status.phase == "Pending"
    assert made.spec.restart_policy == "Always"
    with pytest.raises(ApiException) as refusal:
        core.create_namespaced_pod("default", POD)
    assert refusal.value.status == 409
    assert [pod.metadata.name for pod in core.list_namespaced_pod("default").items] == ["box"]
    assert not core.list_pod_for_all_namespaces(label_selector="app=other").items
    changed = core.patch_namespaced_pod("box", "default", {"metadata": {"labels": {"x": "y"}}})
    assert changed.metadata.labels == {"app": "box", "x": "y"}
    status = core.patch_namespaced_pod_status("box", "default", {"status": {"phase": "Running"}})
    assert status.status.phase == "Running"
    core.delete_namespaced_pod("box", "default", grace_period_seconds=0)
    with pytest.raises(ApiException) as refusal:
        core.read_namespaced_pod("box", "default")
    assert refusal.value.status == 404


@needs("kubernetes")
def test_the_official_client_binds_a_pod(official):
    from kubernetes.client import CoreV1Api, V1Binding, V1ObjectMeta, V1ObjectReference

    core = CoreV1Api(official)
    core.create_node({"metadata": {"name": "n1"}})
    core.create_namespaced_pod("default", POD)
    target = V1ObjectReference(kind="Node", name="n1")
    body = V1Binding(metadata=V1ObjectMeta(name="box"), target=target)
    core.create_namespaced_pod_binding("box", "default", body, _preload_content=False)
    assert core.read_namespaced_pod("box", "default").spec.node_name == "n1"


@needs("kubernetes")
def test_the_official_client_watches(official):
    from kubernetes.client import CoreV1Api
    from kubernetes.watch import Watch

    core = CoreV1Api(official)
    start = core.list_namespaced_config_map("default").metadata.resource_version
    for number in range(3):
        core.create_namespaced_config_map("default", {"metadata": {"name": f"c{number}"}})
    watch = Watch()
    seen = []
    for event in watch.stream(
        core.list_namespaced_config_map, "default", resource_version=start, timeout_seconds=10
    ):
        seen.append((event["type"], event["object"].metadata.name))
        if len(seen) == 3:
            watch.stop()
    assert seen == [("ADDED", "c0"), ("ADDED", "c1"), ("ADDED", "c2")]


@needs("kubernetes")
def test_the_official_dynamic_client_applies_what_it_discovers(official):
    from kubernetes.dynamic import DynamicClient

    dynamic = DynamicClient(official)
    claims = dynamic.resources.get(api_version="resource.k8s.io/v1", kind="ResourceClaim")
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "one"},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}},
    }
    made = claims.server_side_apply(body=body, namespace="default", field_manager="me")
    assert made.spec.devices.requests[0].exactly.allocationMode == "ExactCount"
    assert made.metadata.managedFields[0].manager == "me"
    deployments = dynamic.resources.get(api_version="apps/v1", kind="Deployment")
    assert deployments.get(namespace="default").items == []


@needs("kubernetes")
def test_the_official_client_serves_custom_resources(official):
    from kubernetes.client import ApiextensionsV1Api, CustomObjectsApi

    ApiextensionsV1Api(official).create_custom_resource_definition(CRD)
    custom = CustomObjectsApi(official)
    place = ("lab.example", "v1", "default", "racks")
    body = {
        "apiVersion": "lab.example/v1",
        "kind": "Rack",
        "metadata": {"name": "r1"},
        "spec": {"slots": 4, "unknown": 1},
    }
    made = eventually(lambda: custom.create_namespaced_custom_object(*place, body))
    assert made["spec"] == {"slots": 4}
    custom.patch_namespaced_custom_object_status(*place, "r1", {"status": {"used": 1}})
    found = custom.get_namespaced_custom_object(*place, "r1")
    assert found["status"] == {"used": 1}
    assert len(custom.list_namespaced_custom_object(*place)["items"]) == 1


@needs("kubernetes")
def test_the_official_client_elects_a_leader(official):
    """Two candidates, one lease: conflicts decide."""
    from kubernetes.client import CoordinationV1Api
    from kubernetes.client.exceptions import ApiException

    leases = CoordinationV1Api(official)
    leases.create_namespaced_lease(
        "default", {"metadata": {"name": "lead"}, "spec": {"holderIdentity": "a"}}
    )
    mine = leases.read_namespaced_lease("lead", "default")
    theirs = leases.read_namespaced_lease("lead", "default")
    mine.spec.holder_identity = "b"
    leases.replace_namespaced_lease("lead", "default", mine)
    theirs.spec.holder_identity = "c"
    with pytest.raises(ApiException) as refusal:
        leases.replace_namespaced_lease("lead", "default", theirs)
    assert refusal.value.status == 409


# --- kr8s ---------------------------------------------------------------------------------------


@needs("kr8s")
def test_kr8s_creates_labels_scales_waits_watches_and_deletes(kubeconfig):
    """In a process of its own: it keeps its connections open as long as that lives."""
    script = Path(__file__).parent / "kr8s_scenario.py"
    done = subprocess.run(
        [sys.executable, str(script), str(kubeconfig)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines() == ["pod", "settings", "deployment", "watch"]


# --- lightkube ----------------------------------------------------------------------------------


@pytest.fixture
def lightkube_client(kubeconfig):
    pytest.importorskip("lightkube")
    from lightkube import Client, KubeConfig

    config = KubeConfig.from_file(str(kubeconfig))
    # One that is left open would be noticed in some later test.
    with Client(config=config, field_manager="lightkube-test") as client:
        yield client


@needs("lightkube")
def test_lightkube_creates_patches_applies_and_deletes(lightkube_client):
    from lightkube.core.exceptions import ApiError
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap, Pod
    from lightkube.types import PatchType

    client = lightkube_client
    made = client.create(
        ConfigMap(metadata=ObjectMeta(name="settings", namespace="default"), data={"a": "1"})
    )
    assert made.metadata.uid
    made.data = {"a": "2"}
    assert client.replace(made).data == {"a": "2"}
    with pytest.raises(ApiError) as refusal:
        client.replace(made)
    assert refusal.value.status.code == 409
    patched = client.patch(ConfigMap, "settings", {"data": {"b": "3"}}, namespace="default")
    assert patched.data == {"a": "2", "b": "3"}
    patched = client.patch(
        ConfigMap,
        "settings",
        [{"op": "remove", "path": "/data/a"}],
        namespace="default",
        patch_type=PatchType.JSON,
    )
    assert patched.data == {"b": "3"}
    applied = client.apply(
        ConfigMap(metadata=ObjectMeta(name="owned", namespace="default"), data={"x": "y"})
    )
    assert applied.data == {"x": "y"}
    assert sorted(item.metadata.name for item in client.list(ConfigMap, namespace="default")) == [
        "owned",
        "settings",
    ]
    client.delete(ConfigMap, "settings", namespace="default")
    with pytest.raises(ApiError):
        client.get(ConfigMap, "settings", namespace="default")
    assert list(client.list(Pod, namespace="*")) == []


@needs("lightkube")
def test_lightkube_lists_in_pages_and_watches(lightkube_client):
    from lightkube.models.meta_v1 import ObjectMeta
    from lightkube.resources.core_v1 import ConfigMap

    client = lightkube_client
    for number in range(25):
        name = f"c{number:02}"
        client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace="default")))
    found = list(client.list(ConfigMap, namespace="default", chunk_size=10))
    assert [item.metadata.name for item in found] == [f"c{number:02}" for number in range(25)]
    version = found[-1].metadata.resourceVersion
    client.create(ConfigMap(metadata=ObjectMeta(name="later", namespace="default")))
    for type_, item in client.watch(ConfigMap, namespace="default", resource_version=version):
        assert (type_, item.metadata.name) == ("ADDED", "later")
        break


@needs("lightkube")
def test_lightkube_scales(lightkube_client):
    from lightkube.models.apps_v1 import DeploymentSpec
    from lightkube.models.autoscaling_v1 import ScaleSpec
    from lightkube.models.core_v1 import Container, PodSpec, PodTemplateSpec
    from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
    from lightkube.resources.apps_v1 import Deployment

    client = lightkube_client
    template = PodTemplateSpec(
        metadata=ObjectMeta(labels={"a": "b"}),
        spec=PodSpec(containers=[Container(name="c", image="registry.example/box:1")]),
    )
    spec = DeploymentSpec(selector=LabelSelector(matchLabels={"a": "b"}), template=template)
    client.create(Deployment(metadata=ObjectMeta(name="web", namespace="default"), spec=spec))
    change = Deployment.Scale(
        metadata=ObjectMeta(name="web", namespace="default"), spec=ScaleSpec(replicas=4)
    )
    client.replace(change, "web", namespace="default")
    assert client.get(Deployment, "web", namespace="default").spec.replicas == 4


# --- kopf ---------------------------------------------------------------------------------------

OPERATOR = """
import kopf

@kopf.on.create("lab.example", "v1", "racks")
def created(spec, patch, **_):
    patch.status["seen"] = spec["slots"]
    return {"made": True}

@kopf.on.update("lab.example", "v1", "racks", field="spec.slots")
def changed(new, patch, **_):
    patch.status["seen"] = new

@kopf.on.delete("lab.example", "v1", "racks")
def deleted(name, **_):
    print(f"goodbye {name}", flush=True)
"""


@needs("kopf")
@needs("kubernetes")
def test_a_kopf_operator_handles_creation_change_and_deletion(official, kubeconfig, tmp_path):
    from kubernetes.client import ApiextensionsV1Api, CustomObjectsApi
    from kubernetes.client.exceptions import ApiException

    ApiextensionsV1Api(official).create_custom_resource_definition(CRD)
    script = tmp_path / "operator_of_racks.py"
    script.write_text(textwrap.dedent(OPERATOR))
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    operator = subprocess.Popen(
        [sys.executable, "-m", "kopf", "run", "--standalone", "-n", "default", str(script)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    custom = CustomObjectsApi(official)
    place = ("lab.example", "v1", "default", "racks")

    def status():
        try:
            return custom.get_namespaced_custom_object(*place, "r1").get("status") or {}
        except ApiException as error:
            return None if error.status == 404 else {}

    try:
        body = {
            "apiVersion": "lab.example/v1",
            "kind": "Rack",
            "metadata": {"name": "r1"},
            "spec": {"slots": 4},
        }
        custom.create_namespaced_custom_object(*place, body)
        eventually(lambda: (status() or {}).get("seen") == 4)
        custom.patch_namespaced_custom_object(*place, "r1", {"spec": {"slots": 5}})
        eventually(lambda: (status() or {}).get("seen") == 5)
        custom.delete_namespaced_custom_object(*place, "r1")
        eventually(lambda: status() is None)
    finally:
        operator.terminate()
        output, _ = operator.communicate(timeout=PATIENCE)
    assert "goodbye r1" in output
