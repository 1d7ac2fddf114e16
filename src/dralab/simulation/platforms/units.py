"""Amounts with SimGrid's unit suffixes."""

import math
import re
from typing import Final

AMOUNT: Final = re.compile(
    r"\s*([0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|\.[0-9]+)\s*([A-Za-z]*)\s*"
)
PREFIXES: Final = {
    "": 1.0, "k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    "Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40, "Pi": 2.0**50,
}  # fmt: skip
SECONDS: Final = {
    "": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "ps": 1e-12,
    "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0,
}  # fmt: skip


def speed(text: str) -> float:
    """Return flop/s.

    >>> speed("1Gf"), speed("16.673E9flops"), speed("100.0f")
    (1000000000.0, 16673000000.0, 100.0)
    """
    number, unit = _split(text)
    for ending in ("flops", "f", ""):
        if unit.endswith(ending) and unit.removesuffix(ending) in PREFIXES:
            return number * PREFIXES[unit.removesuffix(ending)]
    raise ValueError(f"{text!r} is not a speed: write 1Gf, 100Mf or 2.5E9f")


def bandwidth(text: str) -> float:
    """Return bytes/s.

    >>> bandwidth("125MBps"), bandwidth("56Gbps"), bandwidth("1.25E8Bps")
    (125000000.0, 7000000000.0, 125000000.0)
    """
    number, unit = _split(text)
    for ending, factor in (("Bps", 1.0), ("bps", 1 / 8)):
        if unit.endswith(ending) and unit.removesuffix(ending) in PREFIXES:
            return number * PREFIXES[unit.removesuffix(ending)] * factor
    if not unit:
        return number
    raise ValueError(f"{text!r} is not a bandwidth: write 125MBps or 10Gbps")


def seconds(text: str) -> float:
    """Return seconds.

    >>> seconds("50ms"), seconds("1.5E-6s"), seconds("0")
    (0.05, 1.5e-06, 0.0)
    """
    number, unit = _split(text)
    if unit in SECONDS:
        return number * SECONDS[unit]
    raise ValueError(f"{text!r} is not a latency: write 50us or 1.5ms")


def _split(text: str) -> tuple[float, str]:
    found = AMOUNT.fullmatch(text)
    if found is None or not math.isfinite(float(found[1])):
        raise ValueError(f"{text!r} must be a number with a unit, not negative")
    return float(found[1]), found[2]
