"""Validates the objects of a custom resource: by its schema, and its rules in CEL.

Source: k8s.io/apiextensions-apiserver `pkg/registry/customresource`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import orjson

from dralab.api import fields, schemas, structural
from dralab.api.core.definitions import DefinitionStrategy
from dralab.api.core.schema_formats import format_warnings
from dralab.api.decoding import Decoder
from dralab.api.fields import FieldError
from dralab.api.metadata import finalizer_warnings
from dralab.api.scalar_decoding import DecodingError
from dralab.api.schemas import OBJECT_META, Schema, Schemas
from dralab.api.status import ApiError
from dralab.api.strategy import ScalePaths, Strategy
from dralab.apiserver.made_once import made_once
from dralab.values.go_text import go_value
from dralab.values.json_types import JsonDict

# What is so wrong that rules cannot be evaluated (upstream's hasBlockingErr).
BLOCKING: Final = frozenset(
    {
        "FieldValueNotSupported", "FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany",
        "FieldValueTypeInvalid",
    }
)  # fmt: skip
MOST_REPLICAS: Final = 2**31 - 1
GO_TYPES: Final[Mapping[type, str]] = {
    int: "int64", float: "float64", bool: "bool", str: "string", type(None): "<nil>",
    dict: "map[string]interface {}", list: "[]interface {}",
}  # fmt: skip
UNCHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)
ITEM: Final = 2  # bytes of an item over which a rule loops: a digit and a comma
EVALUATED: Final = 32  # bytes of JSON that take as long as the innermost part of a rule
RULE: Final = 2  # times as long as reading a value takes to evaluate one rule
BOUNDED: Final = 16 * 1024 * 1024  # bytes of JSON that take as long as rules of the highest cost
LOOP: Final = re.compile(
    r"\b(?:all|exists|exists_one|existsOne|map|filter|transform\w+|sortBy)\s*\("
)
FREE: Final[Mapping[str, Any]] = {
    "type": "object",
    "x-kubernetes-preserve-unknown-fields": True,
}
TYPE_FIELDS: Final[Mapping[str, Any]] = {
    "apiVersion": {"type": "string"},
    "kind": {"type": "string"},
    "metadata": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


class CustomStrategy(Strategy):
    """The rules of one custom resource, for all of its versions.

    `versions` are the entries of `spec.versions` of the definition, by name.
    """

    unconditional = False
    status_keeps = frozenset()

    def __init__(self, versions: Mapping[str, Mapping[str, Any]]) -> None:
        self.versions = dict(versions)
        self.ending = False  # the definition is being deleted

    # Made with the first object of the kind: of those that are there at the start, few are used.
    @made_once
    def raw(self) -> Mapping[str, Mapping[str, Any]]:
        """The whole schemas of all versions."""
        return {name: _whole(_schema_of(each)) for name, each in self.versions.items()}

    @made_once
    def _schemas(self) -> Mapping[str, Schema]:
        return {name: schemas.custom(_schema_of(each)) for name, each in self.versions.items()}

    @made_once
    def _efforts(self) -> Mapping[str, tuple[float, float, int]]:
        return {
            name: (structural.effort(raw), _rules_effort(raw), _loops(raw))
            for name, raw in self.raw.items()
        }

    def effort(self, size: int, version: str) -> int:
        """Return how many bytes of JSON take as long to read as `size` bytes take to check.

        A rule with loops is evaluated for each item, or for each pair of items and so on; its costs
        are bounded.
        """
        schema, rules, loops = self._efforts.get(version, (1.0, 0.0, 0))
        looped = EVALUATED * (size // ITEM) ** min(loops, 4) if loops > 1 else 0
        return int(size * schema) + min(int(size * rules) + looped, BOUNDED)

    def schema(self, version: str) -> Schema | None:
        """Return the schema of a version, for managed fields."""
        return self._schemas.get(version)

    def decode(self, value: JsonDict, version: str) -> tuple[JsonDict, list[str]] | None:
        """Return the object without the fields that its schema does not know."""
        unknown: list[str] = []
        meta = value.get("metadata")
        if meta is not None:
            if not isinstance(meta, dict):
                raise DecodingError(
                    "json: cannot unmarshal "
                    f"{'array' if isinstance(meta, list) else 'string'} into Go struct field "
                    ".metadata of type v1.ObjectMeta"
                )
            value["metadata"], wrong = _metadata().decode(meta)
            unknown += [f"metadata.{path}" for path in wrong]
        raw = self.raw.get(version)
        if raw is not None:
            unknown += structural.prune(raw, value)
        return value, unknown

    def default(self, value: JsonDict) -> None:
        """Fill in the defaults of the schema."""
        raw = self.raw.get(value["apiVersion"].rpartition("/")[2])
        if raw is not None:
            try:
                structural.apply_defaults(raw, value)
            except structural.TooManyDefaultsError as error:
                raise ApiError(
                    "RequestEntityTooLarge", f"the object is too large: {error}"
                ) from None

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Warn of new finalizers without a domain."""
        return finalizer_warnings(value["metadata"], (old or {}).get("metadata") or {})

    def creation_refusal(self) -> str:
        """Return the reason to refuse creations now; empty if none."""
        if not self.ending:
            return ""
        return "create not allowed while custom resource definition is terminating"

    def reads_like(self, other: "CustomStrategy") -> bool:
        """Whether stored objects are read with the same schemas as with other rules."""
        return self.raw == other.raw

    def updated(self, value: JsonDict) -> JsonDict:
        """Return a stored object without what the schema does not know, and with its defaults."""
        raw = self.raw.get(value["apiVersion"].rpartition("/")[2])
        if raw is None:
            return value
        found: JsonDict = orjson.loads(orjson.dumps(value))
        structural.prune(raw, found)
        self.default(found)
        return found

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop the status where it has its own path."""
        if value.get("status") == {}:
            del value["status"]

    def scale_paths(self, version: str) -> ScalePaths:
        """Return the path of the replicas, from the definition."""
        scale = ((self.versions.get(version) or {}).get("subresources") or {}).get("scale") or {}
        return ScalePaths(
            spec=_path(scale.get("specReplicasPath", ".spec.replicas")),
            status=_path(scale.get("statusReplicasPath", ".status.replicas")),
            selector=_path(scale.get("labelSelectorPath", "")),
        )

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a new object."""
        return self._errors(value, None, ("spec", "status"))

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a change."""
        return self._errors(new, old, ("spec", "status"))

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a change of the status."""
        return self._errors(new, old, ("status",))

    def _scale_errors(self, value: JsonDict, parts: Sequence[str]) -> Iterator[FieldError]:
        """Yield the errors of the numbers that the scale of an object has, by the parts.

        Source: k8s.io/apiextensions-apiserver `pkg/registry/customresource/validator.go`.
        """
        version = value["apiVersion"].rpartition("/")[2]
        scale = ((self.versions.get(version) or {}).get("subresources") or {}).get("scale")
        if not scale:
            return
        for part in parts:
            path = scale[f"{part}ReplicasPath"]
            number, why = _nested(value, _path(path), int)
            if why:
                yield fields.invalid_value(path, 0, why)
            elif number is not None and number < 0:
                yield fields.invalid_value(path, number, "should be a non-negative integer")
            elif number is not None and number > MOST_REPLICAS:
                why = f"should be less than or equal to {MOST_REPLICAS}"
                yield fields.invalid_value(path, number, why)
        if "status" in parts and (path := scale.get("labelSelectorPath")):
            _, why = _nested(value, _path(path), str)
            if why:
                yield fields.invalid_value(path, "", why)

    def _errors(
        self, value: JsonDict, old: JsonDict | None, parts: Sequence[str]
    ) -> list[FieldError]:
        raw = self.raw.get(value["apiVersion"].rpartition("/")[2])
        if raw is None:
            return list(self._scale_errors(value, parts))
        found = sorted(structural.errors(raw, value), key=lambda error: error.field)
        if parts == ("status",):
            # The status alone is judged then, and named without what it is in.
            found = [_within("status.", error) for error in found]
        if old is not None:
            found = [error for error in found if not _was_so(error.field, value, old)]
        found += self._scale_errors(value, parts)
        if not _has_rules(raw):
            return found
        if any(error.reason in BLOCKING for error in found):
            return [*found, fields.invalid_value("<nil>", None, UNCHECKED)]
        from dralab.apiserver.verbs.kinds.custom_expressions import broken_rules

        return [*found, *broken_rules(raw, value, old, "")]


