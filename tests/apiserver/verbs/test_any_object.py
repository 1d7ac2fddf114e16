"""Objects of every kind, right and wrong by chance: each gets an answer, and no surprise."""

import json
import random

import pytest

from apiserver.verbs.asking import Asked
from dralab.api.kinds import Kinds
from dralab.api.schemas import Schema, Schemas

KINDS = [kind for kind in Kinds.standard() if "create" in kind.verbs]
TEXTS = (
    "",
    "a",
    "A b",
    "x.io/y",
    "10.0.0.1",
    "Never",
    "Equal",
    "TCP",
    "2026-01-01T00:00:00Z",
    "1Gi",
    "é" * 70,
)
NUMBERS = (-1, 0, 1, 5, 70000, 2**31 - 1)
EACH = 16
JUNK = (None, True, 1.5, "x", [], {}, [None], [[]], {"a": None}, -(2**63))


class Maker:
    """Values that a schema allows, and now and then one that it does not."""

    def __init__(self, seed: int, *, junk: float) -> None:
        self.chance = random.Random(seed)
        self.junk = junk

    def value(self, schema: Schema | None, depth: int = 0):  # noqa: PLR0911 - one line per type
        chance = self.chance
        if schema is None or chance.random() < self.junk:
            return chance.choice(JUNK)
        if schema.free:
            return chance.choice(JUNK)
        match schema.format:
            case "quantity":
                return chance.choice(("1", "500m", "1Gi", 2, "-1"))
            case "int-or-string":
                return chance.choice((0, 80, "25%", "http"))
            case "date-time":
                return "2026-01-01T00:00:00Z"
            case "byte":
                return "YQ=="
        if schema.is_struct:
            return self.struct(schema, depth)
        match schema.type:
            case "array":
                return [self.value(schema.item, depth + 1) for _ in range(chance.randrange(3))]
            case "object":
                return {
                    name: self.value(schema.values, depth + 1)
                    for name in chance.sample(TEXTS, chance.randrange(3))
                }
            case "integer":
                return chance.choice(NUMBERS)
            case "number":
                return 0.5
            case "boolean":
                return chance.random() < 0.5
            case _:
                return chance.choice(schema.enum or TEXTS)

    def struct(self, schema: Schema, depth: int):
        found = {}
        for name, part in schema.properties.items():
            likely = 0.9 if name in schema.required else 0.5 if depth < 3 else 0.15
            if depth < 9 and self.chance.random() < likely:
                found[name] = self.value(part, depth + 1)
        if self.chance.random() < self.junk:
            found["bogus"] = 1
        return found


C = {"name": "c", "image": "i"}
TEMPLATE = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [C]}}
WORKLOAD = {"selector": {"matchLabels": {"a": "b"}}, "template": TEMPLATE}
JOB = {"template": {"spec": {"containers": [C], "restartPolicy": "Never"}}}
CLAIM = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
POOL = {"name": "p", "generation": 1, "resourceSliceCount": 1}
VERSION = {
    "name": "v1",
    "served": True,
    "storage": True,
    "schema": {"openAPIV3Schema": {"type": "object"}},
}
SIZE = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
# Good specs of kinds that chance alone never gets right.
GOOD = {
    ("", "pods"): {"containers": [C]},
    ("", "replicationcontrollers"): {"selector": {"a": "b"}, "template": TEMPLATE},
    ("", "persistentvolumeclaims"): SIZE,
    ("apps", "deployments"): WORKLOAD,
    ("apps", "replicasets"): WORKLOAD,
    ("apps", "statefulsets"): WORKLOAD,
    ("apps", "daemonsets"): WORKLOAD,
    ("batch", "jobs"): JOB,
    ("batch", "cronjobs"): {"schedule": "* * * * *", "jobTemplate": {"spec": JOB}},
    ("resource.k8s.io", "resourceclaims"): CLAIM,
    ("resource.k8s.io", "resourceclaimtemplates"): {"spec": CLAIM},
    ("resource.k8s.io", "resourceslices"): {
        "driver": "d.io",
        "allNodes": True,
        "pool": POOL,
        "devices": [{"name": "d"}],
    },
    ("apiextensions.k8s.io", "customresourcedefinitions"): {
        "group": "x.io",
        "scope": "Namespaced",
        "names": {"plural": "x", "kind": "X"},
        "versions": [VERSION],
    },
}
ONCE_GOOD = [
    kind
    for kind in KINDS
    if (kind.group, kind.plural) in GOOD and kind.version[-1] in "12" and "beta" not in kind.version
]


