"""A program as a process: started, killed, suspended and restarted.

Its engine, client and watches are those of one incarnation. What a dead incarnation left to be done
never happens, as with a process. A program that wants to be one of several replicas is begun when
it holds the lease of its name, and ends when it loses it, as client-go's leader election does.
"""

import traceback
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final, TypeVar

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, Nanoseconds
from dralab.kernel.events import NORMAL
from dralab.kernel.randomness import Randomness
from dralab.runtime.engine import Action, TimerHandle
from dralab.runtime.leader_election import Leadership
from dralab.runtime.manager import Manager
from dralab.testing.client import ProgramClient
from dralab.testing.history import LIFE
from dralab.testing.program_globals import ProgramFile
from dralab.testing.streams import ProgramStream
from dralab.testing.surroundings import ProgramKilled, TrialEnded, TrialSurroundings

T = TypeVar("T")
# The kubelet's first back-off of a container that crashed.
RESTART_AFTER_CRASH: Final = 10 * SECOND
RESTART_AFTER_EXIT: Final = SECOND
# A program may end because of a fault: as long after it ends as clients keep trying, and longer.
ENDS_WITHIN: Final = 120 * SECOND
Build = Callable[[Manager], object]


def nothing(_: Manager) -> None:
    """Build nothing: the program is a process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramSpec:
    """A program under test: how it is built on a manager, and how it asks for lists.

    `cached_lists`: the first list of each kind after a start may come from a watch cache that lags
    behind, as with `resourceVersion=0`, which client-go's informers send. More than one replica:
    one of them acts at a time, by leader election. With a `command` it is a process, started in
    `folder`, with a `file` a coroutine in this process; nothing is built then.
    `own`: it is a part of dralab.
    """

    name: str
    build: Build = nothing
    replicas: int = 1
    cached_lists: bool = False
    command: Sequence[str] = ()
    folder: Path = Path()
    file: ProgramFile | None = None
    own: bool = False

    @property
    def speaks_http(self) -> bool:
        """Whether its requests arrive over HTTP, and not as calls."""
        return bool(self.command) or self.file is not None


class ProgramProcess:
    """One replica of a program."""

    def __init__(self, around: TrialSurroundings, spec: ProgramSpec, replica: int) -> None:
        self.around = around
        self.spec = spec
        self.program = spec.name
        self.name = spec.name if spec.replicas == 1 else f"{spec.name}-{replica}"
        self.incarnation = 0
        self.alive = False
        self.skew = 0
        self._paused = False
        self._waits = 0  # requests that are under way: it does nothing else meanwhile
        self._backlog: deque[Action] = deque()
        self._clients: list[ProgramClient] = []

    @property
    def busy(self) -> bool:
        """Whether it cannot take an event now."""
        return self._paused or self._waits > 0

    # --- its life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin a new incarnation."""
        if self.alive:
            return
        self.incarnation += 1
        self.alive = True
        self.around.history.add(self.name, LIFE, f"starts (incarnation {self.incarnation})")
        self.around.note_start()
        engine = ProgramEngine(self, self.incarnation)
        informer = ProgramClient(
            self.around, self, self.incarnation, from_cache=self.spec.cached_lists
        )
        client = ProgramClient(self.around, self, self.incarnation)
        self._clients = [informer, client]
        chance = Randomness(self.around.seed * 1000 + self.incarnation)
        manager = Manager(engine, informer, chance)
        # What it asks for itself is consistent; only its caches may begin with an old list.
        manager.client = client
        if self.spec.replicas == 1:
            engine.soon(lambda: self._begin(manager))
            return
        election = Leadership(
            engine,
            client,
            self.program,
            f"{self.name}_{self.incarnation}",
            lambda: self._begin(manager),
            self._lost,
        )
        election.start()

    def _begin(self, manager: Manager) -> None:
        try:
            self.spec.build(manager)
        except ApiError as error:
            # It exits, as programs do that find no server at their start; the kubelet tries again.
            self.around.history.add(self.name, LIFE, f"cannot start: {error.code} {error.reason}")
            self.die(RESTART_AFTER_CRASH)
            return
        manager.start()

    def cut(self) -> None:
        """End its watches like a lost connection."""
        for client in self._clients:
            client.cut()

    def _lost(self) -> None:
        self.around.history.add(self.name, LIFE, "loses its lease and exits")
        self.die(RESTART_AFTER_EXIT)

    def die(self, down: int) -> None:
        """End this incarnation at once; the next one starts in `down` nanoseconds."""
        if not self.alive:
            return
        self.alive = False
        self._backlog.clear()
        for client in self._clients:
            client.close()
        self._clients = []
        self.around.engine.after(down, self.start)

    def pause(self, duration: int) -> None:
        """Suspend it, like SIGSTOP: events are delayed."""
        if self._paused or not self.alive:
            return
        self._paused = True
        incarnation = self.incarnation
        self.around.history.add(self.name, LIFE, f"stands still for {duration / SECOND:g}s")

        def resume() -> None:
            self._paused = False
            if self.incarnation == incarnation:
                self.around.history.add(self.name, LIFE, "goes on")
            self._catch_up()

        self.around.engine.after(duration, resume)

    def crash(self, error: BaseException) -> None:
        """End because of an error that the program did not handle."""
        self.around.violated("crash", f"{self.program} crashes: {described(error)}")
        self.die(RESTART_AFTER_CRASH)

    # --- its events -----------------------------------------------------------------------------

    def run(self, action: Action, incarnation: int) -> None:
        """Run an event of an incarnation: later if it is busy, never if it is dead."""
        if not self.alive or incarnation != self.incarnation:
            return
        if self.busy:
            self._backlog.append(action)
            return
        before, self.around.acting = self.around.acting, self
        try:
            action()
        except ProgramKilled:
            pass
        except TrialEnded:
            raise
        except (Exception, SystemExit) as error:  # noqa: BLE001 - a program's failure is what is looked for
            self.crash(error)
        finally:
            self.around.acting = before

    def wait(self, duration: int) -> None:
        """Let time pass within a request: the cluster goes on. ProgramKilled, TrialEnded."""
        incarnation = self.incarnation
        self._waits += 1
        try:
            self.around.pass_time(duration)
        finally:
            self._waits -= 1
            self._catch_up()
        self.check_alive(incarnation)

    def check_alive(self, incarnation: int) -> None:
        """ProgramKilled: this incarnation is over."""
        if not self.alive or incarnation != self.incarnation:
            raise ProgramKilled(self.name)

    def _catch_up(self) -> None:
        if self.busy:
            return
        waiting, self._backlog = list(self._backlog), deque()
        for action in waiting:
            self.around.engine.soon(partial(self.run, action, self.incarnation))