def _within(holder: str, error: FieldError) -> FieldError:
    if not error.field.startswith(holder):
        return error
    detail = error.detail.replace(f"{error.field} in body", f"{error.field[len(holder) :]} in body")
    return replace(error, detail=detail)


def _nested(value: JsonDict, path: tuple[str, ...], wanted: type) -> tuple[Any, str]:
    """Return a value below an object, or None, and an error if it cannot be read."""
    found: Any = value
    for at, name in enumerate(path):
        if not isinstance(found, dict):
            above = ".".join(path[:at])
            shown = f"{go_value(found)} is of the type {GO_TYPES.get(type(found), 'string')}"
            return None, f".{above} accessor error: {shown}, expected map[string]interface {{}}"
        if name not in found:
            return None, ""
        found = found[name]
    if type(found) is wanted:
        return found, ""
    said = GO_TYPES.get(type(found), "string")
    shown = f".{'.'.join(path)} accessor error: {go_value(found)} is of the type {said}"
    return None, f"{shown}, expected {GO_TYPES[wanted]}"


def _was_so(path: str, value: JsonDict, old: JsonDict) -> bool:
    """Whether an error at a path existed before: a change need not fix it.

    Items of a list are not told apart: it is the same if the whole list is. Source:
    k8s.io/apiextensions-apiserver `pkg/apiserver/validation/ratcheting.go`.
    """
    new: Any = value
    before: Any = old
    for part in path.partition("[")[0].split("."):
        if not isinstance(new, dict) or not isinstance(before, dict) or part not in before:
            return False
        new, before = new.get(part), before[part]
        if new == before:
            return True
    return False


