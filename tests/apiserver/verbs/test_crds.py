"""Custom resources: served, checked, pruned, defaulted, converted, cleaned up."""

import orjson
import pytest

from apiserver.verbs.asking import Asked
from dralab.apiserver.http.encodings.encoding import ObjectEncoder
from dralab.apiserver.storage import Key, MemoryStore, StorageUnavailable

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
FOOS = "/apis/x.io/v1/namespaces/default/foos"


def version(name="v1", *, storage=True, properties=None, **more):
    schema = {"type": "object", "properties": properties or {"spec": SPEC}}
    return {
        "name": name,
        "served": True,
        "storage": storage,
        "schema": {"openAPIV3Schema": schema},
    } | more


SPEC = {
    "type": "object",
    "required": ["n"],
    "properties": {
        "n": {"type": "integer", "minimum": 0},
        "color": {"type": "string", "default": "red"},
        "tags": {"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"},
    },
    "x-kubernetes-validations": [
        {"rule": "self.n != 3", "message": "not three"},
        {"rule": "self.n >= oldSelf.n", "messageExpression": "'at least %d'.format([oldSelf.n])"},
    ],
}


def definition(*versions, scope="Namespaced", plural="foos", kind="Foo"):
    return {
        "metadata": {"name": f"{plural}.x.io"},
        "spec": {
            "group": "x.io",
            "scope": scope,
            "names": {"plural": plural, "kind": kind},
            "versions": list(versions) or [version()],
        },
    }


