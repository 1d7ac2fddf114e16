"""Strategic merge and field ownership against Kubernetes' own Go code, on random cases."""

import json
import os
import random
import shutil
import subprocess
from pathlib import Path

import pytest

from dralab.api.schemas import Schemas, custom
from dralab.api.status import ApiError
from dralab.apiserver.managed_fields import FieldManager, apply, update
from dralab.values.patches import PatchError, same
from dralab.values.strategic import strategic_merge

SOURCE = Path(__file__).parent / "merging"
CASES = 3000
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        "DRALAB_MERGING" not in os.environ and shutil.which("go") is None,
        reason="Go is not installed, and DRALAB_MERGING names no program",
    ),
]


@pytest.fixture(scope="session")
def oracle(tmp_path_factory):
    """The Go code as a function of a list of cases; DRALAB_MERGING names a binary of it."""
    program = os.environ.get("DRALAB_MERGING")
    if not program:
        fetched = subprocess.run(
            ["go", "mod", "download"], cwd=SOURCE, capture_output=True, text=True, check=False
        )
        if fetched.returncode:
            pytest.skip(f"the Go modules cannot be had: {fetched.stderr.strip()[-200:]}")
        program = str(tmp_path_factory.mktemp("merging") / "merging")
        subprocess.run(["go", "build", "-o", program, "."], cwd=SOURCE, check=True)

    def answers(cases):
        text = "\n".join(map(json.dumps, cases)).encode()
        done = subprocess.run([program], input=text, capture_output=True, check=True)
        return [json.loads(line) for line in done.stdout.splitlines()]

    return answers


# --- strategic merge ------------------------------------------------------------------------------


class Pods:
    """Makes pods and strategic patches of them."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def some(self, values):
        return self.chance.sample(values, self.chance.randint(0, len(values)))

    def maybe(self, share, value):
        return value() if self.chance.random() < share else None

    def container(self, name):
        found = {
            "name": name,
            "image": self.maybe(0.6, lambda: self.chance.choice("ijk")),
            "args": self.maybe(0.4, lambda: self.some("xyz")),
            "env": self.maybe(0.5, lambda: [self.variable(n) for n in self.some("ABC")]),
            "ports": self.maybe(0.5, lambda: [{"containerPort": n} for n in self.some([1, 2, 3])]),
            "resources": self.maybe(0.3, lambda: {"limits": self.labels(["cpu", "memory"])}),
        }
        return {key: value for key, value in found.items() if value is not None}

    def variable(self, name):
        return {"name": name, "value": self.chance.choice("12")}

    def labels(self, keys):
        return {key: self.chance.choice("12") for key in self.some(keys)}

    def pod(self):
        metadata = {
            "labels": self.maybe(0.5, lambda: self.labels("abc")),
            "finalizers": self.maybe(0.5, lambda: self.some(["f/1", "f/2", "f/3"])),
        }
        names = self.chance.sample("cdef", self.chance.randint(1, 4))
        spec = {
            "containers": [self.container(name) for name in names],
            "tolerations": self.maybe(0.4, lambda: [{"key": key} for key in self.some("tuv")]),
            "volumes": self.maybe(
                0.4, lambda: [{"name": n, "emptyDir": {}} for n in self.some("tuv")]
            ),
            "nodeName": self.maybe(0.3, lambda: self.chance.choice("nm")),
        }
        return {
            "metadata": {"name": "p"} | {k: v for k, v in metadata.items() if v is not None},
            "spec": {key: value for key, value in spec.items() if value is not None},
        }

    def patch(self, original):
        found = self.pod()
        self.break_up(found)
        metadata, spec = found.get("metadata"), found.get("spec")
        if (
            isinstance(metadata, dict)
            and "finalizers" not in metadata
            and self.chance.random() < 0.3
        ):
            metadata["$deleteFromPrimitiveList/finalizers"] = self.some(["f/1", "f/2", "f/3"])
        if isinstance(spec, dict) and self.chance.random() < 0.4:
            self.order(spec, original)
        return found

    def order(self, spec, original):
        named = spec.get("containers") or []
        if "containers" in spec and spec["containers"] is None:
            return
        if any(item.get("$patch") == "replace" for item in named):
            return  # refused by accident of the Go code
        names = [item["name"] for item in named if "$patch" not in item]
        for item in original["spec"]["containers"]:
            if item["name"] not in names and self.chance.random() < 0.7:
                names.insert(self.chance.randint(0, len(names)), item["name"])
        spec["$setElementOrder/containers"] = [{"name": name} for name in names]

    def break_up(self, value):
        if isinstance(value, dict):
            for key in list(value):
                if key not in {"name", "key", "containerPort"} and self.chance.random() < 0.08:
                    value[key] = None
                else:
                    self.break_up(value[key])
            if self.chance.random() < 0.03:
                value["$patch"] = self.chance.choice(["replace", "delete", "merge"])
        elif isinstance(value, list):
            for item in value:
                self.break_up(item)
            if value and all(isinstance(item, dict) for item in value):
                if self.chance.random() < 0.15:
                    self.chance.choice(value)["$patch"] = "delete"
                if self.chance.random() < 0.05:
                    value.append({"$patch": "replace"})


def decoded(value):
    """Drop what the decoding into Go's types drops: nulls and orders."""
    if isinstance(value, dict):
        return {k: decoded(v) for k, v in value.items() if v is not None and k[:1] != "$"}
    return [decoded(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("seed", [1, 2])
def test_strategic_merge_is_that_of_the_go_code(seed, oracle):
    pods = Pods(seed)
    schema = Schemas.standard().schema_of("v1", "Pod")
    cases = []
    for _ in range(CASES):
        original = pods.pod()
        cases.append({"op": "strategic", "original": original, "patch": pods.patch(original)})
    refused = 0
    for case, wanted in zip(cases, oracle(cases), strict=True):
        try:
            found = strategic_merge(case["original"], case["patch"], schema)
        except PatchError:
            assert "error" in wanted, case
            refused += 1
            continue
        assert "error" not in wanted, (case, wanted)
        assert same(decoded(wanted["result"]), found), (case, wanted, found)
    assert 0 < refused < CASES / 2


# --- ownership ------------------------------------------------------------------------------------

NUMBERS = {"a": {"type": "integer"}, "b": {"type": "integer"}}
KEYED = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
INNER = {"type": "object", "properties": {"name": {"type": "string"}, **NUMBERS}}
PART = {
    "type": "object",
    "properties": {**INNER["properties"], "subs": {"type": "array", "items": INNER, **KEYED}},
}
# The same as in merging/main.go.
FOO = custom(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object",
                "properties": {
                    "n": {"type": "integer"},
                    "tags": {
                        "type": "array",
                        "items": {"type": "string"},
                        "x-kubernetes-list-type": "set",
                    },
                    "parts": {"type": "array", "items": PART, **KEYED},
                    "whole": {
                        "type": "object",
                        "additionalProperties": {"type": "integer"},
                        "x-kubernetes-map-type": "atomic",
                    },
                    "labels": {"type": "object", "additionalProperties": {"type": "integer"}},
                    "plain": {
                        "type": "array",
                        "items": {"type": "integer"},
                        "x-kubernetes-list-type": "atomic",
                    },
                },
            }
        },
    }
)
# Where nobody owns anything, a server makes up an owner: the Go library by itself does not.
NOBODY = {
    "manager": "nobody",
    "operation": "Update",
    "apiVersion": "x/v1",
    "fieldsType": "FieldsV1",
    "fieldsV1": {"f:none": {}},
}