def _path(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def _schema_of(version: Mapping[str, Any]) -> Any:
    return (version.get("schema") or {}).get("openAPIV3Schema")


def _whole(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a schema with the fields that every object has."""
    schema = given or FREE
    return {**schema, "properties": {**(schema.get("properties") or {}), **TYPE_FIELDS}}


@lru_cache(maxsize=1)
def _metadata() -> Decoder:
    return Decoder(Schemas.standard().definition(OBJECT_META), "ObjectMeta")


def _rules_effort(schema: Any) -> float:
    """Return the additional effort of a schema's rules: each level is converted for CEL once."""
    if not isinstance(schema, Mapping):
        return 0
    rules = schema.get("x-kubernetes-validations") or ()
    parts = [*(schema.get("properties") or {}).values(), schema.get("items")]
    parts.append(schema.get("additionalProperties"))
    own = 2 + RULE * len(rules) if rules else 0
    return own + max(map(_rules_effort, parts), default=0)


def _loops(schema: Any) -> int:
    """Return the maximal depth of loops in one rule."""
    if not isinstance(schema, Mapping):
        return 0
    rules = schema.get("x-kubernetes-validations") or ()
    own = [
        len(LOOP.findall(str(rule.get("rule")) + str(rule.get("messageExpression"))))
        for rule in rules
    ]
    parts = [*(schema.get("properties") or {}).values(), schema.get("items")]
    parts.append(schema.get("additionalProperties"))
    return max([*own, *map(_loops, parts)], default=0)


def _has_rules(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    if schema.get("x-kubernetes-validations"):
        return True
    parts = [*(schema.get("properties") or {}).values(), schema.get("items")]
    return any(map(_has_rules, parts)) or _has_rules(schema.get("additionalProperties"))


class CheckedDefinitions(DefinitionStrategy):
    """Definitions, whose rules in CEL must compile and must not cost too much."""

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Warn of formats that are not known."""
        return format_warnings(value["spec"], (old or {}).get("spec") or {})

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a definition."""
        return super().validate(value) + self._rule_errors(value, ())

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a change; schemas that do not change may stay as they are."""
        found = super().validate_update(new, old)
        return found + self._rule_errors(new, old["spec"].get("versions") or ())

    def _rule_errors(
        self, value: JsonDict, before: Sequence[Mapping[str, Any]]
    ) -> list[FieldError]:
        versions = value["spec"].get("versions") or ()
        if not any(
            _has_rules((each.get("schema") or {}).get("openAPIV3Schema")) for each in versions
        ):
            return []
        from dralab.apiserver.verbs.kinds.rule_checks import rule_errors

        return list(rule_errors(versions, before))
