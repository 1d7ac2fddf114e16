"""Times are read as Go's time.Parse reads RFC 3339, and written so that they can be read again."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dralab.kernel.times import (
    EARLIEST,
    LATEST,
    RFC3339_MICRO,
    SECOND,
    TimeError,
    from_rfc3339,
    is_date,
    rfc3339,
    rfc3339_micro,
)


@pytest.mark.parametrize(
    ("text", "written"),
    [
        ("0000-01-01T00:00:00Z", "0000-01-01T00:00:00.000000Z"),
        ("0000-02-29T23:59:59Z", "0000-02-29T23:59:59.000000Z"),
        ("0001-01-01T00:00:00Z", "0001-01-01T00:00:00.000000Z"),
        ("0033-04-03T15:00:00Z", "0033-04-03T15:00:00.000000Z"),
        ("9999-12-31T23:59:59.999999999Z", "9999-12-31T23:59:59.999999Z"),
        ("2026-01-02T03:04:05.1234567890123Z", "2026-01-02T03:04:05.123456Z"),
        ("2026-01-02T03:04:05,5Z", "2026-01-02T03:04:05.500000Z"),
        ("2026-01-02T3:04:05Z", "2026-01-02T03:04:05.000000Z"),
        ("2026-01-02T03:04:05+05:30", "2026-01-01T21:34:05.000000Z"),
        ("2026-01-02T03:04:05-24:60", "2026-01-03T04:04:05.000000Z"),
        ("0000-01-01T00:00:00-01:00", "0000-01-01T01:00:00.000000Z"),
    ],
)
def test_what_go_reads_is_read(text, written):
    assert rfc3339_micro(from_rfc3339(text)) == written


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", 'parsing time "" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "2006"'),
        ("nope", 'parsing time "nope" as "2006-01-02T15:04:05Z07:00": cannot parse "nope" as "2006"'),
        (
            "2026-01-02",
            'parsing time "2026-01-02" as "2006-01-02T15:04:05Z07:00": cannot parse "" as "T"',
        ),
        (
            "2026-01-02t03:04:05Z",
            'parsing time "2026-01-02t03:04:05Z" as "2006-01-02T15:04:05Z07:00": '
            'cannot parse "t03:04:05Z" as "T"',
        ),
        (
            "2026-01-02T03:04:05z",
            'parsing time "2026-01-02T03:04:05z" as "2006-01-02T15:04:05Z07:00": '
            'cannot parse "z" as "Z07:00"',
        ),
        ("2026-01-02T03:04:05Zz", 'parsing time "2026-01-02T03:04:05Zz": extra text: "z"'),
        ("2026-13-02T03:04:05Z", 'parsing time "2026-13-02T03:04:05Z": month out of range'),
        ("2026-02-30T03:04:05Z", 'parsing time "2026-02-30T03:04:05Z": day out of range'),
        ("2026-01-02T24:00:00Z", 'parsing time "2026-01-02T24:00:00Z": hour out of range'),
        ("2026-01-02T03:04:60Z", 'parsing time "2026-01-02T03:04:60Z": second out of range'),
        (
            "0000-01-01T00:00:00+01:00",
            'parsing time "0000-01-01T00:00:00+01:00": year out of range',
        ),
        (
            "9999-12-31T23:59:59-00:01",
            'parsing time "9999-12-31T23:59:59-00:01": year out of range',
        ),
        ("20260-01-02T03:04:05Z", 'parsing time "20260-01-02T03:04:05Z" as "2006-01-02T15:04:05Z07:00": cannot parse "0-01-02T03:04:05Z" as "-"'),
    ],
)  # fmt: skip
def test_what_go_refuses_is_refused_in_its_words(text, why):
    with pytest.raises(TimeError) as refused:
        from_rfc3339(text)
    assert str(refused.value) == why


def test_a_micro_time_has_six_digits():
    assert from_rfc3339("2026-01-02T03:04:05.000001Z", RFC3339_MICRO) % SECOND == 1000
    with pytest.raises(TimeError) as refused:
        from_rfc3339("2026-01-02T03:04:05Z", RFC3339_MICRO)
    assert str(refused.value) == (
        'parsing time "2026-01-02T03:04:05Z" as "2006-01-02T15:04:05.000000Z07:00": '
        'cannot parse "Z" as ".000000"'
    )


@given(st.integers(EARLIEST, LATEST))
def test_every_time_is_read_back_to_the_microsecond(when):
    assert from_rfc3339(rfc3339_micro(when)) == when // 1000 * 1000
    assert from_rfc3339(rfc3339(when)) == when // SECOND * SECOND


@given(st.datetimes(timezones=st.just(UTC)))
def test_the_calendar_is_that_of_datetime(moment):
    since = (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    text = moment.replace(tzinfo=None).isoformat(timespec="microseconds") + "Z"
    assert from_rfc3339(text) == since * 1000
    assert rfc3339_micro(since * 1000) == text


@pytest.mark.parametrize("when", [-(10**30), 10**30])
def test_a_sum_beyond_the_calendar_is_its_end(when):
    assert rfc3339(when) == rfc3339(EARLIEST if when < 0 else LATEST)


def test_a_date_is_a_day_of_the_calendar():
    assert is_date("0000-02-29")
    assert not is_date("2026-02-29")
    assert not is_date("2026-2-2")
