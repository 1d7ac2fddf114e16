"""The structure of kinds: against the published merge facts, and for custom resources."""

import json
from pathlib import Path

import pytest

from dralab.api import schemas
from dralab.api.kinds import Kinds
from dralab.api.schemas import Schemas

FACTS = Path(__file__).parents[2] / "../shared/testdata/apiserver/merge-facts-v1.37.json"
STANDARD = Schemas.standard()


def test_every_kind_that_is_served_has_a_schema_with_metadata():
    kinds = [kind for kind in Kinds.standard() if "create" in kind.verbs]
    assert len(kinds) > 50
    for kind in kinds:
        schema = STANDARD.schema_of(kind.api_version, kind.kind)
        assert schema is not None, kind
        assert {"apiVersion", "kind", "metadata"} <= set(schema.properties), kind


def test_lists_and_maps_merge_as_the_published_facts_say():
    if not FACTS.exists():
        pytest.skip("the recorded merge facts are not beside this checkout")
    definitions = json.loads(FACTS.read_text())["definitions"]
    assert len(definitions) > 200
    for name, fields in definitions.items():
        schema = STANDARD.definition(name)
        for field, facts in fields.items():
            found = schema if field == "" else schema.properties[field]
            assert found.list_type == facts.get("listType", ""), (name, field)
            assert found.list_map_keys == tuple(facts.get("mapKeys", ())), (name, field)
            assert found.patch_merge_key == facts.get("mergeKey", ""), (name, field)
            strategy = tuple(filter(None, facts.get("strategy", "").split(",")))
            assert found.patch_strategy == strategy, (name, field)
            if "mapType" in facts:
                assert found.map_type == facts["mapType"], (name, field)


def test_every_reference_leads_to_a_definition():
    def references(raw):
        if isinstance(raw, dict):
            if isinstance(raw.get("$ref"), str):
                yield raw["$ref"]
            for value in raw.values():
                yield from references(value)

    names = set(STANDARD.names())
    found = {ref for name in names for ref in references(STANDARD.raw(name))}
    assert found
    assert found <= names


@pytest.mark.parametrize(
    ("path", "type_", "format_"),
    [
        (("spec", "containers", "image"), "string", ""),
        (("spec", "containers", "resources", "limits", "cpu"), "string", "quantity"),
        (("spec", "containers", "livenessProbe", "httpGet", "port"), "", "int-or-string"),
        (("spec", "containers", "ports", "containerPort"), "integer", "int32"),
        (("spec", "hostNetwork"), "boolean", ""),
        (("metadata", "creationTimestamp"), "string", "date-time"),
        (("metadata", "labels"), "object", ""),
    ],
)
def test_fields_have_their_types(path, type_, format_):
    found = STANDARD.schema_of("v1", "Pod").at(*path)
    assert (found.type, found.format) == (type_, format_)


def test_a_schema_that_contains_itself_can_be_walked_down():
    props = STANDARD.definition(
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps"
    )
    assert props.at("properties", "x", "properties", "y", "not").type == "object"


def test_a_path_that_leaves_the_schema_is_a_key_error():
    with pytest.raises(KeyError, match=r"spec\.bogus"):
        STANDARD.schema_of("v1", "Pod").at("spec", "bogus")


def test_a_type_known_by_no_name_has_no_schema():
    assert STANDARD.schema_of("example.com/v1", "Pod") is None


def test_a_custom_resource_brings_its_own_structure():
    schema = schemas.custom(
        {
            "type": "object",
            "properties": {
                "spec": {
                    "type": "object",
                    "required": ["n"],
                    "properties": {
                        "n": {"type": "integer", "default": 3},
                        "port": {"x-kubernetes-int-or-string": True},
                        "any": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                        "pod": {"type": "object", "x-kubernetes-embedded-resource": True},
                        "items": {
                            "type": "array",
                            "x-kubernetes-list-type": "map",
                            "x-kubernetes-list-map-keys": ["key"],
                            "items": {
                                "type": "object",
                                "properties": {"key": {"type": "string"}},
                            },
                        },
                        "labels": {"additionalProperties": {"type": "string"}},
                    },
                }
            },
        }
    )
    spec = schema.at("spec")
    assert spec.is_struct
    assert spec.required == ("n",)
    assert spec.at("n").default == 3
    assert spec.at("port").format == "int-or-string"
    assert spec.at("any").free
    assert not spec.at("any").is_struct
    assert spec.at("items").list_map_keys == ("key",)
    assert spec.at("labels", "x").type == "string"
    assert spec.at("pod", "metadata", "name").type == "string"
    assert schema.at("metadata", "finalizers").list_type == "set"


def test_a_custom_resource_without_a_schema_may_hold_anything():
    schema = schemas.custom(None)
    assert schema.free
    assert schema.field("spec") is None
    assert schema.at("metadata", "labels", "a").type == "string"


def test_there_is_a_description_for_what_explain_shows():
    texts = schemas.descriptions()
    assert "container" in texts["io.k8s.api.core.v1.PodSpec"]["containers"].lower()
    missing = {name for name in STANDARD.names() if name not in texts}
    assert not missing
