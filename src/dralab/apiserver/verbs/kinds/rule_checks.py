"""Checks rules of custom resources when their definition is written: types, and costs.

A rule is checked against the types of its schema. The largest cost of one evaluation is multiplied
by the largest number of places where it is evaluated; what could take too long is refused.

Source: k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/validation` (validation,
cel_validation), `pkg/apiserver/schema/cel` (compilation).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
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
from dralab.values.records import dataclass

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
    """A schema within a definition; `times`: how often a value has it, None if unbounded.

    `uncorrelatable` is the path of a part above it whose items have no old value.
    """

    schema: Mapping[str, Any]
    path: str
    times: int | None = 1
    root: bool = False
    uncorrelatable: str = ""

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
        return replace(
            self,
            schema=schema,
            path=self.path + step,
            times=times,
            root=embedded,
            uncorrelatable=self.uncorrelatable or self._without_old(step),
        )

    def _without_old(self, step: str) -> str:
        """Return the path of this schema if values below it have no old value; else empty."""
        is_list = step == ".items"
        kept = self.schema.get("x-kubernetes-list-type" if is_list else "x-kubernetes-map-type")
        lost = kept != "map" if is_list else kept == "atomic"
        return self.path if lost else ""


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
    """Yield the errors of the rules of a definition's versions.

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
    """Yield the errors of the rules of one schema, and count their costs."""
    found = type_of_schema(place.schema, root=place.root)
    if found is None:
        return
    times = place.times if place.times is not None else found.most
    for index, rule in enumerate(place.schema[RULES]):
        where = f"{place.path}.{RULES}[{index}]"
        environment = _environment(found, optional=bool(rule.get("optionalOldSelf")))
        yield from _rule_errors(rule, where, place, environment, times=times, total=total)


def _rule_errors(
    rule: Mapping[str, Any],
    where: str,
    place: _SchemaPlace,
    environment: cel.Environment,
    *,
    times: int,
    total: _TotalCost,
) -> Iterator[FieldError]:
    expression = (rule.get("rule") or "").strip()
    if not expression:
        return  # which is told of with the schema
    program = None
    try:
        program = cel.compile_expression(expression, environment)
    except cel.CompileError as error:
        yield fields.invalid_value(f"{where}.rule", _in_go(rule), str(error))
    if program is not None and program.type != types.BOOL:
        why = "cel expression must evaluate to a bool"
        yield fields.invalid_value(f"{where}.rule", _in_go(rule), why)
    elif program is not None:
        cost = min(program.max_cost * times, LARGEST)
        yield from _too_dear(cost, f"{where}.rule", "estimated rule cost", total)
    yield from _message_errors(rule, f"{where}.messageExpression", environment, total)
    if program is None:
        return
    if not any(path[0] == "oldSelf" for path in program.paths):
        if (optional := rule.get("optionalOldSelf")) is not None:
            why = "may not be set if oldSelf is not used in rule"
            yield fields.invalid_value(f"{where}.optionalOldSelf", optional, why)
    elif place.uncorrelatable:
        why = (
            "oldSelf cannot be used on the uncorrelatable portion of the schema within "
            f"{place.uncorrelatable}"
        )
        yield fields.invalid_value(f"{where}.rule", rule.get("rule"), why)


def _message_errors(
    rule: Mapping[str, Any], at: str, environment: cel.Environment, total: _TotalCost
) -> Iterator[FieldError]:
    message = (rule.get("messageExpression") or "").strip()
    if not message:
        return
    try:
        program = cel.compile_expression(message, environment)
    except cel.CompileError as error:
        yield fields.invalid_value(at, _in_go(rule), f"messageExpression {error}")
        return
    if program.type != types.STRING:
        why = "messageExpression must evaluate to a string"
        yield fields.invalid_value(at, _in_go(rule), why)
    else:
        yield from _too_dear(program.max_cost, at, "estimated messageExpression cost", total)


def _in_go(rule: Mapping[str, Any]) -> dict[str, Any]:
    """Return a rule as errors show it: by the names that its fields have in Go."""
    return {
        "Rule": rule.get("rule") or "",
        "Message": rule.get("message") or "",
        "MessageExpression": rule.get("messageExpression") or "",
        "Reason": rule.get("reason"),
        "FieldPath": rule.get("fieldPath") or "",
        "OptionalOldSelf": rule.get("optionalOldSelf"),
    }


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
        # The real estimator drops the first name of a path, whatever it is.
        root=found.size,
        result=(),
    )
