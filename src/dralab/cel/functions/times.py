"""Timestamps and durations: reading, writing, calendar fields.

Formats: RFC 3339 for timestamps, Go's `time.Duration` for durations (`1h30m`, `1.5s`).
"""

import re
from datetime import UTC, datetime, timedelta, timezone
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.values import INT_MAX, INT_MIN, Duration, Timestamp
from dralab.kernel.times import TimeError, from_rfc3339

SECOND: Final = 10**9
TIMESTAMP_MIN: Final = -62135596800 * SECOND
TIMESTAMP_MAX: Final = 253402300800 * SECOND - 1
UNITS: Final = {
    "ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": SECOND,
    "m": 60 * SECOND, "h": 3600 * SECOND,
}  # fmt: skip
DURATION: Final = re.compile(
    r"([+-]?)((?:(?:\d+\.?\d*|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+|0)", re.ASCII
)
PART: Final = re.compile(r"(\d*)(?:\.(\d*))?(ns|us|µs|μs|ms|s|m|h)", re.ASCII)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
OFFSET: Final = re.compile(r"([+-]?)(\d\d):(\d\d)", re.ASCII)


def duration(value: Any) -> Duration:
    """Return the duration of a text or a duration."""
    if type(value) is Duration:
        return value
    if type(value) is not str:
        raise no_such_overload()
    found = DURATION.fullmatch(value) if len(value) <= 200 else None
    if found is None:
        raise CelError("type conversion error from 'string' to 'google.protobuf.Duration'")
    total = 0
    for whole, fraction, unit in PART.findall(found[2]):
        size = UNITS[unit]
        total += int(whole or 0) * size
        if fraction:
            total += int(fraction) * size // 10 ** len(fraction)
    return in_range(-total if found[1] == "-" else total)


def in_range(nanoseconds: int) -> Duration:
    """Return a duration, unless it has more than 64 bits."""
    if not INT_MIN <= nanoseconds <= INT_MAX:
        raise CelError("duration overflow")
    return Duration(nanoseconds)


def instant(nanoseconds: int) -> Timestamp:
    """Return a timestamp, unless it lies outside the years 1 to 9999."""
    if not TIMESTAMP_MIN <= nanoseconds <= TIMESTAMP_MAX:
        raise CelError("timestamp overflow")
    return Timestamp(nanoseconds)


def timestamp(value: Any) -> Timestamp:
    """Return the timestamp of a text, of Unix seconds, or of a timestamp."""
    if type(value) is Timestamp:
        return value
    if type(value) is int:
        return instant(value * SECOND)
    if type(value) is not str:
        raise no_such_overload()
    try:
        return instant(from_rfc3339(value))
    except TimeError as error:
        raise CelError(str(error)) from None


def timestamp_text(value: Timestamp) -> str:
    """Return a timestamp as RFC 3339 in UTC, with as many decimals as it needs."""
    seconds, nanoseconds = divmod(int(value), SECOND)
    moment = EPOCH + timedelta(seconds=seconds)
    text = f"{moment.year:04d}-{moment:%m-%dT%H:%M:%S}"
    if nanoseconds:
        text += f".{nanoseconds:09d}".rstrip("0")
    return text + "Z"


def duration_text(value: Duration) -> str:
    """Return a duration in seconds, such as `1.5s`."""
    sign = "-" if value < 0 else ""
    seconds, nanoseconds = divmod(abs(int(value)), SECOND)
    fraction = f".{nanoseconds:09d}".rstrip("0") if nanoseconds else ""
    return f"{sign}{seconds}{fraction}s"


@lru_cache(maxsize=256)
def _zone(name: str) -> timezone | ZoneInfo:
    if name in {"", "UTC", "Z"}:
        return UTC
    found = OFFSET.fullmatch(name)
    if found is not None:
        minutes = int(found[2]) * 60 + int(found[3])
        if minutes >= 24 * 60:
            raise CelError(f"unknown time zone {name}")
        return timezone(timedelta(minutes=-minutes if found[1] == "-" else minutes))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise CelError(f"unknown time zone {name}") from None


def local(value: Timestamp, zone: Any) -> datetime:
    """Return the wall-clock time of an instant in a named zone or at an offset."""
    if type(zone) is not str:
        raise no_such_overload()
    moment = EPOCH + timedelta(seconds=int(value) // SECOND)
    try:
        return moment.astimezone(_zone(zone))
    except OverflowError:
        raise CelError("timestamp overflow") from None


def _calendar(value: Any, zone: Any) -> datetime:
    if type(value) is not Timestamp:
        raise no_such_overload()
    return local(value, zone)


def full_year(value: Any, zone: Any = "UTC") -> int:
    """Return the year."""
    return _calendar(value, zone).year


def month(value: Any, zone: Any = "UTC") -> int:
    """Return the month, from 0."""
    return _calendar(value, zone).month - 1


def day_of_year(value: Any, zone: Any = "UTC") -> int:
    """Return the day of the year, from 0."""
    return _calendar(value, zone).timetuple().tm_yday - 1


def day_of_month(value: Any, zone: Any = "UTC") -> int:
    """Return the day of the month, from 0."""
    return _calendar(value, zone).day - 1


def date(value: Any, zone: Any = "UTC") -> int:
    """Return the day of the month, from 1."""
    return _calendar(value, zone).day


def day_of_week(value: Any, zone: Any = "UTC") -> int:
    """Return the day of the week, Sunday being 0."""
    return _calendar(value, zone).isoweekday() % 7


def _truncated(value: int, unit: int) -> int:
    return value // unit if value >= 0 else -(-value // unit)


def hours(value: Any, *zone: Any) -> int:
    """Return the hour of a timestamp, or a duration in hours."""
    if type(value) is Duration and not zone:
        return _truncated(int(value), 3600 * SECOND)
    return _calendar(value, *(zone or ("UTC",))).hour


def minutes(value: Any, *zone: Any) -> int:
    """Return the minute of a timestamp, or a duration in minutes."""
    if type(value) is Duration and not zone:
        return _truncated(int(value), 60 * SECOND)
    return _calendar(value, *(zone or ("UTC",))).minute


def seconds(value: Any, *zone: Any) -> int:
    """Return the second of a timestamp, or a duration in seconds."""
    if type(value) is Duration and not zone:
        return _truncated(int(value), SECOND)
    return _calendar(value, *(zone or ("UTC",))).second


def milliseconds(value: Any, *zone: Any) -> int:
    """Return the milliseconds within the second of a timestamp, or those of a duration."""
    if type(value) is Duration and not zone:
        return _truncated(int(value), 10**6)
    _calendar(value, *(zone or ("UTC",)))
    return int(value) % SECOND // 10**6
