"""A clock for other people's programs: unmodified binaries under a time that the caller owns.

A `Supervisor` starts programs, says when all of them are idle and for what instant they wait, and
moves their clock. It is made of ptrace, a seccomp filter and a rewritten vDSO, and needs Linux.
What the programs are for, and which events come in between, is left to the caller.
"""

from dralab.virtualtime.errors import ClockError, ClockUnavailableError, ProgramStartError
from dralab.virtualtime.supervisor import Supervisor, unavailable
from dralab.virtualtime.tracer import StartedProgram

__all__ = [
    "ClockError",
    "ClockUnavailableError",
    "ProgramStartError",
    "StartedProgram",
    "Supervisor",
    "unavailable",
]
