"""Aggregated API servers: groups that another server answers."""

import json
import threading
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from admissions import ask
from dralab.apiserver.access.users import User
from dralab.apiserver.http.proxying import aggregated
from dralab.apiserver.outgoing.targets import Unreachable, read_service
from dralab.apiserver.verbs.aggregation import services
from dralab.apiserver.verbs.aggregation.services import document_path
from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings
from dralab.cluster import Cluster, Options
from waiting import PATIENCE
from webhookserver import WebhookServer

SERVICES = "/apis/apiregistration.k8s.io/v1/apiservices"
THINGS = "/apis/agg.io/v1/namespaces/default/things"
AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
RESOURCE = {
    "name": "things",
    "singularName": "thing",
    "namespaced": True,
    "kind": "Thing",
    "verbs": ["get", "list", "create"],
}


@pytest.fixture
def there():
    server = WebhookServer()
    listed = {"kind": "APIResourceList", "groupVersion": "agg.io/v1", "resources": [RESOURCE]}
    server.answers["/apis/agg.io/v1"] = lambda _: json.dumps(listed).encode()
    server.answers[THINGS] = lambda _: b'{"kind":"ThingList","items":[]}'
    yield server
    server.close()


@pytest.fixture
def cluster(there):
    services = [read_service(f"default/hook=127.0.0.1:{there.port}")]
    with Cluster(Options(outgoing=OutgoingSettings(services=services)), seed=1) as found:
        yield found


def register(cluster, there, name="hook", **spec):
    body = {
        "metadata": {"name": "v1.agg.io"},
        "spec": {
            "group": "agg.io",
            "version": "v1",
            "groupPriorityMinimum": 100,
            "versionPriority": 10,
            "service": {"name": name, "namespace": "default"},
            "caBundle": there.ca,
            **spec,
        },
    }
    assert ask(cluster.server, "POST", SERVICES, body)[0] == 201
    # Somebody waits for the condition, as `kubectl wait` does.
    with urlopen(f"{cluster.url}{SERVICES}?watch=1&timeoutSeconds=20") as answer:
        for line in answer:
            status = json.loads(line)["object"].get("status") or {}
            for condition in status.get("conditions") or ():
                return condition
    raise AssertionError("nobody has looked whether it answers")


def get(cluster, path, **headers):
    try:
        with urlopen(Request(f"{cluster.url}{path}", headers=headers)) as answer:
            return answer.status, answer.read()
    except HTTPError as error:
        return error.code, error.read()


def test_another_server_answers_for_its_group(cluster, there):
    condition = register(cluster, there)
    assert (condition["status"], condition["reason"]) == ("True", "Passed")
    headers = there.headers[0]
    assert headers["X-Remote-User"] == "system:kube-aggregator"
    assert headers["X-Remote-Group"] == "system:masters"
    code, body = get(cluster, f"{THINGS}?limit=1", Authorization="Bearer secret")
    assert (code, json.loads(body)["kind"]) == (200, "ThingList")
    method, path, _ = there.raw[-1]
    assert (method, path) == ("GET", f"{THINGS}?limit=1")
    headers = there.headers[-1]
    assert headers["X-Remote-User"] == "admin"
    assert "Authorization" not in headers, "the credential stays here"
    assert json.loads(get(cluster, "/apis/agg.io")[1])["name"] == "agg.io"
    groups = json.loads(get(cluster, "/apis")[1])["groups"]
    assert "agg.io" in [each["name"] for each in groups]
    found = json.loads(get(cluster, "/apis", Accept=AGGREGATED)[1])["items"][-1]
    assert found["versions"][0]["resources"][0]["resource"] == "things"
    assert get(cluster, "/apis/agg.io/v2/things")[0] == 404


def test_another_server_sees_the_path_that_was_authorized(cluster, there):
    register(cluster, there)
    for asked, seen in (
        (f"{THINGS}/a%20b", f"{THINGS}/a%20b"),
        (f"{THINGS}/a%252Fscale", f"{THINGS}/a%252Fscale"),  # not the subresource `scale` of `a`
        (f"{THINGS}/%C3%A9", f"{THINGS}/%C3%A9"),
    ):
        get(cluster, asked)
        assert there.raw[-1][1] == seen


