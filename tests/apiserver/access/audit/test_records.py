"""What a server records of requests, stage by stage."""

import orjson
import pytest

from dralab.api.status import ApiError
from dralab.apiserver import server as servers
from dralab.apiserver.access.audit.policy import AuditPolicy
from dralab.apiserver.access.authentication.chain import Authentication
from dralab.apiserver.access.authentication.tokens import TokenTable
from dralab.apiserver.access.users import User
from dralab.apiserver.http.auditing import AuditSettings
from dralab.apiserver.http.messages import HttpRequest, WatchStream
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

MAPS = "/api/v1/namespaces/default/configmaps"
JANE = User(name="jane", groups=("team", "system:authenticated"), uid="u1")


class Lines:
    """A sink that keeps what it gets."""

    def __init__(self):
        self.kept = []

    def write(self, line):
        assert line.endswith(b"\n")
        self.kept.append(line)

    def close(self):
        self.kept.append(b"closed")

    @property
    def events(self):
        return [orjson.loads(line) for line in self.kept]


def lab(*rules, authorization=()):
    lines = Lines()
    policy = AuditPolicy.read(
        {"apiVersion": "audit.k8s.io/v1", "kind": "Policy", "rules": list(rules)}
    )
    server = servers.ApiServer(
        MemoryStore(),
        clock=ManualClock(1_700_000_000 * 10**9),
        randomness=Randomness(1),
        audit=AuditSettings(policy=policy, sink=lines),
        authorization=authorization,
    )
    return server, lines


def send(server, method, path, body=None, user=JANE, **more):
    data = b"" if body is None else orjson.dumps(body)
    headers = {"content-type": "application/json", "user-agent": "kubectl/v1.36"}
    return server.handle(
        HttpRequest(
            method=method, path=path, body=data, headers=headers, user=user, peer="10.0.0.1", **more
        )
    )


def test_a_write_is_recorded_when_it_comes_and_when_it_is_answered():
    server, lines = lab({"level": "RequestResponse"})
    answer = send(server, "POST", MAPS, {"metadata": {"name": "a"}, "data": {"k": "v"}})
    first, last = lines.events
    assert (first["stage"], last["stage"]) == ("RequestReceived", "ResponseComplete")
    assert first["auditID"] == last["auditID"] == dict(answer.headers)["Audit-Id"]
    assert list(last) == [
        "kind", "apiVersion", "level", "auditID", "stage", "requestURI", "verb", "user",
        "sourceIPs", "userAgent", "objectRef", "requestObject", "responseStatus", "responseObject",
        "requestReceivedTimestamp", "stageTimestamp", "annotations",
    ]  # fmt: skip
    assert last["user"] == {"username": "jane", "uid": "u1", "groups": list(JANE.groups)}
    assert last["objectRef"] == {
        "resource": "configmaps", "namespace": "default", "name": "a", "apiVersion": "v1",
    }  # fmt: skip
    assert last["verb"] == "create"
    assert last["requestObject"]["data"] == {"k": "v"}
    assert last["responseObject"]["metadata"]["uid"]
    assert last["responseStatus"] == {"metadata": {}, "code": 201}
    assert last["annotations"]["authorization.k8s.io/decision"] == "allow"
    assert last["stageTimestamp"] == "2023-11-14T22:13:20.000000Z"


def test_the_level_says_how_much():
    server, lines = lab({"level": "Metadata", "omitStages": ["RequestReceived"]})
    send(server, "POST", MAPS, {"metadata": {"name": "a"}})
    (event,) = lines.events
    assert "requestObject" not in event
    assert "responseObject" not in event
    assert event["objectRef"]["name"] == "a"


def test_secrets_of_a_rule_without_a_level_leave_no_trace():
    server, lines = lab(
        {"level": "None", "resources": [{"group": "", "resources": ["secrets"]}]},
        {"level": "Metadata"},
    )
    answer = send(server, "GET", "/api/v1/namespaces/default/secrets")
    assert not lines.kept
    assert "Audit-Id" not in dict(answer.headers)


def test_a_failure_has_its_status():
    server, lines = lab({"level": "Metadata"})
    send(server, "GET", f"{MAPS}/none")
    status = lines.events[-1]["responseStatus"]
    assert (status["status"], status["reason"], status["code"]) == ("Failure", "NotFound", 404)
    assert status["message"] == 'configmaps "none" not found'


