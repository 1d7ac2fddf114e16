"""What clients see of webhooks: details, codes and warnings, as kube-apiserver 1.36.2 shows them."""

import pytest

from admissions import GROUP, MAPS, MERGE, ask, config_map, configure
from webhookserver import allow, patch

PODS = "/api/v1/namespaces/default/pods"


def warned(*texts):
    return lambda request: {"allowed": True, "warnings": list(texts)}


@pytest.mark.parametrize(
    ("status", "code", "details"),
    [
        ({"message": "no"}, 400, None),
        ({"message": "no", "code": 599}, 599, None),
        ({"message": "no", "code": 700}, 400, None),
        (
            {"message": "no", "details": {"causes": [{"message": "m", "field": "a"}]}},
            400,
            {"causes": [{"message": "m", "field": "a"}]},
        ),
    ],
)
def test_a_denial_has_the_details_and_the_code_that_the_webhook_gives(
    server, hook, status, code, details
):
    hook.answers["/v"] = lambda request: {"allowed": False, "status": status}
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    found, body = ask(server, "POST", MAPS, config_map())
    assert (found, body.get("details")) == (code, details)


def test_deletions_pass_on_the_warnings_of_webhooks(server, hook):
    hook.answers["/v"] = warned("careful")
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    for name in "ab":
        ask(server, "POST", MAPS, config_map(name))
    for url in (f"{MAPS}/a", MAPS):
        assert ask(server, "DELETE", url)[1]["warnings"] == ['299 - "careful"']


def test_webhooks_are_told_only_the_options_that_the_client_gave(server, hook):
    hook.answers["/v"] = allow
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    ask(server, "POST", f"{MAPS}?fieldValidation=Strict", config_map())
    ask(server, "PATCH", f"{MAPS}/a", {"data": {"k": "w"}}, MERGE)
    new = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "n"}}
    apply = "application/apply-patch+yaml"
    ask(server, "PATCH", f"{MAPS}/n?fieldManager=me&force=true", new, apply)
    options = [{**request["options"], "apiVersion": ""} for _, request in hook.asked]
    assert options == [
        {"kind": "CreateOptions", "apiVersion": "", "fieldValidation": "Strict"},
        {"kind": "UpdateOptions", "apiVersion": ""},
        {"kind": "CreateOptions", "apiVersion": "", "fieldManager": "me"},
    ]


def test_many_warnings_are_cut_and_dropped_beyond_a_limit(server, hook):
    hook.answers["/v"] = warned("x" * 2000, "y" * 2000, *(f"{n:03}" * 100 for n in range(60)))
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    shown = ask(server, "POST", MAPS, config_map())[1]["warnings"]
    assert len(shown) == 16
    assert {len(each) for each in shown} == {len('299 - ""') + 256}


@pytest.mark.parametrize("type", ["MergePatch", "JSONPatch"])
@pytest.mark.parametrize("text", ["W10=", "bnVsbA=="])
def test_a_patch_without_operations_changes_nothing_whatever_its_type(server, hook, type, text):
    hook.answers["/m"] = lambda request: {"allowed": True, "patchType": type, "patch": text}
    configure(server, "Mutating", "m", {"clientConfig": hook.client("/m")})
    assert ask(server, "POST", MAPS, config_map())[0] == 201


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("/kind", "Secret", "converting (v1.Secret) to (core.ConfigMap): unknown conversion"),
        (
            "/apiVersion",
            "v9",
            'Internal error occurred: no kind "ConfigMap" is registered for version "v9" in scheme '
            '"pkg/runtime/scheme.go:111"',
        ),
    ],
)
def test_no_webhook_gives_an_object_another_type(server, hook, path, value, message):
    hook.answers["/m"] = lambda request: patch({"op": "replace", "path": path, "value": value})
    configure(server, "Mutating", "m", {"clientConfig": hook.client("/m")})
    code, found = ask(server, "POST", MAPS, config_map())
    assert (code, found["message"]) == (500, message)
    assert ask(server, "GET", f"{MAPS}/a")[0] == 404


def test_a_binding_of_another_pod_is_refused_before_webhooks_are_asked(server, hook):
    hook.answers["/v"] = allow
    configure(server, "Validating", "v", {"clientConfig": hook.client("/v")})
    body = {"metadata": {"name": "other"}, "target": {"kind": "Node", "name": "n"}}
    code, found = ask(server, "POST", f"{PODS}/p/binding", body)
    assert (code, found["message"]) == (400, "name in URL does not match name in Binding object")
    assert not hook.asked


def test_match_conditions_know_the_namespace_object_by_name_only(server, hook):
    hook.answers["/v"] = allow
    hooks = {
        "clientConfig": hook.client("/v"),
        "matchConditions": [{"name": "n", "expression": "namespaceObject.metadata.name == 'x'"}],
    }
    configure(server, "Validating", "v", hooks)
    code, found = ask(server, "POST", MAPS, config_map())
    assert code == 403
    assert "no such key: metadata" in found["message"]


@pytest.mark.parametrize(("timeout", "why"), [("x", "invalid"), ("1", "missing unit in")])
def test_a_timeout_of_a_request_that_cannot_be_read_is_refused(server, timeout, why):
    message = f'invalid timeout specified in the request URL - time: {why} duration "{timeout}"'
    code, found = ask(server, "GET", f"{MAPS}?timeout={timeout}")
    assert (code, found["message"]) == (400, message)
    assert ask(server, "GET", f"{MAPS}?timeout=5m30s")[0] == 200


def test_only_device_selectors_bind_names(server):
    policy = {
        "matchConstraints": {"resourceRules": []},
        "validations": [{"expression": "cel.bind(a, 1, a == 1)"}],
    }
    body = {"metadata": {"name": "p"}, "spec": policy}
    code, found = ask(server, "POST", f"{GROUP}/validatingadmissionpolicies", body)
    assert code == 422
    assert "undeclared reference to 'cel'" in found["message"]
