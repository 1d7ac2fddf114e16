"""Schedules of CronJobs: when the next run is, in a time zone.

Source: robfig/cron v3, which kube-controller-manager and the API server parse schedules with. The
messages are its own.
"""

import re
from collections.abc import Iterator, Mapping
from datetime import MAXYEAR, UTC, datetime, timedelta, tzinfo
from itertools import takewhile
from typing import TYPE_CHECKING, Final

from dralab.values.records import dataclass

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
DAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
DESCRIPTORS: Final[Mapping[str, str]] = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
EVERY: Final = "@every "
UNITS: Final[Mapping[str, float]] = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "h": 3600,
}  # fmt: skip
NUMBER: Final = r"(?:\d+\.?\d*|\.\d+)"
PART: Final = re.compile(rf"({NUMBER})(ns|us|µs|μs|ms|s|m|h)")
DURATION: Final = re.compile(rf"[-+]?(?:0|(?:{PART.pattern})+)", re.ASCII)
INTEGER: Final = re.compile(r"[-+]?\d+", re.ASCII)
# A schedule such as 30 February never comes; the search for the next run ends after these years.
LONGEST_SEARCH: Final = 5
# How far to look back for the last run; each only where the shorter ones had none.
SPANS: Final = tuple(timedelta(hours=hours) for hours in (1, 24, 24 * 32, 24 * 366 * 5))
EARLY: Final = datetime.min.replace(tzinfo=UTC)
LAST: Final = datetime.max.replace(tzinfo=UTC)
LONGEST_EVERY: Final = 2**63 // 10**9  # seconds: what Go's time.Duration can hold


