"""Requests made from the server's own OpenAPI document: valid, nearly valid and hostile.

`Api` reads the operations from `/openapi/v3`; `Requests` makes requests of a seed, over what the
server has accepted so far. What an answer has to be is left to `test_schema_requests`.
"""

import json
import random
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple
from urllib.parse import quote

from dralab.apiserver.protobuf.encoding import encode
from reliability.odd_values import ODD, odd_bytes, odd_object, odd_text
from reliability.valid_objects import NAMES as REQUIRED_NAMES
from reliability.valid_objects import VALID

NAMESPACES = ("default", "other", "gone")
NAMES = ("a", "b", "c", "web-0")
JSON = "application/json"
YAML = "application/yaml"
PROTOBUF = "application/vnd.kubernetes.protobuf"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"
PATCHES = (
    JSON_PATCH,
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    APPLY,
)
ACCEPTS = (
    *[JSON] * 30, "*/*", YAML, PROTOBUF, "application/json;as=Table;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
    "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io",
    "application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io",
    "application/yaml;as=Table;v=v1;g=meta.k8s.io", "text/html", "x", "",
)  # fmt: skip
# Words of a description that may be values: `"Always"`, "- ExactCount: …".
QUOTED = re.compile(
    r'["`\'“]([A-Za-z0-9][A-Za-z0-9./_-]{0,40})["`\'”]|^- ([A-Z][A-Za-z]+)\b', re.MULTILINE
)
TEXTS = ("a", "b", "c", "web-0", "x.io/y", "x.io", "10.0.0.1", "10.0.0.0/24", "nginx:1", "/var", "true", "Never")  # fmt: skip
FORMATS: dict[str, tuple[Any, ...]] = {
    "quantity": ("1", "500m", "1Gi", 2),
    "int-or-string": (0, 80, "25%", "http"),
    "date-time": ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456Z"),
    "byte": ("YQ==", ""),
    "int32": (0, 1, 2, 80, 5, 30),
    "int64": (0, 1, 2, 30, 3600),
}
# Fields that mean the same everywhere, so that more objects are valid.
WORDS: dict[str, tuple[Any, ...]] = {
    "image": ("nginx:1",),
    "matchLabels": ({"a": "b"},),
    "labels": ({"a": "b"}, {"a": "b", "x.io/y": "z"}),
    "annotations": ({"x.io/note": "n"},),
    "expression": ("true", "object.metadata.name != 'x'", "device.driver == 'x.io'", "1 +"),
    "protocol": ("TCP", "UDP"),
    "port": (80, 443),
    "containerPort": (80,),
    "apiGroup": ("", "apps", "rbac.authorization.k8s.io"),
    "verbs": (["get", "list"], ["*"]),
    "uid": ("", "11111111-2222-3333-4444-555555555555"),
    "schedule": ("*/5 * * * *",),
    "generation": (1,),
    "managedFields": ([],),
    "ownerReferences": ([],),
    "finalizers": (["x.io/wait"], [], ["foregroundDeletion"]),
    "deletionTimestamp": (None,),
    "resourceVersion": ("", "1"),
    "dryRun": (["All"], []),
}


PARAMETERS = {
    "dryRun": ("All",),
    "fieldValidation": ("Strict", "Warn", "Ignore"),
    "propagationPolicy": ("Orphan", "Background", "Foreground"),
    "labelSelector": ("a=b", "a in (b,c)", "!a", "a!=b,x.io/y", "a>1", "a in ("),
    "fieldSelector": ("metadata.name=a", "spec.nodeName=", "x=y", "status.phase!=x"),
    "resourceVersion": ("0", "1", "10", "9" * 12, "-1"),
    "resourceVersionMatch": ("Exact", "NotOlderThan"),
    "continue": ("eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6MSwic3RhcnQiOiJhIn0", "x"),
}
# How often operations are chosen: most are reads, and most of the code is behind writes.
WEIGHTS = {"post": 10, "put": 3, "patch": 5, "delete": 1, "deletecollection": 0.3, "connect": 0.5}
READ = 0.6


class Request(NamedTuple):
    """What is sent, and what it was meant to be."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes | None
    operation: "Operation"


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one path in the document."""

    method: str
    path: str
    action: str
    query: tuple[tuple[str, str], ...]  # names and types
    kind: tuple[str, str, str]  # group, version, kind
    schema: Mapping[str, Any] | None  # of the body
    schemas: Mapping[str, Any] = field(repr=False)

    @property
    def collection(self) -> str:
        """The path of the collection that the objects are in."""
        return self.path.partition("/{name}")[0]

    @property
    def subresource(self) -> str:
        """What follows the name of the object."""
        return self.path.partition("/{name}")[2].strip("/")


