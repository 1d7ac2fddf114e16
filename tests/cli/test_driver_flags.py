"""Flags of the fake driver's programs: they hold requests back, and say in which form they log."""

import json
import logging

import pytest
from click.testing import CliRunner

from dralab.cli import driver_classic
from dralab.cli.driver_classic import JsonFormatter
from dralab.cli.main import main
from dralab.kernel.clock import SECOND, ManualClock
from dralab.runtime.throttle import Throttle


@pytest.fixture
def seen(monkeypatch):
    """The flags with which `set-nas-status` would ask its server."""
    found = []

    def client(flags, connection):
        found.append(flags)
        raise SystemExit(0)

    monkeypatch.setattr(driver_classic.ClientFlags, "client", client)
    return found


def run(*arguments, **environment):
    words = ["driver", "classic", "set-nas-status", "--server", "http://127.0.0.1:1"]
    words += ["--node", "n", "--status", "Ready", *arguments]
    return CliRunner(env=environment).invoke(main, words)


def test_the_arguments_of_the_chart_are_understood(seen):
    assert run("--logging-format=json", "-v=5", "--kube-api-qps=50").exit_code == 0
    assert (seen[0].logging_format, seen[0].verbosity) == ("json", 5)
    assert (seen[0].kube_api_qps, seen[0].kube_api_burst) == (50, 10)


def test_every_flag_can_come_from_the_environment(seen):
    run(KUBE_API_QPS="7", KUBE_API_BURST="9", LOGGING_FORMAT="json", V="2")
    flags = seen[0]
    assert (flags.kube_api_qps, flags.kube_api_burst) == (7, 9)
    assert (flags.logging_format, flags.verbosity) == ("json", 2)


def test_a_flag_that_makes_no_sense_is_refused(seen):
    assert "-1.0 is not in the range x>=0" in run("--kube-api-qps=-1").stderr
    assert "'loud' is not a valid integer" in run("-v=loud").stderr
    assert seen == []


def test_requests_beyond_the_burst_wait_for_their_turn():
    clock = ManualClock(0)
    throttle = Throttle(5, 10, clock)
    assert [throttle.delay() for _ in range(10)] == [0] * 10
    assert throttle.delay() == pytest.approx(0.2)
    clock.advance(SECOND)
    assert throttle.delay() == 0
    clock.advance(3600 * SECOND)
    assert [throttle.delay() > 0 for _ in range(11)] == [False] * 10 + [True]


def test_a_log_line_is_one_json_object():
    record = logging.LogRecord("dralab.x", logging.ERROR, "x.py", 7, "failed: %s", ("a\nb",), None)
    [line] = JsonFormatter().format(record).splitlines()
    assert json.loads(line)["msg"] == "failed: a\nb"
    assert json.loads(line)["err"] is True
