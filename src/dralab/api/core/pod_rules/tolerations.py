"""Which taints of nodes a pod tolerates."""

from typing import Any, Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables
from dralab.values import names
from dralab.values.json_types import JsonObject
from dralab.values.quantity import is_decimal_integer

PLAIN: Final = ("Equal", "Exists")
COMPARING: Final = ("Equal", "Exists", "Lt", "Gt")


TOLERATION: Final = RuleTables(globals())["ValidateTolerations"]


def _value_of_operator(toleration: JsonObject, path: str, around: Any) -> list[FieldError]:
    operator, value = toleration.get("operator") or "", toleration.get("value") or ""
    at, comparing = f"{path}.operator", getattr(around, "comparing", False)
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
