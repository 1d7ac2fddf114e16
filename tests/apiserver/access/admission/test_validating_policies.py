"""ValidatingAdmissionPolicy: who is denied what, and in which words."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from admissions import GROUP, MAPS, MERGE, ask, config_map
from dralab.apiserver.access.admission.expressions import BRIEF
from dralab.apiserver.access.users import User
from dralab.apiserver.http.messages import (
    LARGE_LANE,
    LOOP,
    WAITING_LANE,
    HttpRequest,
    TakesLong,
)
from dralab.apiserver.long_work import LongWork
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.cel.program import Program
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from waiting import PATIENCE

POLICIES, BINDINGS = (
    f"{GROUP}/validatingadmissionpolicies",
    f"{GROUP}/validatingadmissionpolicybindings",
)
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps"],
}


def new_server(**options):
    clock = ManualClock(1_800_000_000 * 10**9)
    return ApiServer(MemoryStore(), clock=clock, randomness=Randomness(1), **options)


@pytest.fixture
def server():
    return new_server()


def policy(name="p", *expressions, **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "validations": [
                each if isinstance(each, dict) else {"expression": each} for each in expressions
            ],
            **spec,
        },
    }


def binding(name="p", actions=("Deny",), **spec):
    return {
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": list(actions), **spec},
    }


def store(server, *objects):
    for url, body in objects:
        status, found = ask(server, "POST", url, body)
        assert status == 201, found


def bind(server, made, **options):
    name = made["metadata"]["name"]
    store(server, (POLICIES, made), (BINDINGS, binding(name, **options)))


def test_a_policy_denies_what_its_expression_refuses(server):
    bind(server, policy("p", {"expression": "object.data.size() < 2", "message": "too much"}))
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    code, found = ask(server, "POST", MAPS, config_map("b", {"x": "1", "y": "2"}))
    message = (
        "configmaps \"b\" is forbidden: ValidatingAdmissionPolicy 'p' with binding 'p' denied "
        "request: too much"
    )
    assert (code, found["reason"], found["message"]) == (422, "Invalid", message)
    cause = "ValidatingAdmissionPolicy 'p' with binding 'p' denied request: too much"
    assert found["details"] == {"name": "b", "kind": "configmaps", "causes": [{"message": cause}]}
    code, found = ask(server, "PATCH", f"{MAPS}/a", {"data": {"y": "2"}}, MERGE)
    assert code == 422


def test_a_policy_without_a_binding_does_nothing(server):
    store(server, (POLICIES, policy("p", "false")))
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    store(server, (BINDINGS, binding()))
    assert ask(server, "POST", MAPS, config_map("b"))[0] == 422
    assert ask(server, "DELETE", f"{BINDINGS}/p")[0] == 200
    assert ask(server, "POST", MAPS, config_map("b"))[0] == 201


@pytest.mark.parametrize(
    ("validation", "code", "words"),
    [
        ({"expression": "false"}, 422, "failed expression: false"),
        ({"expression": "false", "reason": "Forbidden"}, 403, "failed expression: false"),
        (
            {"expression": "false", "messageExpression": "'not ' + object.metadata.name"},
            422,
            "not a",
        ),
        (
            {"expression": "false", "messageExpression": "object.data.none", "message": "m"},
            422,
            "denied request: m",
        ),
        (
            {"expression": "object.data.none == 'x'"},
            422,
            "expression 'object.data.none == 'x'' resulted in error: no such key: none",
        ),
    ],
)
def test_a_denial_has_the_words_of_its_policy(server, validation, code, words):
    if "object.data.none" in validation.get("messageExpression", ""):
        validation["messageExpression"] = "string(object.data.none)"
    bind(server, policy("p", validation))
    status, found = ask(server, "POST", MAPS, config_map())
    assert status == code
    assert found["message"].endswith(words)


def test_an_error_counts_as_the_failure_policy_says(server):
    bind(server, policy("p", "object.data.none == 'x'", failurePolicy="Ignore"))
    assert ask(server, "POST", MAPS, config_map())[0] == 201


def test_a_binding_may_only_warn_or_note(server):
    bind(server, policy("p", "false"), actions=["Warn", "Audit"])
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 201
    assert found["warnings"] == [
        "299 - \"Validation failed for ValidatingAdmissionPolicy 'p' with binding 'p': failed "
        'expression: false"'
    ]


def test_variables_are_evaluated_when_they_are_used(server):
    variables = [
        {"name": "keys", "expression": "object.data.map(k, k)"},
        {"name": "many", "expression": "size(variables.keys) > 1"},
        {"name": "wrong", "expression": "object.data.none"},
    ]
    message = {"expression": "!variables.many", "messageExpression": "variables.keys.join()"}
    bind(
        server, policy("p", message, "has(object.metadata) || variables.wrong", variables=variables)
    )
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    code, found = ask(server, "POST", MAPS, config_map("b", {"x": "1", "y": "2"}))
    assert (code, found["message"][-3:]) == (422, " xy")
    store(server, (POLICIES, policy("q", "variables.wrong == 1", variables=variables)))
    store(server, (BINDINGS, binding("q")))
    code, found = ask(server, "POST", MAPS, config_map("c"))
    assert 'composited variable "wrong" fails to evaluate' in found["message"]


def test_everything_about_a_request_can_be_asked(server):
    expressions = [
        "request.operation == 'CREATE' || oldObject.data.k == 'v'",
        "request.kind.kind == 'ConfigMap' && request.resource.resource == 'configmaps'",
        "request.userInfo.username == 'admin' && 'system:masters' in request.userInfo.groups",
        "request.namespace == 'default' && request.name == object.metadata.name",
        "namespaceObject.metadata.name == request.namespace",
        "namespaceObject.metadata.labels['kubernetes.io/metadata.name'] == 'default'",
        "authorizer.requestResource.check('create').allowed()",
        "authorizer.group('apps').resource('deployments').namespace('default').check('get').allowed()",
        "!request.dryRun && object.apiVersion == 'v1'",
        "request.operation != 'CREATE' || oldObject == null",
    ]
    bind(server, policy("p", *expressions))
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    assert ask(server, "PATCH", f"{MAPS}/a", {"data": {"x": "y"}}, MERGE)[0] == 200


def test_the_authorizer_knows_what_the_user_may_do():
    server = new_server(authorization=["RBAC"])
    bind(server, policy("p", "authorizer.path('/metrics').check('get').allowed()"))
    role = {
        "metadata": {"name": "maps"},
        "rules": [{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"]}],
    }
    subjects = [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "maps"}
    roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
    store(
        server,
        (f"{roles}/roles", role),
        (
            f"{roles}/rolebindings",
            {"metadata": {"name": "m"}, "subjects": subjects, "roleRef": ref},
        ),
    )
    jane = User(name="jane", groups=("system:authenticated",))
    assert ask(server, "POST", MAPS, config_map(), user=jane)[0] == 422
    assert ask(server, "POST", MAPS, config_map())[0] == 201


def test_parameters_come_from_other_objects(server):
    made = policy("p", "object.data.size() <= int(params.data.max)")
    made["spec"]["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
    ref = {"name": "limits", "namespace": "kube-system", "parameterNotFoundAction": "Deny"}
    bind(server, made, paramRef=ref)
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 422
    assert found["message"].endswith(
        "failed to configure binding: no params found for policy binding with `Deny` "
        "parameterNotFoundAction"
    )
    limits = MAPS.replace("default", "kube-system")
    exempt = {"matchLabels": {"kubernetes.io/metadata.name": "default"}}
    patch = {"spec": {"matchResources": {"namespaceSelector": exempt}}}
    assert ask(server, "PATCH", f"{BINDINGS}/p", patch, MERGE)[0] == 200
    assert ask(server, "POST", limits, config_map("limits", {"max": "1"}))[0] == 201
    assert ask(server, "POST", MAPS, config_map())[0] == 201
    two = config_map("b", {"x": "1", "y": "2"})
    assert ask(server, "POST", MAPS, two)[0] == 422
    assert ask(server, "PATCH", f"{limits}/limits", {"data": {"max": "2"}}, MERGE)[0] == 200
    assert ask(server, "POST", MAPS, two)[0] == 201


def test_each_parameter_that_a_selector_finds_has_to_agree(server):
    for name, limit in (("a", "1"), ("b", "2")):
        store(server, (MAPS, config_map(f"limit-{name}", {"max": limit}, labels={"limit": "yes"})))
    made = policy("p", "object.data.size() < int(params.data.max)")
    made["spec"]["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
    selector = {"matchLabels": {"limit": "yes"}}
    bind(server, made, paramRef={"selector": selector, "parameterNotFoundAction": "Allow"})
    assert ask(server, "POST", MAPS, config_map())[0] == 422
    for name in ("a", "b"):
        assert ask(server, "DELETE", f"{MAPS}/limit-{name}")[0] == 200
    assert ask(server, "POST", MAPS, config_map())[0] == 201, "nothing is found, which is allowed"


def test_match_conditions_are_asked_first(server):
    conditions = [{"name": "not-exempt", "expression": "!has(object.data.exempt)"}]
    bind(server, policy("p", "false", matchConditions=conditions))
    assert ask(server, "POST", MAPS, config_map("a", {"exempt": "yes"}))[0] == 201
    assert ask(server, "POST", MAPS, config_map("b"))[0] == 422


TEN = "[1,2,3,4,5,6,7,8,9,10]"


def nested(depth):
    """An expression of so many loops of ten rounds within one another."""
    names = "abcdef"[:depth]
    loops = "".join(f"{TEN}.all({name}, " for name in names)
    return f"{loops}{' + '.join(names)} > 0{')' * depth}"


def test_a_policy_that_never_ends_has_its_end(server, monkeypatch):
    monkeypatch.setattr("dralab.apiserver.access.admission.expressions.PER_CALL", 50_000)
    bind(server, policy("p", nested(6)))
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 422
    assert "operation cancelled: actual cost limit exceeded" in found["message"]


def test_what_takes_long_is_evaluated_while_others_are_answered(server):
    made = policy("p", nested(4))
    bind(server, made)
    body = json.dumps(config_map()).encode()
    headers = {"content-type": "application/json"}
    request = HttpRequest(method="POST", path=MAPS, headers=headers, body=body, lane=LOOP)
    with pytest.raises(TakesLong) as raised:
        server.handle(request)
    request.lane = raised.value.lane
    assert server.handle_apart(request).status == 201


def test_all_expressions_together_have_a_budget(server, monkeypatch):
    monkeypatch.setattr("dralab.apiserver.access.admission.policies.validating.PER_POLICY", 100_000)
    bind(server, policy("p", nested(4), f"{nested(4)} && true"))
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 422
    assert "running out of cost budget" in found["message"]


WRONG = {
    "no such name": (policy("p", "nothing > 1"), "undeclared reference to 'nothing'"),
    "no bool": (policy("p", "1 + 1"), "must evaluate to bool but got int"),
    "no expression": (policy("p", ""), "spec.validations[0].expression: Required value"),
    "nothing to do": (policy("p"), "must contain at least one item"),
    "a later variable": (
        policy(
            "p",
            "true",
            variables=[
                {"name": "a", "expression": "variables.b"},
                {"name": "b", "expression": "1"},
            ],
        ),
        "spec.variables[0].expression: Invalid value",
    ),
    "a name that is none": (
        policy("p", "true", variables=[{"name": "1a", "expression": "1"}]),
        "must be a valid CEL identifier",
    ),
    "no params": (policy("p", "params.x == 1"), "undeclared reference to 'params'"),
    "an unknown reason": (
        policy("p", {"expression": "true", "reason": "Nope"}),
        'spec.validations[0].reason: Unsupported value: "Nope"',
    ),
    "no rules": (
        policy("p", "true", matchConstraints={}),
        "spec.matchConstraints.resourceRules: Required value",
    ),
    "an audit annotation that is a number": (
        policy("p", auditAnnotations=[{"key": "k", "valueExpression": "1"}]),
        "must evaluate to one of [string null_type] but got int",
    ),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_policy_is_not_stored(server, case):
    body, words = WRONG[case]
    code, found = ask(server, "POST", POLICIES, body)
    assert (code, found["reason"]) == (422, "Invalid"), found
    assert words in found["message"]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        ({"validationActions": []}, "at least one validation action is required"),
        ({"validationActions": ["Deny", "Warn"]}, "must not contain both Deny and Warn"),
        ({"policyName": ""}, "spec.policyName: Required value"),
        ({"paramRef": {"parameterNotFoundAction": "Deny"}}, "one of name or selector"),
        ({"paramRef": {"name": "a"}}, "spec.paramRef.parameterNotFoundAction: Required value"),
    ],
)
def test_a_wrong_binding_is_not_stored(server, spec, words):
    body = binding()
    body["spec"] |= spec
    code, found = ask(server, "POST", BINDINGS, body)
    assert code == 422
    assert words in found["message"]


def test_whoever_may_not_read_secrets_makes_them_no_parameters():
    server = new_server(authorization=["RBAC"])
    role = {
        "metadata": {"name": "policies"},
        "rules": [
            {
                "apiGroups": ["admissionregistration.k8s.io"],
                "resources": ["*"],
                "verbs": ["*"],
            }
        ],
    }
    subjects = [{"kind": "User", "name": "jane", "apiGroup": "rbac.authorization.k8s.io"}]
    ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "policies"}
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    store(
        server,
        (f"{rbac}/clusterroles", role),
        (
            f"{rbac}/clusterrolebindings",
            {"metadata": {"name": "p"}, "subjects": subjects, "roleRef": ref},
        ),
    )
    jane = User(name="jane", groups=("system:authenticated",))
    made = policy("p", "params.data.password == 'x'")
    made["spec"]["paramKind"] = {"apiVersion": "v1", "kind": "Secret"}
    code, found = ask(server, "POST", POLICIES, made, user=jane)
    assert code == 422
    assert 'user jane must have "get" permission on all objects' in found["message"]
    assert ask(server, "POST", POLICIES, made)[0] == 201


def test_one_write_at_a_time_is_evaluated_for_long(server, monkeypatch):
    """Each thread that computes makes the small requests of all others wait."""
    # It reads the name: what is true of a spec is remembered, and would not be evaluated again.
    bind(server, policy("p", f"object.metadata.name != '' && {nested(4)}"))
    outcome, turn, lock = Program.outcome, LongWork.turn, threading.Lock()
    asked, threads, most, all_asked = [], [], [], threading.Event()

    def counted_turn(work, user, timeout):
        with lock:
            asked.append(user)
            if len(asked) == 4:
                all_asked.set()
        return turn(work, user, timeout)

    def counted(program, variables, limit):
        if limit <= BRIEF:
            return outcome(program, variables, limit)
        with lock:
            threads.append(threading.get_ident())
            most.append(len(threads))
        assert all_asked.wait(PATIENCE), "no turn was asked for"
        threading.Event().wait(0.02)  # time for others to come, if they may
        with lock:
            threads.remove(threading.get_ident())
        return True, 1

    monkeypatch.setattr(LongWork, "turn", counted_turn)
    monkeypatch.setattr(Program, "outcome", counted)
    headers = {"content-type": "application/json"}

    def write(number):
        body = json.dumps(config_map(f"c{number}")).encode()
        return server.handle_apart(
            HttpRequest(method="POST", path=MAPS, headers=headers, body=body, lane=WAITING_LANE)
        )

    with ThreadPoolExecutor(4) as pool:
        assert [each.status for each in pool.map(write, range(4))] == [201] * 4
    assert most == [1] * 4


def test_a_write_that_may_have_to_wait_goes_to_its_lane_before_it_is_decoded(server):
    bind(server, policy("p", nested(4)))
    headers = {"content-type": "application/json"}

    def lane(path, body):
        request = HttpRequest(method="POST", path=path, headers=headers, body=body, lane=LOOP)
        try:
            return str(server.handle(request).status)
        except TakesLong as condition:
            return condition.lane

    whole = json.dumps(config_map()).encode()
    assert lane(MAPS, b"{") == "400"
    assert lane(MAPS, whole) == LARGE_LANE
    assert lane(MAPS, b"{" * len(whole)) == LARGE_LANE, "as large a one took long"
    assert lane(MAPS, b"{") == "400"
    hook = {
        "name": "h.example.com",
        "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [RULE | {"operations": ["CREATE"], "resources": ["configmaps"]}],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
    }
    configuration = {"metadata": {"name": "h"}, "webhooks": [hook]}
    path = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"
    assert ask(server, "POST", path, configuration)[0] == 201
    assert lane(MAPS, b"{") == WAITING_LANE
    assert lane("/api/v1/namespaces/default/secrets", b"{") == "400"


QUOTAS = "/api/v1/namespaces/default/resourcequotas"


def quota(name, *, limits=1, label="ok"):
    hard = {f"count/things{number}.example.com": "1" for number in range(limits)}
    labels = {"team": label} if label else {}
    return {"metadata": {"name": name, "labels": labels}, "spec": {"hard": hard}}


def test_copies_are_judged_by_what_differs_in_them(server):
    rule = {**RULE, "resources": ["resourcequotas"]}
    constraints = {"matchConstraints": {"resourceRules": [rule]}}
    few = "object.spec.hard.size() < 3"
    labeled = "has(object.metadata.labels) && object.metadata.labels.team == 'ok'"
    bind(server, policy("spec", few, **constraints))
    bind(server, policy("whole", f"{few} && {labeled}", **constraints))
    bind(server, policy("user", f"{few} && request.userInfo.username != 'bad'", **constraints))
    for number in range(3):
        for limits, label, user, status in (
            (1, "ok", "good", 201),
            (1, "", "good", 422),
            (1, "ok", "bad", 422),
            (3, "ok", "good", 422),
        ):
            made = quota(f"{user}-{number}", limits=limits, label=label)
            assert ask(server, "POST", QUOTAS, made, user=User(name=user))[0] == status


def test_a_changed_policy_judges_known_specs_anew(server):
    rule = {**RULE, "resources": ["resourcequotas"]}
    made = policy("p", "object.spec.hard.size() < 3", matchConstraints={"resourceRules": [rule]})
    bind(server, made)
    assert ask(server, "POST", QUOTAS, quota("a", limits=2))[0] == 201
    assert ask(server, "POST", QUOTAS, quota("b", limits=2))[0] == 201
    change = {"spec": {"validations": [{"expression": "object.spec.hard.size() < 2"}]}}
    assert ask(server, "PATCH", f"{POLICIES}/p", change, MERGE)[0] == 200
    assert ask(server, "POST", QUOTAS, quota("c", limits=2))[0] == 422


def test_checks_of_policies_are_counted(server):
    bind(server, policy("p", "object.data.size() < 2"))
    for number in range(3):
        ask(server, "POST", MAPS, config_map(f"m-{number}"))
    text = server.handle(HttpRequest(method="GET", path="/metrics")).content.decode()
    passed = 'enforcement_action="allow",error_type="invalid_error",policy="p",policy_binding="p"'
    for name in ("total", "duration_seconds_count"):
        assert f"apiserver_validating_admission_policy_check_{name}{{{passed}}} 3" in text
