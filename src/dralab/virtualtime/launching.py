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


@dataclass(slots=True, eq=False)
class StartedProgram:
    """A program that was started under the clock."""

    pid: int
    arguments: tuple[str, ...]
    returncode: int | None = None  # as subprocess has it: -15 after SIGTERM


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """How programs are started: with this filter, SIGCHLD unblocked, memory at equal addresses."""

    code: bytes
    unblock: bool
    repeatable: bool


class ProgramLaunch:
    """A program that is being launched: the launcher runs, and waits for us."""

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
        command += [launch.code.hex(), str(int(launch.unblock)), str(int(launch.repeatable))]
        command += [directory, *arguments]
        self._name = arguments[0]
        try:
            os.set_inheritable(ready, True)  # noqa: FBT003  # os has it so
            os.set_inheritable(report, True)  # noqa: FBT003  # the same
            self.pid = os.posix_spawn(
                sys.executable, command, environment, file_actions=actions, setsid=new_session
            )
        finally:
            os.close(ready)
            os.close(report)

    def seize(self) -> None:
        """Become its tracer; ClockUnavailableError."""
        os.read(self._told, 1)
        try:
            ptrace.ptrace(ptrace.SEIZE, self.pid, 0, ptrace.OPTIONS)
        except OSError as error:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
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
