"""A write that meets a webhook goes to its lane before its body is read, and is done once."""

import asyncio
import json
from collections import Counter

import pytest

from admissions import MAPS, ask, config_map, configure, label
from dralab.apiserver.access.users import ADMIN
from dralab.apiserver.http import routing
from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.encodings import bodies
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.verbs import creating
from webhookserver import allow

STEPS = ((routing, "route"), (bodies, "decode"), (creating, "create"))
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


@pytest.fixture
def steps(monkeypatch):
    counts = Counter()

    def counted(module, name):
        whole = getattr(module, name)

        def call(*given, **named):
            counts[name] += 1
            return whole(*given, **named)

        monkeypatch.setattr(module, name, call)

    for module, name in STEPS:
        counted(module, name)
    return counts


def over_the_loop(server, path, body):
    """Return the status of a POST that begins in the loop, as all do."""

    async def asked():
        edge = AsgiApp(server)
        edge.loop = asyncio.get_running_loop()
        request = HttpRequest(
            method="POST",
            path=path,
            headers={"content-type": "application/json"},
            body=json.dumps(body).encode(),
            user=ADMIN,
        )
        try:
            return (await edge.submit(request)).status
        finally:
            edge.close()

    return asyncio.run(asked())


def in_process(server, path, body):
    return ask(server, "POST", path, body)[0]


@pytest.mark.parametrize("post", [over_the_loop, in_process])
@pytest.mark.parametrize("sort", ["Mutating", "Validating"])
def test_a_write_that_meets_a_webhook_is_routed_decoded_and_created_once(
    server, hook, steps, sort, post
):
    hook.answers["/h"] = label("seen") if sort == "Mutating" else allow
    configure(server, sort, "h", {"clientConfig": hook.client("/h")})
    steps.clear()
    assert post(server, MAPS, config_map()) == 201
    assert len(hook.asked) == 1
    assert steps == {"route": 1, "decode": 1, "create": 1}


@pytest.mark.parametrize("post", [over_the_loop, in_process])
def test_a_write_that_a_webhook_converts_is_done_once(server, hook, steps, post):
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"served": True, "schema": {"openAPIV3Schema": schema}}
    webhook = {"clientConfig": hook.client("/convert"), "conversionReviewVersions": ["v1"]}
    spec = {
        "group": "x.io",
        "scope": "Namespaced",
        "names": {"plural": "figs", "singular": "fig", "kind": "Fig"},
        "versions": [
            {**version, "name": "v1", "storage": True},
            {**version, "name": "v2", "storage": False},
        ],
        "conversion": {"strategy": "Webhook", "webhook": webhook},
    }
    made = {"metadata": {"name": "figs.x.io"}, "spec": spec}
    assert in_process(server, CRDS, made) == 201
    hook.answers["/convert"] = lambda request: {
        "result": {"status": "Success"},
        "convertedObjects": [
            {**each, "apiVersion": request["desiredAPIVersion"]} for each in request["objects"]
        ],
    }
    steps.clear()
    fig = {"apiVersion": "x.io/v2", "kind": "Fig", "metadata": {"name": "f"}}
    assert post(server, "/apis/x.io/v2/namespaces/default/figs", fig) == 201
    assert steps == {"route": 1, "decode": 1, "create": 1}
