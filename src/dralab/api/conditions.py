"""Rules of metav1.Condition lists, which many kinds carry in their status."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables

REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
RULES: Final = RuleTables(globals())


def condition_errors(conditions: Sequence[Mapping[str, Any]] | None, path: str) -> list[FieldError]:
    """Return the errors of a list of conditions."""
    found: list[FieldError] = []
    types: set[str] = set()
    for index, condition in enumerate(conditions or ()):
        here = f"{path}[{index}]"
        kind = condition.get("type", "")
        if kind in types:
            found.append(fields.duplicate(f"{here}.type", kind))
        types.add(kind)
        found += RULES["validateCondition"](condition, here)
    return found


def reason_problems(reason: str) -> list[str]:
    """Return the problems of a reason."""
    if REASON.fullmatch(reason):
        return []
    return [
        "a condition reason must start with alphabetic character, optionally followed by "
        "a string of alphanumeric characters or '_,:', and must end with an alphanumeric "
        "character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or "
        "'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
        "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')"
    ]
