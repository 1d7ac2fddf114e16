"""What users are told by a server that asks roles: in the words of a real one."""

import pytest

from dralab.apiserver.access.authorization.modes import ModeError
from offices import RBAC, Office, account, group, paths, person, rule, user

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
ROBOT = "system:serviceaccount:default:robot"


@pytest.mark.parametrize(
    ("method", "path", "message"),
    [
        (
            "GET",
            PODS,
            'pods is forbidden: User "x" cannot list resource "pods" in API group "" in the '
            'namespace "default"',
        ),
        (
            "GET",
            "/api/v1/pods?watch=1",
            'pods is forbidden: User "x" cannot watch resource "pods" in API group "" at the '
            "cluster scope",
        ),
        (
            "GET",
            f"{PODS}/web/log",
            'pods "web" is forbidden: User "x" cannot get resource "pods/log" in API group "" in '
            'the namespace "default"',
        ),
        (
            "DELETE",
            "/apis/apps/v1/namespaces/default/deployments",
            'deployments.apps is forbidden: User "x" cannot deletecollection resource '
            '"deployments" in API group "apps" in the namespace "default"',
        ),
        (
            "GET",
            "/api/v1/namespaces/kube-system",
            'namespaces "kube-system" is forbidden: User "x" cannot get resource "namespaces" in '
            'API group "" in the namespace "kube-system"',
        ),
        (
            "GET",
            f"{MAPS}?fieldSelector=metadata.name%3Da",
            'configmaps "a" is forbidden: User "x" cannot list resource "configmaps" in API group '
            '"" in the namespace "default"',
        ),
        (
            "GET",
            "/apis/absent.example.com/v1/namespaces/default/things/one",
            'things.absent.example.com "one" is forbidden: User "x" cannot get resource "things" '
            'in API group "absent.example.com" in the namespace "default"',
        ),
        ("GET", "/metrics", 'forbidden: User "x" cannot get path "/metrics"'),
        ("GET", "/debug/x", 'forbidden: User "x" cannot get path "/debug/x"'),
        (
            "GET",
            "/api/v1/namespaces/%3Cb%3E/pods",
            'pods is forbidden: User "x" cannot list resource "pods" in API group "" in the '
            'namespace "&lt;b&gt;"',
        ),
    ],
)
def test_a_refusal_says_what_a_user_cannot_do(office, method, path, message):
    assert office.refusal(method, path, user="x") == message


def test_a_refusal_names_the_object_in_its_details(office):
    _, found = office.ask("GET", "/apis/apps/v1/namespaces/default/deployments/web", user="x")
    assert found["details"] == {"name": "web", "group": "apps", "kind": "deployments"}


def test_a_superuser_may_do_everything(office):
    assert office.ask("GET", PODS, user=person("root", "system:masters"))[0] == 200
    assert office.ask("GET", "/metrics", user=person("root", "system:masters"))[0] == 200


def test_a_role_holds_in_its_namespace(office):
    office.role("reader", rule("get,list", "pods"), namespace="default")
    office.bind("jane", "Role/reader", user("jane"), namespace="default")
    assert office.ask("GET", PODS, user="jane")[0] == 200
    assert office.ask("GET", PODS, user="joe")[0] == 403
    assert office.ask("GET", "/api/v1/namespaces/kube-system/pods", user="jane")[0] == 403
    assert office.ask("GET", "/api/v1/pods", user="jane")[0] == 403
    assert office.ask("GET", f"{PODS}/web/log", user="jane")[0] == 403
    assert office.ask("DELETE", f"{PODS}/web", user="jane")[0] == 403
    assert office.ask("GET", f"{PODS}/web", user="jane")[0] == 404


def test_a_cluster_role_holds_where_it_is_bound(office):
    office.role("reader", rule("list", "pods"))
    office.bind("team", "reader", group("team"), namespace="default")
    member = person("jane", "team")
    assert office.ask("GET", PODS, user=member)[0] == 200
    assert office.ask("GET", "/api/v1/pods", user=member)[0] == 403
    office.bind("team", "reader", group("team"))
    assert office.ask("GET", "/api/v1/pods", user=member)[0] == 200


def test_a_role_of_names_lets_those_alone_be_used(office):
    office.role("one", rule("get,list,watch,create", "configmaps", names=["a"]))
    office.bind("jane", "one", user("jane"))
    for name in "ab":
        office.made(MAPS, {"metadata": {"name": name}})
    assert office.ask("GET", f"{MAPS}/a", user="jane")[0] == 200
    assert office.ask("GET", f"{MAPS}/b", user="jane")[0] == 403
    assert office.ask("GET", f"{MAPS}?fieldSelector=metadata.name=a", user="jane")[0] == 200
    assert office.ask("GET", f"{MAPS}?fieldSelector=metadata.name!=b", user="jane")[0] == 403
    assert office.ask("GET", MAPS, user="jane")[0] == 403
    # Nobody knows the name of what is created before its body is read.
    assert office.ask("POST", MAPS, {"metadata": {"name": "a"}}, user="jane")[0] == 403


