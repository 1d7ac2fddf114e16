"""Rules of custom resources in CEL; imported with the first schema that has one."""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Final

from dralab import cel
from dralab.api import fields
from dralab.api.fields import OMITTED, FieldError
from dralab.cel import types
from dralab.cel.errors import NoSuchOverloadError
from dralab.cel.schema_types import is_embedded, value_of
from dralab.cel.values import NOTHING, Optional
from dralab.values.remembering import remembered

OLD: Final = re.compile(r"\boldSelf\b")
# Cost units for one rule and for all rules of one write (k8s.io/apiserver `pkg/apis/cel`).
PER_RULE: Final = 1_000_000
PER_WRITE: Final = 10_000_000
NO_MORE: Final = "no further validation rules will be run"
NO_BUDGET: Final = f"validation failed due to running out of cost budget, {NO_MORE}"


def broken_rules(
    schema: Mapping[str, Any], value: Any, old: Any, path: str, budget: int = PER_WRITE
) -> Iterator[FieldError]:
    """Yield the rules that a value violates, from the outside in.

    All of them together may cost `budget`; the rule that exceeds it is the last to be evaluated.
    Order and words: k8s.io/apiextensions-apiserver `pkg/apiserver/schema/cel`.
    """
    try:
        yield from _Write(budget).errors(schema, value, old, path, root=not path)
    except _Spent as end:
        yield end.error


class _Spent(Exception):  # noqa: N818 - the end of a walk
    """The rules have used up their budget."""

    def __init__(self, error: FieldError) -> None:
        super().__init__(str(error))
        self.error = error


class _Write:
    """The evaluation of the rules of one write, with the budget that is left."""

    def __init__(self, budget: int) -> None:
        self.left = budget

    def errors(
        self, schema: Mapping[str, Any], value: Any, old: Any, path: str, *, root: bool
    ) -> Iterator[FieldError]:
        """Yield the violations in a value and below it; `root` is for whole objects. _Spent."""
        rules = schema.get("x-kubernetes-validations")
        if rules:
            variables = {
                "self": value_of(schema, value, root=root),
                "oldSelf": value_of(schema, old, root=root),
            }
            # What was so before need not be mended, unless a rule is about the change.
            same = old is not None and value == old
            for rule in rules:
                if same and not OLD.search(rule.get("rule") or ""):
                    continue
                error = self._broken(rule, schema, value, old, path=path, variables=variables)
                if error is not None:
                    yield error
        if isinstance(value, Mapping):
            properties = schema.get("properties") or {}
            extra = schema.get("additionalProperties")
            for name in sorted(value):
                part = properties.get(name, extra)
                if isinstance(part, Mapping):
                    before = old.get(name) if isinstance(old, Mapping) else None
                    below = f"{path}.{name}" if path else name
                    # `errors` of schemas write both alike; these do not (field.Path.Key).
                    where = below if name in properties else f"{path}[{name}]"
                    embedded = is_embedded(part)
                    yield from self.errors(part, value[name], before, where, root=embedded)
        elif isinstance(value, list) and isinstance(schema.get("items"), Mapping):
            items, before = schema["items"], _by_keys(schema, old)
            for index, item in enumerate(value):
                had = before.get(_keys_of(schema, item)) if before else None
                at = f"{path}[{index}]"
                yield from self.errors(items, item, had, at, root=is_embedded(items))

    def _broken(
        self,
        rule: Mapping[str, Any],
        schema: Mapping[str, Any],
        value: Any,
        old: Any,
        *,
        path: str,
        variables: Mapping[str, Any],
    ) -> FieldError | None:
        expression = (rule.get("rule") or "").strip()
        optional = bool(rule.get("optionalOldSelf"))
        if OLD.search(expression) and old is None and not optional:
            return None
        if optional:
            before = NOTHING if old is None else Optional(present=True, value=variables["oldSelf"])
            variables = {**variables, "oldSelf": before}
        told = (rule.get("message") or "").strip() or expression
        kind = schema.get("type") or ""
        try:
            met, cost = _program(expression, optional).outcome(variables, PER_RULE)
        except cel.CompileError as error:
            return fields.invalid_value(path, kind, f"rule error: {error}")
        if isinstance(met, cel.CostExceededError):
            why = f"'{met}': {NO_MORE} due to call cost exceeds limit for rule: {told}"
            raise _Spent(fields.invalid_value(path, kind, why))
        self._spend(cost, path, kind)
        if isinstance(met, cel.CelError):
            if isinstance(met, NoSuchOverloadError):
                why = (
                    f"'{met}': call arguments did not match a supported operator, function or "
                    f"macro signature for rule: {told}"
                )
            else:
                why = f"{met} evaluating rule: {told}"
            return fields.invalid_value(path, kind, why)
        if met is True:
            return None
        where = f"{path}{rule.get('fieldPath', '')}".removeprefix(".")
        message = (rule.get("message") or "").strip() or f"failed rule: {expression}"
        if by_expression := rule.get("messageExpression"):
            said = self._message(by_expression, variables, where, kind, optional=optional)
            message = said or message
        shown = OMITTED if kind in {"object", "array"} else value
        return _failure(where, rule, message, shown)

    def _message(
        self,
        expression: str,
        variables: Mapping[str, Any],
        where: str,
        kind: str,
        *,
        optional: bool,
    ) -> str:
        try:
            found, cost = _program(expression, optional).outcome(variables, PER_RULE)
        except cel.CompileError:
            return ""
        if isinstance(found, cel.CostExceededError):
            why = f'{NO_MORE} due to call cost exceeds limit for messageExpression: "{expression}"'
            raise _Spent(fields.invalid_value(where, kind, why))
        self._spend(cost, where, kind)
        return found.strip() if isinstance(found, str) else ""

    def _spend(self, cost: int, path: str, kind: str) -> None:
        if cost > self.left:
            raise _Spent(fields.invalid_value(path, kind, NO_BUDGET))
        self.left -= cost


def _by_keys(schema: Mapping[str, Any], old: Any) -> Mapping[Any, Any]:
    """Return the old items of a list by their keys: only lists with keys can be correlated."""
    if schema.get("x-kubernetes-list-type") != "map" or not isinstance(old, list):
        return {}
    return {_keys_of(schema, item): item for item in old}


def _keys_of(schema: Mapping[str, Any], item: Any) -> tuple[Any, ...]:
    names = schema.get("x-kubernetes-list-map-keys") or ()
    return tuple(item.get(name) if isinstance(item, Mapping) else None for name in names)


def _failure(where: str, rule: Mapping[str, Any], message: str, value: Any) -> FieldError:
    match rule.get("reason"):
        case "FieldValueForbidden":
            return fields.forbidden(where, message)
        case "FieldValueRequired":
            return fields.required(where, message)
        case "FieldValueDuplicate":
            return fields.duplicate(where, value)
        case _:
            return fields.invalid_value(where, value, message)


@remembered(1024, longest=2048)
def _program(expression: str, optional: bool) -> cel.Program:  # noqa: FBT001 - by position
    return cel.compile_expression(expression, _environment(optional))


@lru_cache(maxsize=2)
def _environment(optional: bool) -> cel.Environment:  # noqa: FBT001 - by position
    """Return the environment of rules; with `optionalOldSelf` the old value is optional."""
    old = types.optional_of(types.DYN) if optional else types.DYN
    return cel.served().extended(variables={"self": types.DYN, "oldSelf": old})
