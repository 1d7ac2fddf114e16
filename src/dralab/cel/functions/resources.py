"""Quantities, semantic versions and named formats: Kubernetes' libraries of these names."""

import base64
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, Final

from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.functions.network import url_problem
from dralab.cel.functions.times import timestamp
from dralab.cel.values import INT_MAX, INT_MIN, NOTHING, Format, Optional, Quantity
from dralab.kernel.times import is_date
from dralab.values import names
from dralab.values.quantity import QuantityError, int64_scale, is_quantity, parse
from dralab.values.version import Version

MAX_VERSION_NUMBER: Final = 2**64 - 1
UUID: Final = re.compile(
    r"[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}", re.IGNORECASE
)
BASE64: Final = re.compile(
    r"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})", re.ASCII
)


def quantity(text: Any) -> Quantity:
    """Return the quantity of a text."""
    if type(text) is not str:
        raise no_such_overload()
    try:
        return Quantity(parse(text), int64_scale(text))
    except QuantityError as error:
        raise CelError(str(error)) from None


def is_quantity_text(text: Any) -> bool:
    """Return whether a text is a quantity."""
    if type(text) is not str:
        raise no_such_overload()
    return is_quantity(text)


def _number(value: Any) -> int | Fraction:
    if type(value) is not Quantity:
        raise no_such_overload()
    return value.number


def sign(value: Any) -> int:
    """Return -1, 0 or 1."""
    number = _number(value)
    return int(number > 0) - int(number < 0)


def is_integer(value: Any) -> bool:
    """Return whether the API server holds a quantity as a whole number of 64 bits.

    That depends on how it was written: of 1Ti that is so, of 1Pi and of 1.0 it is not.
    """
    number = _number(value)
    return value.scale is not None and value.scale >= 0 and INT_MIN <= number <= INT_MAX


def as_integer(value: Any) -> int:
    """Return a quantity as an int."""
    if not is_integer(value):
        raise CelError("cannot convert value to integer")
    return int(_number(value))


def as_approximate_float(value: Any) -> float:
    """Return a quantity as a double."""
    return float(_number(value))


def add(left: Any, right: Any) -> Quantity:
    """Return a quantity and another quantity or an int, added."""
    return _result(left, right, _number(left) + _operand(right))


def subtract(left: Any, right: Any) -> Quantity:
    """Return a quantity less another quantity or an int."""
    return _result(left, right, _number(left) - _operand(right))


def _operand(value: Any) -> int | Fraction:
    return int(value) if type(value) is int else _number(value)


def _result(left: Quantity, right: Any, number: int | Fraction) -> Quantity:
    other = right.scale if type(right) is Quantity else 0
    scale = None if left.scale is None or other is None else min(left.scale, other)
    # Beyond 64 bits a sum is kept in another form, which is not an integer any more.
    if scale is not None and not INT_MIN <= number / Fraction(10) ** scale <= INT_MAX:
        scale = None
    return Quantity(int(number) if number.denominator == 1 else number, scale)


def _pair(left: Any, right: Any) -> tuple[Any, Any]:
    if type(left) is not type(right):
        raise no_such_overload()
    if type(left) is Version:
        return left, right
    return _number(left), _number(right)


def is_greater_than(left: Any, right: Any) -> bool:
    """Return whether a quantity or version is greater than another."""
    first, second = _pair(left, right)
    return bool(first > second)


def is_less_than(left: Any, right: Any) -> bool:
    """Return whether a quantity or version is less than another."""
    first, second = _pair(left, right)
    return bool(first < second)


def compare_to(left: Any, right: Any) -> int:
    """Return -1, 0 or 1."""
    first, second = _pair(left, right)
    return int(first > second) - int(first < second)


def _normalized(text: str) -> str:
    """Return a version without `v` and leading zeros, and with all three numbers."""
    parts = text.removeprefix("v").split(".", 2)
    for position, part in enumerate(parts):
        if len(part) > 1:
            stripped = part.lstrip("0")
            parts[position] = stripped if stripped[:1].isdigit() else "0" + stripped
    if len(parts) < 3:
        if "+" in parts[-1] or "-" in parts[-1]:
            raise CelError("Short version cannot contain PreRelease/Build meta data")
        parts += ["0"] * (3 - len(parts))
    return ".".join(parts)


def semver(text: Any, normalize: Any = False) -> Version:  # noqa: FBT002 - CEL has no keywords
    """Return the semantic version of a text."""
    if type(text) is not str or type(normalize) is not bool:
        raise no_such_overload()
    if normalize:
        text = _normalized(text)
    try:
        version = Version.parse(text)
    except ValueError as error:
        if text.count(".") < 2:
            raise CelError("No Major.Minor.Patch elements found") from None
        raise CelError(str(error)) from None
    if max(version.major, version.minor, version.patch) > MAX_VERSION_NUMBER:
        raise CelError(f"{text!r} has a number of more than 64 bits")
    return version


def is_semver(text: Any, normalize: Any = False) -> bool:  # noqa: FBT002 - CEL has no keywords
    """Return whether a text is a semantic version."""
    if type(text) is not str or type(normalize) is not bool:
        raise no_such_overload()
    try:
        semver(text, normalize)
    except CelError:
        return False
    return True


def _version(value: Any) -> Version:
    if type(value) is not Version:
        raise no_such_overload()
    return value


