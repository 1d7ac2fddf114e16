"""Rules of custom resources in CEL; imported with the first schema that has one."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from dralab import cel
from dralab.api import fields
from dralab.api.fields import OMITTED, FieldError
from dralab.cel import types
from dralab.cel.values import Map

OLD: Final = re.compile(r"\boldSelf\b")


def broken_rules(
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
                yield from broken_rules(part, value[name], before, where)
    elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
        for index, item in enumerate(value):
            # Items of a list are told apart only by keys; without, there is no old one.
            yield from broken_rules(schema["items"], item, None, f"{path}[{index}]")


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
