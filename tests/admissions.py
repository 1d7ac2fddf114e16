"""Requests to a server without sockets, for tests of admission."""

import json

from dralab.apiserver.http.messages import HttpRequest

MAPS = "/api/v1/namespaces/default/configmaps"
GROUP = "/apis/admissionregistration.k8s.io/v1"
MERGE = "application/merge-patch+json"


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
