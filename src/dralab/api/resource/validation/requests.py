"""What a claim asks for: requests, alternatives, selectors, constraints, configuration."""

import json
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Final, Protocol

from dralab.api.fields import (
    FieldError,
    forbidden,
    invalid_value,
    not_supported,
    required,
    too_long,
    too_many,
)
from dralab.api.resource.features import Features
from dralab.api.resource.validation.lists import list_errors, set_errors
from dralab.api.resource.validation.names import (
    class_errors,
    driver_errors,
    fully_qualified_errors,
    label_errors,
)
from dralab.api.resource.validation.taints import toleration_errors
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

MAX_REQUESTS: Final = 32
MAX_ALTERNATIVES: Final = 8
MAX_SELECTORS: Final = 32
MAX_CONSTRAINTS: Final = 32
MAX_CONFIGS: Final = 32
MAX_TOLERATIONS: Final = 16
MAX_DERIVED: Final = 32
MAX_EXPRESSION: Final = 10 * 1024
MAX_PARAMETERS: Final = 10 * 1024
MAX_COST: Final = 1_000_000
MAX_DERIVED_COST: Final = 1_000_000
"""For all derived attributes of a claim together."""
MODES: Final = ("All", "ExactCount")
WRONG_REFERENCE: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest "
    "separated by '/'"
)
ONE_KIND: Final = "exactly one of `exactly` or `firstAvailable` is required"


@dataclass(frozen=True, slots=True)
class Compiled:
    """What a compiler says of an expression: `error`, or the most that it can cost."""

    max_cost: int = 0
    error: str | None = None


class ExpressionCompiler(Protocol):
    """Compiles selectors and derived attributes; `dralab.cel` is on this package's floor."""

    def __call__(self, expression: str, features: Features, *, derived: bool) -> Compiled:
        """Return whether a new expression compiles; `derived` may have any attribute's type."""
        ...


@dataclass(slots=True)
class ClaimContext:
    """What the rules of one claim need to know of the rest of it."""

    features: Features
    expressions: ExpressionCompiler | None
    names: Mapping[str, frozenset[str]] = field(default_factory=dict)
    constrained: Mapping[str, frozenset[str]] = field(default_factory=dict)
    derived_cost: int = 0


def claim_errors(
    spec: JsonObject, path: str, features: Features, expressions: ExpressionCompiler | None
) -> list[FieldError]:
    """Return the errors of the spec of a claim; without `expressions` CEL is not compiled."""
    devices: JsonObject = spec.get("devices") or {}
    path = f"{path}.devices"
    context = ClaimContext(
        features, expressions, names=request_names(spec), constrained=_constrained(devices)
    )
    found = set_errors(
        devices.get("requests"),
        MAX_REQUESTS,
        f"{path}.requests",
        lambda item, here: _request_errors(item, here, context),
        lambda item: item.get("name") or "",
    )
    found += list_errors(
        devices.get("constraints"),
        MAX_CONSTRAINTS,
        f"{path}.constraints",
        lambda item, here: _constraint_errors(item, here, context),
    )
    found += list_errors(
        devices.get("config"),
        MAX_CONFIGS,
        f"{path}.config",
        lambda item, here: (
            references_errors(item.get("requests"), f"{here}.requests", context.names)
            + config_errors(item, here)
        ),
    )
    if context.derived_cost > MAX_DERIVED_COST:
        text = (
            "too complex, total cost of derived attribute CEL expressions in the claim exceeds "
            "cost limit"
        )
        found.append(forbidden(path, text))
    return found


def request_names(spec: JsonObject) -> dict[str, frozenset[str]]:
    """Return the names of a claim's requests, each with the names of its alternatives."""
    return {
        request.get("name") or "": frozenset(
            item.get("name") or "" for item in request.get("firstAvailable") or ()
        )
        for request in (spec.get("devices") or {}).get("requests") or ()
    }


def reference_errors(name: str, path: str, names: Mapping[str, frozenset[str]]) -> list[FieldError]:
    """Return the problems of a reference to a request (`req`) or an alternative (`req/sub`)."""
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid_value(path, name, WRONG_REFERENCE)]
    found = [error for part in parts for error in label_errors(part, path)]
    if parts[0] not in names or (len(parts) == 2 and parts[1] not in names[parts[0]]):
        found.append(invalid_value(path, name, WRONG_REFERENCE))
    return found


def references_errors(
    items: Any, path: str, names: Mapping[str, frozenset[str]]
) -> list[FieldError]:
    """Return the errors of the `requests` of a constraint or configuration."""
    return set_errors(
        items, MAX_REQUESTS, path, lambda item, here: reference_errors(item, here, names)
    )


def selectors_errors(
    selectors: Any, path: str, features: Features, expressions: ExpressionCompiler | None
) -> list[FieldError]:
    """Return the errors of a list of selectors."""
    return list_errors(
        selectors,
        MAX_SELECTORS,
        path,
        lambda item, here: _selector_errors(item, here, features, expressions),
    )


