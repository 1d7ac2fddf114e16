"""Schedules, compared with what robfig/cron v3.0.1 says (`cron.json`, recorded with Go)."""

import json
from datetime import UTC, datetime
from itertools import islice, takewhile
from pathlib import Path

import pytest

from dralab.values import cron

RECORDED = json.loads(Path(__file__).with_name("cron.json").read_text())


def runs(schedule, zone, after, count):
    found = islice(cron.parse(schedule, zone).after(datetime.fromisoformat(after)), count)
    return [time.strftime("%Y-%m-%dT%H:%M:%SZ") for time in found]


@pytest.mark.parametrize(("schedule", "zone", "after", "expected"), RECORDED["next"])
def test_the_runs_of_a_schedule_are_those_of_kubernetes(schedule, zone, after, expected):
    assert runs(schedule, zone, after, 6) == expected


@pytest.mark.parametrize(("schedule", "message"), RECORDED["refused"])
def test_what_kubernetes_refuses_is_refused_with_its_message(schedule, message):
    with pytest.raises(cron.ScheduleError) as refused:
        cron.parse(schedule)
    assert str(refused.value) == message


@pytest.mark.parametrize("schedule", ["@every -5s", "+5 * * * *", ", * * * *", "*-5 * * * *"])
def test_oddities_that_kubernetes_accepts_are_accepted(schedule):
    cron.parse(schedule)


def test_every_second_day_is_not_every_day():
    after = "2026-01-01T12:00:00Z"
    assert runs("0 0 */2 * *", "UTC", after, 2) == ["2026-01-03T00:00:00Z", "2026-01-05T00:00:00Z"]


def test_a_repeated_hour_runs_twice_and_a_missing_one_not_at_all():
    assert runs("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00:00Z", 2) == [
        "2026-10-25T00:30:00Z",
        "2026-10-25T01:30:00Z",
    ]
    assert runs("30 2 * * *", "Europe/Berlin", "2026-03-28T12:00:00Z", 1) == [
        "2026-03-30T00:30:00Z"
    ]


def test_the_search_for_a_day_that_never_comes_ends():
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
    every = list(takewhile(until.__ge__, schedule.after(since)))
    assert schedule.latest(since, until) == every[-1]
    assert schedule.latest(every[-1], every[-1]) is None
