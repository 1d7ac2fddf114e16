"""Times of the crontab kind: when the next one is, in a time zone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
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
            while True:
                current += timedelta(seconds=self.every)
                yield current
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
