"""Runs a program to its end, or to an instant, at a given speed."""

import time
from collections.abc import Callable
from enum import Enum, auto
from typing import Final

from dralab.virtualtime.launching import StartedProgram
from dralab.virtualtime.supervisor import Supervisor
from dralab.virtualtime.timed_calls import SECOND

LOOK: Final = (
    0.05  # real seconds between two polls for events without notification, such as a signal
)


class RunEnding(Enum):
    """Why a run is over."""

    ENDED = auto()  # the program has ended
    REACHED = auto()  # the clock has come to the instant
    STOPPED = auto()  # the caller wanted it


def run(
    supervisor: Supervisor,
    program: StartedProgram,
    *,
    until: int | None = None,
    speed: float | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> RunEnding:
    """Run `program` until it ends, the clock reaches `until`, or `stop` says so.

    `speed` is how many virtual seconds a real one has; None goes as fast as the waits allow. While
    an outside peer is connected, the clock runs at most at real speed: an answer may take long.
    """
    pace: tuple[float, int, float] | None = None  # since when, by both clocks, at which speed
    while program.returncode is None:
        if stop():
            return RunEnding.STOPPED
        if not supervisor.wait_idle(LOOK) or program.returncode is not None:
            continue
        factor = speed
        if supervisor.connected_outside():
            factor = 1.0 if speed is None else min(speed, 1.0)
        if factor is None:
            pace = None
            if supervisor.step(until):
                continue
            if until is not None:
                supervisor.advance(until)
                return RunEnding.REACHED
            supervisor.doze(LOOK)
            continue
        if pace is None or pace[2] != factor:
            pace = (time.perf_counter(), supervisor.now, factor)
        left = _follow(supervisor, pace, until)
        if until is not None and supervisor.now >= until:
            return RunEnding.REACHED
        if left > 0:
            supervisor.doze(min(left, LOOK))
    return RunEnding.ENDED


def _follow(supervisor: Supervisor, pace: tuple[float, int, float], until: int | None) -> float:
    """Move the clock as far as it should be; return the real seconds to its next move."""
    began, start, factor = pace
    due = start + int((time.perf_counter() - began) * factor * SECOND)
    deadline = supervisor.next_deadline()
    ends = [instant for instant in (deadline, until) if instant is not None]
    target = max(min([due, *ends]), supervisor.now)
    if target > supervisor.now or target == deadline:
        supervisor.advance(target)
    if not ends:
        return LOOK
    return (min(ends) - due) / SECOND / factor
