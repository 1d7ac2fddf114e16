"""Times of the crontab kind: when the next one is, in a time zone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import takewhile
from typing import Final
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
NAMED: Final = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EVERY: Final = re.compile(r"(\d+(?:\.\d+)?)(h|m|s)")
# A schedule such as 30 February never comes; nobody waits longer than this for one that does.
LONGEST_SEARCH: Final = 366 * 5
# How far to look back for the last time; each only where the shorter ones had none.
SPANS: Final = tuple(timedelta(hours=hours) for hours in (1, 24, 24 * 32, 24 * LONGEST_SEARCH))
EARLY: Final = datetime.min.replace(tzinfo=UTC)
LAST: Final = datetime.max.replace(tzinfo=UTC)
LONGEST_EVERY: Final = 2**63 // 10**9  # seconds: what Go's time.Duration can hold


class ScheduleError(ValueError):
    """A text that is no schedule."""


@dataclass(frozen=True, slots=True)
class Schedule:
    """Minutes, hours, days of the month, months, days of the week (0 is Sunday).

    Where both kinds of day are given, either will do (robfig/cron, as kube-controller-manager).
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None
    zone: ZoneInfo | None = None
    every: int = 0

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the times after a moment, in UTC, soonest first."""
        if self.every:
            current = moment.replace(microsecond=0)
            step = timedelta(seconds=self.every)
            while current < LAST - step:
                current += step
                yield current
            return
        zone = self.zone or UTC
        local = moment.astimezone(zone).replace(second=0, microsecond=0, tzinfo=None)
        day = local.replace(hour=0, minute=0)
        for _ in range(LONGEST_SEARCH):
            if day.month in self.months and self._is_day(day):
                for hour in sorted(self.hours):
                    for minute in sorted(self.minutes):
                        found = day.replace(hour=hour, minute=minute, tzinfo=zone).astimezone(UTC)
                        # An hour that a clock change leaves out does not come that day.
                        if found.astimezone(zone).hour == hour and found > moment:
                            yield found
            day += timedelta(days=1)

    def latest(self, since: datetime, until: datetime) -> datetime | None:
        """Return the last time after `since` and not after `until`; in few steps, however long.

        >>> utc = datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
        >>> parse("30 4 * * *").latest(*utc).isoformat()
        '2025-12-31T04:30:00+00:00'
        """
        if self.every:
            step = timedelta(seconds=self.every)
            begin = since.replace(microsecond=0)
            count = (until - begin) // step
            return begin + count * step if count > 0 else None
        for span in SPANS:
            begin = max(since, until - span) if until - EARLY > span else since
            found = None
            for moment in takewhile(until.__ge__, self.after(begin)):
                found = moment
            if found is not None or begin == since:
                return found
        return None

    def _is_day(self, day: datetime) -> bool:
        weekday = day.isoweekday() % 7
        if self.days is None or self.weekdays is None:
            return (self.days is None or day.day in self.days) and (
                self.weekdays is None or weekday in self.weekdays
            )
        return day.day in self.days or weekday in self.weekdays


def parse(text: str, zone: str | None = None) -> Schedule:
    """Return a schedule: five fields, a name such as `@daily`, or `@every 1h30m`.

    >>> next(parse("30 4 * * mon-fri").after(datetime(2026, 1, 2, 5, tzinfo=UTC))).isoformat()
    '2026-01-05T04:30:00+00:00'
    """
    place = _zone(zone)
    if text.startswith("@every "):
        parts = EVERY.findall(text.removeprefix("@every "))
        seconds = sum(float(n) * {"h": 3600, "m": 60, "s": 1}[unit] for n, unit in parts)
        if seconds < 1:
            raise ScheduleError(f"{text!r}: @every needs a duration of at least 1s")
        if seconds > LONGEST_EVERY:
            raise ScheduleError(f"failed to parse duration {text}: time: invalid duration")
        return Schedule(frozenset(), frozenset(), None, frozenset(), None, place, int(seconds))
    fields = NAMED.get(text, text).split()
    if len(fields) != 5:
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    minute, hour, day, month, weekday = fields
    weekdays = _field(weekday, 0, 7, DAYS)
    return Schedule(
        minutes=_field(minute, 0, 59),
        hours=_field(hour, 0, 23),
        days=None if day[0] in "*?" else _field(day, 1, 31),
        months=_field(month, 1, 12, MONTHS, first=1),
        weekdays=None if weekday[0] in "*?" else frozenset(n % 7 for n in weekdays),
        zone=place,
    )


def _zone(name: str | None) -> ZoneInfo | None:
    if not name:
        return None
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: too long for a file
        raise ScheduleError(f"unknown time zone {name}") from error


def _field(
    text: str, least: int, most: int, names: tuple[str, ...] = (), *, first: int = 0
) -> frozenset[int]:
    def number(word: str) -> int:
        if word.lower()[:3] in names:
            return names.index(word.lower()[:3]) + first
        if not word.isdecimal() or not least <= int(word) <= most:
            raise ScheduleError(f"{text!r}: {word!r} is not between {least} and {most}")
        return int(word)

    found: set[int] = set()
    for part in text.split(","):
        span, slash, step = part.partition("/")
        stride = int(step) if slash and step.isdecimal() and int(step) else 1
        if slash and stride == 1 and step != "1":
            raise ScheduleError(f"{text!r}: {step!r} is no step")
        if span in {"*", "?"}:
            low, high = least, most
        elif "-" in span:
            begin, _, end = span.partition("-")
            low, high = number(begin), number(end)
        else:
            low = number(span)
            high = most if slash else low
        if low > high:
            raise ScheduleError(f"{text!r}: {span!r} goes backward")
        found |= set(range(low, high + 1, stride))
    return frozenset(found)
