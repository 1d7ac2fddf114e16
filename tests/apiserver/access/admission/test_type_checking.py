"""Types of the expressions of policies, by the kinds that a policy names."""

import pytest

from admissions import MERGE, ask
from dralab.api.kinds import Kinds, kind_of
from dralab.apiserver.access.admission.policies.type_checking import expression_warnings, kinds_of
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.verbs.upkeep.policy_statuses import PolicyStatuses
from dralab.kernel.randomness import Randomness
from waiting import until

KINDS = Kinds.standard()
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"


def rule(group="apps", *resources, version="v1"):
    return {
        "apiGroups": [group],
        "apiVersions": [version],
        "operations": ["*"],
        "resources": list(resources) or ["deployments"],
    }


def policy(*validations, rules=None, **spec):
    return {
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": rules or [rule()]},
            "validations": [
                each if isinstance(each, dict) else {"expression": each} for each in validations
            ],
            **spec,
        },
    }


def told(*validations, **more):
    found = expression_warnings(policy(*validations, **more), KINDS)
    return [(each["fieldRef"], each["warning"]) for each in found]


def test_an_unknown_field_is_told_with_its_place():
    ((field, warning),) = told("object.foo > 1")
    assert field == "spec.validations[0].expression"
    assert warning == (
        "apps/v1, Kind=Deployment: ERROR: <input>:1:7: undefined field 'foo'\n"
        " | object.foo > 1\n"
        " | ......^\n"
    )


@pytest.mark.parametrize(
    "expression",
    [
        "object.spec.replicas > 1",
        "object.metadata.labels['a'] == 'b'",
        "object.spec.template.spec.containers.all(c, c.image.startsWith('x'))",
        "has(object.spec.strategy.rollingUpdate)",
        "oldObject == null || object.spec.replicas >= oldObject.spec.replicas",
        "object.metadata.creationTimestamp < timestamp('2030-01-01T00:00:00Z')",
        "request.userInfo.username == 'me' && namespaceObject.metadata.name == 'default'",
        "variables.few",
        "params.data['max'] != ''",
        "object.spec.strategy.rollingUpdate.maxSurge == 1",
        "authorizer.group('').resource('pods').check('get').allowed()",
    ],
)
def test_what_fits_is_not_told(expression):
    more = {
        "variables": [{"name": "few", "expression": "object.spec.replicas < 3"}],
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    }
    assert told(expression, **more) == []


@pytest.mark.parametrize(
    ("expression", "says"),
    [
        ("object.spec.replicas == 'a'", "found no matching overload for '_==_'"),
        ("object.spec.template.spec.nope", "undefined field 'nope'"),
        ("params.nope == 1", "undefined field 'nope'"),
        ("variables.few + 1 == 2", "found no matching overload for '_+_'"),
    ],
)
def test_what_does_not_fit_is_told(expression, says):
    more = {
        "variables": [{"name": "few", "expression": "object.spec.replicas < 3"}],
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
    }
    ((_, warning),) = told(expression, **more)
    assert says in warning


def test_messages_are_checked_and_each_kind_is_told():
    validation = {"expression": "true", "messageExpression": "object.spec.nope"}
    rules = [rule("apps", "deployments", "statefulsets")]
    ((field, warning),) = told(validation, rules=rules)
    assert field == "spec.validations[0].messageExpression"
    assert warning.count("ERROR") == 2
    assert "Kind=StatefulSet" in warning


def test_only_kinds_that_are_named_are_checked():
    for unnamed in (
        rule("*"),
        rule("apps", version="*"),
        rule("apps", "*"),
        rule("apps", "deployments/scale"),
    ):
        assert told("object.foo > 1", rules=[unnamed]) == []
    many = rule("", *(kind.plural for kind in KINDS.in_version("", "v1")))
    assert len(kinds_of(policy(rules=[many])["spec"], KINDS)) == 10


def test_custom_resources_are_checked_by_their_schema():
    schema = {"type": "object", "properties": {"spec": {"type": "object", "properties": {}}}}
    entry = {"group": "x.io", "version": "v1", "kind": "A", "plural": "as", "namespaced": True}
    custom = kind_of(entry, custom={"schema": {"openAPIV3Schema": schema}})
    rules = [rule("x.io", "as")]
    found = expression_warnings(policy("object.spec.n == 1", rules=rules), Kinds([custom]))
    assert "undefined field 'n'" in found[0]["warning"]
    good = policy("object.metadata.labels.size() == 1", rules=rules)
    assert expression_warnings(good, Kinds([custom])) == []


def test_the_status_has_the_warnings_of_the_generation():
    server = ApiServer(MemoryStore(), randomness=Randomness(1))
    statuses = PolicyStatuses(server.resources.context)
    body = policy("object.foo > 1")
    body["spec"]["failurePolicy"] = "Fail"
    assert ask(server, "POST", POLICIES, body)[0] == 201
    statuses.check("p")
    found = ask(server, "GET", f"{POLICIES}/p")[1]
    (warning,) = found["status"]["typeChecking"]["expressionWarnings"]
    assert warning["fieldRef"] == "spec.validations[0].expression"
    assert found["status"]["observedGeneration"] == 1


def test_policies_are_checked_in_the_background_once_for_each_generation():
    server = ApiServer(MemoryStore(), randomness=Randomness(1))
    for name in ("a", "b"):
        assert ask(server, "POST", POLICIES, named(name))[0] == 201
    statuses = Counted(server.resources.context)
    statuses.follow()

    def checked(name):
        found = ask(server, "GET", f"{POLICIES}/{name}")[1]
        status = found.get("status") or {}
        return status.get("observedGeneration") == found["metadata"]["generation"]

    until(lambda: checked("a") and checked("b"))
    assert ask(server, "POST", POLICIES, named("c"))[0] == 201
    until(lambda: checked("c"))
    change = {"spec": {"failurePolicy": "Ignore"}}
    assert ask(server, "PATCH", f"{POLICIES}/a", change, MERGE)[0] == 200
    until(lambda: checked("a"))
    label = {"metadata": {"labels": {"x": "y"}}}
    assert ask(server, "PATCH", f"{POLICIES}/b", label, MERGE)[0] == 200
    held = {"metadata": {"finalizers": ["x.io/f"]}}
    assert ask(server, "PATCH", f"{POLICIES}/c", held, MERGE)[0] == 200
    assert ask(server, "DELETE", f"{POLICIES}/c")[0] == 200, "its generation is another one"
    assert ask(server, "DELETE", f"{POLICIES}/a")[0] == 200
    assert ask(server, "POST", POLICIES, named("d"))[0] == 201
    until(lambda: checked("d"))  # after whatever the others made
    assert sorted(statuses.checked) == ["a", "a", "b", "c", "d"]
    assert statuses.most == 1, "one thread at a time"


class Counted(PolicyStatuses):
    """Notes which policies are checked, and how many at a time."""

    def __init__(self, context):
        super().__init__(context)
        self.checked, self.most, self._now = [], 0, 0

    def check(self, name):
        self._now += 1
        self.most = max(self.most, self._now)
        self.checked.append(name)
        super().check(name)
        self._now -= 1


def named(name):
    body = policy("object.foo > 1")
    body["metadata"]["name"] = name
    body["spec"]["failurePolicy"] = "Fail"
    return body
