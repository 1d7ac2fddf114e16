"""Questions about access, and their answers."""

from dataclasses import replace
from types import SimpleNamespace

import pytest

from dralab.apiserver.access.authorization.attributes import Decision
from dralab.apiserver.verbs.admission_forms import AdmissionForms
from dralab.cel.functions.authorizer import AccessCheck, AccessDecision
from offices import Office, account, group, paths, person, rule, user

ACCESS = "/apis/authorization.k8s.io/v1"
PODS = {"verb": "get", "resource": "pods", "namespace": "default"}


@pytest.fixture
def office(office):
    office.role("reader", rule("get,list", "pods"), namespace="default")
    office.bind("jane", "Role/reader", user("jane"), group("team"), namespace="default")
    return office


def ask(office, plural, spec, who="jane", **metadata):
    where = f"namespaces/{metadata['namespace']}/" if "namespace" in metadata else ""
    body = {"metadata": metadata, "spec": spec}
    return office.ask("POST", f"{ACCESS}/{where}{plural}", body, who)


def status(office, plural, spec, *more, **metadata):
    code, found = ask(office, plural, spec, *more, **metadata)
    assert code == 201, found
    return found["status"]


def test_everybody_may_ask_what_they_may_do(office):
    reason = 'RBAC: allowed by RoleBinding "jane/default" of Role "reader" to User "jane"'
    spec = {"resourceAttributes": PODS}
    assert status(office, "selfsubjectaccessreviews", spec) == {"allowed": True, "reason": reason}
    assert status(office, "selfsubjectaccessreviews", spec, "joe") == {"allowed": False}
    spec = {"nonResourceAttributes": {"path": "/version", "verb": "get"}}
    assert status(office, "selfsubjectaccessreviews", spec, "joe")["reason"] == (
        'RBAC: allowed by ClusterRoleBinding "system:discovery" of ClusterRole "system:discovery" '
        'to Group "system:authenticated"'
    )
    spec = {"nonResourceAttributes": {"path": "", "verb": "get"}}
    assert status(office, "selfsubjectaccessreviews", spec, "jane") == {"allowed": False}


def test_a_superuser_may_without_a_reason(office):
    root = person("root", "system:masters")
    spec = {"resourceAttributes": PODS}
    assert status(office, "selfsubjectaccessreviews", spec, root) == {"allowed": True}


def test_asking_about_others_needs_leave(office):
    spec = {"resourceAttributes": PODS, "user": "jane"}
    assert ask(office, "subjectaccessreviews", spec)[0] == 403
    office.bind("proxy", "system:auth-delegator", account("proxy", "default"))
    proxy = "system:serviceaccount:default:proxy"
    assert status(office, "subjectaccessreviews", spec, proxy)["allowed"]
    spec["user"] = "joe"
    assert status(office, "subjectaccessreviews", spec, proxy) == {"allowed": False}
    spec["groups"] = ["team"]
    assert status(office, "subjectaccessreviews", spec, proxy)["reason"].endswith('to Group "team"')


def test_the_administrator_of_a_namespace_asks_about_it(office):
    spec = {"resourceAttributes": PODS, "user": "jane"}
    office.role("asker", rule("create", "localsubjectaccessreviews", "authorization.k8s.io"))
    office.bind("ann", "asker", user("ann"), namespace="default")
    plural = "localsubjectaccessreviews"
    assert status(office, plural, spec, "ann", namespace="default")["allowed"]
    assert ask(office, plural, spec, "ann", namespace="kube-system")[0] == 403


@pytest.mark.parametrize(
    ("plural", "spec", "metadata", "message"),
    [
        (
            "selfsubjectaccessreviews",
            {},
            {},
            '.authorization.k8s.io "" is invalid: spec.resourceAttributes: '
            "Invalid value: null: exactly one of nonResourceAttributes or resourceAttributes must "
            "be specified",
        ),
        (
            "subjectaccessreviews",
            {"resourceAttributes": PODS},
            {},
            '.authorization.k8s.io "" is invalid: spec.user: Invalid value: "": '
            "at least one of user or group must be specified",
        ),
        (
            "localsubjectaccessreviews",
            {"resourceAttributes": {**PODS, "namespace": "other"}, "user": "u"},
            {"namespace": "default"},
            '.authorization.k8s.io "" is invalid: '
            'spec.resourceAttributes.namespace: Invalid value: "other": must match '
            "metadata.namespace",
        ),
    ],
)
def test_a_question_that_cannot_be_answered_is_refused(office, plural, spec, metadata, message):
    root = person("root", "system:masters")
    code, found = ask(office, plural, spec, root, **metadata)
    assert (code, found["message"]) == (422, message)


