"""Ranges of sizes and costs: 64-bit arithmetic that stops at its largest number."""

from math import ceil
from typing import Final, NamedTuple

LARGEST: Final = 2**64 - 1


class Range(NamedTuple):
    """At least `low`, at most `high`."""

    low: int
    high: int

    def __add__(self, other: object) -> "Range":
        """Return the sum of both ranges."""
        if not isinstance(other, Range):
            return NotImplemented
        return Range(min(self.low + other.low, LARGEST), min(self.high + other.high, LARGEST))

    def __mul__(self, other: object) -> "Range":
        """Return the product of both ranges."""
        if not isinstance(other, Range):
            return NotImplemented
        return Range(min(self.low * other.low, LARGEST), min(self.high * other.high, LARGEST))

    def joined(self, other: "Range") -> "Range":
        """Return the smallest range around both."""
        return Range(min(self.low, other.low), max(self.high, other.high))

    def scaled(self, factor: float) -> "Range":
        """Return both ends times a factor, rounded up."""
        return Range(_scaled(self.low, factor), _scaled(self.high, factor))


def _scaled(number: int, factor: float) -> int:
    # Floats on purpose: the rounding of large numbers is part of the recorded estimates.
    if number > 0 and factor > 0 and float(number) > LARGEST / factor:
        return LARGEST
    return min(ceil(float(number) * factor), LARGEST)


def fixed(number: int) -> Range:
    """Return the range of one number."""
    return Range(number, number)


NOTHING: Final = Range(0, 0)
ONE: Final = Range(1, 1)
UNKNOWN: Final = Range(0, LARGEST)