def changed(maker, schema, value, tries):
    """Return a copy of a good value with some fields, anywhere in it, made by chance."""
    found = json.loads(json.dumps(value))
    for _ in range(tries):
        holder, part = found, schema
        while True:
            below = [
                (name, item)
                for name, item in holder.items()
                if isinstance(item, (dict, list)) and item and part.field(name)
            ]
            if not below or maker.chance.random() < 0.3:
                break
            name, item = maker.chance.choice(below)
            inner = part.field(name)
            if isinstance(item, list):
                item, inner = item[0], inner.item
            if not isinstance(item, dict) or inner is None:
                break
            holder, part = item, inner
        if part.properties:
            name = maker.chance.choice(sorted(part.properties))
            holder[name] = maker.value(part.properties[name], 4)
    return found


def asked(ask, kind, value, other):
    """Yield the answers to every way of writing one object, then another in its place."""
    namespace = "/namespaces/default" if kind.namespaced else ""
    all_of_them = f"{kind.path}{namespace}/{kind.plural}"
    name = "x.x.io" if kind.plural == "customresourcedefinitions" else "x"
    for each in (value, other):
        for part in ("kind", "apiVersion"):
            each.pop(part, None)
        metadata = each.get("metadata")
        kept = metadata if isinstance(metadata, dict) else {}
        for part in ("namespace", "resourceVersion", "uid"):
            kept.pop(part, None)
        each["metadata"] = {**kept, "name": name}
    url = f"{all_of_them}/{name}"
    merge, strategic = "application/merge-patch+json", "application/strategic-merge-patch+json"
    yield ask.full("POST", all_of_them, value)
    yield ask.full("GET", url)
    yield ask.full("PUT", url, other)
    yield ask.full("PATCH", url, other, content_type=merge)
    yield ask.full("PATCH", url, other, content_type=strategic)
    config = {
        **other,
        "apiVersion": kind.api_version,
        "kind": kind.kind,
        "metadata": {"name": name},
    }
    apply = f"{url}?fieldManager=m&force=true"
    yield ask.full("PATCH", apply, config, content_type="application/apply-patch+yaml")
    if "status" in kind.subresources:
        yield ask.full("PUT", f"{url}/status", other)
        yield ask.full("PATCH", f"{url}/status", other, content_type=merge)
    if "scale" in kind.subresources:
        yield ask.full("GET", f"{url}/scale")
        yield ask.full("PUT", f"{url}/scale", other)
    yield ask.full("GET", all_of_them)
    yield ask.full("GET", all_of_them, accept="application/json;as=Table;v=v1;g=meta.k8s.io")
    yield ask.full("GET", url, accept="application/yaml")
    yield ask.full("DELETE", url)


def check(answer, *about):
    """An answer is good if it is an object, or says in a sentence why there is none."""
    # A real server blames itself for some mistakes of clients, and has no reason for them.
    blamed = answer.status == 500 and b'"reason"' not in answer.content
    assert answer.status < 500 or blamed, (answer.content, *about)
    if dict(answer.headers)["Content-Type"] == "application/json":
        found = json.loads(answer.content)
        assert found["kind"]
        assert answer.status < 400 or found["message"]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: f"{kind.api_version} {kind.plural}")
def test_every_write_of_anything_gets_an_answer(kind):
    schema = Schemas.standard().schema_of(kind.api_version, kind.kind)
    assert schema is not None
    for seed in range(6):
        maker = Maker(seed, junk=0 if seed < 3 else 0.04)
        value, other = maker.struct(schema, 0), maker.struct(schema, 0)
        for answer in asked(Asked(), kind, value, other):
            check(answer, value, other)


@pytest.mark.parametrize("kind", ONCE_GOOD, ids=lambda kind: f"{kind.api_version} {kind.plural}")
def test_good_objects_with_something_else_in_them_get_an_answer(kind):
    schema = Schemas.standard().schema_of(kind.api_version, kind.kind)
    assert schema is not None
    good = {"spec": GOOD[kind.group, kind.plural]}
    stored = 0
    for seed in range(EACH):
        maker = Maker(seed, junk=0.0 if seed % 2 else 0.1)
        value, other = changed(maker, schema, good, seed % 3), changed(maker, schema, good, 2)
        for answer in asked(Asked(), kind, value, other):
            check(answer, value, other)
            stored += answer.status == 201
    assert stored > EACH / 4


@pytest.mark.parametrize("metadata", [{}, {"name": ""}, {"name": None}])
def test_an_object_without_a_name_is_invalid(metadata):
    url = "/api/v1/namespaces/default/configmaps"
    status, found = Asked()("POST", url, {"metadata": metadata})
    assert (status, found["reason"]) == (422, "Invalid")
    assert "name or generateName is required" in found["message"]