def test_a_role_that_is_missing_is_told_in_the_answer(office):
    office.bind("gone", "absent", user("joe"))
    spec = {"resourceAttributes": PODS}
    assert status(office, "selfsubjectaccessreviews", spec, "joe") == {
        "allowed": False,
        "reason": 'RBAC: clusterrole.rbac.authorization.k8s.io "absent" not found',
    }


def test_rules_are_listed_for_a_namespace(office):
    office.role("metrics", paths("get", "/metrics"))
    office.bind("metrics", "metrics", user("jane"))
    found = status(office, "selfsubjectrulesreviews", {"namespace": "default"})
    assert found["incomplete"] is False
    assert {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]} in found[
        "resourceRules"
    ]
    assert {"verbs": ["get"], "nonResourceURLs": ["/metrics"]} in found["nonResourceRules"]
    elsewhere = status(office, "selfsubjectrulesreviews", {"namespace": "kube-system"})
    assert all("pods" not in each["resources"] for each in elsewhere["resourceRules"])
    code, refused = ask(office, "selfsubjectrulesreviews", {})
    assert (code, refused["message"]) == (400, "no namespace on request")


def test_rules_that_are_missing_make_a_list_incomplete(office):
    office.bind("gone", "absent", user("joe"))
    found = status(office, "selfsubjectrulesreviews", {"namespace": "default"}, "joe")
    assert found["incomplete"] is True
    assert found["evaluationError"] == 'clusterrole.rbac.authorization.k8s.io "absent" not found'


def test_everybody_may_ask_who_they_are(office):
    jane = person("jane", "team", uid="u-1", extra={"scopes": ("a", "b")})
    _, found = office.ask("POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", {}, jane)
    assert found["status"]["userInfo"] == {
        "username": "jane",
        "uid": "u-1",
        "groups": ["team", "system:authenticated"],
        "extra": {"scopes": ["a", "b"]},
    }


def test_long_texts_of_clients_are_not_kept(office):
    """Reviews may ask about texts of megabytes, a thousand times."""
    root = person("root", "system:masters")
    long = "x" * 100_000
    for number in range(3):
        spec = {"resourceAttributes": {**PODS, "verb": f"{long}{number}"}, "user": "jane"}
        assert status(office, "subjectaccessreviews", spec, root) == {"allowed": False}
        spec = {"resourceAttributes": PODS, "user": "jane", "groups": [f"{long}{number}"]}
        assert status(office, "subjectaccessreviews", spec, root)["allowed"]
    (rbac,) = office.server.resources.context.authorizer.authorizers
    kept = rbac.index._grants
    texts = [text for name, groups, _ in kept for text in (name, *groups)]
    texts += [text for grants in kept.values() for question in grants._found for text in question]
    assert texts
    assert max(map(len, texts)) < 5000


def test_where_nobody_is_asked_everything_is_allowed():
    office = Office(())
    spec = {"resourceAttributes": PODS}
    assert status(office, "selfsubjectaccessreviews", spec, "joe") == {"allowed": True}


class Recorder:
    """An authorizer that notes what it is asked, and has one answer."""

    def __init__(self, decision):
        self.decision, self.asked = decision, []

    def authorize(self, attributes):
        self.asked.append(attributes)
        return self.decision