def foo(name="a", api="v1", **spec):
    return {"apiVersion": f"x.io/{api}", "kind": "Foo", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def ask() -> Asked:
    ask = Asked()
    assert ask("POST", CRDS, definition())[0] == 201
    return ask


def test_a_definition_is_established_and_discovered_at_once(ask):
    _, found = ask("GET", f"{CRDS}/foos.x.io")
    assert {each["type"]: each["status"] for each in found["status"]["conditions"]} == {
        "NamesAccepted": "True",
        "Established": "True",
    }
    _, resources = ask("GET", "/apis/x.io/v1")
    assert [each["name"] for each in resources["resources"]] == ["foos"]
    _, groups = ask("GET", "/apis")
    assert "x.io" in [group["name"] for group in groups["groups"]]


def test_objects_are_pruned_and_defaulted(ask):
    _, made = ask("POST", FOOS, foo(n=1, bogus=2))
    assert made["spec"] == {"n": 1, "color": "red"}
    status, refused = ask("POST", f"{FOOS}?fieldValidation=Strict", foo("b", n=1, bogus=2))
    assert status == 400
    assert 'unknown field "spec.bogus"' in refused["message"]


@pytest.mark.parametrize(
    ("spec", "told"),
    [
        ({}, "spec.n: Required value"),
        ({"n": -1}, "spec.n in body should be greater than or equal to 0"),
        ({"n": "x"}, 'spec.n in body must be of type integer: "string"'),
        ({"n": 3}, "spec: Invalid value: not three"),
        ({"n": 1, "tags": ["a", "a"]}, 'spec.tags[1]: Duplicate value: "a"'),
    ],
)
def test_objects_that_break_the_schema_or_a_rule_are_refused(ask, spec, told):
    status, refused = ask("POST", FOOS, foo(**spec))
    assert status == 422
    assert told in refused["message"]


def test_rules_compare_with_the_object_before(ask):
    _, made = ask("POST", FOOS, foo(n=2))
    made["spec"]["n"] = 1
    status, refused = ask("PUT", f"{FOOS}/a", made)
    assert (status, "at least 2" in refused["message"]) == (422, True)


def test_generations_count_what_is_wanted(ask):
    _, made = ask("POST", FOOS, foo(n=2))
    made["metadata"]["labels"] = {"a": "b"}
    _, made = ask("PUT", f"{FOOS}/a", made)
    assert made["metadata"]["generation"] == 1
    made["spec"]["n"] = 4
    _, made = ask("PUT", f"{FOOS}/a", made)
    assert made["metadata"]["generation"] == 2


def test_every_version_shows_the_same_objects():
    ask = Asked()
    both = definition(
        version("v1", storage=False), version("v2"), version("v1beta1", storage=False)
    )
    ask("POST", CRDS, both)
    ask("POST", FOOS, foo(n=1))
    status, seen = ask("GET", f"{FOOS.replace('/v1/', '/v2/')}/a")
    assert (status, seen["apiVersion"], seen["spec"]["n"]) == (200, "x.io/v2", 1)
    _, listed = ask("GET", FOOS)
    assert [item["apiVersion"] for item in listed["items"]] == ["x.io/v1"]
    _, group = ask("GET", "/apis/x.io")
    assert [each["version"] for each in group["versions"]] == ["v2", "v1", "v1beta1"]


def test_objects_follow_the_version_in_which_they_are_stored():
    ask = Asked()
    ask("POST", CRDS, definition())
    ask("POST", FOOS, foo(n=1))
    _, found = ask("GET", f"{CRDS}/foos.x.io")
    found["spec"]["versions"] = [version("v1", storage=False), version("v2")]
    assert ask("PUT", f"{CRDS}/foos.x.io", found)[0] == 200
    assert ask("GET", f"{FOOS}/a")[1]["apiVersion"] == "x.io/v1"
    assert ask("GET", f"{FOOS.replace('/v1/', '/v2/')}/a")[1]["apiVersion"] == "x.io/v2"
    _, after = ask("GET", f"{CRDS}/foos.x.io")
    assert after["status"]["storedVersions"] == ["v1", "v2"]


def test_another_stored_version_writes_no_objects():
    store = MemoryStore()
    ask = Asked(store)
    ask("POST", CRDS, definition())
    _, made = ask("POST", FOOS, foo(n=1))
    old = ask.resources.kind("x.io", "v1", "foos")
    watching = ObjectEncoder(old, ask.resources.context.rules)
    _, found = ask("GET", f"{CRDS}/foos.x.io")
    found["spec"]["versions"] = [version("v1", storage=False), version("v2")]
    ask("PUT", f"{CRDS}/foos.x.io", found)
    newer = FOOS.replace("/v1/", "/v2/")
    ask("POST", newer, foo("b", api="v2", n=1))

    for server in (ask, Asked(store)):  # and after a restart
        for path, api in ((FOOS, "x.io/v1"), (newer, "x.io/v2")):
            _, listed = server("GET", path)
            assert [item["apiVersion"] for item in listed["items"]] == [api, api]
            _, one = server("GET", f"{path}/a")
            assert one["apiVersion"] == api
            assert one["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]
            assert server("GET", f"{path}/b")[1]["apiVersion"] == api
    # A watch of the old version that goes on.
    for name in ("a", "b"):
        stored = store.get(Key("x.io/foos", "default", name))
        assert orjson.loads(watching.object(stored))["apiVersion"] == "x.io/v1"
    # A write stores the object in the new version.
    _, one = ask("GET", f"{newer}/a")
    assert ask("PUT", f"{newer}/a", one)[0] == 200
    assert store.get(Key("x.io/foos", "default", "a")).value["apiVersion"] == "x.io/v2"


def test_a_definition_takes_its_objects_along(ask):
    ask("POST", FOOS, foo(n=1))
    ask("POST", FOOS, foo(n=1) | {"metadata": {"name": "held", "finalizers": ["x.io/f"]}})
    status, going = ask("DELETE", f"{CRDS}/foos.x.io")
    assert (status, going["metadata"]["finalizers"]) == (
        200,
        ["customresourcecleanup.apiextensions.k8s.io"],
    )
    assert ask("GET", f"{FOOS}/a")[0] == 404
    _, held = ask("GET", f"{FOOS}/held")
    assert held["metadata"]["deletionTimestamp"]
    ask.merge(f"{FOOS}/held", {"metadata": {"finalizers": None}})
    assert ask("GET", f"{CRDS}/foos.x.io")[0] == 404
    answer = ask.full("GET", FOOS)
    assert (answer.status, answer.content) == (404, b"404 page not found\n")
    assert ask("POST", CRDS, definition())[0] == 201, "it may come again"
    assert ask("POST", FOOS, foo(n=1))[0] == 201


def test_names_that_others_have_are_not_accepted(ask):
    ask("POST", CRDS, definition(plural="bars", kind="Foo"))
    _, found = ask("GET", f"{CRDS}/bars.x.io")
    accepted = found["status"]["conditions"][0]
    assert (accepted["status"], accepted["reason"], accepted["message"]) == (
        "False",
        "ListKindConflict",  # the last of those that are taken
        '"FooList" is already in use',
    )
    assert found["status"]["acceptedNames"] == {"plural": "bars", "kind": ""}
    assert ask.full("GET", "/apis/x.io/v1/bars").status == 404
    ask("DELETE", f"{CRDS}/foos.x.io")
    _, found = ask("GET", f"{CRDS}/bars.x.io")
    assert [each["status"] for each in found["status"]["conditions"]] == ["True", "True"]
    assert ask("GET", "/apis/x.io/v1/bars")[0] == 200


def test_no_object_is_created_while_its_definition_goes(ask):
    held = foo(n=1)
    held["metadata"]["finalizers"] = ["a.b/c"]
    ask("POST", FOOS, held)
    ask("DELETE", f"{CRDS}/foos.x.io")
    _, found = ask("GET", f"{CRDS}/foos.x.io")
    assert found["status"]["conditions"][-1]["reason"] == "InstanceDeletionInProgress"
    code, refused = ask("POST", FOOS, foo("b", n=1))
    assert (code, refused["message"]) == (
        403,
        'foos.x.io "b" is forbidden: create not allowed while custom resource definition is '
        "terminating",
    )
    ask.merge(f"{FOOS}/a", {"metadata": {"finalizers": None}})
    assert ask("GET", f"{CRDS}/foos.x.io")[0] == 404


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (lambda d: d["metadata"].update(name="x"), 'must be spec.names.plural+"."+spec.group'),
        (lambda d: d["spec"].update(scope="World"), "spec.scope: Unsupported value"),
        (lambda d: d["spec"].update(versions=[]), "spec.versions: Invalid value: []: must have"),
        (lambda d: d["spec"]["versions"][0].update(storage=False), "exactly one version"),
        (
            lambda d: d["spec"]["versions"][0].pop("schema"),
            "schema.openAPIV3Schema: Required value",
        ),
        (
            lambda d: d["spec"]["versions"].__setitem__(0, version(properties={"a": {}})),
            "properties[a].type: Required value",
        ),
        (
            lambda d: d["spec"]["versions"].__setitem__(
                0,
                version(
                    properties={
                        "a": {"type": "string", "x-kubernetes-validations": [{"rule": "1 +"}]}
                    }
                ),
            ),
            "x-kubernetes-validations[0].rule",
        ),
    ],
)
def test_definitions_that_make_no_sense_are_refused(change, told):
    bad = definition()
    change(bad)
    status, refused = Asked()("POST", CRDS, bad)
    assert status == 422
    assert told in refused["message"]


