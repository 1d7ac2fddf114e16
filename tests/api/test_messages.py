"""The fields of Go's types: against the published tables, and what is always there."""

import json
from pathlib import Path

import pytest

from dralab.api.kinds import Kinds
from dralab.api.messages import Messages, message_of
from dralab.api.schemas import Schemas

SHARED = Path(__file__).parents[2] / "../shared/testdata"
TABLES = ["kubernetes-protobuf/fields-v0.36.2.json", "apiserver/protobuf-fields-extra.json"]
STANDARD = Messages.standard()


@pytest.mark.parametrize("table", TABLES)
def test_fields_are_as_the_published_table_has_them(table):
    path = SHARED / table
    if not path.exists():
        pytest.skip("the published tables are not beside this checkout")
    compared = 0
    for name, fields in json.loads(path.read_text())["messages"].items():
        if name not in STANDARD:
            continue  # versions that are not served are left out
        for number, wanted in fields.items():
            found = STANDARD.fields(name)[int(number)]
            if found.name == "-":
                continue
            assert found.name == wanted.get("json", wanted["name"]), (name, number)
            assert found.type == (wanted.get("type") or ",".join(wanted["map"])), (name, number)
            assert found.list == wanted.get("list", False), (name, number)
            assert found.omitempty == wanted.get("omitempty", False), (name, number)
            assert found.inline == wanted.get("inline", False), (name, number)
            if "JSONSchemaPropsOr" not in name:
                assert found.pointer == wanted.get("ptr", False), (name, number)
            compared += 1
    assert compared > 400


def test_every_message_that_a_field_refers_to_is_known():
    special = {"string", "bool", "int32", "int64", "double", "bytes", "uint32"}
    names = STANDARD.names()
    assert len(names) > 600
    for name in names:
        for field in STANDARD.fields(name).values():
            for type_ in field.type.split(","):
                assert type_ in special or type_ in STANDARD, (name, field)


def test_every_kind_that_can_be_written_has_its_message():
    schemas = Schemas.standard()
    kinds = [kind for kind in Kinds.standard() if "create" in kind.verbs]
    assert len(kinds) > 50
    for kind in kinds:
        definition = schemas.name_of(kind.api_version, kind.kind)
        assert definition is not None
        assert message_of(definition) in STANDARD, kind


@pytest.mark.parametrize(
    ("message", "field", "zero"),
    [
        ("k8s.io.api.core.v1.Container", "resources", {}),
        ("k8s.io.api.core.v1.Container", "name", ""),
        ("k8s.io.api.core.v1.PodSpec", "containers", None),
        ("k8s.io.api.core.v1.PodCondition", "lastProbeTime", None),
        ("k8s.io.api.apps.v1.DeploymentSpec", "strategy", {}),
        ("k8s.io.api.rbac.v1.Role", "rules", None),
    ],
)
def test_some_fields_are_always_there(message, field, zero):
    assert STANDARD.zeros(message)[field] == zero


@pytest.mark.parametrize(
    ("message", "field"),
    [
        ("k8s.io.api.core.v1.PodSpec", "securityContext"),
        ("k8s.io.api.core.v1.Container", "ports"),
        ("k8s.io.apimachinery.pkg.apis.meta.v1.ObjectMeta", "creationTimestamp"),
        ("k8s.io.api.apps.v1.DeploymentSpec", "replicas"),
    ],
)
def test_others_are_there_only_when_they_are_set(message, field):
    assert field not in STANDARD.zeros(message)
