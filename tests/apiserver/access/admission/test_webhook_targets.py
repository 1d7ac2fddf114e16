"""Where the server finds a webhook, and where it never connects to."""

from base64 import b64encode

import pytest

from admissions import GROUP, MAPS, RULE, ask, config_map, configure
from authorities import Authority
from webhookserver import allow

SERVICE = {"name": "s", "namespace": "n"}


def test_a_service_is_where_the_operator_says(server, hook):
    hook.answers["/v"] = allow
    service = {"name": "hook", "namespace": "default", "port": 8443, "path": "/v"}
    configure(
        server, "Validating", "v", {"clientConfig": {"service": service, "caBundle": hook.ca}}
    )
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    assert len(hook.asked) == 1
    other = {"name": "other", "namespace": "default"}
    configure(server, "Validating", "w", {"clientConfig": {"service": other, "caBundle": hook.ca}})
    code, found = ask(server, "POST", MAPS, config_map("b"))
    assert code == 500
    assert found["message"].endswith(
        'Post "https://other.default.svc:443/?timeout=10s": service "other" not found'
    )


def test_a_service_is_found_by_its_endpoints_on_the_loopback(server, hook):
    hook.answers["/v"] = allow
    port = {"name": "https", "port": 443}
    spec = {"selector": {"app": "hook"}, "ports": [port]}
    services = "/api/v1/namespaces/default/services"
    assert ask(server, "POST", services, {"metadata": {"name": "hook"}, "spec": spec})[0] == 201
    slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices"
    labels = {"kubernetes.io/service-name": "hook"}
    slice_ = {
        "metadata": {"name": "hook-1", "labels": labels},
        "addressType": "IPv4",
        "endpoints": [{"addresses": ["127.0.0.1"], "conditions": {"ready": True}}],
        "ports": [{"name": "https", "port": hook.port}],
    }
    assert ask(server, "POST", slices, slice_)[0] == 201
    service = {"name": "hook", "namespace": "default", "path": "/v"}
    configure(
        server, "Validating", "v", {"clientConfig": {"service": service, "caBundle": hook.ca}}
    )
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    slice_["endpoints"][0]["addresses"] = ["10.1.2.3"]
    assert ask(server, "PUT", f"{slices}/hook-1", slice_)[0] == 200
    code, found = ask(server, "POST", MAPS, config_map("b"))
    assert code == 500
    assert (
        "this server may not connect to 10.1.2.3: --service default/hook=HOST:PORT"
        in (found["message"])
    )


@pytest.mark.parametrize(
    "host", ["10.0.0.5", "169.254.169.254", "[::ffff:10.0.0.5]", "example.com"]
)
def test_the_server_connects_only_where_the_operator_allows(server, hook, host):
    client = {"url": f"https://{host}/v", "caBundle": hook.ca}
    found = configure(server, "Validating", "v", {"clientConfig": client})
    (warning,) = found["warnings"]
    assert "webhook h0.v.io cannot be called: this server may not connect to" in warning
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 500
    assert "--webhook-network" in found["message"]


def test_an_unknown_authority_is_not_trusted(server, hook):
    hook.answers["/v"] = allow
    client = hook.client("/v") | {"caBundle": b64encode(Authority().pem).decode()}
    configure(server, "Validating", "v", {"clientConfig": client})
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 500
    assert found["message"].endswith(
        "tls: failed to verify certificate: x509: certificate signed by unknown authority"
    )


@pytest.mark.parametrize(
    ("service", "wanted"),
    [
        (SERVICE, []),
        # So says kube-apiserver 1.36.2, which confuses the two.
        ({"name": "s"}, ["name: Required value"]),
        ({"namespace": "n"}, ["namespace: Required value"]),
        ({}, ["name: Required value", "namespace: Required value"]),
        (SERVICE | {"path": "/a/b/"}, []),
        (
            SERVICE | {"path": "a"},
            [
                "path: Invalid value: \"a\": must start with a '/'",
                'path: Invalid value: "a": segment[0] may not be empty',
            ],
        ),
        (SERVICE | {"path": "//"}, ['path: Invalid value: "//": segment[0] may not be empty']),
        (
            SERVICE | {"path": "/a//b"},
            ['path: Invalid value: "/a//b": segment[1] may not be empty'],
        ),
        (SERVICE | {"port": 65535}, []),
        (
            SERVICE | {"port": 65536},
            [
                "port: Invalid value: 65536: port is not valid: must be between 1 and 65535, "
                "inclusive"
            ],
        ),
    ],
)
def test_the_service_of_a_webhook_is_named_whole(server, hook, service, wanted):
    client = {"caBundle": hook.client("/x")["caBundle"], "service": service}
    body = {
        "metadata": {"name": "c"},
        "webhooks": [
            {
                "name": "h.c.io",
                "rules": [RULE],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                "clientConfig": client,
            }
        ],
    }
    status, found = ask(server, "POST", f"{GROUP}/validatingwebhookconfigurations", body)
    assert status == (422 if wanted else 201)
    causes = found.get("details", {}).get("causes", ())
    at = "webhooks[0].clientConfig.service."
    told = [f"{each['field'].removeprefix(at)}: {each['message']}" for each in causes]
    assert told == wanted
