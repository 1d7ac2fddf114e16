"""The unmodified kube-controller-manager makes what its objects want, and cleans up after them."""

import time

import pytest

import stockparts
from dralab.api.status import ApiError
from dralab.runtime.client import Resource

PATIENCE = 90
pytestmark = [pytest.mark.conformance, stockparts.needs(stockparts.MANAGER)]
NAMESPACES = Resource("", "v1", "namespaces", namespaced=False)
PODS = Resource("", "v1", "pods")
ACCOUNTS = Resource("", "v1", "serviceaccounts")
DEPLOYMENTS = Resource("apps", "v1", "deployments")
REPLICA_SETS = Resource("apps", "v1", "replicasets")
CLAIMS = Resource("resource.k8s.io", "v1", "resourceclaims")
TEMPLATES = Resource("resource.k8s.io", "v1", "resourceclaimtemplates")
SPEC = {"containers": [{"name": "c", "image": "registry.example/box:1"}]}
LABELS = {"app": "web"}


@pytest.fixture
def manager(kubeconfig, tmp_path):
    """A running kube-controller-manager."""
    with stockparts.controller_manager(kubeconfig, tmp_path) as running:
        yield running


def eventually(holds):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        try:
            if found := holds():
                return found
        except ApiError as error:
            if error.code != 404:
                raise
        time.sleep(0.1)
    raise AssertionError("it never came to be")


def is_gone(client, resource, name, namespace=""):
    try:
        client.get(resource, name, namespace)
    except ApiError as error:
        return error.code == 404
    return False


def test_a_deployment_gets_its_pods_and_takes_them_along(manager, client):
    template = {"metadata": {"labels": LABELS}, "spec": SPEC}
    spec = {"replicas": 3, "selector": {"matchLabels": LABELS}, "template": template}
    client.create(DEPLOYMENTS, {"metadata": {"name": "web"}, "spec": spec}, "default")
    eventually(lambda: len(client.list(PODS, "default").items) == 3)
    found = client.get(DEPLOYMENTS, "web", "default")
    assert found["spec"]["replicas"] == 3
    client.patch(DEPLOYMENTS, "web", {"spec": {"replicas": 1}}, "default")

    def alive():
        pods = client.list(PODS, "default").items
        return [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]

    eventually(lambda: len(alive()) == 1)
    eventually(lambda: client.get(DEPLOYMENTS, "web", "default")["status"].get("replicas") == 1)
    client.delete(DEPLOYMENTS, "web", "default", options={"propagationPolicy": "Foreground"})
    eventually(lambda: is_gone(client, DEPLOYMENTS, "web", "default"))
    assert not client.list(REPLICA_SETS, "default").items
    assert manager.poll() is None


def test_a_pod_gets_a_claim_from_its_template(manager, client):
    request = {"name": "g", "exactly": {"deviceClassName": "gpu"}}
    inner = {"spec": {"devices": {"requests": [request]}}}
    client.create(TEMPLATES, {"metadata": {"name": "gpus"}, "spec": inner}, "default")
    spec = SPEC | {"resourceClaims": [{"name": "g", "resourceClaimTemplateName": "gpus"}]}
    client.create(PODS, {"metadata": {"name": "box"}, "spec": spec}, "default")
    (claim,) = eventually(lambda: client.list(CLAIMS, "default").items)
    assert claim["metadata"]["ownerReferences"][0]["name"] == "box"
    status = eventually(
        lambda: client.get(PODS, "box", "default")["status"].get("resourceClaimStatuses")
    )
    assert status == [{"name": "g", "resourceClaimName": claim["metadata"]["name"]}]
    client.delete(PODS, "box", "default", options={"gracePeriodSeconds": 0})
    eventually(lambda: not client.list(CLAIMS, "default").items)
    assert manager.poll() is None


def test_a_namespace_gets_an_account_and_goes_with_all_it_holds(manager, client):
    client.create(NAMESPACES, {"metadata": {"name": "lab"}})
    eventually(lambda: client.get(ACCOUNTS, "default", "lab"))
    client.create(PODS, {"metadata": {"name": "box"}, "spec": SPEC}, "lab")
    client.delete(NAMESPACES, "lab")
    eventually(lambda: is_gone(client, NAMESPACES, "lab"))
    assert not client.list(PODS, "lab").items
    assert manager.poll() is None
