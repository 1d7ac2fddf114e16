"""MutatingAdmissionPolicy: what policies add to objects, and what they may not touch."""

import pytest

from admissions import GROUP, MAPS, MERGE, ask, config_map
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness

POLICIES, BINDINGS = (
    f"{GROUP}/mutatingadmissionpolicies",
    f"{GROUP}/mutatingadmissionpolicybindings",
)
PODS = "/api/v1/namespaces/default/pods"
RULE = {
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "operations": ["CREATE", "UPDATE"],
    "resources": ["configmaps", "pods"],
}


@pytest.fixture
def server():
    clock = ManualClock(1_800_000_000 * 10**9)
    return ApiServer(MemoryStore(), clock=clock, randomness=Randomness(1))


def apply(expression):
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def json_patch(expression):
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def policy(name, *mutations, **spec):
    return {
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [RULE]},
            "reinvocationPolicy": "Never",
            "mutations": list(mutations),
            **spec,
        },
    }


def bind(server, made, **spec):
    name = made["metadata"]["name"]
    status, found = ask(server, "POST", POLICIES, made)
    assert status == 201, found
    body = {"metadata": {"name": name}, "spec": {"policyName": name, **spec}}
    assert ask(server, "POST", BINDINGS, body)[0] == 201


def pod(name="p"):
    return {"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "x"}]}}


def test_an_apply_configuration_is_merged_into_the_object(server):
    label = "Object{metadata: Object.metadata{labels: {'by': 'policy'}}}"
    sidecar = (
        "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'side', "
        "image: object.spec.containers[0].image}]}}"
    )
    bind(server, policy("p", apply(label), apply(sidecar)))
    code, made = ask(server, "POST", PODS, pod())
    assert code == 201, made
    assert made["metadata"]["labels"] == {"by": "policy"}
    assert [each["name"] for each in made["spec"]["containers"]] == ["c", "side"]
    assert made["spec"]["containers"][1]["imagePullPolicy"] == "Always", "it is defaulted"


def test_a_json_patch_is_applied_in_order(server):
    expression = (
        "[JSONPatch{op: 'test', path: '/data/k', value: 'v'},"
        "JSONPatch{op: 'add', path: '/data/' + jsonpatch.escapeKey('a~b'), value: 'new'},"
        "JSONPatch{op: 'remove', path: '/data/k'}]"
    )
    bind(server, policy("p", json_patch(expression)))
    code, found = ask(server, "POST", MAPS, config_map())
    assert (code, found["reason"]) == (422, "Invalid"), "a key may not have a ~"
    expression = expression.replace("a~b", "a.b")
    patch = {"spec": {"mutations": [json_patch(expression)]}}
    assert ask(server, "PATCH", f"{POLICIES}/p", patch, MERGE)[0] == 200
    code, made = ask(server, "POST", MAPS, config_map())
    assert (code, made["data"]) == (201, {"a.b": "new"})
    code, made = ask(server, "POST", MAPS, config_map("other", {"k": "w"}))
    assert (code, made["data"]) == (201, {"k": "w"}), "its test failed"


def test_policies_see_what_those_before_have_made(server):
    def label(name, value):
        return apply(f"Object{{metadata: Object.metadata{{labels: {{'{name}': {value}}}}}}}")

    first = policy("a", label("one", "'1'"), label("two", "object.metadata.labels['one'] + '2'"))
    bind(server, first)
    bind(server, policy("b", label("three", "object.metadata.labels['two'] + '3'")))
    _, made = ask(server, "POST", MAPS, config_map())
    assert made["metadata"]["labels"] == {"one": "1", "two": "12", "three": "123"}


def test_a_policy_that_wants_it_is_evaluated_again(server):
    count = "[JSONPatch{op: 'add', path: '/data/size', value: string(object.data.size())}]"
    bind(server, policy("a", json_patch(count), reinvocationPolicy="IfNeeded"))
    more = "[JSONPatch{op: 'add', path: '/data/more', value: 'x'}]"
    bind(server, policy("b", json_patch(more)))
    _, made = ask(server, "POST", MAPS, config_map())
    assert made["data"] == {"k": "v", "more": "x", "size": "3"}


def test_conditions_parameters_and_variables_work_as_in_validation(server):
    made = policy(
        "p",
        apply("Object{metadata: Object.metadata{labels: {'team': variables.team}}}"),
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        variables=[{"name": "team", "expression": "params.data.team"}],
        matchConditions=[{"name": "new", "expression": "request.name != 'settings'"}],
    )
    assert ask(server, "POST", MAPS, config_map("settings", {"team": "blue"}))[0] == 201
    bind(server, made, paramRef={"name": "settings", "parameterNotFoundAction": "Deny"})
    _, found = ask(server, "POST", MAPS, config_map())
    assert found["metadata"]["labels"] == {"team": "blue"}


@pytest.mark.parametrize(
    ("mutation", "words"),
    [
        (
            apply("Object{spec: Object.spec{containers: [Object.spec.wrong{name: 'x'}]}}"),
            'type mismatch: unexpected type name "Object.spec.wrong"',
        ),
        (
            apply(
                "Object{spec: Object.spec{containers: [Object.spec.containers{name: 'c', "
                "command: ['x']}]}}"
            ),
            "may not mutate atomic arrays, maps or structs: .spec.containers[0].command",
        ),
        (
            apply("Object{spec: Object.spec{nonsense: 1}}"),
            "field not declared in schema",
        ),
        (
            json_patch("[JSONPatch{op: 'remove', path: '/spec/none'}]"),
            "JSON Patch: error in remove for path: '/spec/none': Unable to remove nonexistent key",
        ),
        (apply("Object{metadata: object.metadata.none}"), "no such key: none"),
    ],
)
def test_a_mutation_that_fails_denies_the_write(server, mutation, words):
    bind(server, policy("p", mutation))
    code, found = ask(server, "POST", PODS, pod())
    assert (code, found["reason"]) == (403, "Invalid")
    assert found["message"].startswith("policy 'p' with binding 'p' denied request: ")
    assert words in found["message"]
    ignoring = {"spec": {"failurePolicy": "Ignore"}}
    assert ask(server, "PATCH", f"{POLICIES}/p", ignoring, MERGE)[0] == 200
    assert ask(server, "POST", PODS, pod())[0] == 201


def test_what_a_policy_makes_is_validated(server):
    bad = "[JSONPatch{op: 'replace', path: '/spec/containers/0/name', value: 'Not A Name'}]"
    bind(server, policy("p", json_patch(bad)))
    code, found = ask(server, "POST", PODS, pod())
    assert (code, found["reason"]) == (422, "Invalid")
    assert "spec.containers[0].name" in found["message"]


WRONG = {
    "not an object": (apply("{'a': 1}"), "must evaluate to Object but got map(string, int)"),
    "not a list": (
        json_patch("JSONPatch{op: 'add', path: '/a', value: 1}"),
        "must evaluate to list(JSONPatch) but got JSONPatch",
    ),
    "an unknown field": (
        json_patch("[JSONPatch{operation: 'add'}]"),
        "undefined field 'operation'",
    ),
    "a field of another type": (
        json_patch("[JSONPatch{op: 1}]"),
        "expected type of field 'op' is 'string' but provided type is 'int'",
    ),
    "no patch": ({"patchType": "JSONPatch"}, "must be specified when patchType is JSONPatch"),
    "no type": ({}, "spec.mutations[0].patchType: Required value"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_policy_is_not_stored(server, case):
    mutation, words = WRONG[case]
    code, found = ask(server, "POST", POLICIES, policy("p", mutation))
    assert code == 422
    assert words in found["message"]


def test_no_policy_mutates_what_is_deleted(server):
    rule = {**RULE, "operations": ["DELETE"]}
    made = policy("p", apply("Object{}"), matchConstraints={"resourceRules": [rule]})
    code, found = ask(server, "POST", POLICIES, made)
    assert code == 422
    assert 'resourceRules.operations: Unsupported value: "DELETE"' in found["message"]
