"""What roles and bindings must be: in the words of a real server."""

import pytest

from offices import RBAC, account, group, rule, user

REF = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "view"}
ROLES = f"{RBAC}/namespaces/default/roles"
BINDINGS = f"{RBAC}/namespaces/default/rolebindings"
URLS = {"verbs": ["get"], "nonResourceURLs": ["/x"]}


def problems(office, path, **parts):
    """Return what is wrong with an object, by field."""
    status, found = office.ask("POST", path, {"metadata": {"name": "a"}, **parts})
    assert status == 422, str(found)[:500]
    return {cause["field"]: cause["message"] for cause in found["details"]["causes"]}


@pytest.mark.parametrize(
    ("path", "wanted", "field", "message"),
    [
        (ROLES, URLS, "nonResourceURLs", "namespaced rules cannot apply to non-resource URLs"),
        (
            f"{RBAC}/clusterroles",
            {**rule("get", "pods"), **URLS},
            "nonResourceURLs",
            "rules cannot apply to both regular resources and non-resource URLs",
        ),
        (ROLES, {**rule("get", "pods"), "verbs": []}, "verbs", "at least one value"),
        (ROLES, {"verbs": ["get"], "apiGroups": [""]}, "resources", "at least one resource"),
        (ROLES, {"verbs": ["get"], "resources": ["pods"]}, "apiGroups", "at least one api group"),
    ],
)
def test_a_rule_that_cannot_hold_is_refused(office, path, wanted, field, message):
    found = problems(office, path, rules=[wanted])
    assert message in found[f"rules[0].{field}"]


def test_a_role_put_together_from_nothing_is_refused(office):
    path = "aggregationRule.clusterRoleSelectors"
    assert "at least one" in problems(office, f"{RBAC}/clusterroles", aggregationRule={})[path]


@pytest.mark.parametrize(
    ("path", "subject", "field"),
    [
        (BINDINGS, {"kind": "Users", "name": "a"}, "kind"),
        (BINDINGS, {**user("a"), "apiGroup": "x.io"}, "apiGroup"),
        (BINDINGS, {**account("a", "default"), "apiGroup": "x.io"}, "apiGroup"),
        (BINDINGS, account("A b", "default"), "name"),
        (BINDINGS, group(""), "name"),
        (f"{RBAC}/clusterrolebindings", account("a", ""), "namespace"),
    ],
)
def test_a_subject_that_nobody_can_be_is_refused(office, path, subject, field):
    assert list(problems(office, path, roleRef=REF, subjects=[subject])) == [f"subjects[0].{field}"]


@pytest.mark.parametrize(
    ("path", "change", "field"),
    [
        (BINDINGS, {"kind": "Thing"}, "roleRef.kind"),
        (BINDINGS, {"name": ""}, "roleRef.name"),
        (BINDINGS, {"name": "a/b"}, "roleRef.name"),
        (BINDINGS, {"apiGroup": "x.io"}, "roleRef.apiGroup"),
        (f"{RBAC}/clusterrolebindings", {"kind": "Role"}, "roleRef.kind"),
    ],
)
def test_a_reference_to_what_is_no_role_is_refused(office, path, change, field):
    assert list(problems(office, path, roleRef={**REF, **change})) == [field]


def test_what_a_binding_binds_to_stays(office):
    office.bind("b", "view", user("jane"), namespace="default")
    body = {"roleRef": {"name": "other"}}
    type = "application/merge-patch+json"  # noqa: A001 - a name of the API
    _, found = office.ask("PATCH", f"{BINDINGS}/b", body, type=type)
    assert found["message"] == (
        'RoleBinding.rbac.authorization.k8s.io "b" is invalid: roleRef: Invalid value: '
        '{"APIGroup":"rbac.authorization.k8s.io","Kind":"ClusterRole","Name":"other"}: cannot '
        "change roleRef"
    )
