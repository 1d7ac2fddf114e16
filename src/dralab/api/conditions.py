"""Rules of metav1.Condition lists, which many kinds carry in their status.

Source: k8s.io/apimachinery `apis/meta/v1/validation` (ValidateConditions).
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from dralab.api.fields import (
    FieldError,
    duplicate,
    invalid_value,
    not_supported,
    required,
    too_long,
)
from dralab.values.names import qualified_problems

REASON: Final = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?", re.ASCII)
STATUSES: Final = ("False", "True", "Unknown")
MAX_REASON: Final = 1024
MAX_MESSAGE: Final = 32 * 1024


def condition_errors(conditions: Sequence[Mapping[str, Any]] | None, path: str) -> list[FieldError]:
    """Return what is wrong with a list of conditions."""
    found: list[FieldError] = []
    types: set[str] = set()
    for index, condition in enumerate(conditions or ()):
        here = f"{path}[{index}]"
        kind = condition.get("type", "")
        if kind in types:
            found.append(duplicate(f"{here}.type", kind))
        types.add(kind)
        found += _errors(condition, here)
    return found


def _errors(condition: Mapping[str, Any], path: str) -> list[FieldError]:
    found: list[FieldError] = []
    kind = condition.get("type") or ""
    found += [invalid_value(f"{path}.type", kind, text) for text in qualified_problems(kind)]
    if condition.get("status") not in STATUSES:
        found.append(not_supported(f"{path}.status", condition.get("status") or "", STATUSES))
    observed = condition.get("observedGeneration") or 0
    if observed < 0:
        found.append(
            invalid_value(
                f"{path}.observedGeneration", observed, "must be greater than or equal to zero"
            )
        )
    if not condition.get("lastTransitionTime"):
        found.append(required(f"{path}.lastTransitionTime"))
    reason = condition.get("reason") or ""
    if not reason:
        found.append(required(f"{path}.reason"))
    elif not REASON.fullmatch(reason):
        found.append(
            invalid_value(
                f"{path}.reason",
                reason,
                "a condition reason must start with alphabetic character, optionally followed by "
                "a string of alphanumeric characters or '_,:', and must end with an alphanumeric "
                "character or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',  or "
                "'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
                "'[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?')",
            )
        )
    if len(reason) > MAX_REASON:
        found.append(too_long(f"{path}.reason", MAX_REASON))
    if len(condition.get("message") or "") > MAX_MESSAGE:
        found.append(too_long(f"{path}.message", MAX_MESSAGE))
    return found