@pytest.mark.parametrize(
    ("decision", "told"),
    [
        (Decision("allow", "because"), {"allowed": True, "reason": "because"}),
        (Decision("deny", "never"), {"allowed": False, "denied": True, "reason": "never"}),
        (Decision("no opinion"), {"allowed": False}),
        (Decision("no opinion", error="down"), {"allowed": False, "evaluationError": "down"}),
    ],
)
def test_the_answer_says_whether_it_was_denied_or_just_not_allowed(office, decision, told):
    context = office.server.resources.context
    context.authorizer = Recorder(decision)
    spec = {"resourceAttributes": PODS}
    root = person("root", "system:masters")
    assert status(office, "selfsubjectaccessreviews", spec, root) == told


@pytest.mark.parametrize(
    ("selector", "fields"),
    [
        ({"rawSelector": "spec.nodeName=n1"}, (("spec.nodeName", "n1"),)),
        (
            {"requirements": [{"key": "spec.nodeName", "operator": "In", "values": ["n1"]}]},
            (("spec.nodeName", "n1"),),
        ),
        ({"requirements": [{"key": "k", "operator": "In", "values": ["a", "b"]}]}, ()),
        ({"requirements": [{"key": "k", "operator": "NotIn", "values": ["a"]}]}, ()),
        ({"requirements": [{"key": "k", "operator": "Exists"}]}, ()),
        (
            {
                "requirements": [
                    {"key": "k", "operator": "Exists", "values": None},
                    {"key": "a", "operator": "In", "values": ["1"]},
                ]
            },
            (("a", "1"),),
        ),
    ],
)
def test_only_a_selector_of_one_value_narrows_a_question(office, selector, fields):
    recorder = office.server.resources.context.authorizer = Recorder(Decision("allow"))
    spec = {"resourceAttributes": {**PODS, "fieldSelector": selector}}
    status(office, "selfsubjectaccessreviews", spec, person("root", "system:masters"))
    assert recorder.asked[-1].fields == fields


def test_a_question_has_all_parts_of_a_request(office):
    recorder = office.server.resources.context.authorizer = Recorder(Decision("allow"))
    given = {
        "verb": "update",
        "group": "apps",
        "version": "v1",
        "resource": "deployments",
        "subresource": "scale",
        "namespace": "x",
        "name": "d",
    }
    root = person("root", "system:masters")
    status(office, "selfsubjectaccessreviews", {"resourceAttributes": given}, root)
    asked = recorder.asked[-1]
    assert {part: getattr(asked, part) for part in given} == given
    assert asked.is_resource_request


POLICY_QUESTION = AccessCheck(
    verb="get",
    group="apps",
    resource="deployments",
    subresource="scale",
    namespace="x",
    name="d",
    field_selector="metadata.name=d",
)


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        (
            POLICY_QUESTION,
            {
                "verb": "get",
                "group": "apps",
                "version": "*",
                "resource": "deployments",
                "subresource": "scale",
                "namespace": "x",
                "name": "d",
                "path": "",
                "fields": (("metadata.name", "d"),),
            },
        ),
        (
            AccessCheck(verb="get", path="/healthz"),
            {"verb": "get", "path": "/healthz", "version": "", "resource": "", "fields": ()},
        ),
    ],
)
def test_a_policy_asks_as_the_user_of_a_write_or_as_an_account(office, question, parts):
    context = office.server.resources.context
    recorder = context.authorizer = Recorder(Decision("deny", "never", "broken"))
    review = SimpleNamespace(user=person("jane"))
    decide = AdmissionForms(context).decide(review)
    assert decide(question) == AccessDecision(False, "never", "broken")
    asked = recorder.asked[-1]
    assert {part: getattr(asked, part) for part in parts} == parts
    assert asked.user.name == "jane"
    decide(replace(question, account=("default", "robot")))
    assert recorder.asked[-1].user.name == "system:serviceaccount:default:robot"


def test_a_policy_is_told_that_a_superuser_may(office):
    context = office.server.resources.context
    recorder = context.authorizer = Recorder(Decision("deny"))
    review = SimpleNamespace(user=person("root", "system:masters"))
    assert AdmissionForms(context).decide(review)(POLICY_QUESTION) == AccessDecision(True)
    assert recorder.asked == []
    context.authorizer = None
    review = SimpleNamespace(user=person("jane"))
    assert AdmissionForms(context).decide(review)(POLICY_QUESTION) == AccessDecision(True)
