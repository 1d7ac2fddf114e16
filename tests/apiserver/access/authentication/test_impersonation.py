"""`kubectl --as`: who may act as whom, and as whom then."""

import json
from dataclasses import replace

import pytest

from dralab.api.status import ApiError
from dralab.apiserver.access.authentication.errors import UnusableSetting
from dralab.apiserver.access.authentication.impersonation import impersonated
from dralab.apiserver.access.authentication.settings import AuthenticationSettings
from dralab.apiserver.access.authentication.tokens import TokenTable
from dralab.apiserver.access.authorization.attributes import ALLOWED, NO_OPINION, Attributes
from dralab.apiserver.access.users import User
from dralab.apiserver.http.messages import HttpRequest
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
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
    # What is said is why the most constrained mode does not allow it.
    may = 'is forbidden: User "proxy" cannot'
    assert why_not(server, user="root") == (
        f"selfsubjectreviews.authentication.k8s.io {may} impersonate-on:user-info:create resource "
        '"selfsubjectreviews" in API group "authentication.k8s.io" at the cluster scope'
    )
    assert why_not(server, user="jane", group="system:masters")
    assert why_not(server, user="jane", uid="u-2")
    # These have no constrained mode: a service account and a node have their own groups.
    assert why_not(server, user="system:serviceaccount:default:robot", group="x") == (
        f'groups "x" {may} impersonate resource "groups" in API group "" at the cluster scope'
    )
    assert why_not(server, user="system:serviceaccount:default:robot", uid="u-2") == (
        f'uids.authentication.k8s.io "u-2" {may} impersonate resource "uids" in API group '
        '"authentication.k8s.io" at the cluster scope'
    )
    account = {"user": "system:serviceaccount:default:robot"}
    assert '"userextras/scopes"' in why_not(server, **account, extra_scopes="admin")
    assert '"userextras/other"' in why_not(server, **account, extra_other="view")
    assert '"serviceaccounts"' in why_not(server, user="system:serviceaccount:default:x", uid="u-1")
    assert why_not(server, "jane", user="root")
    several = {"impersonate-group": ["team-a", "system:masters"]}
    assert why_not(server, user="jane", group="team-a", repeated=several)


@pytest.fixture(scope="module")
def constrained():
    """A server where `proxy` may impersonate in constrained modes alone."""
    server = server_of("RBAC")
    group = "authentication.k8s.io"
    rules = [
        ("user-info", "create", {"users": ["jane"], "groups": ["team-a"], "uids": ["u-1"],
                                 "userextras/acme.io/scope": ["view"]}),
        ("serviceaccount", "create", {"serviceaccounts": ["robot"]}),
        ("arbitrary-node", "create", {"nodes": ["n1"]}),
    ]  # fmt: skip
    for mode, verb, named in rules:
        on = {
            "verbs": [f"impersonate-on:{mode}:{verb}"],
            "apiGroups": [group],
            "resources": ["selfsubjectreviews"],
        }
        bind(server, f"on-{mode}", on, ("User", "proxy"))
        for resource, names in named.items():
            rule = {
                "verbs": [f"impersonate:{mode}"],
                "apiGroups": [group],
                "resources": [resource],
                "resourceNames": names,
            }
            bind(server, f"{mode}-{resource.replace('/', '-')}", rule, ("User", "proxy"))
    asking = {"verbs": ["create"], "apiGroups": [group], "resources": ["selfsubjectreviews"]}
    bind(server, "asking", asking, ("Group", "system:authenticated"))
    return server


def test_a_user_may_be_impersonated_for_one_verb_of_one_resource(constrained):
    found = whoami(constrained, "proxy", user="jane", group="team-a", uid="u-1")
    assert found["groups"] == ["team-a", "system:authenticated"]
    path = "/api/v1/namespaces/default/configmaps"
    status, answer = ask(constrained, "proxy", path, {"metadata": {"name": "x"}}, user="jane")
    assert status == 403
    assert 'cannot impersonate-on:user-info:create resource "configmaps"' in answer["message"]
    may = 'is forbidden: User "proxy" cannot impersonate:user-info resource'
    assert why_not(constrained, user="root") == (
        f'users.authentication.k8s.io "root" {may} "users" in API group "authentication.k8s.io" at '
        "the cluster scope"
    )
    assert f'{may} "groups"' in why_not(constrained, user="jane", group="team-b")
    assert f'{may} "uids"' in why_not(constrained, user="jane", uid="u-2")


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ({"group": "system:masters"}, "impersonating the system:masters group is not allowed"),
        ({"group": ""}, "impersonating the empty string group is not allowed"),
        (
            {"extra_scope": "x"},
            'extra.key: Invalid value: "scope": must be a domain-prefixed path (such as '
            '"acme.io/foo")',
        ),
        ({"extra_acme.io%2fscope": ""}, "impersonating the empty string value in extra is not"),
    ],
)
def test_what_constrained_impersonation_never_allows(constrained, headers, why):
    assert why in why_not(constrained, user="jane", **headers)


