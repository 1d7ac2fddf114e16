"""OpenAPI documents: whole in themselves, complete for the clients that read them."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from dralab.api.kinds import Kind, Kinds
from dralab.api.schemas import Schemas
from dralab.apiserver.http import openapi
from dralab.apiserver.http.openapi import protobuf_form
from dralab.apiserver.http.openapi.components import references

KINDS = Kinds.standard()
PLACES = openapi.places(KINDS)
FOO = Kind(
    group="example.com",
    version="v1",
    kind="Foo",
    plural="foos",
    namespaced=True,
    singular="foo",
    list_kind="FooList",
    custom={
        "name": "v1",
        "schema": {
            "openAPIV3Schema": {
                "type": "object",
                "description": "A foo.",
                "properties": {
                    "spec": {"type": "object", "properties": {"n": {"type": "integer"}}}
                },
            }
        },
    },
)


def document(place):
    return openapi.version3(place, PLACES[place], "v1.36.2")


@pytest.mark.parametrize("place", PLACES)
def test_a_document_refers_to_nothing_that_it_does_not_hold(place):
    found = document(place)
    names = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert set(references(found)) <= names
    assert found["paths"]


@pytest.mark.parametrize("place", PLACES)
def test_kubectl_finds_how_each_kind_is_checked_and_explained(place):
    found = document(place)
    types = {
        tuple(sorted(type_.items()))
        for schema in found["components"]["schemas"].values()
        for type_ in schema.get("x-kubernetes-group-version-kind", ())
    }
    for kind in PLACES[place]:
        own = {"group": kind.group, "version": kind.version, "kind": kind.kind}
        assert tuple(sorted(own.items())) in types, kind
        operations = [
            operation
            for path in found["paths"].values()
            for method, operation in path.items()
            if method == "patch" and operation["x-kubernetes-group-version-kind"] == own
        ]
        if "patch" in kind.verbs:
            assert operations, kind
            assert all(
                any(parameter["name"] == "fieldValidation" for parameter in op["parameters"])
                for op in operations
            )


@pytest.mark.parametrize("place", PLACES)
def test_no_two_operations_have_the_same_name(place):
    names = [
        operation["operationId"]
        for path in document(place)["paths"].values()
        for method, operation in path.items()
        if method != "parameters"
    ]
    assert len(names) == len(set(names))


def test_the_core_document_is_as_large_as_a_real_servers():
    found = openapi.version3("api/v1", openapi.places(Kinds.standard(also=()))["api/v1"], "v1.36.2")
    assert (len(found["paths"]), len(found["components"]["schemas"])) == (113, 251)


def test_what_1_37_has_added_is_not_described():
    spec = document("api/v1")["components"]["schemas"]["io.k8s.api.core.v1.EmptyDirVolumeSource"]
    assert set(spec["properties"]) == {"medium", "sizeLimit"}


def test_watches_and_proxies_have_paths_of_their_own():
    paths = document("api/v1")["paths"]
    watch = paths["/api/v1/watch/namespaces/{namespace}/pods/{name}"]["get"]
    assert watch["x-kubernetes-action"] == "watch"
    proxy = paths["/api/v1/nodes/{name}/proxy/{path}"]
    assert [each["name"] for each in proxy["parameters"]] == ["name", "path"]
    assert not any("/watch/" in path for path in openapi.version3("", [FOO], "v1")["paths"])


def test_discovery_is_described_too():
    assert document("apis/apps")["paths"]["/apis/apps/"]
    assert document("version")["paths"]["/version/"]
    assert "/api/v1/" in document("api/v1")["paths"]


def test_lists_say_how_they_merge():
    schemas = document("api/v1")["components"]["schemas"]
    containers = schemas["io.k8s.api.core.v1.PodSpec"]["properties"]["containers"]
    assert containers["x-kubernetes-patch-merge-key"] == "name"
    assert containers["x-kubernetes-patch-strategy"] == "merge"
    assert containers["x-kubernetes-list-map-keys"] == ["name"]
    assert containers["description"]
    metadata = schemas["io.k8s.api.core.v1.Pod"]["properties"]["metadata"]
    assert metadata["allOf"][0]["$ref"].endswith("ObjectMeta")


def test_nothing_is_written_that_go_would_leave_out():
    """Kubernetes' end-to-end suite reads and writes each document, and expects the same."""

    def empties(value, path=""):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            if item == [] and key != "required":
                yield f"{path}/{key}"
            if isinstance(item, (dict, list)):
                yield from empties(item, f"{path}/{key}")

    for place in ("api/v1", "apis/apps/v1", "apis/authorization.k8s.io/v1"):
        assert list(empties(document(place)["paths"])) == []


def test_everything_there_is_has_a_definition_in_the_old_document():
    found = openapi.version2(KINDS, "v1.36.2")
    names = {f"#/definitions/{name}" for name in found["definitions"]}
    assert set(references(found)) <= names
    schemas = Schemas.standard()
    for kind in KINDS:
        name = schemas.name_of(kind.api_version, kind.kind)
        assert name is None or name in found["definitions"]