class ScheduleError(ValueError):
    """A text that is not a schedule."""


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSchedule:
    """A run after each interval, from `@every 1h30m`."""

    interval: timedelta

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the runs after a moment, soonest first."""
        moment = moment.replace(microsecond=0)
        while moment < LAST - self.interval:
            moment += self.interval
            yield moment

    def latest(self, since: datetime, until: datetime) -> datetime | None:
        """Return the last run after `since` and not after `until`."""
        begin = since.replace(microsecond=0)
        count = (until - begin) // self.interval
        return begin + count * self.interval if count > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule:
    """Minutes, hours, days of the month, months, days of the week (0 is Sunday).

    A day has to match both kinds of day where one of them is `*` or `?`, and otherwise either.
    """

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    any_day: bool
    zone: tzinfo = UTC

    def after(self, moment: datetime) -> Iterator[datetime]:
        """Yield the runs after a moment, in UTC, soonest first.

        A time that a change of the clock leaves out is skipped; one that it repeats runs twice.
        """
        moment = _whole_minute(moment.astimezone(UTC)) + timedelta(minutes=1)
        last_year = min(moment.year + LONGEST_SEARCH, MAXYEAR - 1)
        while moment.year <= last_year:
            local = moment.astimezone(self.zone)
            if not self._is_day(local):
                moment = _next_midnight(local)
            elif local.hour not in self.hours:
                moment += timedelta(minutes=60 - local.minute)
            elif local.minute not in self.minutes:
                moment += timedelta(minutes=1)
            else:
                yield moment
                moment += timedelta(minutes=1)
                last_year = min(moment.year + LONGEST_SEARCH, MAXYEAR - 1)

    def latest(self, since: datetime, until: datetime) -> datetime | None:
        """Return the last run after `since` and not after `until`; in few steps, however long.

        >>> utc = datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
        >>> parse("30 4 * * *").latest(*utc).isoformat()
        '2025-12-31T04:30:00+00:00'
        """
        for span in SPANS:
            begin = max(since, until - span) if until - EARLY > span else since
            found = None
            for moment in takewhile(until.__ge__, self.after(begin)):
                found = moment
            if found is not None or begin == since:
                return found
        return None

    def _is_day(self, day: datetime) -> bool:
        if day.month not in self.months:
            return False
        matches = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return all(matches) if self.any_day else any(matches)


Runs = Schedule | IntervalSchedule


def parse(text: str, zone: str | None = None) -> Runs:
    """Return a schedule: five fields, a descriptor such as `@daily`, or `@every 1h30m`.

    >>> next(parse("30 4 * * mon-fri").after(datetime(2026, 1, 2, 5, tzinfo=UTC))).isoformat()
    '2026-01-05T04:30:00+00:00'
    """
    place = time_zone(zone) if zone else UTC
    if not text:
        raise ScheduleError("empty spec string")
    if text.startswith(EVERY):
        return IntervalSchedule(interval=_interval(text))
    if text.startswith("@") and text not in DESCRIPTORS:
        raise ScheduleError(f"unrecognized descriptor: {text}")
    fields = DESCRIPTORS.get(text, text).split()
    if len(fields) != 5:
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    minutes, _ = _field(fields[0], 0, 59)
    hours, _ = _field(fields[1], 0, 23)
    days, any_day = _field(fields[2], 1, 31)
    months, _ = _field(fields[3], 1, 12, MONTHS)
    weekdays, any_weekday = _field(fields[4], 0, 6, DAYS)
    return Schedule(
        minutes=minutes,
        hours=hours,
        days=days,
        months=months,
        weekdays=weekdays,
        any_day=any_day or any_weekday,
        zone=place,
    )


def time_zone(name: str) -> "ZoneInfo":
    """Return the zone of an IANA name. ScheduleError."""
    # With the first zone: few servers have CronJobs, and all import this module.
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:  # OSError: too long for a file
        raise ScheduleError(f"unknown time zone {name}") from error


def _whole_minute(moment: datetime) -> datetime:
    return moment.replace(second=0, microsecond=0)


def _next_midnight(local: datetime) -> datetime:
    """Return when the next day begins, in UTC; where its midnight is left out, the hour after."""
    midnight = local.replace(hour=0, minute=0, fold=0, tzinfo=None) + timedelta(days=1)
    return midnight.replace(tzinfo=local.tzinfo).astimezone(UTC)


def _interval(text: str) -> timedelta:
    """Return the interval of `@every`: whole seconds, at least one."""
    duration = text.removeprefix(EVERY)
    seconds = sum(float(n) * UNITS[unit] for n, unit in PART.findall(duration))
    if not DURATION.fullmatch(duration) or seconds > LONGEST_EVERY:
        raise ScheduleError(f'failed to parse duration {text}: time: invalid duration "{duration}"')
    if duration.startswith("-"):
        seconds = 0
    return timedelta(seconds=max(1, int(seconds)))


def _field(
    text: str, least: int, most: int, names: tuple[str, ...] = ()
) -> tuple[frozenset[int], bool]:
    """Return the values of a field, and whether it is `*` or `?` without a step."""
    found: set[int] = set()
    starred = False
    for part in filter(None, text.split(",")):
        values, star = _range(part, least, most, names)
        found |= set(values)
        starred |= star
    return frozenset(found), starred


def _range(text: str, least: int, most: int, names: tuple[str, ...]) -> tuple[range, bool]:
    """Return the values of `*`, `5`, `mon-fri`, `5/15` or `1-30/2`; whether it is `*` or `?`."""
    span, *steps = text.split("/")
    low, *highs = span.split("-")
    star = low in {"*", "?"}
    if len(highs) > 1 and not star:
        raise ScheduleError(f"too many hyphens: {text}")
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {text}")
    if star:
        begin, end = least, most
    else:
        begin = _number(low, least, names)
        # "5/15" means "5-59/15".
        end = _number(highs[0], least, names) if highs else most if steps else begin
    step = _number(steps[0]) if steps else 1
    if begin < least:
        raise ScheduleError(f"beginning of range ({begin}) below minimum ({least}): {text}")
    if end > most:
        raise ScheduleError(f"end of range ({end}) above maximum ({most}): {text}")
    if begin > end:
        raise ScheduleError(f"beginning of range ({begin}) beyond end of range ({end}): {text}")
    if step == 0:
        raise ScheduleError(f"step of range should be a positive number: {text}")
    return range(begin, end + 1, step), star and step == 1


def _number(word: str, first: int = 0, names: tuple[str, ...] = ()) -> int:
    if word.lower() in names:
        return names.index(word.lower()) + first
    if not INTEGER.fullmatch(word):
        raise ScheduleError(
            f'failed to parse int from {word}: strconv.Atoi: parsing "{word}": invalid syntax'
        )
    number = int(word)
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {word}")
    return number
