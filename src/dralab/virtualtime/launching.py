"""Starts a program that waits, before it is loaded, until it is traced."""

import errno
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralab.virtualtime import ptrace
from dralab.virtualtime.errors import ClockUnavailableError, ProgramStartError

LAUNCHER: Final = Path(__file__).with_name("launch.py")
# Unless the user says otherwise, one thread at a time runs a Go program: so it does the same
# each time. Its garbage is collected when it has 1 GiB: otherwise that takes a fifth of its time,
# and more where it is idle, since Go's runtime also collects every two minutes of the clock.
REPEATABLE: Final = {"GOMAXPROCS": "1", "GOGC": "off", "GOMEMLIMIT": "1GiB"}


def with_defaults(environment: Mapping[str, str]) -> Mapping[str, str]:
    """Return a program's environment with defaults; GOMEMLIMIT only together with GOGC."""
    defaults = dict(REPEATABLE)
    if "GOGC" in environment:
        del defaults["GOMEMLIMIT"]
    return {**defaults, **environment}


@dataclass(slots=True, eq=False)
class StartedProgram:
    """A program that was started under the clock."""

    pid: int
    arguments: tuple[str, ...]
    returncode: int | None = None  # as subprocess has it: -15 after SIGTERM


class ProcessNumbers:
    """A namespace of processes, in which they have the same numbers each time."""

    def __init__(self) -> None:
        self.read, self._held = os.pipe()
        os.set_inheritable(self.read, True)  # noqa: FBT003  # os has it so
        self.init = 0  # the process that has number 1 there, as we see it
        self.refused = 0  # the errno, where there can be no such namespace

    def close(self) -> None:
        """End the namespace; every process in it has ended."""
        os.close(self.read)
        os.close(self._held)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """How programs are started: with this filter, SIGCHLD unblocked, with repeatable `numbers`."""

    code: bytes
    unblock: bool
    numbers: ProcessNumbers | None


class ProgramLaunch:
    """A program that is being launched: the launcher runs, and waits for us.

    It becomes the program `pid`, or that one's parent.
    """

    def __init__(
        self,
        launch: LaunchOptions,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        directory: str,
        streams: Sequence[int | None],
        new_session: bool,
    ) -> None:
        ready, self._go = os.pipe()
        self._told, report = os.pipe()
        actions: list[tuple[int, int, int]] = [
            (os.POSIX_SPAWN_DUP2, ours, theirs)
            for theirs, ours in enumerate(streams)
            if ours is not None and ours != theirs
        ]
        command = [sys.executable, "-I", "-S", str(LAUNCHER), str(ready), str(report)]
        self._numbers = numbers = launch.numbers
        hold, init = (-1, 0) if numbers is None else (numbers.read, numbers.init)
        command += [launch.code.hex(), str(int(launch.unblock)), str(hold), str(init)]
        command += [str(int(new_session)), directory, *arguments]
        self._name = arguments[0]
        try:
            os.set_inheritable(ready, True)  # noqa: FBT003  # os has it so
            os.set_inheritable(report, True)  # noqa: FBT003  # the same
            self.launcher = os.posix_spawn(
                sys.executable, command, environment, file_actions=actions
            )
        finally:
            os.close(ready)
            os.close(report)

    def seize(self) -> None:
        """Become its tracer; ClockUnavailableError."""
        self.pid, init, error = map(int, os.read(self._told, 64).split() or (self.launcher, 0, 0))
        if self._numbers is not None:
            self._numbers.init, self._numbers.refused = init, error
        try:
            ptrace.ptrace(ptrace.SEIZE, self.pid, 0, ptrace.OPTIONS)
        except OSError as error:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.launcher, 0)
            raise ClockUnavailableError(
                f"ptrace is refused ({error.strerror}); a container needs the capability SYS_PTRACE"
                " or a seccomp profile that allows it, and kernel.yama.ptrace_scope must be below 3"
            ) from None
        os.write(self._go, b"+")

    def failed(self) -> Exception:
        """Return the error for a program that ended before it was loaded."""
        what, _, number = os.read(self._told, 64).decode().partition(" ")
        if what == "seccomp":
            told = f"cannot install a seccomp filter ({os.strerror(int(number))})"
            return ClockUnavailableError(told)
        if what == "exec":
            return ProgramStartError(self._name, os.strerror(int(number)), int(number))
        told = "the program ended before it was loaded"
        return ProgramStartError(self._name, told, errno.ECHILD)

    def close(self) -> None:
        """Close the pipes."""
        os.close(self._go)
        os.close(self._told)
