"""Which taints of nodes a pod tolerates."""

from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.parts import qualified
from dralab.api.fields import FieldError
from dralab.values import names
from dralab.values.json_types import JsonObject
from dralab.values.quantity import is_decimal_integer

EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
PLAIN: Final = ("Equal", "Exists")
COMPARING: Final = ("Equal", "Exists", "Lt", "Gt")
NO_KEY: Final = (
    'operator must be Exists when `key` is empty, which means "match all values and all keys"'
)


def toleration_problems(
    toleration: JsonObject, path: str, errors: list[FieldError], *, comparing: bool
) -> None:
    """Add what is wrong with a toleration; `comparing` allows Lt and Gt."""
    operator, key = toleration.get("operator") or "", toleration.get("key") or ""
    value, effect = toleration.get("value") or "", toleration.get("effect") or ""
    if key:
        errors += qualified(key, f"{path}.key")
    elif operator != "Exists":
        errors.append(fields.invalid_value(f"{path}.operator", operator, NO_KEY))
    if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        errors.append(fields.invalid_value(f"{path}.effect", effect, why))
    errors += _operator_problems(operator, value, path, comparing=comparing)
    if effect and effect not in EFFECTS:
        errors.append(fields.not_supported(f"{path}.effect", effect, EFFECTS, ordered=True))


def _operator_problems(
    operator: str, value: str, path: str, *, comparing: bool
) -> list[FieldError]:
    at = f"{path}.operator"
    if operator in {"", "Equal"}:
        problems = names.label_value_problems(value)
        return [fields.invalid_value(at, value, ";".join(problems))] if problems else []
    if operator == "Exists":
        why = "value must be empty when `operator` is 'Exists'"
        return [fields.invalid_value(at, value, why)] if value else []
    if operator not in COMPARING:
        return [fields.not_supported(at, operator, PLAIN)]
    if not comparing:
        return [fields.not_supported(at, operator, COMPARING, ordered=True)]
    problems = (
        []
        if is_decimal_integer(value)
        else ["must be a valid decimal integer in canonical form" if value else "must be non-empty"]
    )
    if why := _range_problem(value):
        problems.append(why)
    return [fields.invalid_value(f"{path}.value", value, why) for why in problems]


def _range_problem(text: str) -> str:
    """Return in Go's words why a text does not become a number of 64 bits."""
    shown = f'strconv.ParseInt: parsing "{text}": '
    try:
        number = int(text) if text.isascii() and "_" not in text and text == text.strip() else None
    except ValueError:
        number = None
    if number is None:
        return f"{shown}invalid syntax"
    return "" if -(2**63) <= number < 2**63 else f"{shown}value out of range"
