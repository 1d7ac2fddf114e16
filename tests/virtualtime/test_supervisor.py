"""The clock as its owner sees it."""

import pytest

from clocked import SECOND, START, needs_clock
from dralab.virtualtime import Supervisor

pytestmark = needs_clock


def test_it_says_when_all_is_idle_and_for_what_instant_it_waits():
    with Supervisor(start=START) as supervisor:
        program = supervisor.start(["sleep", "3600"])
        assert supervisor.wait_idle()
        assert supervisor.next_deadline() == START + 3600 * SECOND
        supervisor.advance(START + 3600 * SECOND)
        assert supervisor.wait_idle()
        assert (program.returncode, supervisor.now) == (0, START + 3600 * SECOND)
        assert supervisor.next_deadline() is None


def test_several_programs_have_one_clock():
    with Supervisor(start=START) as supervisor:
        programs = [supervisor.start(["sleep", str(n)]) for n in (30, 10, 20)]
        ended = []
        while supervisor.running:
            supervisor.wait_idle()
            ended += [
                (program.arguments[1], (supervisor.now - START) // SECOND)
                for program in programs
                if program.returncode == 0 and program.arguments[1] not in dict(ended)
            ]
            supervisor.step()
        assert ended == [("10", 10), ("20", 20), ("30", 30)]


def test_the_caller_may_stop_anywhere_on_the_way_but_pass_no_deadline():
    with Supervisor(start=START) as supervisor:
        supervisor.start(["sleep", "100"])
        supervisor.wait_idle()
        supervisor.advance(START + 60 * SECOND)
        assert supervisor.next_deadline() == START + 100 * SECOND
        with pytest.raises(ValueError, match="a program waits until"):
            supervisor.advance(START + 101 * SECOND)
        with pytest.raises(ValueError, match="time cannot go back"):
            supervisor.advance(START)


def test_steps_end_where_the_caller_wants():
    with Supervisor(start=START) as supervisor:
        supervisor.start(["sleep", "100"])
        supervisor.wait_idle()
        assert not supervisor.step(START + 99 * SECOND)
        assert supervisor.step(START + 100 * SECOND)


def test_a_program_that_never_rests_does_not_keep_its_owner_waiting():
    with Supervisor(start=START) as supervisor:
        supervisor.start(["sh", "-c", "while :; do :; done"])
        assert not supervisor.wait_idle(0.05)


def test_closing_ends_everything():
    with Supervisor(start=START) as supervisor:
        program = supervisor.start(["sh", "-c", "sleep 10 & sleep 20"])
        supervisor.wait_idle()
    assert program.returncode == -9
    assert not supervisor.running