def operations(get: Callable[[str], Any]) -> Iterator[Operation]:
    """Yield all operations of a server's documents; `get` returns the JSON at a path."""
    for name in sorted(get("/openapi/v3")["paths"]):
        document = get(f"/openapi/v3/{name}")
        schemas = document.get("components", {}).get("schemas", {})
        for path, methods in sorted(document["paths"].items()):
            for method, told in sorted(methods.items()):
                if method == "parameters":
                    continue
                parameters = [*methods.get("parameters", ()), *told.get("parameters", ())]
                contents = told.get("requestBody", {}).get("content", {})
                gvk = told.get("x-kubernetes-group-version-kind", {})
                yield Operation(
                    method=method.upper(),
                    path=path,
                    action=told.get("x-kubernetes-action", ""),
                    query=tuple(
                        (each["name"], each["schema"].get("type", "string"))
                        for each in parameters
                        if each["in"] == "query"
                    ),
                    kind=(gvk.get("group", ""), gvk.get("version", ""), gvk.get("kind", "")),
                    schema=next((each["schema"] for each in contents.values()), None),
                    schemas=schemas,
                )


@cache
def words_of(description: str) -> tuple[str, ...]:
    """Return words of a description that may be values of its field."""
    return tuple(dict.fromkeys(one or other for one, other in QUOTED.findall(description)))


