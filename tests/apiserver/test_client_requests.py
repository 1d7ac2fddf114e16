"""Every request that unmodified clients were seen to send gets the status they were used to."""

import json
import re
from pathlib import Path

import pytest

from dralab.apiserver.http.messages import HttpRequest, WatchStream
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

RECORDED = Path(__file__).parents[2] / "../shared/testdata/apiserver/client-requests.json"
# Who runs the nodes answers these, and who measures them.
OTHERS = re.compile(r"/(log|exec|attach|portforward)\b|metrics\.k8s\.io")
POD = {
    "metadata": {"name": "p1", "labels": {"app": "x"}},
    "spec": {"containers": [{"name": "c", "image": "nginx"}]},
}
TEMPLATE = {"metadata": {"labels": {"app": "web"}}, "spec": POD["spec"]}
DEPLOYMENT = {
    "metadata": {"name": "web"},
    "spec": {"selector": {"matchLabels": {"app": "web"}}, "template": TEMPLATE},
}


def recorded():
    if not RECORDED.exists():
        return {"kubectl": {}, "clients": {}, "accepts": []}
    return json.loads(RECORDED.read_text())


DATA = recorded()


@pytest.fixture
def server():
    found = ApiServer(MemoryStore(), clock=ManualClock(10**18), randomness=Randomness(1))

    def post(path, body):
        request = HttpRequest(method="POST", path=path, body=json.dumps(body).encode())
        assert found.handle(request).status == 201, path

    post("/api/v1/namespaces/default/pods", POD)
    post("/api/v1/namespaces/default/pods", {**POD, "metadata": {"name": "r1"}})
    post("/apis/apps/v1/namespaces/default/deployments", DEPLOYMENT)
    post("/api/v1/namespaces/default/configmaps", {"metadata": {"name": "cm1"}})
    for name in ("node0", "node1"):
        post("/api/v1/nodes", {"metadata": {"name": name}})
    yield found
    found.close()


def asked(server, method, path, accept, content_type="", body=b""):
    path, _, query = path.partition("?")
    query = query.replace("resourceVersion=N", "resourceVersion=1")
    query = query.replace("timeoutSeconds=N", "timeoutSeconds=5").replace("timeout=T", "timeout=5s")
    query = re.sub(r"hash=H&?", "", query)
    headers = {"accept": accept} | ({"content-type": content_type} if content_type else {})
    verb = "GET" if method == "WATCH" else method
    request = HttpRequest(method=verb, path=path, query=query, headers=headers, body=body)
    return server.handle(request)


@pytest.mark.parametrize("command", DATA["kubectl"])
def test_kubectl_gets_the_statuses_it_was_used_to(command, server):
    for version, requests in DATA["kubectl"][command].items():
        for method, recorded_path, accept, content_type, status, *body in requests:
            path = recorded_path
            text = body[0] if body and isinstance(body[0], str) else ""
            if OTHERS.search(path) or (method not in {"GET", "WATCH"} and not text):
                continue
            if "cascade" in command:
                continue  # whoever collects garbage ends it
            if "restart" in command or "resourceVersion" in text or command == "replace":
                continue
            if method == "GET" and status == 404 and "delete" not in command:
                path = path.replace("/web", "/none")
            if method == "POST":
                path += ("&" if "?" in path else "?") + "dryRun=All"
                text = text.replace('"p1"', '"p9"').replace('"r1"', '"r9"')
            answer = asked(
                server, method, path, DATA["accepts"][accept], content_type, text.encode()
            )
            assert answer.status == status, (
                version,
                method,
                path,
                getattr(answer, "content", b"")[:300],
            )
            if method == "WATCH":
                assert isinstance(answer, WatchStream), path


@pytest.mark.parametrize("client", DATA["clients"])
def test_clients_find_what_they_list_and_watch(client, server):
    for method, recorded_path, query, content_type, _ in DATA["clients"][client]:
        path = recorded_path.replace("NS", "default")
        if (
            method not in {"GET", "WATCH"}
            or "NAME" in path
            or OTHERS.search(path)
            or "/HASH" in path
        ):
            continue
        if re.search(r"/apis/(x\.io|kopf\.dev|zalando\.org|.*metrics)", path):
            continue
        answer = asked(server, method, f"{path}?{query}", "application/json", content_type)
        assert answer.status == 200, (method, path, query)
        assert isinstance(answer, WatchStream) == (method == "WATCH"), (path, query)


def test_there_are_recorded_requests():
    if not RECORDED.exists():
        pytest.skip("the recorded requests are not beside this checkout")
    assert len(DATA["kubectl"]) > 60
    assert len(DATA["clients"]) > 5
