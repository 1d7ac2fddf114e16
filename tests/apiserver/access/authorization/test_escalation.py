"""Nobody gives away what they do not have: in the words of a real server."""

import pytest

from offices import RBAC, account, group, person, rule, user

ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "pods"}
WRITE = "get,list,create,update,patch,delete"
MERGE = "application/merge-patch+json"


@pytest.fixture
def office(office):
    """An office where jane may write roles and bindings, and get pods, in `default`."""
    office.role("clerk", rule(WRITE, "roles,rolebindings", "rbac.authorization.k8s.io"))
    office.role("reader", rule("get", "pods"))
    for name in ("clerk", "reader"):
        office.bind(name, name, user("jane"), namespace="default")
    office.role("pods", rule("get,list", "pods"), namespace="default")
    return office


def role(name, *rules):
    return {"metadata": {"name": name}, "rules": list(rules)}


def test_a_role_may_have_what_its_writer_has(office):
    office.made(ROLES, role("mine", rule("get", "pods")), user="jane")
    assert office.ask("DELETE", f"{ROLES}/mine", user="jane")[0] == 200


def test_a_role_may_not_have_more(office):
    wanted = role("more", rule("get,list,watch", "pods,secrets"), rule("get", "nodes"))
    assert office.refusal("POST", ROLES, wanted, user=person("jane", "team")) == (
        'roles.rbac.authorization.k8s.io "more" is forbidden: user "jane" (groups=["team" '
        '"system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
        '{APIGroups:[""], Resources:["nodes"], Verbs:["get"]}\n'
        '{APIGroups:[""], Resources:["pods"], Verbs:["list" "watch"]}\n'
        '{APIGroups:[""], Resources:["secrets"], Verbs:["get" "list" "watch"]}'
    )