class Foos:
    """Makes specs and rows of writes."""

    def __init__(self, seed):
        self.chance = random.Random(seed)

    def some(self, values):
        return self.chance.sample(values, self.chance.randint(0, len(values)))

    def part(self, name, *, inner=False):
        found = {"name": name}
        found |= {key: self.chance.randint(0, 1) for key in "ab" if self.chance.random() < 0.4}
        if not inner and self.chance.random() < 0.3:
            found["subs"] = [self.part(sub, inner=True) for sub in self.some("uv")]
        return found

    def spec(self):
        made = {
            "n": lambda: self.chance.randint(0, 2),
            "tags": lambda: self.some("pqrs"),
            "parts": lambda: [self.part(name) for name in self.some("wxyz")],
            "whole": lambda: {key: self.chance.randint(0, 1) for key in self.some("st")},
            "labels": lambda: {key: self.chance.randint(0, 1) for key in self.some("lmn")},
            "plain": lambda: [self.chance.randint(0, 2) for _ in self.some("123")],
        }
        return {name: make() for name, make in made.items() if self.chance.random() < 0.45}

    def steps(self):
        found = []
        for _ in range(self.chance.randint(1, 6)):
            applies = self.chance.random() < 0.7
            found.append(
                {
                    "manager": self.chance.choice("ABC" if applies else "uv"),
                    "apply": applies,
                    "force": self.chance.random() < 0.6,
                    "object": {"spec": self.spec()},
                }
            )
        return found


def played(live, step):
    """Do one step; return the object after it, None where it is refused."""
    metadata = {"name": "f", "managedFields": live["metadata"].get("managedFields") or [NOBODY]}
    live = {**live, "metadata": metadata}
    writer = FieldManager(manager=step["manager"], api_version="x/v1", now="T")
    if not step["apply"]:
        new = {**live, **step["object"]}
        entries = update(live, new, FOO, writer)
        return {**new, "metadata": {**metadata, "managedFields": entries}}
    config = {"apiVersion": "x/v1", "kind": "Foo", "metadata": {"name": "f"}, **step["object"]}
    try:
        return apply(live, config, FOO, writer, force=step["force"])
    except ApiError:
        return None


def owners(obj):
    return {
        entry["manager"]: entry["fieldsV1"]
        for entry in obj["metadata"].get("managedFields", ())
        if entry["manager"] != "nobody"
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_ownership_is_that_of_the_go_code(seed, oracle):
    foos = Foos(seed)
    cases = [{"op": "ownership", "steps": foos.steps()} for _ in range(CASES)]
    conflicts = 0
    for case, results in zip(cases, oracle(cases), strict=True):
        live = {"apiVersion": "x/v1", "kind": "Foo", "metadata": {"name": "f"}, "spec": {}}
        for step, wanted in zip(case["steps"], results, strict=True):
            found = played(live, step)
            if found is None:
                assert "conflict" in wanted, (case, wanted)
                conflicts += 1
                continue
            assert "object" in wanted, (case, wanted)
            spec = (wanted["object"] or {}).get("spec") or {}
            assert same(spec, found.get("spec") or {}), (case, wanted)
            assert same(wanted["managers"], owners(found)), (case, wanted)
            live = found
    assert conflicts
