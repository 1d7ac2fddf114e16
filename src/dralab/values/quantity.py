"""Kubernetes quantities: exact numbers with a unit suffix.

Source of the rules: k8s.io/apimachinery `resource.Quantity` (a number of at most nano precision,
binary suffixes Ki to Ei, decimal suffixes n to E, or an exponent; it is rounded up when finer).
"""

import math
import re
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal

Number = int | Fraction
Format = Literal["BinarySI", "DecimalSI", "DecimalExponent"]

PATTERN: Final = re.compile(
    r"(?P<sign>[+-]?)(?P<digits>[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
    r"(?P<suffix>[KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+|)"
)
DECIMAL_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*", re.ASCII)
BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
DECIMAL: Final = {
    "n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18,
}  # fmt: skip
SUFFIX_OF_EXPONENT: Final = {exponent: suffix for suffix, exponent in DECIMAL.items()}
LARGEST: Final = 2**63 - 1
NANO: Final = Fraction(1, 10**9)
MAX_LENGTH: Final = 512
MAX_EXPONENT: Final = 400


class QuantityError(ValueError):
    """A text that is not a quantity."""

    def __init__(self, text: str) -> None:
        super().__init__(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        )
        self.text = text


@lru_cache(maxsize=65536)
def parse(text: str) -> Number:
    """Return the exact number a text stands for: an int where it is whole.

    >>> parse("1Ki"), parse("1500m")
    (1024, Fraction(3, 2))
    """
    return _parse(text)[0]


def parse_any(value: object) -> Number:
    """Return the number of a quantity as JSON may carry it: a text or a plain number."""
    if isinstance(value, str):
        return parse(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise QuantityError(str(value))
    return parse(str(value))


def is_quantity(text: str) -> bool:
    """Return whether a text is a quantity."""
    try:
        parse(text)
    except QuantityError:
        return False
    return True


def is_decimal_integer(text: str) -> bool:
    """Return whether a text is an integer as people write it: `-7`, not `+7`, `07` or `7.0`.

    Source: k8s.io/apimachinery `content.IsDecimalInteger`, which is stricter than Go's ParseInt.
    """
    return DECIMAL_INTEGER.fullmatch(text) is not None


@lru_cache(maxsize=65536)
def canonical(text: str) -> str:
    """Return the text in which the API server stores a quantity.

    >>> [canonical(t) for t in ("1024Mi", "1500m", "2.0", "0.5Gi", "1e3", "1000k")]
    ['1Gi', '1500m', '2', '512Mi', '1e3', '1M']
    """
    number, form = _parse(text)
    return render(number, form)


def render(number: Number, form: Format = "DecimalSI") -> str:
    """Return the canonical text of a number in one of the three formats."""
    if number == 0:
        return "0"
    if form == "BinarySI":
        # A binary quantity below 1024 or with a fraction is written as decimal.
        if number.denominator == 1 and not -1024 < number < 1024:
            whole = int(number)
            for suffix, bits in reversed(BINARY.items()):
                if whole % (1 << bits) == 0:
                    return f"{whole >> bits}{suffix}"
            return str(whole)
        form = "DecimalSI"
    exponent = _exponent_of(number)
    scaled = number / Fraction(10) ** exponent if exponent >= 0 else number * 10**-exponent
    mantissa = int(scaled)
    if form == "DecimalExponent":
        return f"{mantissa}e{exponent}" if exponent else str(mantissa)
    return f"{mantissa}{SUFFIX_OF_EXPONENT[exponent]}"


@lru_cache(maxsize=65536)
def int64_scale(text: str) -> int | None:
    """Return the decimal exponent of a quantity that is kept as 64 bits, None if it is not.

    Source: the fast path of ParseQuantity, which counts digits.

    >>> [int64_scale(t) for t in ("80Gi", "1Ti", "1Pi", "1k", "1500m", "1.0")]
    [0, 0, None, 3, -3, -1]
    """
    found = PATTERN.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise QuantityError(text)
    suffix = found["suffix"]
    whole, _, fraction = found["digits"].partition(".")
    whole = whole.lstrip("0") or "0"
    if suffix in BINARY:
        exponent = BINARY[suffix]
        # 2^10 takes about three decimal digits.
        fits = not fraction and 15 - len(whole) - exponent * 3 // 10 - 1 >= 0
        return 0 if fits else None
    scale = (DECIMAL[suffix] if suffix in DECIMAL else int(suffix[1:])) - len(fraction)
    fits = len(whole) + len(fraction) <= 18 and scale >= -9
    # What is capped is not an integer either, though its digits fit.
    if not fits or (scale > 0 and int(whole + fraction) * 10**scale > LARGEST):
        return None
    return scale


def form_of(text: str) -> Format:
    """Return the format in which a text writes its number."""
    return _parse(text)[1]


def _exponent_of(number: Number) -> int:
    """Return the largest multiple of three that keeps the mantissa whole."""
    for exponent in (18, 15, 12, 9, 6, 3, 0, -3, -6):
        if (number * 10**9) % 10 ** (exponent + 9) == 0:
            return exponent
    return -9


@lru_cache(maxsize=65536)
def _parse(text: str) -> tuple[Number, Format]:
    found = PATTERN.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise QuantityError(text)
    suffix = found["suffix"]
    number: Number = Fraction(found["digits"])
    form: Format = "DecimalSI"
    if suffix in BINARY:
        number *= 1 << BINARY[suffix]
        form = "BinarySI"
    elif suffix in DECIMAL:
        number *= Fraction(10) ** DECIMAL[suffix]
    else:
        exponent = int(suffix[1:])
        if abs(exponent) > MAX_EXPONENT:
            raise QuantityError(text)
        number *= Fraction(10) ** exponent
        form = "DecimalExponent"
    # Finer than nano is rounded up, larger than int64 is capped: ParseQuantity does the same.
    if (number / NANO).denominator != 1:
        number = math.ceil(number / NANO) * NANO
    number = min(number, LARGEST)
    if found["sign"] == "-":
        number = -number
    return (int(number) if number.denominator == 1 else number), form
