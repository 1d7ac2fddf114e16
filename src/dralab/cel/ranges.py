"""Ranges of sizes and costs: 64-bit arithmetic that stops at its largest number."""

from math import ceil
from typing import Final, NamedTuple

LARGEST: Final = 2**64 - 1


class CostRange(NamedTuple):
    """At least `low`, at most `high`."""

    low: int
    high: int

    def __add__(self, other: object) -> "CostRange":
        """Return the sum of both ranges."""
        if not isinstance(other, CostRange):
            return NotImplemented
        return CostRange(min(self.low + other.low, LARGEST), min(self.high + other.high, LARGEST))

    def __mul__(self, other: object) -> "CostRange":
        """Return the product of both ranges."""
        if not isinstance(other, CostRange):
            return NotImplemented
        return CostRange(min(self.low * other.low, LARGEST), min(self.high * other.high, LARGEST))

    def joined(self, other: "CostRange") -> "CostRange":
        """Return the smallest range around both."""
        return CostRange(min(self.low, other.low), max(self.high, other.high))

    def scaled(self, factor: float) -> "CostRange":
        """Return both ends times a factor, rounded up."""
        return CostRange(_scaled(self.low, factor), _scaled(self.high, factor))


def _scaled(number: int, factor: float) -> int:
    # Floats on purpose: the rounding of large numbers is part of the recorded estimates.
    if number > 0 and factor > 0 and float(number) > LARGEST / factor:
        return LARGEST
    return min(ceil(float(number) * factor), LARGEST)


def fixed(number: int) -> CostRange:
    """Return the range of one number."""
    return CostRange(number, number)


NOTHING: Final = CostRange(0, 0)
ONE: Final = CostRange(1, 1)
UNKNOWN: Final = CostRange(0, LARGEST)