class ServedProgram(ProgramProcess):
    """One replica whose requests arrive over HTTP; its leader election is its own."""

    def __init__(self, around: TrialSurroundings, spec: ProgramSpec, replica: int) -> None:
        super().__init__(around, spec, replica)
        self.listed: set[str] = set()
        self.lags: dict[str, int] = {}
        self.expired: set[str] = set()
        self.streams: list[ProgramStream] = []
        self.paused_until = 0

    def note_start(self) -> None:
        """Begin a new incarnation, which has asked for nothing yet."""
        self.incarnation += 1
        self.alive = True
        self.listed, self.lags, self.expired, self.streams = set(), {}, set(), []
        self.around.history.add(self.name, LIFE, f"starts (incarnation {self.incarnation})")
        self.around.note_start()

    def note_end(self, how: str, told: str = "", *, excused: bool) -> None:
        """Record that it has exited by itself, a failure unless a fault may be the reason."""
        around = self.around
        if excused and around.plan.disturbed_since(around.engine.clock.now() - ENDS_WITHIN):
            # Programs end when they cannot reach the server, or lose a lease.
            around.history.add(self.name, LIFE, how)
        else:
            around.violated("crash", f"{self.name} {how}{told}")

    def cut(self) -> None:
        """Break the connections of its watches."""
        for stream in self.streams:
            stream.lose()
        self.streams.clear()

    def forget_streams(self) -> None:
        """Close the watches of a dead program now.

        The server sees later that their connections are closed, and how much later depends on the
        machine. Until then they would go on to count events.
        """
        for stream in self.streams:
            stream.close()
        self.streams.clear()


class ProgramEngine:
    """The engine of one incarnation: the trial's, as long as the process lives."""

    def __init__(self, process: ProgramProcess, incarnation: int) -> None:
        self._process = process
        self._incarnation = incarnation
        self._engine = process.around.engine
        self._clock = _SkewedClock(process)

    @property
    def clock(self) -> "_SkewedClock":
        """The time as the program sees it."""
        return self._clock

    def at(self, when: int, action: Action, *, priority: int = NORMAL) -> TimerHandle:
        """Run `action` at `when` of the program's clock."""
        real = when - self._process.skew
        return self._engine.at(real, self._guarded(action), priority=priority)

    def after(self, delay: int, action: Action, *, priority: int = NORMAL) -> TimerHandle:
        """Run `action` in `delay` nanoseconds."""
        return self._engine.after(max(delay, 0), self._guarded(action), priority=priority)

    def soon(self, action: Action) -> None:
        """Run `action` at the present instant, after what is due already."""
        self._engine.soon(self._guarded(action))

    def offload(
        self,
        work: Callable[[], T],
        done: Callable[[T | Exception], None],
        *,
        lane: str = "",  # noqa: ARG002 - requests are made one after the other
    ) -> None:
        """Run work, then `done`, as one event."""

        def both() -> None:
            try:
                result: T | Exception = work()
            except Exception as error:  # noqa: BLE001 - handed to the caller of the work
                result = error
            done(result)

        self.soon(both)

    def _guarded(self, action: Action) -> Action:
        return partial(self._process.run, action, self._incarnation)


class _SkewedClock:
    def __init__(self, process: ProgramProcess) -> None:
        self._process = process

    def now(self) -> Nanoseconds:
        """Return the trial's time, and how far the program's clock is ahead."""
        return Nanoseconds(self._process.around.engine.clock.now() + self._process.skew)


def described(error: BaseException) -> str:
    """Return an error and the line where it arose.

    >>> described(ValueError("no"))
    'ValueError: no'
    """
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"