@pytest.mark.parametrize(
    "wanted",
    [
        rule("*", "pods"),
        rule("get", "*"),
        rule("get", "pods", "*"),
        rule("get", "pods/log"),
        rule("get", "*/status"),
        {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
    ],
)
def test_what_stands_for_more_is_more(office, wanted):
    path = ROLES if "resources" in wanted else f"{RBAC}/clusterroles"
    office.bind("clerk", "cluster-clerk", user("jane"))
    office.role("cluster-clerk", rule("create", "clusterroles", "rbac.authorization.k8s.io"))
    assert "not currently held" in office.refusal("POST", path, role("x", wanted), user="jane")


def test_who_has_names_has_not_all(office):
    office.role("one", rule("update", "configmaps", names=["a"]))
    office.bind("one", "one", user("jane"), namespace="default")
    office.made(ROLES, role("same", rule("update", "configmaps", names=["a"])), user="jane")
    message = office.refusal(
        "POST", ROLES, role("b", rule("update", "configmaps", names=["a", "b"])), user="jane"
    )
    assert message.endswith(
        '{APIGroups:[""], Resources:["configmaps"], ResourceNames:["b"], Verbs:["update"]}'
    )
    assert (
        office.ask("POST", ROLES, role("all", rule("update", "configmaps")), user="jane")[0] == 403
    )


@pytest.mark.parametrize("method", ["PUT", "PATCH", "apply"])
def test_a_role_may_not_get_more_later(office, method):
    made = office.made(ROLES, role("mine", rule("get", "pods")), user="jane")
    body, form, path = {**made, "rules": [rule("delete", "pods")]}, "application/json", "mine"
    if method == "PATCH":
        body, form = {"rules": body["rules"]}, MERGE
    elif method == "apply":
        method, form, path = "PATCH", "application/apply-patch+yaml", "mine?fieldManager=m&force=1"
        named = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role"}
        body = {**named, **role("mine", *body["rules"])}
    message = office.refusal(method, f"{ROLES}/{path}", body, user="jane", type=form)
    assert "not currently held" in message


def test_a_role_of_others_may_be_cleaned_up_all_the_same(office):
    metadata = {"finalizers": ["example.com/x"]}
    office.ask("PATCH", f"{ROLES}/pods", {"metadata": metadata}, type=MERGE)
    body = {"metadata": {"finalizers": None}}
    assert office.ask("PATCH", f"{ROLES}/pods", body, user="jane", type=MERGE)[0] == 200


def test_who_may_escalate_writes_any_role(office):
    office.role("boss", rule("escalate", "roles", "rbac.authorization.k8s.io"))
    office.bind("boss", "boss", user("jane"), namespace="default")
    office.made(ROLES, role("more", rule("*", "*", "*")), user="jane")


def test_a_binding_may_not_give_more_than_its_writer_has(office):
    binding = {"metadata": {"name": "b"}, "roleRef": REF, "subjects": [user("joe")]}
    assert office.refusal("POST", BINDINGS, binding, user="jane") == (
        'rolebindings.rbac.authorization.k8s.io "b" is forbidden: user "jane" '
        '(groups=["system:authenticated"]) is attempting to grant RBAC permissions not currently '
        'held:\n{APIGroups:[""], Resources:["pods"], Verbs:["list"]}'
    )
    reader = {**REF, "kind": "ClusterRole", "name": "reader"}
    office.made(BINDINGS, {**binding, "roleRef": reader}, user="jane")


def test_a_role_that_is_missing_is_bound_by_nobody_else(office):
    binding = {"metadata": {"name": "b"}, "roleRef": {**REF, "name": "absent"}}
    status, found = office.ask("POST", BINDINGS, binding, user="jane")
    assert (status, found["message"]) == (
        404,
        'rolebindings.rbac.authorization.k8s.io "absent" not found',
    )


def test_who_may_bind_a_role_binds_it_without_having_it(office):
    office.role("binder", rule("bind", "roles", "rbac.authorization.k8s.io", names=["pods"]))
    office.bind("binder", "binder", user("jane"), namespace="default")
    binding = {"metadata": {"name": "b"}, "roleRef": REF, "subjects": [account("a", "default")]}
    office.made(BINDINGS, binding, user="jane")
    admin = {**REF, "kind": "ClusterRole", "name": "cluster-admin"}
    assert office.ask("POST", BINDINGS, {**binding, "roleRef": admin}, user="jane")[0] == 403


def test_what_is_held_in_a_namespace_is_not_given_to_the_cluster(office):
    office.role(
        "clerks", rule("create", "clusterroles,clusterrolebindings", "rbac.authorization.k8s.io")
    )
    office.bind("clerks", "clerks", user("jane"))
    wanted = role("reader2", rule("get", "pods"))
    assert office.ask("POST", f"{RBAC}/clusterroles", wanted, user="jane")[0] == 403
    ref = {**REF, "kind": "ClusterRole", "name": "reader"}
    binding = {"metadata": {"name": "b"}, "roleRef": ref, "subjects": [group("all")]}
    assert office.ask("POST", f"{RBAC}/clusterrolebindings", binding, user="jane")[0] == 403


def test_only_an_administrator_puts_roles_together_from_others(office):
    office.role("writer", rule("create,update,patch", "clusterroles", "rbac.authorization.k8s.io"))
    office.bind("writer", "writer", user("jane"))
    selectors = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}
    wanted = {"metadata": {"name": "sum"}, "rules": [], "aggregationRule": selectors}
    assert office.refusal("POST", f"{RBAC}/clusterroles", wanted, user="jane") == (
        'clusterroles.rbac.authorization.k8s.io "sum" is forbidden: must have cluster-admin '
        "privileges to use the aggregationRule"
    )
    office.made(f"{RBAC}/clusterroles", wanted)
    office.bind("admin", "cluster-admin", user("ann"))
    office.made(f"{RBAC}/clusterroles", {**wanted, "metadata": {"name": "s2"}}, user="ann")


def test_a_role_with_very_many_combinations_is_refused_at_once(office):
    wide = rule("get", "pods")
    for part in ("verbs", "apiGroups", "resources"):
        wide[part] = [f"x{n}" for n in range(1000)]
    message = office.refusal("POST", ROLES, role("wide", wide), user="jane")
    assert "1000000000 combinations" in message
    office.bind("admin", "cluster-admin", user("ann"))
    office.made(ROLES, role("wide", wide), user="ann")


def test_an_update_or_an_apply_creates_only_for_who_may_create(office):
    office.role("writer", rule("update,patch,get", "configmaps,leases", "core,coordination.k8s.io"))
    office.bind("writer", "writer", user("jane"), namespace="default")
    maps = "/api/v1/namespaces/default/configmaps"
    body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}}
    apply = "application/apply-patch+yaml"
    path = f"{maps}/a?fieldManager=m"
    assert office.refusal("PATCH", path, body, user="jane", type=apply) == (
        'configmaps "a" is forbidden: User "jane" cannot create resource "configmaps" in API '
        'group "" in the namespace "default"'
    )
    lease = {"metadata": {"name": "l"}, "spec": {}}
    leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    assert 'cannot create resource "leases"' in office.refusal(
        "PUT", f"{leases}/l", lease, user="jane"
    )
    office.made(maps, body)
    assert office.ask("PATCH", path, body, user="jane", type=apply)[0] == 200
