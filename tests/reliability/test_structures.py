"""Objects made by the structure of each kind: fit or misfit, they get an answer, never a 500."""

import random
import traceback
from collections import Counter
from typing import Any

import orjson
import pytest

from dralab.api.kinds import Kind, Kinds
from dralab.api.schemas import Schema, Schemas
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from reliability.faultless import is_fault

TEXTS = [
    "a",
    "x.io/y",
    "",
    "A b",
    "10.0.0.1",
    "example.com",
    "true",
    "-",
    "Always",
    "TCP",
    "é",
    "a" * 300,
]
FORMATS: dict[str, list[Any]] = {
    "byte": ["YQ==", "", "no base64!"],
    "date-time": [
        "2026-01-01T00:00:00Z",
        "2026-01-01T00:00:00.123456Z",
        "0000-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
        "yesterday",
        None,
    ],
    "quantity": ["1", "1Gi", "100m", 2, 1.5, "lots", "-1", "1e3"],
    "int-or-string": [1, "25%", "http", "", -1, 70_000],
}
PATCHES = ["merge-patch+json", "strategic-merge-patch+json", "apply-patch+yaml"]
FORMS = [
    "application/json",
    "application/yaml",
    "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/cbor",
]
QUERIES = [
    "limit=2",
    "labelSelector=a%20in%20(b,c),!d",
    "fieldSelector=metadata.name%3Da",
    "fieldSelector=spec.nodeName%21%3D",
    "resourceVersion=0&resourceVersionMatch=NotOlderThan",
    "resourceVersion=1&resourceVersionMatch=Exact",
    "limit=1&continue=bm9uZQ",
    "labelSelector=%3D%3D",
    "limit=-1",
]


def value_of(schema: Schema | None, rng: random.Random, depth: int) -> Any:
    """Return a value that mostly fits."""
    if rng.random() < 0.02:
        return rng.choice([None, 1, "x", [], {}, True, [None], {"a": []}, -1.5])
    if schema is None or depth > 7:
        return {}
    if schema.enum and rng.random() < 0.8:
        return rng.choice(list(schema.enum))
    if schema.format in FORMATS:
        return rng.choice(FORMATS[schema.format])
    match schema.type:
        case "string":
            return rng.choice(TEXTS)
        case "integer":
            return rng.choice([0, 1, 2, 80, 30_000, -1, 2**31, 2**63])
        case "number":
            return rng.choice([0.0, 1.5, 3])
        case "boolean":
            return rng.random() < 0.5
        case "array":
            return [value_of(schema.item, rng, depth + 1) for _ in range(rng.choice([0, 1, 1, 2]))]
        case _:
            return struct_of(schema, rng, depth)


def struct_of(schema: Schema, rng: random.Random, depth: int) -> Any:
    if schema.properties:
        share = 0.9 if depth == 0 else 0.35
        return {
            name: value_of(below, rng, depth + 1)
            for name, below in sorted(schema.properties.items())
            if name in schema.required or rng.random() < share
        }
    names = rng.sample(["a", "x.io/y", "kubernetes.io/z", "", "B c"], k=rng.randrange(3))
    return {name: value_of(schema.values, rng, depth + 1) for name in names}


def object_of(kind: Kind, rng: random.Random) -> dict[str, Any]:
    schema = Schemas.standard().schema_of(kind.api_version, kind.kind)
    found = value_of(schema, rng, 0)
    if not isinstance(found, dict):
        return {}
    metadata: dict[str, Any] = {"name": rng.choice(["a", "b", "a.b", "x:y", "A"])}
    if rng.random() < 0.3:
        metadata |= {"labels": {"a": "b"}, "annotations": {"x": "y"}, "finalizers": ["x.io/y"]}
    return found | {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata}


