"""Errors of the virtual clock.

ClockError
├── ClockUnavailableError   this machine does not allow it; nothing was started
└── ProgramStartError       the program could not be started
"""


class ClockError(Exception):
    """A virtual clock cannot do what it was asked to."""


class ClockUnavailableError(ClockError):
    """The machine, or the container, does not allow what a virtual clock needs."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the virtual clock is not available: {self.reason}"


class ProgramStartError(ClockError):
    """A program could not be started; `errno` says why, as execve does."""

    def __init__(self, program: str, reason: str, errno: int) -> None:
        super().__init__(program, reason, errno)
        self.program = program
        self.reason = reason
        self.errno = errno

    def __str__(self) -> str:
        return f"cannot start {self.program}: {self.reason}"