def test_definitions_are_served_again_after_a_restart():
    store = MemoryStore()
    first = Asked(store)
    first("POST", CRDS, definition())
    first("POST", FOOS, foo(n=1))
    assert Asked(store)("GET", f"{FOOS}/a")[1]["spec"]["n"] == 1


def test_a_kind_can_belong_to_the_server_itself():
    ask = Asked()
    ask.resources.custom_resources.serve_own("foos.x.io", definition(scope="Cluster")["spec"])
    assert ask("POST", "/apis/x.io/v1/foos", foo(n=1))[0] == 201
    assert ask("GET", CRDS)[1]["items"] == []


def test_a_built_in_kind_can_have_more_fields():
    ask = Asked()
    claims = {
        "type": "array",
        "items": {"type": "object", "properties": {"name": {"type": "string"}}},
    }
    ask.resources.extend(
        ask.resources.kind("", "v1", "pods"),
        {
            ("spec", "deviceClaims"): claims,
            ("spec", "containers", "*", "devices"): {"type": "array", "items": {"type": "string"}},
        },
    )
    url = "/api/v1/namespaces/default/pods"
    container = {"name": "c", "image": "i", "devices": ["d"]}
    spec = {"containers": [container], "deviceClaims": [{"name": "d", "bogus": 1}]}
    pod = {"metadata": {"name": "p"}, "spec": spec}
    status, made = ask("POST", url, pod)
    assert status == 201
    assert made["spec"]["deviceClaims"] == [{"name": "d"}]
    assert made["spec"]["containers"][0]["devices"] == ["d"]
    assert made["spec"]["restartPolicy"] == "Always"
    pod["metadata"]["name"] = "q"
    status, refused = ask("POST", f"{url}?fieldValidation=Strict", pod)
    assert (status, "spec.deviceClaims" in refused["message"]) == (400, True)
    pod["spec"]["deviceClaims"] = [{"name": 1}]
    status, refused = ask("POST", url, pod)
    assert (status, "spec.deviceClaims[0].name" in refused["message"]) == (422, True)