def test_what_is_forbidden_says_so():
    server, lines = lab({"level": "Metadata"}, authorization=["RBAC"])
    assert send(server, "GET", MAPS).status == 403
    event = lines.events[-1]
    assert event["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert event["responseStatus"]["code"] == 403
    send(server, "GET", "/version", user=JANE)
    allowed = lines.events[-1]
    assert "objectRef" not in allowed
    assert "system:discovery" in allowed["annotations"]["authorization.k8s.io/reason"]


def test_a_watch_is_recorded_when_it_starts_and_when_it_ends():
    server, lines = lab({"level": "Metadata"})
    request = HttpRequest(method="GET", path=MAPS, query="watch=1", user=JANE)
    answer = server.handle(request)
    assert isinstance(answer, WatchStream)
    server.ended(request, 200)
    stages = [event["stage"] for event in lines.events]
    assert stages == ["RequestReceived", "ResponseStarted", "ResponseComplete"]
    assert {event["verb"] for event in lines.events} == {"watch"}
    assert lines.events[0]["requestURI"] == f"{MAPS}?watch=1"


def test_a_defect_is_recorded_as_a_panic(monkeypatch):
    server, lines = lab({"level": "Metadata"})

    def fail(_):
        raise ValueError("a defect")

    monkeypatch.setattr(server.application, "handle", fail)
    with pytest.raises(ValueError, match="a defect"):
        send(server, "GET", MAPS)
    assert lines.events[-1]["stage"] == "Panic"
    assert lines.events[-1]["responseStatus"]["code"] == 500


def test_who_acts_as_somebody_else_is_recorded_beside_them():
    server, lines = lab({"level": "Metadata"})
    send(server, "GET", MAPS, impersonator=User(name="admin", groups=("system:masters",)))
    event = lines.events[-1]
    assert event["user"]["username"] == "admin"
    assert event["impersonatedUser"]["username"] == "jane"
    assert "authenticationMetadata" not in event


def test_the_right_by_which_somebody_acts_as_another_is_recorded():
    server, lines = lab({"level": "Metadata"}, authorization=["RBAC"])
    master = User(name="root", groups=("system:masters",))
    server.application.authentication = Authentication(tokens=[TokenTable({"t0ken": master})])
    headers = {"authorization": "Bearer t0ken", "impersonate-user": "jane"}
    request = HttpRequest(method="GET", path=MAPS, headers=headers)
    server.admit(request)
    server.handle(request)
    event = lines.events[-1]
    assert event["impersonatedUser"]["username"] == "jane"
    assert event["authenticationMetadata"] == {"impersonationConstraint": "impersonate:user-info"}


def test_who_may_not_act_as_somebody_else_is_recorded():
    server, lines = lab({"level": "Metadata"}, authorization=["RBAC"])
    server.application.authentication = Authentication(tokens=[TokenTable({"t0ken": JANE})])
    headers = {"authorization": "Bearer t0ken", "impersonate-user": "root"}
    request = HttpRequest(method="GET", path=MAPS, headers=headers)
    with pytest.raises(ApiError, match="cannot impersonate-on:user-info:list"):
        server.admit(request)
    first, last = lines.events
    assert (first["stage"], last["stage"]) == ("RequestReceived", "ResponseComplete")
    assert last["user"]["username"] == "jane"
    assert "impersonatedUser" not in last
    assert last["responseStatus"]["code"] == 403
    assert last["responseStatus"]["details"] == {"kind": "configmaps"}


def test_a_pod_beyond_its_namespaces_level_is_noted():
    server, lines = lab({"level": "Metadata"})
    prefix = "pod-security.kubernetes.io/"
    labels = {f"{prefix}audit": "baseline"}
    send(server, "POST", "/api/v1/namespaces", {"metadata": {"name": "n", "labels": labels}})
    spec = {"containers": [{"name": "c", "image": "i"}], "hostPID": True}
    body = {"metadata": {"name": "p"}, "spec": spec}
    assert send(server, "POST", "/api/v1/namespaces/n/pods", body).status == 201
    noted = lines.events[-1]["annotations"]
    assert noted[f"{prefix}enforce-policy"] == "privileged:latest"
    assert noted[f"{prefix}audit-violations"] == (
        'would violate PodSecurity "baseline:latest": host namespaces (hostPID=true)'
    )


def test_two_runs_write_the_same_bytes():
    runs = []
    for _ in range(2):
        server, lines = lab({"level": "RequestResponse"})
        for name in ("a", "b"):
            send(server, "POST", MAPS, {"metadata": {"name": name}})
        send(server, "GET", MAPS)
        runs.append(lines.kept)
    assert runs[0] == runs[1]


def test_a_client_may_name_the_request():
    server, lines = lab({"level": "Metadata"})
    request = HttpRequest(method="GET", path=MAPS, headers={"audit-id": "mine"}, user=JANE)
    server.handle(request)
    assert {event["auditID"] for event in lines.events} == {"mine"}


def test_managed_fields_can_be_left_out():
    server, lines = lab({"level": "RequestResponse", "omitManagedFields": True})
    send(server, "POST", MAPS, {"metadata": {"name": "a"}})
    send(server, "GET", MAPS)
    assert "managedFields" not in lines.events[1]["responseObject"]["metadata"]
    items = lines.events[3]["responseObject"]["items"]
    assert all("managedFields" not in item["metadata"] for item in items)
