from datetime import UTC, datetime
from itertools import islice

import pytest

from dralab.values import cron


@pytest.mark.parametrize(
    ("text", "zone", "after", "expected"),
    [
        ("0 * * * *", None, "2026-01-01T00:30", ["2026-01-01T01:00", "2026-01-01T02:00"]),
        ("*/20 3 * * *", None, "2026-01-01T00:00", ["2026-01-01T03:00", "2026-01-01T03:20"]),
        ("0 0 29 2 *", None, "2026-01-01T00:00", ["2028-02-29T00:00"]),
        ("0 0 1 * mon", None, "2026-01-01T12:00", ["2026-01-05T00:00", "2026-01-12T00:00"]),
        ("0 9 * * 7", None, "2026-01-01T00:00", ["2026-01-04T09:00"]),
        ("@daily", None, "2026-01-01T12:00", ["2026-01-02T00:00"]),
        ("@every 90m", None, "2026-01-01T00:00", ["2026-01-01T01:30", "2026-01-01T03:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-01-01T00:00", ["2026-01-01T01:30"]),
        # The night in which 02:30 does not exist.
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["2026-03-30T00:30"]),
    ],
)
def test_schedules_mean_what_crontab_says(text, zone, after, expected):
    moment = datetime.fromisoformat(after).replace(tzinfo=UTC)
    found = islice(cron.parse(text, zone).after(moment), len(expected))
    assert [time.strftime("%Y-%m-%dT%H:%M") for time in found] == expected


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("* * * *", "expected exactly 5 fields, found 4"),
        ("60 * * * *", "'60' is not between 0 and 59"),
        ("* * * * xyz", "'xyz' is not between 0 and 7"),
        ("5-1 * * * *", "'5-1' goes backward"),
        ("*/0 * * * *", "'0' is no step"),
        ("@every 0s", "at least 1s"),
    ],
)
def test_a_text_that_is_no_schedule_is_refused(text, why):
    with pytest.raises(cron.ScheduleError, match=why):
        cron.parse(text)


def test_a_schedule_that_never_comes_ends_its_search():
    assert list(islice(cron.parse("0 0 30 2 *").after(datetime(2026, 1, 1, tzinfo=UTC)), 1)) == []


@pytest.mark.parametrize(
    "zone", ["Nowhere/Land", "../etc/passwd", "/etc/passwd", "Europe", "a" * 5000]
)
def test_what_is_no_time_zone_is_refused(zone):
    with pytest.raises(cron.ScheduleError, match="unknown time zone"):
        cron.parse("* * * * *", zone)


def test_what_no_duration_can_hold_is_no_schedule():
    with pytest.raises(cron.ScheduleError):
        cron.parse(f"@every {'9' * 400}h")


@pytest.mark.parametrize("text", ["*/7 * * * *", "30 4 * * mon", "0 0 29 2 *", "@every 90m"])
def test_the_latest_time_is_the_last_of_all(text):
    schedule = cron.parse(text)
    since, until = datetime(2023, 12, 30, 1, tzinfo=UTC), datetime(2024, 3, 2, 5, tzinfo=UTC)
    every = [time for time in islice(schedule.after(since), 100_000) if time <= until]
    assert schedule.latest(since, until) == every[-1]
    assert schedule.latest(every[-1], every[-1]) is None
