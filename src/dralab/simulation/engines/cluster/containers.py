"""Containers of a simulation: they run for the pod's run time and fail at random.

A pod says how long it runs by the annotation `simulation.dralab.dev/runs`; for one that does not,
the simulated runtime of `dralab up` acts its command out. That time begins after the init
containers, which take none.
"""

from collections.abc import Callable, Mapping
from typing import Final, Protocol

from dralab.kernel.clock import SECOND
from dralab.kernel.durations import duration
from dralab.kernel.events import ENDING, Event
from dralab.kernel.randomness import Randomness
from dralab.node.containers import (
    Container,
    ContainerExit,
    ContainerStart,
    ContainerStartError,
    ExecSession,
    ImageNotReady,
    VolumeFile,
)
from dralab.node.simulated_runtime import SimulatedRuntime
from dralab.runtime.simulated import SimulatedEngine
from dralab.simulation.lifecycle.model import Delays, LifeCycle
from dralab.simulation.scenario.manifests import RUNS, STARTS
from dralab.values.json_types import JsonObject

TERMINATED: Final = 143


class ContainerListener(Protocol):
    """Listens to containers, by the UID of their pod."""

    def started(self, uid: str) -> None:
        """A container runs."""
        ...

    def left(self, uid: str, length: int) -> int:
        """Return how long a run takes now of one that takes so long from its beginning."""
        ...

    def ended(self, uid: str, code: int) -> None:
        """A container has finished or failed; its resources are released later."""
        ...


class TaskContainers:
    """The runtime of all nodes. The life cycle's `start` delay precedes a pod's first container."""

    name = "dralab-simulated"
    version = "1.0.0"
    ports_at = ""

    def __init__(
        self,
        engine: SimulatedEngine,
        life: LifeCycle,
        chance: Randomness,
        audience: ContainerListener,
    ) -> None:
        self.engine = engine
        self.life = life
        self.delays = Delays(life, chance.stream)
        self.audience = audience
        self.simulated = SimulatedRuntime(engine)
        self._fetched: set[str] = set()
        # How many run whose end is certain.
        self.busy = 0
        self._timed: dict[str, list[_TimedContainer]] = {}
        self._by_node: dict[str, set[str]] = {}

    def start(self, start: ContainerStart, ended: Callable[[ContainerExit], None]) -> Container:
        """Start a container, once its image has been fetched."""
        uid = start.pod_uid
        self._by_node.setdefault(start.node, set()).add(uid)
        if uid not in self._fetched:
            self._fetched.add(uid)
            delay = sum(map(self.delays.length_of, self.life.start))
            delay += _length(start.annotations.get(STARTS, "0"), STARTS)
            if delay:
                raise ImageNotReady(delay)
        text = start.annotations.get(RUNS)
        if start.init and text is not None:
            timed = _TimedContainer(self, start, ended)
            self._timed.setdefault(uid, []).append(timed)
            timed.end_at_once()
            return timed
        if text is None:
            container = self.simulated.start(start, lambda over: self._acted(uid, over, ended))
        else:
            container = self._timed_one(start, _length(text), ended)
        self.audience.started(uid)
        return container

    def listens(self, pod_uid: str, port: int) -> bool | None:  # noqa: ARG002 - nothing listens
        """Return False: no container of a simulation listens."""
        return False

    def refresh_files(
        self, pod_uid: str, volume: str, files: Callable[[], Mapping[str, VolumeFile]]
    ) -> None:
        """Do nothing: simulated containers read no files."""

    def forget_pod(self, pod_uid: str) -> None:
        """A pod is gone."""
        self._fetched.discard(pod_uid)
        for timed in self._timed.pop(pod_uid, ()):
            timed.silence()
        for uids in self._by_node.values():
            uids.discard(pod_uid)

    def lose(self, node: str) -> None:
        """End the containers of a node that is down, without reporting it."""
        for uid in sorted(self._by_node.pop(node, ())):
            self.forget_pod(uid)

    def _timed_one(
        self, start: ContainerStart, length: int, ended: Callable[[ContainerExit], None]
    ) -> "_TimedContainer":
        length, fails = self.delays.run(self.audience.left(start.pod_uid, length))
        timed = _TimedContainer(self, start, ended)
        self._timed.setdefault(start.pod_uid, []).append(timed)
        timed.work(length, int(fails))
        return timed

    def _acted(self, uid: str, over: ContainerExit, ended: Callable[[ContainerExit], None]) -> None:
        self.audience.ended(uid, over.code)
        ended(over)

    def released_after(self) -> int:
        """Return how long the node takes to notice that a container has ended."""
        return sum(map(self.delays.length_of, self.life.release))


class _TimedContainer:
    """A container that works for a given time."""

    def __init__(
        self, runtime: TaskContainers, start: ContainerStart, ended: Callable[[ContainerExit], None]
    ) -> None:
        self.runtime = runtime
        self._start = start
        self._ended = ended
        self._timer: Event | None = None
        self._over = False

    def work(self, length: int, code: int) -> None:
        """Begin to work, and end with this exit code."""
        self._later(length, lambda: self._worked(code))

    def end_at_once(self) -> None:
        """End at once with success."""
        self._later(0, lambda: self._tell(0))

    def silence(self) -> None:
        """Suppress the report of its end."""
        self._over = True
        self._cancel()

    def resize(self, resources: JsonObject) -> str:
        """Accept other requests and limits: nothing is used here."""
        del resources
        return ""

    def stop(self, grace: float) -> None:
        """End at once, as most programs do on SIGTERM."""
        del grace
        self._cancel()
        self._tell(TERMINATED)

    def _later(self, delay: int, action: Callable[[], None]) -> None:
        self.runtime.busy += 1

        def run() -> None:
            self.runtime.busy -= 1
            self._timer = None
            action()

        self._timer = self.runtime.engine.after(delay, run, priority=ENDING)

    def _cancel(self) -> None:
        if self._timer is not None:
            self.runtime.busy -= 1
            self._timer.cancel()
            self._timer = None

    def _worked(self, code: int) -> None:
        self.runtime.audience.ended(self._start.pod_uid, code)
        delay = self.runtime.released_after()
        if delay:
            self._later(delay, lambda: self._tell(code))
        else:
            self._tell(code)

    def run(
        self,
        argv: object,
        output: object,
        session: ExecSession | None = None,
        timeout: float | None = None,
    ) -> int:
        """Refuse: it has no shell. ContainerStartError."""
        del argv, output, session, timeout
        raise ContainerStartError("a container of a simulation runs no commands")

    def _tell(self, code: int) -> None:
        if not self._over:
            self._over = True
            self._start.log.end()
            self._ended(ContainerExit(code, "Completed" if code == 0 else "Error"))


def _length(text: str, name: str = RUNS) -> int:
    try:
        return duration(_number(text))
    except ValueError as error:
        raise ContainerStartError(f"annotation {name}: {error}") from None


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def annotation(length: int) -> str:
    """Return a duration as an annotation, exact to the nanosecond.

    >>> _length(annotation(3_516_000_001))
    3516000001
    """
    return f"{length // SECOND}.{length % SECOND:09d}s"
