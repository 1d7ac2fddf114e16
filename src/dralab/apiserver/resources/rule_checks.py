"""Checks rules of custom resources when their definition is written: types, and costs.

A rule is checked against the types of its schema. The largest cost of one evaluation is multiplied
by the largest number of places where it is evaluated; what could take too long is refused.

Source: k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/validation` (validation,
cel_validation), `pkg/apiserver/schema/cel` (compilation).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from dralab import cel
from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.cel import types
from dralab.cel.schema_types import (
    ROOT,
    SchemaType,
    type_of_schema,
)

PER_EXPRESSION: Final = 10_000_000
PER_DEFINITION: Final = 100_000_000
NAMED: Final = 4  # most expensive expressions that an error names
LARGEST: Final = 2**64 - 1
MORE: Final = 100
SLIGHTLY: Final = 1.5
ADVICE: Final = (
    "(try simplifying the rule, or adding maxItems, maxProperties, and maxLength where arrays, "
    "maps, and strings are declared)"
)
TOTAL: Final = "estimated rule cost total"
WHOLE: Final = "entire OpenAPIv3 schema"
RULES: Final = "x-kubernetes-validations"


@dataclass(frozen=True, slots=True)
class _SchemaPlace:
    """A schema within a definition: `times` is how often a value has it, None for any number."""

    schema: Mapping[str, Any]
    path: str
    times: int | None = 1
    root: bool = False

    def parts(self) -> Iterator["_SchemaPlace"]:
        """Yield the schemas directly below."""
        schema = self.schema
        for name, part in sorted((schema.get("properties") or {}).items()):
            if isinstance(part, Mapping) and not (self.root and name in ROOT):
                yield self._below(part, f".properties[{name}]", self.times)
        for name, most in (("items", "maxItems"), ("additionalProperties", "maxProperties")):
            part = schema.get(name)
            if isinstance(part, Mapping):
                limit, times = schema.get(most), self.times
                if limit is not None and times is not None:
                    yield self._below(part, f".{name}", times * limit)
                else:
                    yield self._below(part, f".{name}", None)

    def _below(self, schema: Mapping[str, Any], step: str, times: int | None) -> "_SchemaPlace":
        embedded = bool(schema.get("x-kubernetes-embedded-resource"))
        return replace(self, schema=schema, path=self.path + step, times=times, root=embedded)


@dataclass(slots=True)
class _TotalCost:
    """The cost of all expressions of a schema."""

    cost: int = 0
    dearest: list[tuple[int, str]] = field(default_factory=list)

    def add(self, cost: int, path: str) -> None:
        self.cost = min(self.cost + cost, LARGEST)
        if cost >= PER_DEFINITION // 100:  # upstream names none that counts for less
            self.dearest = sorted([*self.dearest, (cost, path)], key=lambda one: -one[0])[:NAMED]


def rule_errors(
    versions: Sequence[Mapping[str, Any]], before: Sequence[Mapping[str, Any]] = ()
) -> Iterator[FieldError]:
    """Yield what is wrong with the rules of a definition's versions.

    Schemas that were there `before` a change may stay as they are.
    """
    known = [_schema_of(version) for version in before]
    schemas = [_schema_of(version) for version in versions]
    alike = all(schema == schemas[0] for schema in schemas)
    for index, schema in enumerate(schemas[:1] if alike else schemas):
        if isinstance(schema, Mapping) and schema not in known:
            above = "spec.validation" if alike else f"spec.versions[{index}].schema"
            yield from _schema_errors(schema, f"{above}.openAPIV3Schema")


def _schema_of(version: Mapping[str, Any]) -> Any:
    return (version.get("schema") or {}).get("openAPIV3Schema")


def _schema_errors(schema: Mapping[str, Any], path: str) -> Iterator[FieldError]:
    total = _TotalCost()
    waiting = [_SchemaPlace(schema, path, root=True)]
    while waiting:
        place = waiting.pop()
        if place.schema.get(RULES):
            yield from _place_errors(place, total)
        waiting += reversed(list(place.parts()))
    if total.cost > PER_DEFINITION:
        why = f"contributed to {TOTAL} exceeding cost limit for {WHOLE}"
        for _, where in total.dearest:
            yield fields.forbidden(where, why)
        what = f"{RULES} {TOTAL} for {WHOLE}"
        yield fields.forbidden(path, _exceeds(what, total.cost, PER_DEFINITION))


def _place_errors(place: _SchemaPlace, total: _TotalCost) -> Iterator[FieldError]:
    """Yield what is wrong with the rules of one schema, and count their costs."""
    found = type_of_schema(place.schema, root=place.root)
    if found is None:
        return
    times = place.times if place.times is not None else found.most
    for index, rule in enumerate(place.schema[RULES]):
        where = f"{place.path}.{RULES}[{index}]"
        environment = _environment(found, optional=bool(rule.get("optionalOldSelf")))
        yield from _rule_errors(rule, where, environment, times=times, total=total)


def _rule_errors(
    rule: Mapping[str, Any],
    where: str,
    environment: cel.Environment,
    *,
    times: int,
    total: _TotalCost,
) -> Iterator[FieldError]:
    expression = (rule.get("rule") or "").strip()
    if not expression:
        yield fields.required(f"{where}.rule", "rule is not specified")
        return
    try:
        program = cel.compile_expression(expression, environment)
    except cel.CompileError as error:
        yield fields.invalid_value(f"{where}.rule", dict(rule), str(error))
    else:
        cost = min(program.max_cost * times, LARGEST)
        yield from _too_dear(cost, f"{where}.rule", "estimated rule cost", total)
    message = (rule.get("messageExpression") or "").strip()
    if message:
        text = environment.extended(result=(types.STRING,), result_words="string")
        try:
            program = cel.compile_expression(message, text)
        except cel.CompileError as error:
            at = f"{where}.messageExpression"
            yield fields.invalid_value(at, dict(rule), f"messageExpression {error}")
        else:
            at, what = f"{where}.messageExpression", "estimated messageExpression cost"
            yield from _too_dear(program.max_cost, at, what, total)


def _too_dear(cost: int, where: str, what: str, total: _TotalCost) -> Iterator[FieldError]:
    total.add(cost, where)
    if cost > PER_EXPRESSION:
        yield fields.forbidden(where, _exceeds(what, cost, PER_EXPRESSION))


def _exceeds(what: str, cost: int, limit: int) -> str:
    factor = cost / limit
    if factor > MORE:
        shown = "more than 100x"
    else:
        shown = f"{factor:.6f}x" if factor < SLIGHTLY else f"{factor:.1f}x"
    return f"{what} exceeds budget by factor of {shown} {ADVICE}"


def _environment(found: SchemaType, *, optional: bool) -> cel.Environment:
    old = types.optional_of(found.type) if optional else found.type
    return cel.served().extended(
        variables={"self": found.type, "oldSelf": old},
        structs=found.structs(),
        sizes={"self": found.size, "oldSelf": found.size},
        result=(types.BOOL,),
        result_words="bool",
    )
