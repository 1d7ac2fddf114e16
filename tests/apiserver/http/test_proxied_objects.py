"""Proxies to nodes, pods and services lead nowhere, in a server's words."""

import pytest

from apiserver.resources.asking import Asked

SERVICES = "/api/v1/namespaces/default/services"


@pytest.mark.parametrize("name", ["s", "s:80", "http:s:80"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_what_is_behind_an_object_cannot_be_reached(name, method):
    ask = Asked()
    path = f"{SERVICES}/{name}/proxy/version"
    status, refused = ask(method, path, {} if method == "POST" else None)
    assert (status, refused["message"]) == (404, 'services "s" not found')
    service = {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}
    assert ask("POST", SERVICES, service)[0] == 201
    status, refused = ask(method, path, {} if method == "POST" else None)
    assert (status, refused["reason"]) == (503, "ServiceUnavailable")
    assert refused["message"] == 'no endpoints available for service "s"'


def test_a_node_is_not_a_way_into_its_network():
    ask = Asked()
    assert ask("GET", "/api/v1/nodes/n/proxy/")[0] == 404
    assert ask("POST", "/api/v1/nodes", {"metadata": {"name": "n"}})[0] == 201
    assert ask("GET", "/api/v1/nodes/n:10250/proxy/healthz")[0] == 503
