"""A virtual clock for unmodified programs, controlled by the caller.

A `Supervisor` starts programs, reports when all of them are idle and until which instant they wait,
and advances their clock. It uses ptrace, a seccomp filter and a rewritten vDSO, and needs Linux.
The caller decides when to advance the clock.
"""

from dralab.virtualtime.errors import ClockError, ClockUnavailableError, ProgramStartError
from dralab.virtualtime.launching import StartedProgram
from dralab.virtualtime.supervisor import Supervisor, unavailable

__all__ = [
    "ClockError",
    "ClockUnavailableError",
    "ProgramStartError",
    "StartedProgram",
    "Supervisor",
    "unavailable",
]