def test_an_extra_value_may_be_impersonated_by_its_key(constrained):
    found = whoami(constrained, "proxy", user="jane", **{"extra_acme.io%2fscope": "view"})
    assert found["extra"] == {"acme.io/scope": ["view"]}
    assert why_not(constrained, user="jane", **{"extra_acme.io%2fscope": "edit"})


def test_a_service_account_and_a_node_have_modes_of_their_own_and_their_own_groups(constrained):
    found = whoami(constrained, "proxy", user="system:serviceaccount:default:robot")
    assert "system:serviceaccounts:default" in found["groups"]
    found = whoami(constrained, "proxy", user="system:node:n1")
    assert found["groups"] == ["system:nodes", "system:authenticated"]
    assert 'cannot impersonate:arbitrary-node resource "nodes"' in why_not(
        constrained, user="system:node:n2"
    )
    # With a group it is no longer that mode, and the older right is missing.
    assert 'cannot impersonate resource "users"' in why_not(
        constrained, user="system:node:n1", group="system:nodes"
    )


def test_a_pod_may_act_as_its_own_node():
    asked = Attributes(user=User(), verb="list", resource="pods")
    allowed = set()

    class Rights:
        def authorize(self, attributes):
            key = attributes.verb, attributes.resource, attributes.name, dict(attributes.user.extra)
            return ALLOWED if repr(key) in allowed else NO_OPINION

    node = {"authentication.kubernetes.io/node-name": ("n1",)}
    account = User(name="system:serviceaccount:a:agent", groups=(), extra=node)
    keys = {"authentication.kubernetes.io/associated-node-keys": tuple(node)}
    allowed.add(repr(("impersonate-on:associated-node:list", "pods", "", keys)))
    allowed.add(repr(("impersonate:associated-node", "nodes", "*", keys)))

    def acting(name, user=account):
        head = HttpRequest(method="GET", path="/", headers={"impersonate-user": name})
        return impersonated(head, user, Rights(), lambda: replace(asked, user=user))

    found, constraint = acting("system:node:n1")
    assert (found.name, found.groups) == (
        "system:node:n1", ("system:nodes", "system:authenticated"),
    )  # fmt: skip
    assert constraint == "impersonate:associated-node"
    with pytest.raises(ApiError, match="impersonate-on:arbitrary-node:list"):
        acting("system:node:n2")
    with pytest.raises(ApiError, match="impersonate-on:arbitrary-node:list"):
        acting("system:node:n1", User(name="agent", groups=(), extra=node))


def test_the_right_to_all_groups_stands_for_many():
    asked = []

    class Rights:
        def authorize(self, attributes):
            asked.append((attributes.resource, attributes.name))
            return ALLOWED if attributes.name in {"", "*", "jane"} else NO_OPINION

    names = [f"g{number}" for number in range(4)]
    head = HttpRequest(
        method="GET",
        path="/",
        headers={"impersonate-user": "jane", "impersonate-group": "g0"},
        repeated={"impersonate-group": names},
    )
    found, _ = impersonated(
        head, USERS["proxy"], Rights(), lambda: Attributes(user=USERS["proxy"], verb="list")
    )
    assert found.groups == (*names, "system:authenticated")
    assert asked == [("", ""), ("users", "jane"), ("groups", "*")]


def test_an_impersonated_user_may_do_what_that_user_may(server):
    path = "/api/v1/namespaces/default/configmaps"
    body = {"metadata": {"name": "x"}}
    assert ask(server, "root", path, body, user="jane")[0] == 403
    assert ask(server, "root", path, body, user="jane", group="system:masters")[0] == 201


def test_groups_without_a_user_are_refused(server):
    for headers, shown in (
        ({"group": "team-a"}, 'UID:"", Groups:[]string{"team-a"}, Extra:map[string][]string(nil)'),
        ({"uid": "u-1"}, 'UID:"u-1", Groups:[]string(nil), Extra:map[string][]string(nil)'),
        (
            {"extra_scopes": "view", "user": ""},
            'UID:"", Groups:[]string(nil), Extra:map[string][]string{"scopes":[]string{"view"}}',
        ),
    ):
        status, answer = ask(server, "root", **headers)
        assert (status, answer["message"]) == (
            400,
            f'requested &user.DefaultInfo{{Name:"", {shown}}} without impersonating a user name',
        )


def test_an_empty_user_alone_is_nobody_else(server):
    assert whoami(server, "jane", user="")["username"] == "jane"


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
