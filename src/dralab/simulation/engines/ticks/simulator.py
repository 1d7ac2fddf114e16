"""The loop: submitters, scheduler, metrics, one tick further."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, assert_never

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.ticks.metrics import build
from dralab.simulation.engines.ticks.model import (
    Bind,
    BoundPod,
    Delete,
    PodQueue,
    Submit,
    Submitter,
    Terminate,
    TickNode,
    TickPod,
    TickScheduler,
    Update,
)
from dralab.simulation.engines.ticks.queues import PriorityQueue
from dralab.simulation.errors import DecisionError
from dralab.simulation.results.result import StateSample

Metrics = Mapping[str, Any]


class TickSimulator:
    """A cluster that moves in ticks; `write` gets the metrics every `metrics_tick` seconds."""

    def __init__(
        self,
        nodes: Sequence[TickNode],
        scheduler: TickScheduler,
        submitters: Sequence[Submitter],
        *,
        start: int,
        tick: int = 10,
        metrics_tick: int | None = None,
        queue: PodQueue | None = None,
        write: Callable[[Metrics], None] | None = None,
    ) -> None:
        self.nodes = {node.name: node for node in nodes}
        self.scheduler = scheduler
        self.submitters = list(submitters)
        self.clock = self.start = start
        self.tick = tick
        self.metrics_tick = tick if metrics_tick is None else metrics_tick
        self.queue: PodQueue = PriorityQueue() if queue is None else queue
        self.write = write
        self.bound: dict[str, BoundPod] = {}
        self.ended: list[BoundPod] = []
        self.samples: list[StateSample] = []
        self._written = start
        self._metrics: Metrics = self._build()

    def run(
        self,
        until: int | None = None,
        progress: Callable[[int, int, int], None] | None = None,
        stop: Callable[[], bool] | None = None,
        ended: int | None = None,
    ) -> bool:
        """Run until the queue is empty, nothing runs and all submitters have terminated.

        Or to the time `until`, or until so many pods have `ended`. False if `stop` asked to
        leave off earlier. `progress` gets nanoseconds, pods over, pods.
        """
        while stop is None or not stop():
            self._submit()
            self._schedule()
            self._metrics = self._build()
            self._sample()
            if self.clock - self._written >= self.metrics_tick:
                if self.write is not None:
                    self.write(self._metrics)
                self._written = self.clock
                self._drop_ended()
            busy = any(bound.holds(self.clock) for bound in self.bound.values())
            done = not self.submitters and not len(self.queue) and not busy
            over = self._over()
            if done or (until is not None and self.clock >= until):
                return True
            if ended is not None and over >= ended:
                return True
            if progress is not None:
                known = len(self.ended) + len(self.bound) + len(self.queue)
                progress((self.clock - self.start) * SECOND, over, known)
            self.clock += self.tick
        return False

    @property
    def placed(self) -> list[BoundPod]:
        """All pods that were ever bound."""
        return [*self.ended, *self.bound.values()]

    def _sample(self) -> None:
        asked: Counter[str] = Counter(dict.fromkeys(("cpu", "memory", "nvidia.com/gpu"), 0))
        for node in self.nodes.values():
            asked.update(node.requested(self.clock))
        self.samples.append(
            StateSample(
                when=(self.clock - self.start) * SECOND,
                waiting=len(self.queue),
                running=sum(bound.holds(self.clock) for bound in self.bound.values()),
                cpu=int(1000 * asked["cpu"]),
                gpu=int(1000 * asked["nvidia.com/gpu"]),
                fragmented=0.0,
                memory=int(asked["memory"]),
                asked=0,
                ended=self._over(),
            )
        )

    def _over(self) -> int:
        return len(self.ended) + sum(not one.holds(self.clock) for one in self.bound.values())

    def _build(self) -> Metrics:
        return build(self.clock, list(self.nodes.values()), self.bound, len(self.queue))

    def _submit(self) -> None:
        for submitter in list(self.submitters):
            for event in submitter.submit(self.clock, list(self.nodes.values()), self._metrics):
                match event:
                    case Submit():
                        self._new(event.pod)
                    case Delete():
                        self._delete(f"{event.namespace}/{event.name}")
                    case Update():
                        key = f"{event.namespace}/{event.name}"
                        if not self.queue.update(key, event.pod):
                            raise DecisionError(f"updated pod {key}, which is not waiting")
                    case Terminate():
                        self.submitters.remove(submitter)
                    case _:
                        assert_never(event)

    def _new(self, pod: TickPod) -> None:
        if pod.key in self.bound:
            raise DecisionError(f"submitted pod {pod.key} twice", scheduler="submitter")
        self.queue.push(pod)

    def _delete(self, key: str) -> None:
        if self.queue.delete(key):
            return
        bound = self.bound.get(key)
        if bound is None:
            raise DecisionError(f"deleted pod {key}, which does not exist")
        if bound.deleted_at is None:
            bound.deleted_at, bound.status = self.clock, "Deleted"

    def _schedule(self) -> None:
        nodes = list(self.nodes.values())
        for event in self.scheduler.schedule(self.clock, self.queue, nodes):
            match event:
                case Bind():
                    self._bind(event)
                case Delete():
                    self._delete(f"{event.namespace}/{event.name}")
                case _:
                    assert_never(event)

    def _bind(self, event: Bind) -> None:
        node = self.nodes.get(event.node)
        if node is None:
            raise DecisionError(f"bound pod {event.pod.key} to {event.node!r}, which is not a node")
        self.queue.delete(event.pod.key)
        # A scheduler may already have put it there, to see its own decisions.
        node.pods.pop(event.pod.key, None)
        bound = BoundPod(event.pod, node.name, self.clock)
        if not node.fits(event.pod, self.clock):
            # The phase of such a pod is Failed, its reason CapacityExceeded.
            bound.status = "OverCapacity"
        node.pods[event.pod.key] = self.bound[event.pod.key] = bound

    def _drop_ended(self) -> None:
        for key, bound in list(self.bound.items()):
            if not bound.holds(self.clock):
                del self.bound[key]
                self.nodes[bound.node].pods.pop(key, None)
                self.ended.append(bound)
