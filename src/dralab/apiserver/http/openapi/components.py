"""The schemas of a document: the definitions of its kinds, and all that they refer to.

OpenAPI 2 cannot express all schemas of custom resources. Source: k8s.io/apiextensions-apiserver
`pkg/controller/openapi/builder` and `pkg/controller/openapi/v2`; recorded documents.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.api.extended import EACH
from dralab.api.kinds import Kind
from dralab.api.schemas import OBJECT_META, Schemas, descriptions
from dralab.values.json_types import JsonDict, JsonObject

META: Final = "io.k8s.apimachinery.pkg.apis.meta.v1."
DELETE_OPTIONS: Final = META + "DeleteOptions"
STATUS: Final = META + "Status"
PATCH: Final = META + "Patch"
WATCH_EVENT: Final = META + "WatchEvent"
LIST_META: Final = META + "ListMeta"
POD: Final = "io.k8s.api.core.v1.Pod"
POD_LIST: Final = "io.k8s.api.core.v1.PodList"
CONVENTIONS: Final = (
    "https://git.k8s.io/community/contributors/devel/sig-architecture/api-conventions.md"
)
# What documents say of the fields of an object within a custom one.
EMBEDDED_VERSION: Final = (
    "apiVersion defines the versioned schema of this representation of an object. More info: "
    f"{CONVENTIONS}#resources"
)
EMBEDDED_KIND: Final = (
    "kind is a string value representing the type of this object. In CamelCase. More info: "
    f"{CONVENTIONS}#types-kinds"
)
# Names in a document that differ from those in the data file.
MARKS: Final = {
    "listType": "x-kubernetes-list-type",
    "listMapKeys": "x-kubernetes-list-map-keys",
    "mapType": "x-kubernetes-map-type",
    "mergeKey": "x-kubernetes-patch-merge-key",
}
PLAIN: Final = ("type", "format", "required", "default", "enum", "nullable")


class Components:
    """Collects definitions and what they refer to; `prefix` begins each reference.

    `composed`: a reference with more beside it is wrapped in allOf, as OpenAPI 3 wants it.
    """

    def __init__(self, prefix: str, *, composed: bool, release: str) -> None:
        self.prefix = prefix
        self.composed = composed
        self.schemas: dict[str, Any] = {}
        self._standard = Schemas.standard(release)
        self._texts = descriptions()
        self._types: dict[str, list[dict[str, str]]] = {}

    def add_kind(self, kind: Kind) -> str:
        """Add an object's definition and its list's; return the object's name."""
        if kind.custom is not None:
            return self._custom(kind)
        name = self._standard.name_of(kind.api_version, kind.kind)
        if name is None:
            return self._unknown(kind)
        self.add_definitions(name)
        for path, schema in kind.added.items():
            self._extend(name, path, schema)
        self._typed(name, kind.group, kind.version, kind.kind)
        listed = self._standard.name_of(kind.api_version, kind.list_kind)
        if listed is not None:
            self.add_definitions(listed)
            self._typed(listed, kind.group, kind.version, kind.list_kind)
        return name

    def add_type(self, api_version: str, kind: str) -> str | None:
        """Add the definition of a subresource's object; return its name, None without one."""
        name = self._standard.name_of(api_version, kind)
        if name is not None:
            group, _, version = api_version.rpartition("/")
            self.add_definitions(name)
            self._typed(name, group, version, kind)
        return name

    def add_definitions(self, *names: str) -> None:
        """Add definitions and all that they refer to."""
        rest = list(names)
        while rest:
            name = rest.pop()
            if name in self.schemas:
                continue
            raw = self._standard.shown(name)
            self.schemas[name] = self._definition(name, raw)
            rest.extend(references(raw))

    def reference(self, name: str) -> dict[str, str]:
        """Return a reference to a definition."""
        return {"$ref": self.prefix + name}

    def finished(self) -> dict[str, Any]:
        """Return the schemas by name, sorted."""
        for name, types in self._types.items():
            if name in self.schemas:
                self.schemas[name]["x-kubernetes-group-version-kind"] = types
        return dict(sorted(self.schemas.items()))

    def _typed(self, name: str, group: str, version: str, kind: str) -> None:
        type_ = {"group": group, "kind": kind, "version": version}
        known = self._types.setdefault(name, [])
        if type_ not in known:
            known.append(type_)

    def _definition(self, name: str, raw: JsonObject) -> dict[str, Any]:
        texts = self._texts.get(name, {})
        found = self._schema(raw)
        if texts.get(""):
            found["description"] = texts[""]
        for field, schema in found.get("properties", {}).items():
            if texts.get(field):
                schema["description"] = texts[field]
        return found

    def _schema(self, raw: JsonObject) -> dict[str, Any]:
        found: dict[str, Any] = {key: raw[key] for key in PLAIN if key in raw}
        found |= {mark: raw[key] for key, mark in MARKS.items() if key in raw}
        if "strategy" in raw:
            found["x-kubernetes-patch-strategy"] = ",".join(raw["strategy"])
        if raw.get("format") == "int-or-string":
            found["oneOf"] = [{"type": "integer"}, {"type": "string"}]
        elif raw.get("format") == "quantity":
            del found["format"], found["type"]
            found["oneOf"] = [{"type": "string"}, {"type": "number"}]
        if not self.composed and "oneOf" in found:
            # OpenAPI 2 has no alternatives; upstream names the one that always works.
            del found["oneOf"]
            found["type"] = "string"
        if raw.get("free"):
            found.pop("x-kubernetes-map-type", None)
            if raw.get("type") != "object":
                found["x-kubernetes-preserve-unknown-fields"] = True
        if "$ref" in raw:
            return self._referring(raw["$ref"], found)
        if "items" in raw:
            found["items"] = self._schema(raw["items"])
        if isinstance(raw.get("additionalProperties"), dict):
            found["additionalProperties"] = self._schema(raw["additionalProperties"])
        if "properties" in raw:
            found["properties"] = {
                field: self._field(schema) for field, schema in sorted(raw["properties"].items())
            }
        return found

    def _field(self, raw: JsonObject) -> dict[str, Any]:
        """Return a field's schema, with its description beside a reference."""
        if "$ref" in raw and self.composed:
            return {"allOf": [self.reference(raw["$ref"])]} | self._beside(raw)
        return self._schema(raw)

    def _beside(self, raw: JsonObject) -> dict[str, Any]:
        return self._schema({key: value for key, value in raw.items() if key != "$ref"})

    def _referring(self, name: str, beside: dict[str, Any]) -> dict[str, Any]:
        if beside and self.composed:
            return {"allOf": [self.reference(name)]} | beside
        return self.reference(name) | beside

    def _extend(self, name: str, path: Sequence[str], schema: JsonObject) -> None:
        """Add a field that this server has beyond those of Kubernetes, where a path leads."""
        holder = self.schemas[name]
        for part in path[:-1]:
            holder = self._resolved(holder["items"] if part == EACH else holder["properties"][part])
        holder["properties"] = dict(sorted({**holder["properties"], path[-1]: schema}.items()))

    def _resolved(self, schema: dict[str, Any]) -> dict[str, Any]:
        """Return the definition that a field refers to, or its own schema."""
        reference = schema.get("$ref") or (schema.get("allOf") or [{}])[0].get("$ref", "")
        found: dict[str, Any] = (
            self.schemas[reference.removeprefix(self.prefix)] if reference else schema
        )
        return found

    # --- custom resources -----------------------------------------------------------------

    def _custom(self, kind: Kind) -> str:
        name = definition_name(kind)
        custom = kind.custom if isinstance(kind.custom, Mapping) else {}
        schema = self._custom_schema((custom.get("schema") or {}).get("openAPIV3Schema") or {})
        selectable = [
            {"fieldPath": each["jsonPath"].removeprefix(".")}
            for each in custom.get("selectableFields") or ()
        ]
        marks = {"x-kubernetes-selectable-fields": selectable} if selectable else {}
        schema |= marks
        self.schemas[name] = schema
        self._typed(name, kind.group, kind.version, kind.kind)
        self.add_definitions(OBJECT_META, LIST_META)
        listed = f"{name}List"
        self.schemas[listed] = marks | {
            "type": "object",
            "description": f"{kind.list_kind} is a list of {kind.kind}",
            "required": ["items"],
            "properties": {
                **self._type_fields(),
                "metadata": self._referring(
                    LIST_META, {"description": self._texts[POD_LIST]["metadata"]}
                ),
                "items": {
                    "type": "array",
                    "items": self.reference(name),
                    "description": f"List of {kind.plural}. More info: {CONVENTIONS}",
                },
            },
        }
        self._typed(listed, kind.group, kind.version, kind.list_kind)
        return name

    def _custom_schema(self, given: JsonObject) -> dict[str, Any]:
        """Return what a document shows of the schema of a custom resource."""
        if not given or (keeps_unknown(given) and not self.composed):
            # More fields would make kubectl refuse all others.
            return {"type": "object"}
        schema = dict(given) if self.composed else in_openapi_2(given)
        texts = self._texts[POD]
        metadata = self._referring(OBJECT_META, {"description": texts["metadata"]})
        embedded = {
            "apiVersion": {"type": "string", "description": EMBEDDED_VERSION},
            "kind": {"type": "string", "description": EMBEDDED_KIND},
            "metadata": metadata,
        }
        schema["properties"] = {
            **(schema.get("properties") or {}),
            **self._type_fields(),
            "metadata": metadata,
        }
        return with_embedded(schema, embedded, all_of_them=self.composed)

    def _unknown(self, kind: Kind) -> str:
        name = definition_name(kind)
        self.schemas[name] = {
            "type": "object",
            "x-kubernetes-preserve-unknown-fields": True,
            "properties": {**self._type_fields(), "metadata": self.reference(OBJECT_META)},
        }
        self._typed(name, kind.group, kind.version, kind.kind)
        self.add_definitions(OBJECT_META)
        return name

    def _type_fields(self) -> dict[str, Any]:
        texts = self._texts[POD]
        return {
            field: {"type": "string", "description": texts[field]}
            for field in ("apiVersion", "kind")
        }