def test_the_document_of_another_server_is_listed_and_passed_on(cluster, there):
    path = "/openapi/v3/apis/agg.io/v1?hash=AB12"
    index = {"paths": {"apis/agg.io/v1": {"serverRelativeURL": path}}}
    there.answers["/openapi/v3"] = lambda _: json.dumps(index).encode()
    there.answers["/openapi/v3/apis/agg.io/v1"] = lambda _: b'{"openapi":"3.0.0"}'
    assert register(cluster, there)["status"] == "True"
    paths = json.loads(get(cluster, "/openapi/v3")[1])["paths"]
    assert paths["apis/agg.io/v1"] == {"serverRelativeURL": path}
    assert get(cluster, "/openapi/v3/apis/agg.io/v1") == (200, b'{"openapi":"3.0.0"}')
    assert paths["apis/apps/v1"]["serverRelativeURL"].startswith("/openapi/v3/apis/apps/v1?hash=")
    assert ask(cluster.server, "DELETE", f"{SERVICES}/v1.agg.io")[0] == 200
    assert "apis/agg.io/v1" not in json.loads(get(cluster, "/openapi/v3")[1])["paths"]


@pytest.mark.parametrize(
    "path",
    [
        "/openapi/v3/apis/apps/v1?hash=AB12",
        "https://elsewhere.example/openapi/v3/apis/agg.io/v1",
        "//elsewhere.example/openapi/v3/apis/agg.io/v1",
        "/openapi/v3/apis/agg.io/v1?hash=AB12&next=//elsewhere.example",
        None,
    ],
)
def test_another_server_leads_to_its_own_document_only(path):
    index = {"paths": {"apis/agg.io/v1": {"serverRelativeURL": path}}}
    assert document_path("apis/agg.io/v1", index) == ""
    for broken in (None, [], {"paths": None}, {"paths": {"apis/agg.io/v1": "x"}}):
        assert document_path("apis/agg.io/v1", broken) == ""


def test_a_server_that_is_not_there_is_not_asked(cluster, there):
    condition = register(cluster, there, name="none")
    assert (condition["status"], condition["reason"]) == ("False", "ServiceNotFound")
    assert get(cluster, THINGS) == (503, b"service unavailable\n")
    groups = json.loads(get(cluster, "/apis")[1])["groups"]
    assert "agg.io" in [each["name"] for each in groups]
    found = json.loads(get(cluster, "/apis", Accept=AGGREGATED)[1])["items"][-1]
    assert found["versions"] == [{"version": "v1", "resources": [], "freshness": "Stale"}]


