"""Probes of real containers: the health service of gRPC, and ports by name."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from dralab.node.probing import probe, with_port

grpc = pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")


class Real:
    real = True


@pytest.fixture
def served():
    """A health server that answers by the service that it is asked about."""
    answers = {b"": b"\x08\x01", b"\x0a\x08liveness": b"\x08\x02"}

    def check(request, context):
        if request not in answers:
            context.abort(grpc.StatusCode.NOT_FOUND, "unknown service")
        return answers[request]

    server = grpc.server(ThreadPoolExecutor(2))
    handler = grpc.unary_unary_rpc_method_handler(check)
    server.add_generic_rpc_handlers(
        (grpc.method_handlers_generic_handler("grpc.health.v1.Health", {"Check": handler}),)
    )
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield port
    server.stop(None)


@pytest.mark.parametrize(
    ("service", "says"),
    [
        ("", None),
        ("liveness", 'service unhealthy (responded with "NOT_SERVING")'),
        ("other", "unknown service"),
    ],
)
def test_a_grpc_probe_asks_the_health_service(served, service, says):
    found = probe(Real(), {"grpc": {"port": served, "service": service}, "timeoutSeconds": 5})
    assert found == says if says is None else says in found


def test_a_grpc_probe_without_a_server_fails():
    found = probe(Real(), {"grpc": {"port": 9}})
    assert found.startswith('timeout: failed to connect service "127.0.0.1:9"')


def test_a_port_may_be_given_by_its_name():
    container = {
        "ports": [{"name": "health", "containerPort": 8080}],
        "livenessProbe": {"httpGet": {"port": "health", "path": "/x"}},
        "readinessProbe": {"tcpSocket": {"port": 80}},
        "startupProbe": {"exec": {"command": ["true"]}},
    }
    assert with_port(container, "livenessProbe")["httpGet"] == {"port": 8080, "path": "/x"}
    for kind in ("readinessProbe", "startupProbe"):
        assert with_port(container, kind) is container[kind]