def references(raw: Any) -> Iterable[str]:
    """Yield the names of the definitions that a schema refers to."""
    if isinstance(raw, Mapping):
        if isinstance(raw.get("$ref"), str):
            yield raw["$ref"]
        for value in raw.values():
            yield from references(value)


def definition_name(kind: Kind) -> str:
    """Return the name of a custom resource's definition: its group is written backwards.

    >>> definition_name(
    ...     Kind(
    ...         group="example.com",
    ...         version="v1",
    ...         kind="Foo",
    ...         plural="foos",
    ...         namespaced=True,
    ...         singular="foo",
    ...     )
    ... )
    'com.example.v1.Foo'
    """
    group = ".".join(reversed(kind.group.split(".")))
    return f"{group}.{kind.version}.{kind.kind}"


KEEPS: Final = "x-kubernetes-preserve-unknown-fields"
EMBEDDED: Final = "x-kubernetes-embedded-resource"
# OpenAPI 2 has neither alternatives nor null, and clients would apply its defaults.
NOT_IN_2: Final = frozenset({"allOf", "anyOf", "oneOf", "not", "nullable", "default"})


def keeps_unknown(schema: JsonObject) -> bool:
    """Return whether a schema keeps fields that it does not name."""
    return bool(schema.get(KEEPS))


