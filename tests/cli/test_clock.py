"""`dralab simulate program`, as a user starts it."""

import signal
import subprocess
import sys

import pytest

from clocked import needs_clock

pytestmark = needs_clock
RUN = [sys.executable, "-m", "dralab", "simulate", "program"]


def clock(*words):
    return subprocess.run([*RUN, *words], capture_output=True, text=True, check=False)


def test_a_day_of_dates():
    done = clock(
        *("--start", "2026-01-01T00:00:00Z", "--until", "3h", "--"),
        *("sh", "-c", "while date -u +%FT%T; do sleep 3600; done"),
    )
    assert done.stdout.split() == [f"2026-01-01T0{hour}:00:00" for hour in range(4)]
    assert done.returncode == 0
    assert "3:00:00 passed" in done.stderr


def test_it_ends_with_the_code_of_the_program():
    assert clock("--", "sh", "-c", "exit 3").returncode == 3
    assert clock("sh", "-c", "kill -9 $$").returncode == 137


def test_what_is_left_running_is_named():
    done = clock("sh", "-c", "sleep 1000 & echo bye")
    assert done.stdout == "bye\n"
    assert "ended processes that sh left running: sleep (" in done.stderr


def test_a_faster_clock_is_still_a_clock():
    done = clock("--speed", "1000x", "sh", "-c", "sleep 50; date -u +%s")
    assert done.returncode == 0
    assert "0:00:50" in done.stderr


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--start", "noon", "ls"], "'noon' is not a time such as 2026-01-01T00:00:00Z"),
        (["--until", "soon", "ls"], "'soon' is not a duration such as 90s, 1h30m or 7d"),
        (["--speed", "0x", "ls"], "'0x' is not max or a factor such as 100x"),
        (["--", "/no/such"], "cannot start /no/such: No such file or directory"),
        ([], "Missing argument 'COMMAND...'"),
    ],
)
def test_what_cannot_be_used_is_one_line(words, line):
    done = clock(*words)
    assert done.returncode == 2
    assert line in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_reaches_the_program_which_may_tidy_up(number):
    script = "trap 'sleep 60; echo tidy; exit 0' INT TERM; echo on; read line"
    with subprocess.Popen(
        [*RUN, "sh", "-c", script],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "on\n"
        process.send_signal(number)
        assert process.stdout.readline() == "tidy\n"
        assert process.wait() == 128 + number


def test_with_a_seed_the_clock_starts_at_the_same_time_and_lots_fall_the_same():
    first, again = (clock("--seed", "1", "sh", "-c", "date; mktemp -u; echo $$") for _ in range(2))
    assert first.returncode == 0
    if "process IDs differ" in first.stderr:
        pytest.skip(first.stderr)
    assert first.stdout == again.stdout
    assert "2026" in first.stdout
    assert first.stdout.split()[-1] == "2"
