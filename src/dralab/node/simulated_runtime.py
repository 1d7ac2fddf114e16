"""Simulated containers: no processes or images, but logs with the expected output.

Commands that `shell` understands are simulated in the engine's time. Others run until they are
stopped; those of a Job, and init containers, end after a second. Annotations of the pod decide
otherwise, for all containers or with `.<container>` for one:

- `dralab.dev/start-delay`: seconds before the container runs
- `dralab.dev/runs-for`: seconds until it ends
- `dralab.dev/exit-code`: the code it ends with
- `dralab.dev/log`: a line it writes at the start
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.node.containers import (
    Container,
    ContainerExit,
    ContainerStart,
    ContainerStartError,
    ExecSession,
    VolumeFile,
)
from dralab.node.shell import run, trapped, understood
from dralab.node.shell_commands import ShellState, Sleep, Steps, UnknownProgram, WriteLine
from dralab.runtime.engine import Engine, TimerHandle
from dralab.values.json_types import JsonObject

PREFIX: Final = "dralab.dev/"
UNKNOWN_SECONDS: Final = 1.0
MOST_STEPS_AT_ONCE: Final = 10_000
# A program of the image that does something here: `dralab.components` adds its own.
Program = Callable[[ContainerStart], Callable[[], None]]


class SimulatedRuntime:
    """Simulates containers. `programs` are started and stopped for real, by the command's name."""

    name = "dralab-simulated"
    version = "1.0.0"
    ports_at = ""

    def __init__(self, engine: Engine, programs: Mapping[str, Program] | None = None) -> None:
        self.engine = engine
        self.programs = dict(programs or {})

    def start(self, start: ContainerStart, ended: Callable[[ContainerExit], None]) -> Container:
        """Start a container. ContainerStartError: an annotation is not a number."""
        return SimulatedContainer(self, start, ended)

    def listens(self, pod_uid: str, port: int) -> bool | None:  # noqa: ARG002 - nothing listens
        """Return False: no process of a pod listens."""
        return False

    def refresh_files(
        self, pod_uid: str, volume: str, files: Callable[[], Mapping[str, VolumeFile]]
    ) -> None:
        """Do nothing: simulated containers read no files."""

    def forget_pod(self, pod_uid: str) -> None:
        """Do nothing: simulated containers share nothing."""