def in_openapi_2(schema: JsonObject) -> JsonDict:
    """Return a schema as OpenAPI 2 can have it.

    kubectl takes every field for unknown that is not named. So what may be null, or keeps unknown
    fields, names none and has no type.

    >>> in_openapi_2({"type": "array", "nullable": True, "items": {"type": "string"}})
    {}
    """
    found = {key: value for key, value in schema.items() if key not in NOT_IN_2}
    if schema.get("nullable") or keeps_unknown(schema):
        found.pop("items", None)
        found.pop("properties", None)
    untyped = schema.get("nullable") or (keeps_unknown(schema) and found.get("type") == "object")
    if untyped or (found.get("type") == "array" and "items" not in found):
        found.pop("type", None)
    properties: Mapping[str, JsonObject] = found.get("properties") or {}
    of_others = found.get("additionalProperties")
    required = [
        field
        for field in found.get("required") or ()
        if not (properties.get(field) or {}).get("nullable")
    ]
    if not required or (isinstance(of_others, Mapping) and of_others.get("nullable")):
        found.pop("required", None)
    else:
        found["required"] = required
    return _below(found, in_openapi_2)


def with_embedded(schema: JsonObject, fields: Mapping[str, Any], *, all_of_them: bool) -> JsonDict:
    """Return a schema in which embedded objects have an object's own `fields`.

    Unless `all_of_them`, those do not that keep unknown fields.
    """
    found = _below(schema, lambda below: with_embedded(below, fields, all_of_them=all_of_them))
    if not found.get(EMBEDDED) or (keeps_unknown(found) and not all_of_them):
        return found
    found["properties"] = {**(found.get("properties") or {}), **fields}
    required = list(found.get("required") or ())
    found["required"] = [
        *required, *(field for field in ("kind", "apiVersion") if field not in required)
    ]  # fmt: skip
    return found


def _below(schema: JsonObject, change: Callable[[JsonObject], JsonDict]) -> JsonDict:
    """Return a schema with the schemas in it changed."""
    found = dict(schema)
    if found.get("properties"):
        found["properties"] = {field: change(below) for field, below in found["properties"].items()}
    for part in ("items", "additionalProperties"):
        if isinstance(found.get(part), Mapping):
            found[part] = change(found[part])
    return found
