"""`kubectl --as`: who may act as whom, and as whom then."""

import json

import pytest

from dralab.apiserver.authentication.errors import UnusableSetting
from dralab.apiserver.authentication.settings import AuthenticationSettings
from dralab.apiserver.authentication.tokens import TokenTable
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.users import User
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

GROUP = "rbac.authorization.k8s.io"
RBAC = f"/apis/{GROUP}/v1"
REVIEW = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
USERS = {
    "root": User(name="root", groups=("system:masters",)),
    "proxy": User(name="proxy", groups=()),
    "jane": User(name="jane", groups=()),
}


def server_of(*modes, **settings):
    return ApiServer(
        MemoryStore(),
        clock=ManualClock(),
        randomness=Randomness(1),
        authentication=AuthenticationSettings(tokens=[TokenTable(USERS)], **settings),
        authorization=modes,
    )


@pytest.fixture(scope="module")
def server():
    """Roles are in force, and `proxy` may impersonate some."""
    server = server_of("RBAC")
    allow(server, "", "users", "jane")
    allow(server, "", "groups", "team-a", "team-b")
    allow(server, "", "serviceaccounts", "robot")
    allow(server, "authentication.k8s.io", "userextras/scopes", "view", "edit")
    allow(server, "authentication.k8s.io", "uids", "u-1")
    allow(server, "", "users", "system:anonymous")
    asking = {
        "verbs": ["create"],
        "apiGroups": ["authentication.k8s.io"],
        "resources": ["selfsubjectreviews"],
    }
    everybody = ("system:authenticated", "system:unauthenticated")
    bind(server, "ask-who-i-am", asking, *(("Group", name) for name in everybody))
    return server


def allow(server, group, resource, *names):
    rule = {"verbs": ["impersonate"], "apiGroups": [group], "resources": [resource]}
    name = f"{resource.replace('/', '-')}-{names[0].replace(':', '-')}"
    bind(server, name, {**rule, "resourceNames": list(names)}, ("User", "proxy"))


def bind(server, name, rule, *subjects):
    role = {"metadata": {"name": name}, "rules": [rule]}
    binding = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": GROUP, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": GROUP, "kind": kind, "name": name} for kind, name in subjects],
    }
    assert ask(server, "root", f"{RBAC}/clusterroles", role)[0] == 201
    assert ask(server, "root", f"{RBAC}/clusterrolebindings", binding)[0] == 201


def ask(server, token, path=REVIEW, body=None, *, repeated=None, **headers):
    headers = {f"impersonate-{name.replace('_', '-')}": text for name, text in headers.items()}
    answer = server.handle(
        HttpRequest(
            method="POST",
            path=path,
            body=json.dumps(body or {}).encode(),
            headers={"authorization": f"Bearer {token}", **headers},
            repeated=repeated,
        )
    )
    return answer.status, json.loads(answer.content)


def whoami(server, token, **headers):
    status, answer = ask(server, token, **headers)
    assert status == 201, answer
    return answer["status"]["userInfo"]


def why_not(server, token="proxy", **headers):  # noqa: S107 - a name
    status, answer = ask(server, token, **headers)
    assert status == 403
    return answer["message"]


def test_a_request_acts_as_the_user_that_it_names(server):
    assert whoami(server, "proxy", user="jane") == {
        "username": "jane",
        "groups": ["system:authenticated"],
    }
    found = whoami(
        server,
        "proxy",
        user="jane",
        uid="u-1",
        repeated={
            "impersonate-group": ["team-a", "team-b"],
            "impersonate-extra-scopes": ["view", "edit"],
        },
        group="team-a",
        extra_scopes="view",
    )
    assert found == {
        "username": "jane",
        "uid": "u-1",
        "groups": ["team-a", "team-b", "system:authenticated"],
        "extra": {"scopes": ["view", "edit"]},
    }


def test_a_service_account_brings_its_groups(server):
    found = whoami(server, "proxy", user="system:serviceaccount:default:robot")
    assert found["groups"] == [
        "system:serviceaccounts",
        "system:serviceaccounts:default",
        "system:authenticated",
    ]


def test_nobody_is_anonymous_and_authenticated_at_once(server):
    found = whoami(server, "proxy", user="system:anonymous")
    assert found["groups"] == ["system:unauthenticated"]


def test_each_part_has_to_be_allowed(server):
    may = 'is forbidden: User "proxy" cannot impersonate resource'
    assert why_not(server, user="root") == (
        f'users "root" {may} "users" in API group "" at the cluster scope'
    )
    assert why_not(server, user="jane", group="system:masters") == (
        f'groups "system:masters" {may} "groups" in API group "" at the cluster scope'
    )
    assert why_not(server, user="jane", uid="u-2") == (
        f'uids.authentication.k8s.io "u-2" {may} "uids" in API group "authentication.k8s.io" at '
        "the cluster scope"
    )
    assert '"userextras/scopes"' in why_not(server, user="jane", extra_scopes="admin")
    assert '"userextras/other"' in why_not(server, user="jane", extra_other="view")
    assert '"serviceaccounts"' in why_not(server, user="system:serviceaccount:default:x")
    assert why_not(server, "jane", user="root")
    several = {"impersonate-group": ["team-a", "system:masters"]}
    assert why_not(server, user="jane", group="team-a", repeated=several)


def test_an_impersonated_user_may_do_what_that_user_may(server):
    path = "/api/v1/namespaces/default/configmaps"
    body = {"metadata": {"name": "x"}}
    assert ask(server, "root", path, body, user="jane")[0] == 403
    assert ask(server, "root", path, body, user="jane", group="system:masters")[0] == 201


def test_groups_without_a_user_are_refused(server):
    for headers in ({"group": "team-a"}, {"uid": "u-1"}, {"extra_scopes": "view"}, {"user": ""}):
        status, answer = ask(server, "root", **headers)
        assert (status, "Impersonate-User is missing" in answer["message"]) == (400, True)


def test_anonymous_requests_need_roles_to_be_in_force():
    with pytest.raises(UnusableSetting, match="--anonymous-auth: needs an authorization mode"):
        server_of(anonymous=True)
    server = server_of("RBAC", anonymous=True)
    answer = server.handle(HttpRequest(method="GET", path="/api/v1/pods"))
    assert (answer.status, json.loads(answer.content)["message"]) == (
        403,
        'pods is forbidden: User "system:anonymous" cannot list resource "pods" in API group "" '
        "at the cluster scope",
    )
