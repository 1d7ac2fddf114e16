"""Which nodes a server connects to: none because a Node object says so."""

import base64
import re

import pytest

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import HttpRequest, HttpResponse, Proxied
from dralab.apiserver.http.proxying.nodes import NodeRequest, container_of
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import NAMESPACES, NODES, PODS, SECRETS

LEASES = "kube-node-lease"


def server_with(addresses, *, port=10250, data=None, **options):
    server = ApiServer(MemoryStore(), service_accounts=False, **options)
    client = LocalClient(server.resources, server.hub)
    if not any(n["metadata"]["name"] == LEASES for n in client.list(NAMESPACES).items):
        client.create(NAMESPACES, {"metadata": {"name": LEASES}})
    status = {
        "addresses": [{"type": type_, "address": address} for type_, address in addresses],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    client.create(NODES, {"metadata": {"name": "n1"}})
    client.patch(NODES, "n1", {"status": status}, subresource="status")
    if data is None:
        data = {"token": "secret", "ca.crt": "PEM"}
    if data:
        packed = {key: base64.b64encode(value.encode()).decode() for key, value in data.items()}
        client.create(SECRETS, {"metadata": {"name": "n1"}, "data": packed}, LEASES)
    containers = [{"name": "c", "image": "x"}]
    spec = {"nodeName": "n1", "containers": containers}
    client.create(PODS, {"metadata": {"name": "p"}, "spec": spec}, "default")
    return server


HERE = [("InternalIP", "127.0.0.1")]
ALLOWED = {
    "the loopback": (HERE, "127.0.0.1"),
    "the loopback of IPv6": ([("InternalIP", "::1")], "::1"),
    "the first that is allowed": ([("InternalIP", "10.0.0.1"), *HERE], "127.0.0.1"),
}


@pytest.mark.parametrize(("addresses", "host"), ALLOWED.values(), ids=ALLOWED)
def test_a_node_of_this_machine_is_asked(addresses, host):
    found = server_with(addresses).nodes.endpoint("n1")
    assert (found.host, found.port, found.token, found.ca) == (host, 10250, "secret", "PEM")


REFUSED = {
    "another machine": (
        {"addresses": [("InternalIP", "169.254.169.254")]},
        "n1 is at 169.254.169.254, which this server may not connect to: --node-network 169.254",
    ),
    "a name": (
        {"addresses": [("Hostname", "localhost"), ("InternalIP", "localhost")]},
        "node n1 has no address",
    ),
    "an address as a name": ({"addresses": [("Hostname", "127.0.0.1")]}, "may not|has no address"),
    "a mapped address": ({"addresses": [("InternalIP", "::ffff:10.0.0.1")]}, "may not connect"),
    "no port": ({"addresses": HERE, "port": 0}, "has no endpoint"),
    "no Secret": (
        {"addresses": HERE, "data": {}},
        "Secret kube-node-lease/n1 has no connection data",
    ),
    "half a Secret": ({"addresses": HERE, "data": {"token": "t"}}, "has no connection data"),
    "a token of two lines": (
        {"addresses": HERE, "data": {"token": "a\r\nHost: b", "ca.crt": "PEM"}},
        "is not a single line",
    ),
}


@pytest.mark.parametrize(("made", "text"), REFUSED.values(), ids=REFUSED)
def test_a_node_object_alone_leads_the_server_nowhere(made, text):
    server = server_with(**made)
    with pytest.raises(ApiError, match=text) as caught:
        server.nodes.endpoint("n1")
    assert caught.value.code == 500
    path = "/api/v1/namespaces/default/pods/p/log"
    answer = server.handle(HttpRequest(method="GET", path=path))
    assert isinstance(answer, HttpResponse)
    assert answer.status == 500


def test_a_pod_of_a_node_that_is_gone_has_no_logs():
    server = server_with(HERE)
    LocalClient(server.resources, server.hub).delete(NODES, "n1")
    log = HttpRequest(method="GET", path="/api/v1/namespaces/default/pods/p/log")
    answer = server.handle(log)
    assert (answer.status, b'pods \\"n1\\" not found' in answer.content) == (404, True)


def test_the_operator_allows_networks():
    import ipaddress

    network = ipaddress.ip_network("10.0.0.0/8")
    server = server_with([("InternalIP", "10.1.2.3")], networks=[network])
    assert server.nodes.endpoint("n1").host == "10.1.2.3"
    path = "/api/v1/namespaces/default/pods/p/log"
    assert isinstance(server.handle(HttpRequest(method="GET", path=path)), Proxied)


TARGETS = [
    (
        "containerLogs",
        {"follow": ["true"], "container": ["c"]},
        "/containerLogs/ns/p/c?follow=true",
    ),
    (
        "exec",
        {"command": ["a", "b c"], "stdin": ["true"], "stdout": ["false"], "tty": ["1"]},
        "/exec/ns/p/c?command=a&command=b+c&input=1&tty=1",
    ),
    ("portForward", {"ports": ["80,81"]}, "/portForward/ns/p/c?port=80%2C81"),
    ("attach", {}, "/attach/ns/p/c"),
]


@pytest.mark.parametrize(("verb", "query", "target"), TARGETS, ids=[t[0] for t in TARGETS])
def test_a_kubelet_is_asked_in_its_own_words(verb, query, target):
    wanted = NodeRequest(verb=verb, namespace="ns", pod="p", container="c", query=query)
    assert wanted.target == target


def test_no_name_leads_out_of_its_place_in_a_path():
    wanted = NodeRequest(verb="exec", namespace="a/b", pod="../x", container="c?d", query={})
    assert wanted.target == "/exec/a%2Fb/..%2Fx/c%3Fd"


def named(*names):
    return [{"name": name} for name in names]


@pytest.mark.parametrize(
    ("spec", "asked", "found"),
    [
        ({"containers": named("c")}, None, "c"),
        ({"containers": named("c"), "initContainers": named("i")}, None, "c"),
        ({"containers": named("c"), "initContainers": named("i")}, "i", "i"),
        ({"containers": named("c"), "ephemeralContainers": named("e")}, "e", "e"),
        ({"containers": named("c")}, "x", "container x is not valid for pod p"),
        (
            {"containers": named("c", "d"), "initContainers": named("i")},
            None,
            "a container name must be specified for pod p, choose one of: [i c d]",
        ),
    ],
)
def test_a_request_is_about_a_container_of_the_pod(spec, asked, found):
    pod = {"metadata": {"name": "p"}, "spec": spec}
    query = {} if asked is None else {"container": [asked]}
    if " " not in found:
        assert container_of(pod, query) == found
        return
    with pytest.raises(ApiError, match=re.escape(found)):
        container_of(pod, query)
