"""Programs that take turns share one processor, and move where others have much to do on it."""

import os

import pytest

from dralab.virtualtime import processors
from dralab.virtualtime.processors import CROWDED, LOOK, OneProcessor

pytestmark = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="not on this system")
SECOND = 1_000_000_000
OURS, PROGRAM = 71, 72  # threads


class Machine:
    """A machine with processors 2, 3 and 5, where we run on 3; and its clock."""

    def __init__(self, monkeypatch, allowed):
        self.seconds, self.waited, self.moves = 100.0, 0, []
        monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(allowed))
        monkeypatch.setattr(os, "sched_setaffinity", self.move)
        monkeypatch.setattr(processors._libc, "sched_getcpu", lambda: 3)
        monkeypatch.setattr(processors.time, "perf_counter", lambda: self.seconds)
        monkeypatch.setattr(processors, "_waited", lambda: self.waited)
        monkeypatch.setattr(processors, "_our_threads", lambda: [OURS])

    def move(self, tid, places):
        if tid not in {OURS, PROGRAM}:
            raise ProcessLookupError
        self.moves.append((tid, sorted(places)))

    def pass_time(self, seconds, share):
        """Let time pass; for this share of it we were ready to run, and others ran."""
        self.seconds += seconds
        self.waited += int(seconds * share * SECOND)


@pytest.fixture
def machine(monkeypatch):
    return Machine(monkeypatch, {2, 3, 5})


def test_all_stay_where_the_owner_of_their_clock_runs(machine):
    one = OneProcessor()
    assert machine.moves == [(OURS, [3])]
    machine.pass_time(LOOK * 2, CROWDED / 2)
    one.review([PROGRAM])
    assert machine.moves == [(OURS, [3])]


def test_all_move_on_where_others_have_much_to_do(machine):
    one = OneProcessor()
    machine.moves.clear()
    machine.pass_time(LOOK * 2, CROWDED * 2)
    one.review([PROGRAM, 73])  # the second has just ended
    assert machine.moves == [(OURS, [5]), (PROGRAM, [5])]
    machine.pass_time(LOOK * 2, CROWDED * 2)
    one.review([PROGRAM])
    assert machine.moves[2:] == [(OURS, [2]), (PROGRAM, [2])]


def test_it_is_not_looked_at_too_often_and_each_time_since_the_last(machine):
    one = OneProcessor()
    machine.moves.clear()
    machine.pass_time(LOOK / 2, 1)
    one.review([PROGRAM])
    assert not machine.moves
    machine.pass_time(LOOK * 4, 0)  # by now it was seldom crowded
    one.review([PROGRAM])
    machine.pass_time(LOOK * 2, 0)
    one.review([PROGRAM])
    assert not machine.moves


def test_there_is_nowhere_to_go_with_one_processor_and_all_are_ours_again_at_the_end(monkeypatch):
    machine = Machine(monkeypatch, {5})
    one = OneProcessor()
    assert machine.moves == [(OURS, [5])]  # we ran elsewhere, which we may not any more
    machine.pass_time(LOOK * 2, 1)
    one.review([PROGRAM])
    one.close()
    assert machine.moves == [(OURS, [5]), (OURS, [5])]