class Requests:
    """Requests by chance; `accepted` are objects that the server has stored, by collection."""

    def __init__(self, every: list[Operation], chance: random.Random) -> None:
        self.every = every
        self.weights = [*accumulate(WEIGHTS.get(each.action, READ) for each in every)]
        self.chance = chance
        self.accepted: dict[str, list[dict[str, Any]]] = {}
        self.objects = {each.kind: each for each in every if each.action == "post"}

    def next(self) -> Request:
        """Return the next request."""
        chance = self.chance
        [operation] = chance.choices(self.every, cum_weights=self.weights)
        method = operation.method
        if chance.random() < 0.02:
            method = chance.choice(("GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"))
        path = operation.path
        namespace, name = chance.choice(NAMESPACES[:2]), self._name(operation)
        if chance.random() < 0.03:
            namespace, name = chance.choice(("gone", odd_text(chance))), odd_text(chance)
        path = path.replace("{namespace}", quote(namespace, safe=""))
        path = path.replace("{name}", quote(name, safe=""))
        path = path.replace("{path}", quote(chance.choice(("a", "a/b", odd_text(chance)))))
        headers = {"accept": chance.choice(ACCEPTS), "user-agent": "requests"}
        if chance.random() < 0.05:
            headers["impersonate-user"] = chance.choice(("jane", "system:node:n", "", "é"))
            headers["impersonate-group"] = chance.choice(("system:nodes", "system:masters", "x"))
        body = None
        with_body = 0.4 if operation.method == "DELETE" else 0.97
        if operation.schema is not None and chance.random() < with_body:
            body, headers["content-type"] = self._body(operation, namespace, name)
        query = self._query(operation)
        if operation.kind[2] == "APIService" and operation.method != "GET":
            # It is looked for at once, and what is found is written to it.
            query = "dryRun=All"
        return Request(method, path, query, headers, body, operation)

    def keep(self, operation: Operation, obj: dict[str, Any]) -> None:
        """Remember an object that was stored."""
        kept = self.accepted.setdefault(operation.collection, [])
        if len(kept) >= 6:
            kept.pop(self.chance.randrange(6))
        kept.append(obj)

    def _name(self, operation: Operation) -> str:
        kept = self.accepted.get(operation.collection)
        if kept and self.chance.random() < 0.8:
            return str(self.chance.choice(kept)["metadata"]["name"])
        return self.chance.choice(NAMES)

    # --- queries

    def _query(self, operation: Operation) -> str:
        chance = self.chance
        pairs = []
        for name, kind in operation.query:
            if name in ("watch", "timeoutSeconds", "follow") or chance.random() > 0.15:
                continue
            pairs.append((name, self._parameter(name, kind)))
        if operation.action in ("list", "watch", "watchlist") and chance.random() < 0.2:
            pairs.append(("watch", chance.choice(("1", "true", "x", ""))))
        if operation.method == "PATCH" and chance.random() < 0.7:
            pairs.append(("fieldManager", chance.choice(("m", "n", "kubectl", "x" * 130))))
            pairs.append(("force", chance.choice(("true", "false", "x"))))
        if chance.random() < 0.02:
            pairs.append((odd_text(chance), odd_text(chance)))
        return "&".join(f"{quote(name)}={quote(value)}" for name, value in pairs)

    def _parameter(self, name: str, kind: str) -> str:
        chance = self.chance
        if chance.random() < 0.1:
            return odd_text(chance)
        if name in PARAMETERS:
            return chance.choice(PARAMETERS[name])
        if kind == "integer":
            return chance.choice(("0", "1", "30", "-1", "9" * 20))
        if kind == "boolean":
            return chance.choice(("true", "false", "1", "x"))
        return chance.choice(("a", "m", "n", "x" * 100))

    # --- bodies

    def _body(self, operation: Operation, namespace: str, name: str) -> tuple[bytes, str]:
        """Return a body and its Content-Type."""
        chance = self.chance
        if operation.method == "PATCH":
            return self._patch(operation, namespace, name)
        value = self._object(operation, namespace, name)
        if chance.random() < 0.25:
            value = odd_object(value, chance)
        content, media = json.dumps(value).encode(), JSON
        draw = chance.random()
        if draw < 0.06:
            media = YAML
        elif draw < 0.12 and isinstance(value, dict):
            content, media = self._protobuf(value, content)
        elif draw < 0.14:
            media = chance.choice(("text/plain", "", "application/json; charset=utf-8", "x/y;;="))
        if chance.random() < 0.06:
            content = odd_bytes(content, chance)
        return content, media

    def _protobuf(self, value: dict[str, Any], content: bytes) -> tuple[bytes, str]:
        try:
            return encode(value), PROTOBUF
        except Exception:  # noqa: BLE001 - what is not an object has no such form
            return content, JSON

    def _object(self, operation: Operation, namespace: str, name: str) -> Any:
        """Return an object that an operation takes, as valid as the document makes it."""
        chance = self.chance
        kept = self.accepted.get(operation.collection)
        taken = operation.action == "post" and operation.subresource == ""
        if kept and chance.random() < (0.3 if taken else 0.85):
            value = json.loads(json.dumps(chance.choice(kept)))
            if taken:
                value["metadata"] = {"name": chance.choice(NAMES)}
            elif chance.random() < 0.7:  # change a part of it
                made = Maker(operation, chance).value(operation.schema, "", 0)
                if isinstance(made, dict) and (parts := sorted(made.keys() - {"metadata"})):
                    part = chance.choice(parts)
                    value[part] = made[part]
                value["metadata"].pop("resourceVersion", None)
            return value
        value = Maker(operation, chance).value(operation.schema, "", 0)
        if isinstance(value, dict):
            group, version, kind = operation.kind
            if operation.method == "DELETE":
                value = {
                    key: value[key] for key in chance.sample(sorted(value), min(2, len(value)))
                }
                return {**value, "apiVersion": "v1", "kind": "DeleteOptions"}
            if kind:
                value["apiVersion"] = f"{group}/{version}".lstrip("/")
                value["kind"] = kind
            if kind in VALID and chance.random() < 0.7:
                few = chance.sample(sorted(value), min(len(value), chance.randint(0, 2)))
                value = {key: value[key] for key in few}
                value |= {"apiVersion": f"{group}/{version}".lstrip("/"), "kind": kind}
                value |= json.loads(json.dumps(VALID[kind]))
                value.setdefault("metadata", {})
            if isinstance(value.get("metadata"), dict):
                value["metadata"]["name"] = (
                    name if not taken else REQUIRED_NAMES.get(kind) or chance.choice(NAMES)
                )
                if "{namespace}" in operation.path:
                    value["metadata"]["namespace"] = namespace
                else:
                    value["metadata"].pop("namespace", None)
        return value

    def _patch(self, operation: Operation, namespace: str, name: str) -> tuple[bytes, str]:
        chance = self.chance
        media = chance.choice(PATCHES)
        # The schema of a patch says nothing; that of the object does.
        of_object = self.objects.get(operation.kind)
        value: Any
        if of_object is None:
            value = {"metadata": {"labels": {"a": "b"}}}
        else:
            value = self._object(of_object, namespace, name)
        if isinstance(value, dict) and media != APPLY:
            kept = chance.sample(sorted(value), min(len(value), chance.randint(1, 2)))
            value = {key: value[key] for key in kept}
            if isinstance(value.get("metadata"), dict):
                value["metadata"].pop("name", None)
                value["metadata"].pop("namespace", None)
        elif isinstance(value, dict) and isinstance(value.get("metadata"), dict):
            value["metadata"] = {"name": name, "labels": {"a": "b"}}
        if media == JSON_PATCH:
            value = list(self._steps(value))
        elif media == PATCHES[2] and chance.random() < 0.3:
            value = self._with_directives(value)
        if chance.random() < 0.35:
            value = odd_object(value, chance)
        content = json.dumps(value).encode()
        if chance.random() < 0.04:
            content = odd_bytes(content, chance)
        if chance.random() < 0.04:
            media = chance.choice((JSON, "application/nonsense", "", YAML))
        return content, media

    def _steps(self, value: Any) -> Iterator[dict[str, Any]]:
        """Yield the steps of a JSON patch that writes parts of a value."""
        chance = self.chance
        paths = list(_paths(value))
        for _ in range(chance.randint(0, 3)):
            path, part = chance.choice(paths)
            step = {"op": chance.choice(("add", "replace", "remove", "test", "copy", "move"))}
            step["path"] = path if chance.random() < 0.9 else chance.choice(("/-", "x", "/a~2", ""))
            if step["op"] in ("copy", "move"):
                step["from"] = chance.choice(paths)[0]
            elif step["op"] != "remove":
                step["value"] = part if chance.random() < 0.8 else chance.choice(ODD)
            yield step

    def _with_directives(self, value: Any) -> Any:
        """Return a patch with a directive of strategic merge somewhere in it."""
        chance = self.chance
        if isinstance(value, dict) and value:
            key = chance.choice(sorted(value))
            if isinstance(value[key], (dict, list)) and chance.random() < 0.7:
                value[key] = self._with_directives(value[key])
            else:
                directive, given = chance.choice(
                    (
                        ("$patch", "delete"), ("$patch", "replace"), ("$patch", "merge"),
                        ("$patch", "x"), ("$retainKeys", [key]), ("$retainKeys", 1),
                        (f"$setElementOrder/{key}", [{"name": "a"}]),
                        (f"$deleteFromPrimitiveList/{key}", ["a"]),
                    )
                )  # fmt: skip
                value[directive] = given
        elif isinstance(value, list):
            value.append(chance.choice(({"$patch": "delete", "name": "a"}, {"$patch": "replace"})))
        return value