class Refusing(MemoryStore):
    """A store whose medium fails when it is told to."""

    full = False

    def _persist(self, changes):
        if self.full:
            raise StorageUnavailable("the disk is full")


def test_what_a_full_disk_took_back_is_not_served():
    store = Refusing()
    ask = Asked(store)
    store.full = True
    services = "/api/v1/namespaces/default/services"
    body = {"metadata": {"name": "s"}, "spec": {"clusterIP": "10.0.0.7", "ports": [{"port": 1}]}}

    def write():
        with store.batch():
            assert ask("POST", CRDS, definition())[0] == 201
            assert ask("POST", FOOS, foo(n=1))[0] == 201
            assert ask("POST", services, body)[0] == 201

    with pytest.raises(StorageUnavailable):
        write()
    store.full = False
    assert ask.full("GET", FOOS).status == 404
    write()
    assert ask("GET", f"{FOOS}/a")[0] == 200


@pytest.mark.parametrize("pattern", ["(?<!a)b", "a{1001}", "(", r"\8"])
@pytest.mark.parametrize("where", ["properties", "items", "anyOf"])
def test_a_definition_with_a_pattern_that_is_none_is_refused(pattern, where):
    text = {"type": "string", "pattern": pattern}
    spec, path = {
        "properties": ({"type": "object", "properties": {"p": text}}, "properties[p]"),
        "items": ({"type": "array", "items": text}, "items"),
        "anyOf": (
            {"type": "string", "anyOf": [{"pattern": "a"}, {"pattern": pattern}]},
            "anyOf[1]",
        ),
    }[where]
    status, refused = Asked()("POST", CRDS, definition(version(properties={"spec": spec})))
    assert status == 422
    at = f"spec.validation.openAPIV3Schema.properties[spec].{path}.pattern"
    assert [cause["field"] for cause in refused["details"]["causes"]] == [at]
    assert (
        "must be a valid regular expression, but isn't: error parsing regexp:" in refused["message"]
    )


def test_a_finalizer_without_a_slash_is_warned_of_where_the_kind_is_custom(ask):
    """As a kube-apiserver 1.36 answers; operators made with old generators have such names."""
    made = foo(n=1)
    made["metadata"]["finalizers"] = ["done.x.io", "x.io/done"]
    answer = ask.full("POST", FOOS, made)
    assert answer.status == 201
    said = [value for name, value in answer.headers if name.lower() == "warning"]
    assert len(said) == 1
    assert 'done.x.io\\": prefer a domain-qualified finalizer name including a path' in said[0]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/api/v1/namespaces/default/configmaps", {}, 422),
        ("/apis/coordination.k8s.io/v1/namespaces/default/leases", {}, 201),
        ("/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles", {}, 422),
        ("/apis/policy/v1/namespaces/default/poddisruptionbudgets", {}, 201),
        ("/api/v1/namespaces/default/events", {"involvedObject": {"namespace": "default"}}, 201),
        ("/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", {}, 201),
    ],
)
def test_which_built_in_kinds_take_a_finalizer_without_a_slash(ask, path, body, status):
    metadata = {"name": "x", "finalizers": ["a.b.c"]}
    assert ask("POST", path, {**body, "metadata": metadata})[0] == status


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ([], "x.io/v1beta1 Foo is deprecated; use x.io/v1 Foo"),
        ([version("v2", storage=False)], "x.io/v1beta1 Foo is deprecated; use x.io/v2 Foo"),
        ([version("v2", storage=False, deprecated=True)],
         "x.io/v1beta1 Foo is deprecated; use x.io/v1 Foo"),
    ],
)  # fmt: skip
def test_every_answer_of_a_deprecated_version_says_what_to_use(versions, told):
    ask = Asked()
    old = version("v1beta1", storage=False, deprecated=True)
    assert ask("POST", CRDS, definition(version(), old, *versions))[0] == 201
    beta = FOOS.replace("v1", "v1beta1")
    assert warnings(ask.full("GET", beta)) == warnings(ask.full("GET", f"{beta}/missing")) == [told]
    assert warnings(ask.full("GET", FOOS)) == []


def warnings(answer):
    return [value.split('"')[1] for name, value in answer.headers if name == "Warning"]


