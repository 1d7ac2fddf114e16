"""Where the server may call: the pods behind a Service, and only by that Service."""

from ipaddress import ip_network
from types import SimpleNamespace

import pytest

from dralab.apiserver.outgoing.targets import NotAllowed, Targets

PODS = ip_network("10.244.0.0/16")
SERVICE = {"spec": {"ports": [{"port": 443, "name": "web"}]}}


def targets(address, pods):
    labels = {"kubernetes.io/service-name": "hook"}
    endpoints = [{"addresses": [address], "conditions": {"ready": True}}]
    ports = [{"name": "web", "port": 8443}]
    slice_ = {"metadata": {"labels": labels}, "ports": ports, "endpoints": endpoints}
    return Targets(
        lambda _key: SimpleNamespace(value=SERVICE),
        lambda _kind, _namespace: [SimpleNamespace(value=slice_)],
        pods=pods,
    )


def test_a_service_leads_to_pods_that_have_a_network():
    found = targets("10.244.1.2", [PODS]).of_service("ns", "hook", 443)
    assert found.addresses == (("10.244.1.2", 8443),)
    for address, pods in (("10.244.1.2", []), ("192.0.2.1", [PODS])):
        with pytest.raises(NotAllowed, match=f"may not connect to {address}"):
            targets(address, pods).of_service("ns", "hook", 443)


def test_a_url_does_not():
    with pytest.raises(NotAllowed):
        targets("10.244.1.2", [PODS]).of_config({"url": "https://10.244.1.2:8443/"})
    with pytest.raises(NotAllowed):  # and no name is looked up
        targets("10.244.1.2", [PODS]).of_config({"url": "https://pod.example/"})


@pytest.mark.parametrize(
    ("given", "path"), [("//validate", "/validate"), ("/a//b/", "/a/b"), ("", "/"), ("/", "/")]
)
def test_a_path_is_joined_as_clients_in_go_join_it(given, path):
    """envtest writes the URLs of webhooks with two slashes."""
    found = targets("127.0.0.1", []).of_config({"url": f"https://127.0.0.1:8443{given}"})
    assert (found.path, found.url) == (path, f"https://127.0.0.1:8443{path}")
