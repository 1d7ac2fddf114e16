"""Errors in fields of an object: k8s.io/apimachinery `util/validation/field`.

Validation returns a list of `FieldError`; `invalid` turns it into the Status a client sees.
"""

import json
from collections.abc import Hashable, Sequence
from typing import Any, Final

from dralab.api.status import ApiError, Cause
from dralab.values.go_text import aggregate, go_quoted
from dralab.values.records import dataclass

# Enough to read: an answer stays smaller than its request. Long lists are not looked at further.
MAX_ERRORS: Final = 1_000
TITLES: Final = {
    "FieldValueNotFound": "Not found",
    "FieldValueRequired": "Required value",
    "FieldValueDuplicate": "Duplicate value",
    "FieldValueInvalid": "Invalid value",
    "FieldValueNotSupported": "Unsupported value",
    "FieldValueForbidden": "Forbidden",
    "FieldValueTooLong": "Too long",
    "FieldValueTooMany": "Too many",
    "FieldValueTypeInvalid": "Invalid value",
    "InternalError": "Internal error",
}
WITHOUT_VALUE: Final = frozenset(
    {"FieldValueRequired", "FieldValueForbidden", "FieldValueTooLong", "InternalError"}
)


class OmittedValue:
    """A value that is not shown."""


OMITTED: Final = OmittedValue()


@dataclass(frozen=True, slots=True)
class FieldError:
    """One thing wrong with one field.

    >>> str(required("spec.driver"))
    'spec.driver: Required value'
    """

    reason: str
    field: str
    value: Any = None
    detail: str = ""

    @property
    def body(self) -> str:
        """The sentence without the field, as causes carry it."""
        text = TITLES[self.reason]
        if self.value is OMITTED:
            pass
        elif self.reason not in WITHOUT_VALUE and self.reason != "FieldValueTooMany":
            text += f": {_shown(self.value)}"
        elif self.reason == "FieldValueTooMany":
            text += f": {self.value}"
        return f"{text}: {self.detail}" if self.detail else text

    def __str__(self) -> str:
        return f"{self.field}: {self.body}"

    def cause(self) -> Cause:
        """Return the error as one cause of a Status."""
        return Cause(reason=self.reason, message=self.body, field=self.field)


def required(field: str, detail: str = "") -> FieldError:
    """A required field is missing."""
    return FieldError("FieldValueRequired", field, "", detail)


def invalid_value(field: str, value: Any, detail: str) -> FieldError:
    """A value breaks a rule."""
    return FieldError("FieldValueInvalid", field, value, detail)


def each(field: str, value: Any, problems: Sequence[str]) -> list[FieldError]:
    """A value breaks each of these rules."""
    return [FieldError("FieldValueInvalid", field, value, why) for why in problems]


def duplicate(field: str, value: Any) -> FieldError:
    """A value that must be unique is a duplicate."""
    return FieldError("FieldValueDuplicate", field, value)


def repeated(values: Sequence[Hashable]) -> frozenset[int]:
    """Return the places of values that are equal to an earlier one, in linear time.

    >>> sorted(repeated(["a", "b", "a", "a"]))
    [2, 3]
    """
    first: dict[Hashable, int] = {}
    return frozenset(
        index for index, value in enumerate(values) if first.setdefault(value, index) != index
    )


def duplicates(values: Sequence[Hashable], path: str) -> list[FieldError]:
    """Return an error for each value that is equal to an earlier one."""
    return [duplicate(f"{path}[{index}]", values[index]) for index in sorted(repeated(values))]


def forbidden(field: str, detail: str) -> FieldError:
    """A field may not be set, or not be changed."""
    return FieldError("FieldValueForbidden", field, "", detail)


def not_found(field: str, value: Any) -> FieldError:
    """A value names something that does not exist."""
    return FieldError("FieldValueNotFound", field, value)


def not_supported(
    field: str, value: Any, supported: Sequence[str], *, ordered: bool = False
) -> FieldError:
    """A value is not one of the supported ones, which are sorted unless `ordered`."""
    known = ", ".join(json.dumps(item) for item in (supported if ordered else sorted(supported)))
    return FieldError("FieldValueNotSupported", field, value, f"supported values: {known}")


def too_long(field: str, limit: int) -> FieldError:
    """A text has more bytes than allowed."""
    return FieldError("FieldValueTooLong", field, "", f"may not be more than {limit} bytes")


def too_many(field: str, actual: int, limit: int) -> FieldError:
    """A list has more items than allowed."""
    items = "item" if limit == 1 else "items"
    return FieldError("FieldValueTooMany", field, actual, f"must have at most {limit} {items}")


def invalid(kind: str, name: str, errors: Sequence[FieldError], *, group: str = "") -> ApiError:
    """Return the Status for an object of that Kind that breaks rules."""
    left_out = len(errors) > MAX_ERRORS
    errors = errors[:MAX_ERRORS]
    texts = list(dict.fromkeys(str(error) for error in errors))
    if left_out:
        texts.append("and others")
    shown = aggregate(texts)
    qualified = f"{kind}.{group}" if group else kind
    details = {"name": name} | ({"group": group} if group else {}) | {"kind": kind}
    return ApiError(
        "Invalid",
        f'{qualified} "{name}" is invalid: {shown}',
        details={key: value for key, value in details.items() if value},
        causes=[error.cause() for error in errors],
    )


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, str):
        return go_quoted(value)
    if isinstance(value, (dict, list, tuple)):
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
