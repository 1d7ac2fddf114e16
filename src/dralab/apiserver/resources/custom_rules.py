"""What the objects of a custom resource must be: its schema, and its rules in CEL.

Source: k8s.io/apiextensions-apiserver `pkg/registry/customresource`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from dralab import cel
from dralab.api import fields, schemas, structural
from dralab.api.core.definitions import DefinitionStrategy
from dralab.api.decoding import Decoder, DecodingError
from dralab.api.fields import OMITTED, FieldError
from dralab.api.schemas import OBJECT_META, Schema, Schemas
from dralab.api.strategy import ScalePaths, Strategy
from dralab.cel import types
from dralab.cel.values import Map

Object = dict[str, Any]
UNCHECKED: Final = (
    "some validation rules were not checked because the object was invalid; correct the existing "
    "errors to complete validation"
)
OLD: Final = re.compile(r"\boldSelf\b")
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
        self._raw: dict[str, Mapping[str, Any]] = {}
        self._schemas: dict[str, Schema] = {}
        for name, version in versions.items():
            given = (version.get("schema") or {}).get("openAPIV3Schema")
            self._raw[name] = _whole(given)
            self._schemas[name] = schemas.custom(given)

    def schema(self, version: str) -> Schema | None:
        """Return the schema of a version, for managed fields."""
        return self._schemas.get(version)

    def decode(self, value: Object, version: str) -> tuple[Object, list[str]] | None:
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
        raw = self._raw.get(version)
        if raw is not None:
            unknown += structural.prune(raw, value)
        return value, unknown

    def default(self, value: Object) -> None:
        """Fill in the defaults of the schema."""
        raw = self._raw.get(value["apiVersion"].rpartition("/")[2])
        if raw is not None:
            structural.apply_defaults(raw, value)

    def prepare_create(self, value: Object, now: str) -> None:  # noqa: ARG002
        """Drop the status where it has a path of its own."""
        if value.get("status") == {}:
            del value["status"]

    def scale_paths(self, version: str) -> ScalePaths:
        """Return where the definition says that the replicas are."""
        scale = ((self.versions.get(version) or {}).get("subresources") or {}).get("scale") or {}
        return ScalePaths(
            spec=_path(scale.get("specReplicasPath", ".spec.replicas")),
            status=_path(scale.get("statusReplicasPath", ".status.replicas")),
            selector=_path(scale.get("labelSelectorPath", "")),
        )

    def validate(self, value: Object) -> list[FieldError]:
        """Return what is wrong with a new object."""
        return self._errors(value, None)

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:
        """Return what is wrong with a change."""
        return self._errors(new, old)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:
        """Return what is wrong with a change of the status."""
        return self._errors(new, old)

    def _errors(self, value: Object, old: Object | None) -> list[FieldError]:
        raw = self._raw.get(value["apiVersion"].rpartition("/")[2])
        if raw is None:
            return []
        found = sorted(structural.errors(raw, value), key=lambda error: error.field)
        if not _has_rules(raw):
            return found
        if found:
            return [*found, fields.invalid_value("<nil>", None, UNCHECKED)]
        return list(_broken_rules(raw, value, old, ""))


def _path(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(".") if part)


def _whole(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    """Return a schema that knows what every object has."""
    schema = given or FREE
    return {**schema, "properties": {**(schema.get("properties") or {}), **TYPE_FIELDS}}


@lru_cache(maxsize=1)
def _metadata() -> Decoder:
    return Decoder(Schemas.standard().definition(OBJECT_META), "ObjectMeta")


# --- rules in CEL -----------------------------------------------------------------------------


def _has_rules(schema: Any) -> bool:
    if not isinstance(schema, Mapping):
        return False
    if schema.get("x-kubernetes-validations"):
        return True
    parts = [*(schema.get("properties") or {}).values(), schema.get("items")]
    return any(map(_has_rules, parts)) or _has_rules(schema.get("additionalProperties"))


def _broken_rules(
    schema: Mapping[str, Any], value: Any, old: Any, path: str
) -> Iterator[FieldError]:
    """Yield the rules that a value breaks, from the outside in."""
    for rule in schema.get("x-kubernetes-validations") or ():
        error = _broken(rule, value, old, path)
        if error is not None:
            yield error
    if isinstance(value, Mapping):
        properties = schema.get("properties") or {}
        extra = schema.get("additionalProperties")
        for name in sorted(value):
            part = properties.get(name, extra)
            if isinstance(part, Mapping):
                before = old.get(name) if isinstance(old, Mapping) else None
                where = f"{path}.{name}" if path else name
                yield from _broken_rules(part, value[name], before, where)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, item in enumerate(value):
            # Items of a list are told apart only by keys; without, there is no old one.
            yield from _broken_rules(schema["items"], item, None, f"{path}[{index}]")


def _broken(rule: Mapping[str, Any], value: Any, old: Any, path: str) -> FieldError | None:
    expression = rule.get("rule") or ""
    needs_old = OLD.search(expression) is not None
    if needs_old and old is None and not rule.get("optionalOldSelf"):
        return None
    variables = {"self": cel_value(value), "oldSelf": cel_value(old)}
    where = f"{path}{rule.get('fieldPath', '')}"
    where = where.removeprefix(".")
    try:
        program = _program(expression)
        met, _ = program.value(variables)
    except cel.CompileError as error:
        return _failure(where, rule, f"rule error: {error}")
    except cel.CelError as error:
        return _failure(where, rule, f"rule evaluation error: {error}")
    if met is True:
        return None
    message = rule.get("message") or f"failed rule: {expression}"
    if by_expression := rule.get("messageExpression"):
        message = _message(by_expression, variables) or message
    return _failure(where, rule, message)


def _failure(where: str, rule: Mapping[str, Any], message: str) -> FieldError:
    reason = rule.get("reason") or "FieldValueInvalid"
    known = reason if reason in fields.TITLES else "FieldValueInvalid"
    return FieldError(known, where, OMITTED, message.strip())


def _message(expression: str, variables: Mapping[str, Any]) -> str:
    try:
        found, _ = _program(expression).value(variables)
    except (cel.CelError, cel.CompileError):
        return ""
    return found.strip() if isinstance(found, str) else ""


@lru_cache(maxsize=1024)
def _program(expression: str) -> cel.Program:
    return cel.compile_expression(expression, _environment())


@lru_cache(maxsize=1)
def _environment() -> cel.Environment:
    return cel.kubernetes().extended(variables={"self": types.DYN, "oldSelf": types.DYN})


def cel_value(value: Any) -> Any:
    """Return a JSON value as CEL has it."""
    if isinstance(value, Mapping):
        return Map({key: cel_value(item) for key, item in value.items()})
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [cel_value(item) for item in value]
    return value


class CheckedDefinitions(DefinitionStrategy):
    """Definitions, whose rules in CEL must compile."""

    def validate(self, value: Object) -> list[FieldError]:
        """Return what is wrong with a definition."""
        return super().validate(value) + list(rule_errors(value["spec"].get("versions") or ()))


def rule_errors(versions: Sequence[Mapping[str, Any]]) -> Iterator[FieldError]:
    """Yield the rules of a definition that do not compile."""
    for index, version in enumerate(versions):
        schema = (version.get("schema") or {}).get("openAPIV3Schema")
        if isinstance(schema, Mapping):
            path = f"spec.versions[{index}].schema.openAPIV3Schema"
            yield from _rule_errors(schema, path)


def _rule_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    for index, rule in enumerate(schema.get("x-kubernetes-validations") or ()):
        where = f"{path}.x-kubernetes-validations[{index}].rule"
        expression = rule.get("rule") or ""
        if not expression.strip():
            yield fields.required(where, "rule is not specified")
            continue
        try:
            _program(expression)
        except cel.CompileError as error:
            yield fields.invalid_value(where, dict(rule), str(error))
    for name, part in (schema.get("properties") or {}).items():
        if isinstance(part, Mapping):
            yield from _rule_errors(part, f"{path}.properties[{name}]")
    for name in ("items", "additionalProperties"):
        part = schema.get(name)
        if isinstance(part, Mapping):
            yield from _rule_errors(part, f"{path}.{name}")