def test_a_service_without_endpoints_of_its_own_is_not_asked(there):
    settings = OutgoingSettings(aggregator_routing=True)
    with Cluster(Options(outgoing=settings), seed=1) as cluster:
        service = {"metadata": {"name": "hook"}}
        service["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        path = "/api/v1/namespaces/default/services"
        assert ask(cluster.server, "POST", path, service)[0] == 201
        condition = register(cluster, there)
    assert condition["reason"] == "FailedDiscoveryCheck"
    assert condition["message"] == 'unsupported service type "ExternalName"'


def test_a_server_whose_certificate_is_not_good_is_not_asked(cluster, there):
    condition = register(cluster, there, caBundle="")
    assert condition["reason"] == "FailedDiscoveryCheck"
    assert "certificate signed by unknown authority" in condition["message"]
    assert get(cluster, THINGS)[0] == 503


@pytest.mark.parametrize(
    "listed",
    [
        {"resources": 5},
        {"resources": [5, RESOURCE]},
        {"resources": [{"name": {"a": 1}, "verbs": "x"}]},
        {"resources": [{"name": "a/b"}, {"name": "a", "shortNames": 5}]},
        {"resources": [RESOURCE, RESOURCE]},
        [1],
    ],
)
def test_what_another_server_lists_does_not_hide_the_groups_beside_it(cluster, there, listed):
    there.answers["/apis/agg.io/v1"] = lambda _: json.dumps(listed).encode()
    register(cluster, there)
    code, body = get(cluster, "/apis", Accept=AGGREGATED)
    assert code == 200
    assert "apps" in [each["metadata"]["name"] for each in json.loads(body)["items"]]


def test_one_server_that_hangs_does_not_delay_requests_for_another(cluster, there):
    register(cluster, there)
    hangs, asked = threading.Event(), threading.Semaphore(0)

    def hang(_):
        asked.release()
        hangs.wait()
        return b"{}"

    there.answers[THINGS] = hang
    threads = [threading.Thread(target=get, args=(cluster, THINGS)) for _ in range(40)]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            assert asked.acquire(timeout=60)
        assert get(cluster, "/apis/agg.io/v1")[0] == 200
    finally:
        hangs.set()
        for thread in threads:
            thread.join()


@pytest.mark.parametrize(
    "user",
    [
        User(name="admin "),
        User(name="a\nX-Remote-Group: system:masters"),
        User(name="a", groups=("\tsystem:masters",)),
        User(name="a", extra={"k": ("\x00",)}),
    ],
)
def test_a_name_that_headers_cannot_carry_is_not_passed_on_as_another(user):
    with pytest.raises(Unreachable, match="invalid header field value"):
        list(aggregated._identity(user))


def test_an_answer_to_head_has_no_body(cluster, there):
    register(cluster, there)
    with urlopen(Request(f"{cluster.url}{THINGS}", method="HEAD")) as answer:
        assert (answer.status, answer.read()) == (200, b"")


def test_a_watch_is_passed_on_as_it_comes(cluster, there):
    register(cluster, there)
    more = threading.Event()

    def events(_):
        yield b'{"type":"ADDED"}\n'
        more.wait(20)
        yield b'{"type":"MODIFIED"}\n'

    there.answers[THINGS] = events
    with urlopen(f"{cluster.url}{THINGS}?watch=1") as answer:
        assert json.loads(answer.readline()) == {"type": "ADDED"}
        more.set()
        assert json.loads(answer.readline()) == {"type": "MODIFIED"}
        assert answer.readline() == b""
    assert there.raw[-1][1] == f"{THINGS}?watch=1"
    assert there.headers[-1]["X-Remote-User"] == "admin"


def test_a_watch_that_is_refused_is_an_answer(cluster, there):
    register(cluster, there)
    there.answers[THINGS] = lambda _: (410, b'{"kind":"Status"}')
    assert get(cluster, f"{THINGS}?watch=1") == (410, b'{"kind":"Status"}')


@pytest.mark.parametrize("query", ["", "?watch=1"])
def test_a_client_is_sent_nowhere_else(cluster, there, query):
    register(cluster, there)
    there.answers[THINGS] = lambda _: (302, b"", ("Location", "http://169.254.169.254/"))
    code, body = get(cluster, f"{THINGS}{query}")
    assert (code, b"attempted to redirect this request" in body) == (502, True)


def test_a_page_of_another_server_is_not_one_of_this_one(cluster, there):
    register(cluster, there)
    with urlopen(f"{cluster.url}{THINGS}") as answer:
        assert answer.headers["Content-Security-Policy"] == "sandbox"
        assert answer.headers["X-Content-Type-Options"] == "nosniff"


def test_a_client_that_goes_ends_the_watch_of_the_other_server(cluster, there):
    register(cluster, there)
    left = threading.Event()

    def events(_):
        try:
            while True:
                yield b"{}\n"
        finally:
            left.set()

    there.answers[THINGS] = events
    with urlopen(f"{cluster.url}{THINGS}?watch=1") as answer:
        answer.readline()
    assert left.wait(PATIENCE)


def test_a_server_that_hangs_is_not_asked(cluster, there, monkeypatch):
    monkeypatch.setattr(services, "TIMEOUT", 0.2)
    released = threading.Event()
    there.answers["/apis/agg.io/v1"] = lambda _: released.wait(150) and b"{}"
    condition = register(cluster, there)
    released.set()
    where = "https://hook.default.svc/apis/agg.io/v1"
    assert (condition["status"], condition["reason"]) == ("False", "FailedDiscoveryCheck")
    assert condition["message"] == (
        f'failing or missing response from {where}: Get "{where}": context deadline exceeded '
        "(Client.Timeout exceeded while awaiting headers)"
    )
    assert get(cluster, THINGS) == (503, b"service unavailable\n")


@pytest.mark.parametrize("query", ["", "?watch=1"])
def test_an_answer_that_never_comes_is_not_waited_for(cluster, there, monkeypatch, query):
    register(cluster, there)
    monkeypatch.setattr(aggregated, "TIMEOUT", 0.2)
    released = threading.Event()
    there.answers[THINGS] = lambda _: released.wait(150) and b"{}"
    code, body = get(cluster, THINGS + query)
    released.set()
    found = json.loads(body)
    assert (code, found["reason"], found["details"]) == (504, "Timeout", {})
    assert found["message"] == "Timeout: request did not complete within the allotted timeout"