def test_a_custom_resource_is_described_by_its_own_schema():
    found = openapi.version3("apis/example.com/v1", [FOO], "v1.36.2")
    schema = found["components"]["schemas"]["com.example.v1.Foo"]
    assert schema["description"] == "A foo."
    assert schema["properties"]["spec"]["properties"] == {"n": {"type": "integer"}}
    assert schema["properties"]["metadata"]["allOf"]
    assert schema["x-kubernetes-group-version-kind"] == [
        {"group": "example.com", "version": "v1", "kind": "Foo"}
    ]
    assert "/apis/example.com/v1/namespaces/{namespace}/foos/{name}" in found["paths"]
    names = {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert set(references(found)) <= names


def test_the_hash_of_a_document_changes_with_its_kinds_alone():
    _, before = openapi.index(KINDS, "v1.36.2")
    more = Kinds([*KINDS, FOO])
    found, after = openapi.index(more, "v1.36.2")
    assert {place: after[place] for place in before} == before
    assert "apis/example.com/v1" in found["paths"]
    _, other = openapi.index(KINDS, "v1.37.0")
    assert all(other[place] != hashed for place, hashed in before.items())


def fields_of(data):
    """Return the fields of a protobuf message: (number, content), as plain as can be."""

    def number(at):
        value = shift = 0
        while True:
            byte = data[at]
            value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
            if byte < 0x80:
                return value, at

    found, at = [], 0
    while at < len(data):
        tag, at = number(at)
        content, at = number(at)
        if tag & 7 == 2:
            content, at = data[at : at + content], at + content
        found.append((tag >> 3, content))
    return found


def test_a_document_in_protobuf_has_the_same_paths_and_schemas():
    plain = document("apis/apps/v1")
    found = dict(fields_of(protobuf_form.encode(plain)))
    assert found[1] == b"3.0.0"
    assert [dict(fields_of(each))[1].decode() for _, each in fields_of(found[4])] == [
        *plain["paths"]
    ]
    schemas = dict(fields_of(found[5]))[1]
    named = [dict(fields_of(each)) for _, each in fields_of(schemas)]
    assert [each[1].decode() for each in named] == [*plain["components"]["schemas"]]
    (deployment,) = [each[2] for each in named if each[1].endswith(b".v1.Deployment")]
    schema = fields_of(dict(fields_of(deployment))[1])
    assert (25, b"object") in schema
    extension = dict(fields_of(dict(schema)[36]))
    assert extension[1] == b"x-kubernetes-group-version-kind"
    assert b'"kind":"Deployment"' in extension[2]


def test_scalars_and_unions_in_protobuf():
    schema = {
        "type": "object",
        "properties": {
            "a": {"type": "integer", "minimum": 1.5, "maxLength": 300, "default": True},
            "b": {"type": "string", "enum": ["x"], "default": "x", "nullable": True},
        },
        "additionalProperties": False,
        "required": ["a"],
    }
    plain = {
        "openapi": "3.0.0",
        "info": {"title": "T", "version": "1"},
        "paths": {},
        "components": {"schemas": {"s": schema}},
    }
    data = protobuf_form.encode(plain)
    assert b"\x69\x00\x00\x00\x00\x00\x00\xf8\x3f" in data  # minimum: a double in field 13
    assert b"\x78\xac\x02" in data  # maxLength: a number in field 15
    assert b'"x"\n' in data


def test_the_older_document_in_protobuf_has_the_same_paths_and_definitions():
    plain = openapi.version2(Kinds([FOO]), "v1.36.2")
    found = dict(fields_of(protobuf_form.encode_version2(plain)))
    assert found[1] == b"2.0"
    paths = [dict(fields_of(each)) for _, each in fields_of(found[8])]
    assert [each[1].decode() for each in paths] == [*plain["paths"]]
    (listing,) = [each[2] for each in paths if each[1] == b"/apis/example.com/v1/foos"]
    operation = dict(fields_of(dict(fields_of(listing))[2]))
    get = plain["paths"]["/apis/example.com/v1/foos"]["get"]
    assert operation[5].decode() == get["operationId"]
    named = [dict(fields_of(each)) for _, each in fields_of(found[9])]
    assert [each[1].decode() for each in named] == [*plain["definitions"]]
    (foo,) = [fields_of(each[2]) for each in named if each[1] == b"com.example.v1.Foo"]
    assert (22, b"\x0a\x06object") in foo
    extension = dict(fields_of(dict(foo)[31]))
    assert extension[1] == b"x-kubernetes-group-version-kind"
    assert b'"kind":"Foo"' in extension[2]


RECORDED = json.loads((Path(__file__).parent / "custom-schemas.json").read_text())


@pytest.mark.parametrize("case", sorted(RECORDED))
def test_a_custom_resource_is_shown_as_by_a_real_server(case):
    recorded = RECORDED[case]
    kind = replace(
        FOO, group="e2ea.example.com", kind="Bar", plural="bars", list_kind="BarList",
        custom=recorded["crd"],
    )  # fmt: skip
    place = "apis/e2ea.example.com/v1"
    newer = openapi.version3(place, [kind], "v1.36.2")["components"]["schemas"]
    older = openapi.version2(Kinds([kind]), "v1.36.2")["definitions"]
    name = "com.example.e2ea.v1.Bar"
    assert newer[name] == recorded["v3"]
    assert older[name] == recorded["v2"]
    assert newer[f"{name}List"] == recorded["v3list"]
    assert older[f"{name}List"] == recorded["v2list"]
