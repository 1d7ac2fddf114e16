"""Processes under the virtual clock, for `schedulers`."""

import os
import select
import signal
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dralab.cluster import Cluster
from dralab.kernel.clock import SECOND, WallClock
from dralab.simulation.engines.external.schedulers import Process
from dralab.virtualtime import StartedProgram, Supervisor

LOOK: Final = 0.05


@dataclass(slots=True)
class ClockedProcess:
    """A program under the clock."""

    program: StartedProgram

    @property
    def pid(self) -> int:
        """Its process, which leads a group."""
        return self.program.pid

    def poll(self) -> int | None:
        """Return its exit code, or None while it runs."""
        return self.program.returncode


@dataclass(slots=True)
class ClockedLauncher:
    """Starts programs under a supervisor's clock."""

    supervisor: Supervisor

    def start(
        self, words: Sequence[str], environment: Mapping[str, str], folder: Path, log: int
    ) -> ClockedProcess:
        """Start a program; ProgramStartError if that can't be done."""
        nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            program = self.supervisor.start(
                words,
                environment=environment,
                directory=str(folder),
                stdin=nothing,
                stdout=log,
                stderr=log,
                new_session=True,
            )
        finally:
            os.close(nothing)
        return ClockedProcess(program)

    def wait(self, processes: Sequence[Process], seconds: float) -> bool:
        """Wait until all have ended, while their clock runs; False after `seconds` of real time."""
        clock = WallClock()
        end = clock.now() + seconds * SECOND
        while any(one.poll() is None for one in processes):
            if clock.now() > end:
                return False
            if self.supervisor.wait_idle(LOOK) and not self.supervisor.step():
                self.supervisor.doze(LOOK)
        return True

    def kill(self, process: Process) -> None:
        """End a program at once."""
        while process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
            self.supervisor.doze(LOOK)


class ServerTurns:
    """The turns of a server in its own thread of this process.

    Until `close`, that thread rests between its turns.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._rests = threading.Event()
        self._turn = threading.Event()
        self._closed = False
        self._poll: select.poll | None = None
        if (descriptor := cluster.waits_on) is not None and hasattr(select, "poll"):
            self._poll = select.poll()
            self._poll.register(descriptor, select.POLLIN)
        self._cluster.when_idle(self._rest)
        self._rests.wait()

    def take(self, *, always: bool = False) -> bool:
        """Let the server read and answer everything; return whether there was anything.

        With `always` it has a turn even so: what it closes takes its loop more than one.
        """
        if not always and self._poll is not None and not self._poll.poll(0):
            return False
        self._rests.clear()
        self._cluster.when_idle(self._rest, events=True)
        self._turn.set()
        self._rests.wait()
        return True

    def close(self) -> None:
        """Let the server run freely."""
        self._closed = True
        self._turn.set()

    def _rest(self) -> None:
        """Block the server's thread until its next turn."""
        self._turn.clear()
        self._rests.set()
        if not self._closed:
            self._turn.wait()
