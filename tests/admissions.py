"""Requests to a server without sockets, for tests of admission."""

import json

from dralab.apiserver.http.messages import HttpRequest
from webhookserver import patch

MAPS = "/api/v1/namespaces/default/configmaps"
GROUP = "/apis/admissionregistration.k8s.io/v1"
MERGE = "application/merge-patch+json"
RULE = {
    "operations": ["*"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["configmaps", "pods", "pods/*"],
}


def ask(server, method, url, body=None, media="application/json", user=None):
    """Return the status and the body of an answer, with its warnings."""
    path, _, query = url.partition("?")
    data = b"" if body is None else json.dumps(body).encode()
    headers = {"content-type": media}
    answer = server.handle(
        HttpRequest(method=method, path=path, query=query, headers=headers, body=data, user=user)
    )
    found = json.loads(answer.content)
    found["warnings"] = [value for name, value in answer.headers if name == "Warning"]
    return answer.status, found


def config_map(name="a", data=None, **metadata):
    return {"metadata": {"name": name, **metadata}, "data": data or {"k": "v"}}


def configure(server, kind, name, *hooks):
    """Store a configuration of webhooks: `Mutating` or `Validating`."""
    body = {
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"h{number}.{name}.io",
                "rules": [RULE],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                **each,
            }
            for number, each in enumerate(hooks)
        ],
    }
    status, found = ask(server, "POST", f"{GROUP}/{kind.lower()}webhookconfigurations", body)
    assert status == 201, found
    return found


def label(name, value="yes"):
    def answer(request):
        operations = [{"op": "add", "path": f"/metadata/labels/{name}", "value": value}]
        if "labels" not in request["object"]["metadata"]:
            operations.insert(0, {"op": "add", "path": "/metadata/labels", "value": {}})
        return patch(*operations)

    return answer