class Maker:
    """Values that a schema of the document allows."""

    def __init__(self, operation: Operation, chance: random.Random) -> None:
        self.schemas = operation.schemas
        self.chance = chance
        self.more = chance.choice((0.02, 0.1, 0.3))  # how many optional fields there are

    def value(self, schema: Mapping[str, Any] | None, name: str, depth: int) -> Any:
        """Return a value for a field of that name."""
        chance = self.chance
        schema = self._resolved(schema or {})
        if name in WORDS and chance.random() < 0.8:
            return json.loads(json.dumps(chance.choice(WORDS[name])))
        if (made := FORMATS.get(schema.get("format", ""))) is not None:
            return chance.choice(made)
        if "oneOf" in schema:
            return chance.choice((0, 1, "10%", "1Gi"))
        match schema.get("type"):
            case "object":
                return self._struct(schema, depth)
            case "array":
                count = chance.choice((1, 1, 2)) if depth < 10 else 0
                return [self.value(schema.get("items"), "", depth + 1) for _ in range(count)]
            case "integer":
                return chance.choice((0, 1, 2, 80))
            case "number":
                return 0.5
            case "boolean":
                return chance.random() < 0.5
            case "string":
                return self._text(schema, name)
        return chance.choice(({}, {"a": "b"}, [], "a", 1))

    def _struct(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        chance = self.chance
        if (values := schema.get("additionalProperties")) is not None:
            inner = values if isinstance(values, dict) else {}
            return {key: self.value(inner, "", depth + 1) for key in chance.sample(TEXTS[:5], 1)}
        found = {}
        required = schema.get("required", ())
        for name, part in schema.get("properties", {}).items():
            likely = 1.0 if name in required else 0.9 if depth == 0 else self.more
            if name in ("status", "managedFields") and depth == 0:
                likely = 0.2
            if depth < 12 and chance.random() < likely:
                found[name] = self.value(part, name, depth + 1)
        return found

    def _text(self, schema: Mapping[str, Any], name: str) -> str:
        chance = self.chance
        if enum := schema.get("enum"):
            return str(chance.choice(enum))
        if name in ("name", "namespace") or name.endswith("Name"):
            return chance.choice(NAMES)
        if (words := words_of(schema.get("description", ""))) and chance.random() < 0.7:
            return chance.choice(words)
        return chance.choice(TEXTS)

    def _resolved(self, schema: Mapping[str, Any]) -> Mapping[str, Any]:
        description = schema.get("description")
        for part in schema.get("allOf", ()):
            schema = part
        while "$ref" in schema:
            schema = self.schemas[schema["$ref"].rpartition("/")[2]]
        return {**schema, "description": description} if description else schema


def _paths(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the JSON pointers of a value, with what is there."""
    yield path, value
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _paths(inner, f"{path}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _paths(inner, f"{path}/{index}")