def test_a_change_of_a_role_or_a_binding_counts_from_the_next_request(office):
    office.role("reader", rule("list", "pods"), namespace="default")
    assert office.ask("GET", PODS, user="jane")[0] == 403
    office.bind("jane", "Role/reader", user("jane"), namespace="default")
    assert office.ask("GET", PODS, user="jane")[0] == 200
    role = f"{RBAC}/namespaces/default/roles/reader"
    merge = "application/merge-patch+json"
    office.ask("PATCH", role, {"rules": [rule("get", "pods")]}, type=merge)
    assert office.ask("GET", PODS, user="jane")[0] == 403
    office.ask("PATCH", role, {"rules": [rule("list", "pods")]}, type=merge)
    assert office.ask("GET", PODS, user="jane")[0] == 200
    office.ask("DELETE", f"{RBAC}/namespaces/default/rolebindings/jane")
    assert office.ask("GET", PODS, user="jane")[0] == 403


def test_what_holds_in_a_namespace_is_not_kept_for_others(office):
    office.role("reader", rule("list", "pods"), namespace="default")
    assert office.ask("GET", PODS, user="jane")[0] == 403
    office.bind("jane", "Role/reader", user("jane"), namespace="default")
    assert office.ask("GET", PODS, user="jane")[0] == 200
    office.ask("DELETE", f"{RBAC}/namespaces/default/rolebindings/jane")
    for namespace in ("default", "kube-system", "absent"):
        assert office.ask("GET", f"/api/v1/namespaces/{namespace}/pods", user="jane")[0] == 403
    assert office.ask("GET", "/api/v1/pods", user="jane")[0] == 403


def test_a_service_account_is_a_user_of_its_namespace(office):
    office.role("reader", rule("list", "pods"))
    office.bind("robot", "reader", account("robot", "default"))
    assert office.ask("GET", PODS, user=ROBOT)[0] == 200
    assert office.ask("GET", PODS, user="system:serviceaccount:other:robot")[0] == 403


def test_a_role_that_is_missing_is_told(office):
    office.bind("jane", "absent", user("jane"))
    office.bind("jane", "Role/gone", user("jane"), namespace="default")
    assert office.refusal("GET", PODS, user="jane") == (
        'pods is forbidden: User "jane" cannot list resource "pods" in API group "" in the '
        'namespace "default": RBAC: [clusterrole.rbac.authorization.k8s.io "absent" not found, '
        'role.rbac.authorization.k8s.io "gone" not found]'
    )
    assert office.refusal("GET", "/metrics", user="jane") == (
        'forbidden: User "jane" cannot get path "/metrics": RBAC: '
        'clusterrole.rbac.authorization.k8s.io "absent" not found'
    )


def test_paths_that_lead_to_no_resource_need_a_rule_of_their_own(office):
    office.role("all", rule("*", "*", "*"))
    office.bind("jane", "all", user("jane"))
    assert office.ask("GET", "/livez/ping", user="jane")[0] == 403
    office.role("health", paths("get", "/livez/*"))
    office.bind("health", "health", user("jane"))
    assert office.ask("GET", "/livez/ping", user="jane")[0] == 200
    assert office.ask("GET", "/readyz/ping", user="jane")[0] == 403


def test_a_command_in_a_pod_over_a_websocket_needs_create_too(office):
    office.role("get", rule("get", "pods/exec"))
    office.bind("jane", "get", user("jane"))
    message = office.refusal("GET", f"{PODS}/web/exec?command=id", user="jane")
    assert message == (
        'pods "web" is forbidden: User "jane" cannot create resource "pods/exec" in API group "" '
        'in the namespace "default"'
    )


def test_who_starts_a_server_with_roles_in_its_store_finds_them(office):
    office.role("reader", rule("list", "pods"))
    office.bind("jane", "reader", user("jane"))
    assert Office(store=office.store).ask("GET", PODS, user="jane")[0] == 200


@pytest.mark.parametrize(
    ("modes", "status"),
    [((), 200), (("AlwaysAllow",), 200), (("RBAC", "AlwaysAllow"), 200), (("AlwaysDeny",), 403)],
)
def test_other_modes_allow_or_refuse_everything(modes, status):
    assert Office(modes).ask("GET", PODS, user="x")[0] == status


def test_a_mode_that_there_is_not_is_refused():
    with pytest.raises(ModeError, match="'Rbac' is not a mode; the modes are AlwaysAllow"):
        Office(("Rbac",))


def test_a_refusal_of_everything_says_so():
    office = Office(("AlwaysDeny", "RBAC"))
    assert office.refusal("GET", PODS, user="x") == (
        'pods is forbidden: User "x" cannot list resource "pods" in API group "" in the '
        'namespace "default": Everything is forbidden.'
    )