class Storm:
    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.server = ApiServer(
            MemoryStore(), clock=ManualClock(10**18), randomness=Randomness(seed)
        )
        self.statuses: Counter[int] = Counter()
        self.defects: dict[str, str] = {}

    def send(
        self, method: str, path: str, query: str, body: Any, media: str, form: str = FORMS[0]
    ) -> None:
        data = orjson.dumps(body, option=orjson.OPT_NON_STR_KEYS) if body is not None else b""
        headers = {"content-type": f"application/{media}", "accept": form}
        request = HttpRequest(method=method, path=path, query=query, headers=headers, body=data)
        try:
            answer = self.server.handle(request)
        except Exception as error:  # noqa: BLE001 - every place is told, not the first alone
            place = traceback.extract_tb(error.__traceback__)[-1]
            where = f"{error!r} at {place.filename}:{place.lineno}"
            self.defects.setdefault(where, f"{method} {path}?{query} {data.decode():.500}")
            return
        assert isinstance(answer, HttpResponse)
        # Behind the proxy of a node there is no kubelet here.
        elsewhere = b"has no endpoint for its pods" in answer.content
        if not elsewhere and is_fault(answer.status, answer.content):
            self.defects.setdefault(
                answer.content.decode(), f"{method} {path} {data.decode():.500}"
            )
        self.statuses[answer.status] += 1

    def visit(self, kind: Kind) -> None:
        """Create an object of a kind, change it in every way, list it and delete it."""
        rng = self.rng
        root = f"{kind.path}/namespaces/default" if kind.namespaced else kind.path
        path = f"{root}/{kind.plural}"
        body = object_of(kind, rng)
        if "create" in kind.verbs:
            self.send(
                "POST",
                path,
                rng.choice(["", "", "dryRun=All", "fieldValidation=Strict"]),
                body,
                "json",
            )
        name = body.get("metadata", {}).get("name", "a")
        for subresource in ("", *sorted(kind.subresources)):
            where = f"{path}/{name}" + (f"/{subresource}" if subresource else "")
            change = object_of(kind, rng)
            if subresource in ("", "status") or rng.random() < 0.3:
                self.send("PUT", where, "", change, "json")
                media = rng.choice(PATCHES)
                query = "fieldManager=m&force=true" if media.startswith("apply") else ""
                if media.startswith("apply"):
                    change["metadata"] = {"name": name}
                self.send("PATCH", where, query, change, media)
            elif subresource not in ("log", "exec", "attach", "portforward", "proxy"):
                self.send("POST", where, "", change, "json")
            self.send("GET", where, "", None, "json", rng.choice(FORMS))
        if "list" in kind.verbs:
            self.send("GET", path, rng.choice(QUERIES), None, "json", rng.choice(FORMS))
        if "deletecollection" in kind.verbs and kind.namespaced and rng.random() < 0.05:
            self.send("DELETE", path, rng.choice(["", "dryRun=All", *QUERIES]), None, "json")
        if "delete" in kind.verbs and name not in ("default", "kube-system"):
            policy = rng.choice(
                ["", "propagationPolicy=Foreground", "gracePeriodSeconds=0", "dryRun=All"]
            )
            self.send("DELETE", f"{path}/{name}", policy, None, "json")


def storm(rounds: int, seed: int) -> Counter[int]:
    found = Storm(seed)
    kinds = [kind for kind in Kinds.standard() if kind.verbs]
    assert len(kinds) > 60
    for _ in range(rounds):
        for kind in kinds:
            found.visit(kind)
    assert not found.defects, "\n\n".join(f"{what}\n  {how}" for what, how in found.defects.items())
    return found.statuses


def test_objects_of_every_kind_are_taken_or_refused() -> None:
    statuses = storm(2, seed=1)
    assert {200, 201, 404, 422} <= set(statuses)


@pytest.mark.conformance
@pytest.mark.parametrize("seed", range(2, 10))
def test_many_objects_of_every_kind_are_taken_or_refused(seed: int) -> None:
    statuses = storm(60, seed=seed)
    assert statuses.total() > 25_000  # 200,000 in all
