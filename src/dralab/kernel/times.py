"""Times as the API writes them, RFC 3339, and as the code counts them: integer nanoseconds.

Covers what Go's `time.Time` covers and `datetime` does not: the years 0000 to 9999, any number
of fractional digits, hours of one digit. There is no other reader of timestamps in the tree.
Sources: Go's `time.Parse`, k8s.io/apimachinery `meta/v1` (Time, MicroTime).
"""

import re
from datetime import date
from typing import Final, NewType, NoReturn

Nanoseconds = NewType("Nanoseconds", int)

SECOND: Final = 1_000_000_000
DAY: Final = 86_400
EPOCH: Final = date(1970, 1, 1).toordinal()
# The calendar repeats after 400 years; `date` has no year 0, but a year 400.
CYCLE: Final = 146_097

RFC3339: Final = "2006-01-02T15:04:05Z07:00"
RFC3339_MICRO: Final = "2006-01-02T15:04:05.000000Z07:00"
TIME: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)T(\d\d?):(\d\d):(\d\d)(?:[.,](\d+))?(?:Z|([+-])(\d\d):(\d\d))", re.ASCII
)
MICRO: Final = re.compile(r".*[.,]\d{6}(?:Z|[+-].*)", re.ASCII)
DATE: Final = re.compile(r"(\d{4})-(\d\d)-(\d\d)", re.ASCII)


class TimeError(ValueError):
    """A text that is not a time; `str` is Go's sentence."""


def from_rfc3339(text: str, layout: str = RFC3339) -> Nanoseconds:
    """Return the time of an RFC 3339 text. TimeError.

    `layout` RFC3339_MICRO demands six digits after the point, as metav1.MicroTime does.

    >>> from_rfc3339("2023-11-14T22:13:20Z")
    1700000000000000000
    >>> from_rfc3339("0000-01-01T00:00:00Z") < from_rfc3339("0001-01-01T00:00:00Z") < 0
    True
    """
    found = TIME.fullmatch(text)
    if found is None or (layout == RFC3339_MICRO and MICRO.fullmatch(text) is None):
        _refuse(text, layout)
    year, month, day, hour, minute, second, fraction, sign, east, east_minutes = found.groups()
    try:
        days = _days(int(year), int(month), int(day))
    except ValueError:
        raise TimeError(_out_of_range(text, "month" if not _is_month(month) else "day")) from None
    for value, limit, name in ((hour, 23, "hour"), (minute, 59, "minute"), (second, 59, "second")):
        if int(value) > limit:
            raise TimeError(_out_of_range(text, name))
    seconds = days * DAY + int(hour) * 3600 + int(minute) * 60 + int(second)
    if sign:
        # As Go: an offset of 24 hours or 60 minutes is odd, and written by some.
        if int(east) > 24:
            raise TimeError(_out_of_range(text, "time zone offset hour"))
        if int(east_minutes) > 60:
            raise TimeError(_out_of_range(text, "time zone offset minute"))
        offset = int(east) * 3600 + int(east_minutes) * 60
        seconds += offset if sign == "-" else -offset
    when = seconds * SECOND
    if fraction:
        when += int(fraction[:9].ljust(9, "0"))
    if not EARLIEST <= when <= LATEST:
        # Go takes it and writes a year that it cannot read again.
        raise TimeError(_out_of_range(text, "year"))
    return Nanoseconds(when)


def rfc3339(when: int) -> str:
    """Return `when` as metav1.Time writes it: UTC, whole seconds.

    What lies beyond the years 0000 to 9999 becomes the first or last second of them: sums with
    periods that a client chose never fail.

    >>> rfc3339(1_700_000_000_999_999_999)
    '2023-11-14T22:13:20Z'
    """
    return f"{_written(when)}Z"


def rfc3339_micro(when: int) -> str:
    """Return `when` as metav1.MicroTime writes it: UTC, six digits.

    >>> rfc3339_micro(1_700_000_000_123_456_789)
    '2023-11-14T22:13:20.123456Z'
    """
    return f"{_written(when)}.{when % SECOND // 1000:06d}Z"


def is_date(text: str) -> bool:
    """Return whether a text is a day of the calendar, as `2006-01-02`.

    >>> is_date("0000-02-29"), is_date("2023-02-29")
    (True, False)
    """
    found = DATE.fullmatch(text)
    if found is None:
        return False
    try:
        _days(*map(int, found.groups()))
    except ValueError:
        return False
    return True


def _days(year: int, month: int, day: int) -> int:
    """Return the days since the epoch; ValueError if the calendar has no such day."""
    if year == 0:
        return date(400, month, day).toordinal() - CYCLE - EPOCH
    return date(year, month, day).toordinal() - EPOCH


EARLIEST: Final = _days(0, 1, 1) * DAY * SECOND
LATEST: Final = (_days(9999, 12, 31) + 1) * DAY * SECOND - 1


def _written(when: int) -> str:
    seconds = min(max(when, EARLIEST), LATEST) // SECOND
    days, rest = divmod(seconds, DAY)
    ordinal = days + EPOCH
    if ordinal > 0:
        day = date.fromordinal(ordinal).isoformat()
    else:
        day = f"0000{date.fromordinal(ordinal + CYCLE).isoformat()[4:]}"
    hours, rest = divmod(rest, 3600)
    minutes, rest = divmod(rest, 60)
    return f"{day}T{hours:02d}:{minutes:02d}:{rest:02d}"


# --- Go's sentences ---------------------------------------------------------------------------

_PARTS: Final = (
    ("2006", r"\d{4}"), ("-", "-"), ("01", r"\d\d"), ("-", "-"), ("02", r"\d\d"), ("T", "T"),
    ("15", r"\d\d?"), (":", ":"), ("04", r"\d\d"), (":", ":"), ("05", r"\d\d"),
)  # fmt: skip
_ZONE: Final = ("Z07:00", r"Z|[+-]\d\d:\d\d")
_FRACTIONS: Final = {
    RFC3339: ("", r"(?:[.,]\d+)?"),
    RFC3339_MICRO: (".000000", r"[.,]\d{6}"),
}


def _refuse(text: str, layout: str) -> NoReturn:
    rest = text
    for part, pattern in (*_PARTS, _FRACTIONS[layout], _ZONE):
        found = re.match(pattern, rest, re.ASCII)
        if found is None:
            raise TimeError(
                f'parsing time {_quoted(text)} as "{layout}": cannot parse {_quoted(rest)} as '
                f'"{part}"'
            )
        rest = rest[found.end() :]
    raise TimeError(f"parsing time {_quoted(text)}: extra text: {_quoted(rest)}")


def _out_of_range(text: str, what: str) -> str:
    return f"parsing time {_quoted(text)}: {what} out of range"


def _is_month(text: str) -> bool:
    return 1 <= int(text) <= 12


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