class SimulatedContainer:
    """One run of a simulated container."""

    def __init__(
        self,
        runtime: SimulatedRuntime,
        start: ContainerStart,
        ended: Callable[[ContainerExit], None],
    ) -> None:
        self.engine = runtime.engine
        self.start = start
        self._ended = ended
        self._over = False
        self._timer: TimerHandle | None = None
        self._killer: TimerHandle | None = None
        self._state = ShellState(dict(start.config.env))
        self._end_program: Callable[[], None] = lambda: None
        delay = self._number("start-delay") or 0.0
        self._runs_for = self._number("runs-for")
        code = self._number("exit-code")
        self._code = None if code is None else int(code)
        program = runtime.programs.get(start.argv[0].rpartition("/")[2]) if start.argv else None
        self._steps = self._script(program)
        self._later(delay, self._begin)

    def resize(self, resources: JsonObject) -> str:
        """Accept other requests and limits: nothing is used here."""
        del resources
        return ""

    def stop(self, grace: float) -> None:
        """Tell it to end: a trap decides how, and whether it continues until `grace` is over."""
        if self._over:
            return
        if self._killer is not None:
            self._killer.cancel()
            self._kill_after(grace)
            return
        steps = trapped(self._state, "TERM")
        code = 143 if steps is None else self._drain(steps)
        if code >= 0:
            self._end(code)
        else:  # The trap does not exit.
            self._kill_after(grace)

    def run_out_of_memory(self) -> None:
        """End it as the kernel does at the limit of its memory; the runtime says OOMKilled."""
        self._end(137, "OOMKilled")

    def _kill_after(self, grace: float) -> None:
        self._killer = self.engine.after(
            int(max(grace, 0) * SECOND), lambda: self._end(137, "Error")
        )

    def run(
        self,
        argv: Sequence[str],
        output: Callable[[int, bytes], None],
        session: ExecSession | None = None,
        timeout: float | None = None,
    ) -> int:
        """Simulate a command at once, without the time that it would sleep."""
        del session, timeout
        if self._over:
            raise ContainerStartError("the container is not running")
        if not understood(argv):
            raise ContainerStartError(
                f'exec: "{argv[0] if argv else ""}": not understood by the simulated runtime; '
                "`--runtime process` runs real commands"
            )
        steps = run(argv, self._state.env)
        while True:
            try:
                step = next(steps)
            except StopIteration as over:
                return int(over.value or 0)
            if isinstance(step, WriteLine):
                output(1, f"{step.line}\n".encode())
            elif isinstance(step, UnknownProgram) or step.seconds is None:
                return 0

    # --- acting -----------------------------------------------------------------------------

    def _script(self, program: Program | None) -> Steps:
        start = self.start

        def act() -> Steps:
            line = self._annotation("log")
            if line:
                yield WriteLine(line)
            if program is not None:
                self._end_program = program(start)
                yield Sleep(None)
            elif understood(start.argv):
                return (yield from run(start.argv, start.config.env, self._state))
            else:
                yield UnknownProgram("")
            return 0

        return act()

    def _begin(self) -> None:
        if self._runs_for is not None:
            self.engine.after(int(self._runs_for * SECOND), lambda: self._end(0))
        self._go_on()

    def _go_on(self) -> None:
        self._timer = None
        for _ in range(MOST_STEPS_AT_ONCE):
            if self._over:
                return
            try:
                step = next(self._steps)
            except StopIteration as over:
                if self._runs_for is None:
                    self._end(int(over.value or 0))
                return
            except Exception as error:  # noqa: BLE001 - a program's failure is the container's
                self._write(str(error))
                self._end(1)
                return
            if isinstance(step, WriteLine):
                self._write(step.line)
            else:
                seconds = self._lasts(step)
                if seconds is not None:
                    self._later(seconds, self._go_on)
                return
        self._later(1.0, self._go_on)

    def _lasts(self, step: Sleep | UnknownProgram) -> float | None:
        """Return for how many seconds a step sleeps; None until the container is stopped."""
        if isinstance(step, Sleep):
            return step.seconds
        return UNKNOWN_SECONDS if self.start.ends else None

    def _drain(self, steps: Steps) -> int:
        while True:
            try:
                step = next(steps)
            except StopIteration as over:
                return int(over.value)
            if isinstance(step, WriteLine):
                self._write(step.line)

    def _end(self, code: int, reason: str = "") -> None:
        if self._over:
            return
        self._over = True
        for timer in (self._timer, self._killer):
            if timer is not None:
                timer.cancel()
        with contextlib.suppress(Exception):
            self._end_program()
        if self._code is not None and code == 0:
            code = self._code
        self.start.log.end()
        self._ended(ContainerExit(code, reason or ("Completed" if code == 0 else "Error")))

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        self._timer = self.engine.after(int(seconds * SECOND), action)

    def _write(self, line: str) -> None:
        self.start.log.write(self.engine.clock.now(), line)

    def _annotation(self, name: str) -> str:
        annotations = self.start.annotations
        own = annotations.get(f"{PREFIX}{name}.{self.start.name}")
        return own if own is not None else annotations.get(f"{PREFIX}{name}", "")

    def _number(self, name: str) -> float | None:
        text = self._annotation(name).removesuffix("s")
        if not text:
            return None
        try:
            return float(text)
        except ValueError:
            raise ContainerStartError(
                f'annotation {PREFIX}{name}: "{text}" is not a number such as "1.5"'
            ) from None
