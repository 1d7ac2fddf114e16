"""Programs on asyncio in this process, such as operators on kopf and kr8s.

A program is a coroutine function. Each start loads its file anew and runs it on a `VirtualLoop`
of its own; it reaches the server over HTTP, in memory, so its requests and watches have the faults
of a process's. What is left to processes: threads, subprocesses, blocking connections.
"""

import asyncio
import random
import tempfile
from functools import cache
from pathlib import Path
from typing import Final, Protocol

from dralab.runtime.new_kubeconfig import kubeconfig
from dralab.testing.history import LIFE
from dralab.testing.memory_server import MemoryServer
from dralab.testing.process import (
    RESTART_AFTER_CRASH,
    ProgramEngine,
    ProgramSpec,
    ServedProgram,
    described,
)
from dralab.testing.program_globals import ProgramGlobals
from dralab.testing.surroundings import TrialSurroundings
from dralab.testing.virtual_loop import VirtualLoop

# Mistakes of a program, whatever the server did: no outage excuses them.
MISTAKES: Final = (
    ArithmeticError, AssertionError, AttributeError, ImportError, LookupError, NameError,
    RecursionError, TypeError,
)  # fmt: skip


class AsyncioSurroundings(TrialSurroundings, Protocol):
    """What a program on asyncio needs of a trial."""

    @property
    def memory_server(self) -> MemoryServer:
        """The server of its HTTP requests."""
        ...


class AsyncioProgram(ServedProgram):
    """One replica of a program on asyncio.

    While it stands still it takes no event, whatever has arrived: `paused_until` says nothing more.
    """

    around: AsyncioSurroundings

    def __init__(self, around: AsyncioSurroundings, spec: ProgramSpec, replica: int) -> None:
        super().__init__(around, spec, replica)
        self._loops: list[VirtualLoop] = []

    def start(self) -> None:
        """Begin a new incarnation."""
        if self.alive:
            return
        around = self.around
        self.note_start()
        engine = ProgramEngine(self, self.incarnation)
        chance = random.Random(f"{around.seed} {self.name} {self.incarnation}")  # noqa: S311
        url = around.memory_server.url(self.name)
        variables = {"KUBECONFIG": _kubeconfig(url), "DRALAB_SERVER": url, "HOSTNAME": self.name}
        given = ProgramGlobals(
            engine.clock,
            around.engine.clock,
            self.wait,
            chance=chance,
            environment=variables,
            folder=str(self.spec.folder),
            end=lambda: self._end_as("ends its process", excused=False),
        )
        loop = VirtualLoop(  # type: ignore[abstract]  # the rest of asyncio's says that it is not there
            engine,
            around.engine.clock,
            connect=around.memory_server.connect,
            around=given.installed,
        )
        loop.unhandled = self._note_unhandled
        loop.exited = self._exited
        self._loops.append(loop)
        loop.call_soon(self._begin_main, loop, chance.random())

    def _begin_main(self, loop: VirtualLoop, seed: float) -> None:
        random.seed(seed)
        loop.create_task(self._main()).add_done_callback(self._ended)

    async def _main(self) -> None:
        assert self.spec.file is not None  # noqa: S101 - it is what makes this class be chosen
        main = self.spec.file.load()
        # What is replaced of the libraries that were loaded just now is so from the next turn on.
        await asyncio.sleep(0)
        await main()

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Handle a program that has ended by itself."""
        error = None if task.cancelled() else task.exception()
        if error is None:
            self._end_as("returns", excused=False)
        else:
            excused = not isinstance(error, MISTAKES)
            self._end_as(f"ends: {described(error)}", excused=excused)

    def _exited(self, code: object) -> None:
        self._end_as(f"exits with {code or 0}", excused=bool(code))

    def _end_as(self, how: str, *, excused: bool) -> None:
        """Start it again later."""
        if self.alive:
            self.note_end(how, excused=excused)
            self.die(RESTART_AFTER_CRASH)

    def _note_unhandled(self, text: str) -> None:
        self.around.history.add(self.name, LIFE, f"logs {text}")

    def die(self, down: int) -> None:
        """End this incarnation at once; the next one starts in `down` nanoseconds."""
        if not self.alive:
            return
        super().die(down)
        self.forget_streams()
        self._loops[-1].close()

    def bury(self) -> None:
        """Clean up after all incarnations, at the end of the trial."""
        self.alive = False
        for loop in self._loops:
            loop.close()
            loop.bury()
        if self.spec.file is not None:
            self.spec.file.forget()


@cache
def _kubeconfig(url: str) -> str:
    path = Path(_folder().name) / f"{url.rpartition('/')[2]}.kubeconfig"
    path.write_text(kubeconfig(url), encoding="utf-8")
    return str(path)


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    """Return a folder that is removed with this process."""
    return tempfile.TemporaryDirectory(prefix="dralab-dst-")
