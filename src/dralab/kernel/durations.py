"""Durations as people write them: `90`, `1.5h`, `1h30m`."""

import re
from datetime import timedelta
from typing import Final

from dralab.kernel.times import SECOND

DURATION: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d|w)")
UNITS: Final = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0, "w": 604_800.0}
# Seconds; no workload lasts 30,000 years.
LONGEST: Final = 1e12
MICROSECOND: Final = 1_000


def duration(value: object) -> int:
    """Return the nanoseconds of a text, a `timedelta` or a number of seconds.

    ValueError for anything else, and for less than nothing.

    >>> duration("1h30m") == duration(5400) == duration("1.5h") == duration(timedelta(hours=1.5))
    True
    """
    if isinstance(value, timedelta) and timedelta() <= value:
        return value // timedelta(microseconds=1) * MICROSECOND
    if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < LONGEST:
        return value * SECOND if isinstance(value, int) else round(value * SECOND)
    text = value if isinstance(value, str) else ""
    parts = DURATION.findall(text)
    total = sum(float(number) * UNITS[unit] for number, unit in parts)
    if not parts or "".join(a + b for a, b in parts) != text or total >= LONGEST:
        raise ValueError(f"{value!r} is not a duration: write 90, 90s, 1h30m or 7d")
    return round(total * SECOND)