def test_a_deprecated_version_may_bring_its_own_words():
    ask = Asked()
    ask("POST", CRDS, definition(version(deprecated=True, deprecationWarning="move on")))
    assert warnings(ask.full("GET", FOOS)) == ["move on"]


def test_a_value_of_another_type_is_none_of_those_that_are_allowed_either(ask):
    allowed = {"spec": {"type": "object", "properties": {"c": {"type": "string", "enum": ["a"]}}}}
    ask("POST", CRDS, definition(version(properties=allowed), plural="bars", kind="Bar"))
    body = {"apiVersion": "x.io/v1", "kind": "Bar", "metadata": {"name": "a"}, "spec": {"c": 5}}
    code, refused = ask("POST", "/apis/x.io/v1/namespaces/default/bars", body)
    assert (code, refused["message"]) == (
        422,
        'Bar.x.io "a" is invalid: [spec.c: Invalid value: "integer": spec.c in body must be of type '
        'string: "integer", spec.c: Unsupported value: 5: supported values: "a"]',
    )


def test_an_object_of_another_kind_is_not_put_in_the_place_of_one(ask):
    ask("POST", FOOS, foo(n=1))
    _, found = ask("GET", f"{FOOS}/a")
    code, refused = ask("PUT", f"{FOOS}/a", {**found, "kind": "Bogus"})
    assert (code, refused["message"]) == (
        422,
        'Bogus.x.io "a" is invalid: kind: Invalid value: "Bogus": must be Foo',
    )
    code, refused = ask("POST", FOOS, {**foo("b", n=1), "apiVersion": "v1", "kind": "Pod"})
    assert (code, refused["message"]) == (
        400,
        "the API version in the data (v1) does not match the expected API version (x.io/v1)",
    )


def test_the_metadata_of_an_embedded_object_is_checked(ask):
    embedded = {
        "type": "object",
        "x-kubernetes-embedded-resource": True,
        "x-kubernetes-preserve-unknown-fields": True,
    }
    of = {"spec": {"type": "object", "properties": {"t": embedded}}}
    ask("POST", CRDS, definition(version(properties=of), plural="bars", kind="Bar"))
    metadata = {"name": "Any_", "labels": {"a b": "c"}}
    inner = {"apiVersion": "v1", "kind": "B_", "metadata": metadata}
    head = {"apiVersion": "x.io/v1", "kind": "Bar", "metadata": {"name": "a"}}
    code, refused = ask(
        "POST", "/apis/x.io/v1/namespaces/default/bars", {**head, "spec": {"t": inner}}
    )
    told = [each["field"] for each in refused["details"]["causes"]]
    assert (code, told) == (422, ["spec.t.kind", "spec.t.metadata.labels"])


def test_a_negative_limit_is_none(ask):
    for name in "abc":
        ask("POST", FOOS, foo(name, n=1))
    _, found = ask("GET", f"{FOOS}?limit=-1")
    assert (len(found["items"]), found["metadata"].get("continue", "")) == (3, "")


def test_of_the_length_and_the_pattern_of_a_text_the_first_is_told_of(ask):
    text = {"type": "string", "minLength": 2, "pattern": "^[a-z]+$"}
    of = {"spec": {"type": "object", "properties": {"t": text}}}
    ask("POST", CRDS, definition(version(properties=of), plural="bars", kind="Bar"))
    body = {"apiVersion": "x.io/v1", "kind": "Bar", "metadata": {"name": "a"}, "spec": {"t": "A"}}
    _, refused = ask("POST", "/apis/x.io/v1/namespaces/default/bars", body)
    assert [each["message"] for each in refused["details"]["causes"]] == [
        'Invalid value: "A": spec.t in body should be at least 2 chars long'
    ]


def test_a_merge_patch_leaves_no_null_in_an_object_of_a_list(ask):
    free = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    ask("POST", CRDS, definition(version(properties={"spec": free}), plural="bars", kind="Bar"))
    bars = "/apis/x.io/v1/namespaces/default/bars"
    ask("POST", bars, {"apiVersion": "x.io/v1", "kind": "Bar", "metadata": {"name": "a"}})
    _, found = ask.merge(f"{bars}/a", {"spec": {"l": [{"a": None, "b": 1}, None]}})
    assert found["spec"] == {"l": [{"b": 1}, None]}