def major(value: Any) -> int:
    """Return the first number of a version."""
    return _version(value).major


def minor(value: Any) -> int:
    """Return the second number of a version."""
    return _version(value).minor


def patch(value: Any) -> int:
    """Return the third number of a version."""
    return _version(value).patch


def _prefix(check: Callable[[str], list[str]]) -> Callable[[str], list[str]]:
    """Return the check of a name prefix."""

    def problems(text: str) -> list[str]:
        # The last letter may be a dash, since more follows (NameIsDNSLabel with prefix).
        return check(text[:-1] + "a" if len(text) > 1 and text.endswith("-") else text)

    return problems


def _uri(text: str) -> list[str]:
    problem = url_problem(text)
    return [problem] if problem else []


def _uuid(text: str) -> list[str]:
    return [] if UUID.fullmatch(text) else ["does not match the UUID format"]


def _base64(text: str) -> list[str]:
    if BASE64.fullmatch(text) and base64.b64decode(text):
        return []
    return ["invalid base64"]


def _date(text: str) -> list[str]:
    return [] if is_date(text) else ["invalid date"]


def _datetime(text: str) -> list[str]:
    try:
        timestamp(text)
    except CelError:
        return ["invalid datetime"]
    return []


FORMATS: Final = {
    "dns1123Label": Format("DNS1123Label", names.label_problems, 30),
    "dns1123Subdomain": Format("DNS1123Subdomain", names.subdomain_problems, 60),
    "dns1035Label": Format("DNS1035Label", names.label_1035_problems, 30),
    "qualifiedName": Format("QualifiedName", names.qualified_problems, 60),
    "dns1123LabelPrefix": Format("DNS1123LabelPrefix", _prefix(names.label_problems), 30),
    "dns1123SubdomainPrefix": Format(
        "DNS1123SubdomainPrefix", _prefix(names.subdomain_problems), 60
    ),
    "dns1035LabelPrefix": Format("DNS1035LabelPrefix", _prefix(names.label_1035_problems), 30),
    "labelValue": Format("LabelValue", names.label_value_problems, 40),
    "uri": Format("URI", _uri, 1103),
    "uuid": Format("uuid", _uuid, 70),
    "byte": Format("byte", _base64, 84),
    "date": Format("date", _date, 71),
    "datetime": Format("datetime", _datetime, 71),
}


def named_format(name: Any) -> Optional:
    """Return a format by its name, if there is one."""
    if type(name) is not str:
        raise no_such_overload()
    found = FORMATS.get(name)
    return NOTHING if found is None else Optional(present=True, value=found)


def validate(format_: Any, text: Any) -> Optional:
    """Return the errors of a text, or nothing."""
    if type(format_) is not Format or type(text) is not str:
        raise no_such_overload()
    problems = format_.problems(text)
    return Optional(present=True, value=list(problems)) if problems else NOTHING


def _constant(value: Format) -> Callable[[], Format]:
    return lambda: value


FUNCTIONS: Final[dict[str, Callable[..., Any]]] = {
    "quantity": quantity, "isQuantity": is_quantity_text, "sign": sign,
    "isInteger": is_integer, "asInteger": as_integer,
    "asApproximateFloat": as_approximate_float, "add": add, "sub": subtract,
    "isGreaterThan": is_greater_than, "isLessThan": is_less_than, "compareTo": compare_to,
    "semver": semver, "isSemver": is_semver, "major": major, "minor": minor, "patch": patch,
    "format.named": named_format, "validate": validate,
    **{f"format.{name}": _constant(value) for name, value in FORMATS.items()},
}  # fmt: skip

QUANTITY_SIGNATURES: Final = """
string_to_quantity quantity(string) -> Quantity
is_quantity_string isQuantity(string) -> bool
quantity_sign sign(Quantity) -> int
quantity_is_greater_than Quantity.isGreaterThan(Quantity) -> bool
quantity_is_less_than Quantity.isLessThan(Quantity) -> bool
quantity_compare_to Quantity.compareTo(Quantity) -> int
quantity_get_float Quantity.asApproximateFloat() -> double
quantity_get_int Quantity.asInteger() -> int
quantity_is_integer Quantity.isInteger() -> bool
quantity_add Quantity.add(Quantity) -> Quantity
quantity_add_int Quantity.add(int) -> Quantity
quantity_sub Quantity.sub(Quantity) -> Quantity
quantity_sub_int Quantity.sub(int) -> Quantity
"""
SEMVER_SIGNATURES: Final = """
string_to_semver semver(string) -> Semver
string_bool_to_semver semver(string, bool) -> Semver
is_semver_string isSemver(string) -> bool
is_semver_string_bool isSemver(string, bool) -> bool
semver_is_greater_than Semver.isGreaterThan(Semver) -> bool
semver_is_less_than Semver.isLessThan(Semver) -> bool
semver_compare_to Semver.compareTo(Semver) -> int
semver_major Semver.major() -> int
semver_minor Semver.minor() -> int
semver_patch Semver.patch() -> int
"""
FORMAT_SIGNATURES: Final = "\n".join(
    [
        "format-named format.named(string) -> optional(Format)",
        "format-validate Format.validate(string) -> optional(list(string))",
        *(f"format.{name} format.{name}() -> Format" for name in FORMATS),
    ]
)