def config_errors(config: JsonObject, path: str, *, stored: bool = False) -> list[FieldError]:
    """Return the errors of a configuration; parameters `stored` before may be longer."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{path}.opaque")]
    found = driver_errors(opaque.get("driver") or "", f"{path}.opaque.driver")
    return found + json_object_errors(
        opaque.get("parameters"), f"{path}.opaque.parameters", MAX_PARAMETERS, stored=stored
    )


def json_object_errors(
    value: Any, path: str, limit: int, *, stored: bool = False
) -> list[FieldError]:
    """Return the problems of a JSON object of at most `limit` bytes."""
    if value is None:
        return [required(path)]
    if not stored and len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()) > (
        limit
    ):
        return [too_long(path, limit)]
    if not isinstance(value, dict):
        return [invalid_value(path, "<value omitted>", "must be a valid JSON object")]
    return []


def _request_errors(request: JsonObject, path: str, context: ClaimContext) -> list[FieldError]:
    name = request.get("name") or ""
    found = label_errors(name, f"{path}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable")
    if exactly is None and not alternatives:
        found.append(required(path, ONE_KIND))
    elif exactly is not None and alternatives:
        text = f"{ONE_KIND}, but multiple fields are set"
        found.append(invalid_value(path, None, text))
    elif exactly is not None:
        found += _exact_errors(exactly, f"{path}.exactly", context, name)
    else:
        found += set_errors(
            alternatives,
            MAX_ALTERNATIVES,
            f"{path}.firstAvailable",
            lambda item, here: (
                label_errors(item.get("name") or "", f"{here}.name")
                + _exact_errors(item, here, context, f"{name}/{item.get('name') or ''}")
            ),
            lambda item: item.get("name") or "",
        )
    return found


def _exact_errors(
    item: JsonObject, path: str, context: ClaimContext, name: str
) -> list[FieldError]:
    found = class_errors(item.get("deviceClassName") or "", f"{path}.deviceClassName")
    found += selectors_errors(
        item.get("selectors"), f"{path}.selectors", context.features, context.expressions
    )
    found += set_errors(
        item.get("derivedAttributes"),
        MAX_DERIVED,
        f"{path}.derivedAttributes",
        lambda attribute, here: _derived_errors(attribute, here, context, name),
        lambda attribute: attribute.get("name") or "",
    )
    mode, count = item.get("allocationMode") or "", item.get("count") or 0
    if mode == "All":
        if count:
            text = "must not be specified when allocationMode is 'All'"
            found.append(invalid_value(f"{path}.count", count, text))
    elif mode == "ExactCount":
        if count <= 0:
            found.append(invalid_value(f"{path}.count", count, "must be greater than zero"))
    else:
        found.append(not_supported(f"{path}.allocationMode", mode, MODES))
    tolerations = item.get("tolerations") or ()
    if len(tolerations) > MAX_TOLERATIONS:
        found.append(too_many(f"{path}.tolerations", len(tolerations), MAX_TOLERATIONS))
    else:
        for index, toleration in enumerate(tolerations):
            found += toleration_errors(toleration, f"{path}.tolerations[{index}]")
    return found


def _selector_errors(
    selector: JsonObject, path: str, features: Features, expressions: ExpressionCompiler | None
) -> list[FieldError]:
    cel = selector.get("cel")
    if cel is None:
        return [required(f"{path}.cel")]
    here = f"{path}.cel.expression"
    expression = cel.get("expression") or ""
    if len(expression.encode()) > MAX_EXPRESSION:
        return [too_long(here, MAX_EXPRESSION)]
    if expressions is None:
        return []
    compiled = expressions(expression, features, derived=False)
    return _compiled_errors(compiled, expression, here, MAX_COST)


def _compiled_errors(
    compiled: Compiled, expression: str, path: str, limit: int
) -> list[FieldError]:
    if compiled.error is not None:
        return [invalid_value(path, expression, compiled.error)]
    if compiled.max_cost > limit:
        return [forbidden(path, "too complex, exceeds cost limit")]
    return []


def _derived_errors(
    attribute: JsonObject, path: str, context: ClaimContext, request: str
) -> list[FieldError]:
    name, expression = attribute.get("name") or "", attribute.get("expression") or ""
    found: list[FieldError] = []
    if not name:
        found.append(required(f"{path}.name"))
    else:
        found += fully_qualified_errors(name, f"{path}.name")
        parent = request.partition("/")[0]
        targets = {"", request, parent}
        if not any(name in context.constrained.get(target, ()) for target in targets):
            text = (
                "must be referenced by at least one matchAttribute or distinctAttribute "
                "constraint targeting this request"
            )
            found.append(invalid_value(f"{path}.name", name, text))
    here = f"{path}.expression"
    if not expression:
        found.append(required(here))
    elif len(expression.encode()) > MAX_EXPRESSION:
        found.append(too_long(here, MAX_EXPRESSION))
    elif context.expressions is not None:
        compiled = context.expressions(expression, context.features, derived=True)
        found += _compiled_errors(compiled, expression, here, min(MAX_COST, MAX_DERIVED_COST))
        context.derived_cost += compiled.max_cost
    return found


def _constraint_errors(
    constraint: JsonObject, path: str, context: ClaimContext
) -> list[FieldError]:
    found = references_errors(constraint.get("requests"), f"{path}.requests", context.names)
    match, distinct = constraint.get("matchAttribute"), constraint.get("distinctAttribute")
    if match is not None:  # with it, 1.36 looks at no other
        found += fully_qualified_errors(match, f"{path}.matchAttribute")
    elif distinct is not None:
        found += fully_qualified_errors(distinct, f"{path}.distinctAttribute")
    elif "DRAConsumableCapacity" in context.features:
        # The end of the sentence is upstream's, although no field is set.
        text = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple '
            "fields are set"
        )
        found.append(required(path, text))
    else:
        found.append(required(f"{path}.matchAttribute"))
    return found


def _constrained(devices: JsonObject) -> dict[str, frozenset[str]]:
    """Return which attributes constraints name for each request; "" stands for all of them."""
    found: dict[str, set[str]] = {}
    for constraint in devices.get("constraints") or ():
        attribute = constraint.get("matchAttribute") or constraint.get("distinctAttribute")
        if attribute:
            for target in constraint.get("requests") or ("",):
                found.setdefault(target, set()).add(attribute)
    return {target: frozenset(names) for target, names in found.items()}
