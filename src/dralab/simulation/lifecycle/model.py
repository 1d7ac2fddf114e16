"""Pods, stages, faults and their settings. Times are nanoseconds since the run began."""

import math
import random
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from dralab.drivers.faults import CallFault as DriverFault
from dralab.simulation.workloads.openb import PodRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingWork:
    """What a training does with its GPUs.

    It has `steps` to do, so many a second by model and number of GPUs (none: 1 on every model). A
    `kind` has its speeds in the profiles of the workload, which may be measurements of `epochs`.
    """

    steps: float | None
    speeds: Mapping[str, Mapping[int, float]]
    kind: str = ""
    epochs: int | None = None
    batch: int | None = None
    weight: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Pod:
    """One pod. `duration` None: it runs until the end of the simulation.

    Pods of one `gang` start together or not at all. A higher `priority` goes first. `body` is the
    object that the pod was read from, where it was one; `owner` names the Job it belongs to.
    `scheduler` is the name of its scheduler, if several external ones take part.

    Each run first takes `startup`, in which it does no work. A pod with `until` is a replica of a
    service: it runs until then, whenever it starts. `checkpoint` replaces that of the life cycle.
    The nodes of a gang share the value of the label `topology`. One with `training` runs in rounds.

    Of a recorded history: it runs `starting` after its binding, it has a gate until it `opens`, and
    is deleted if it still waits when it `leaves`. Unless it `returns`, none follows it when it is
    evicted.
    """

    name: str
    namespace: str = "default"
    request: PodRequest
    memory: int = 0
    arrives: int = 0
    duration: int | None = None
    priority: int = 0
    queue: str = ""
    gang: str = ""
    user: str = ""
    body: Mapping[str, Any] | None = field(default=None, compare=False)
    owner: str = ""
    scheduler: str = ""
    startup: int = 0
    checkpoint: int | None = None
    until: int | None = None
    topology: str = ""
    starting: int = 0
    opens: int | None = None
    leaves: int | None = None
    returns: bool = True
    training: TrainingWork | None = None

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """The most that the pods of a queue may hold together; None: no limit."""

    cpu: int | None = None
    gpu_milli: int | None = None
    pods: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A step in the life of a pod on its node, as data; the model is KWOK's Stage.

    It lasts between `delay` and `delay + jitter`, drawn uniformly from the random stream `name`, or
    where it `runs`, as long as the pod runs. `then` is what the pod does next.
    """

    name: str
    delay: int = 0
    jitter: int = 0
    runs: bool = False
    then: Literal["go on", "start", "end", "leave"] = "go on"


GangRestart = Literal["alone", "recreate", "wait"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LifeCycle:
    """The delays of a pod's life besides running.

    The stages of `start` lie between binding and running, those of `release` between its end and
    the freeing of what it held (a kubelet that has not looked yet). A run fails with `failure`, at
    a random part of it, and is retried up to `retries` times. What ran before the last checkpoint,
    one every `checkpoint` (0: none), is not lost with a run; the next one takes `restart` longer.

    `gangs` says what becomes of a gang that loses a pod: with `alone` the others run on. Otherwise
    the pods of a gang run only together: all of their runs are lost, and the others are evicted,
    too (`recreate`), or keep their nodes until the lost pod is back (`wait`).
    """

    start: tuple[Stage, ...] = ()
    release: tuple[Stage, ...] = ()
    failure: float = 0.0
    retries: int = 0
    checkpoint: int = 0
    restart: int = 0
    gangs: GangRestart = "alone"

    def overhead(self, pod: Pod, saved: int) -> int:
        """Return how long a run takes before it does new work, if so much was saved."""
        return pod.startup + (self.restart if saved else 0)

    def kept(self, pod: Pod, work: int) -> int:
        """Return how much of the work of a lost run its checkpoints keep."""
        return whole_parts(work, self.checkpoint_of(pod))

    def checkpoint_of(self, pod: Pod) -> int:
        """Return after how much work a pod writes a checkpoint; 0: it writes none."""
        return self.checkpoint if pod.checkpoint is None else pod.checkpoint

    @property
    def stages(self) -> tuple[Stage, ...]:
        """The stages of a pod's life on its node, from its binding on."""
        return (
            *self.start,
            Stage(name="started", then="start"),
            Stage(name="run", runs=True, then="end"),
            *self.release,
            Stage(name="released", then="leave"),
        )


def whole_parts(work: int, every: int) -> int:
    """Return how much work is kept with a checkpoint after `every` part of it (0: none)."""
    return work // every * every if every else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault at `at`, for `duration` (None: for ever).

    With nothing else given, `node` is down. `taint` (key, value, effect) taints the node, or
    `device` on it. `happens` is what happens to drivers: `driver` on `node`, each where empty.
    """

    at: int
    duration: int | None = None
    node: str = ""
    device: str = ""
    taint: tuple[str, str, str] | None = None
    driver: str = ""
    happens: DriverFault | None = None

    @property
    def is_outage(self) -> bool:
        """Whether the node is down."""
        return self.taint is None and self.happens is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomFaults:
    """Every node fails after times drawn exponentially around `between`, for around `repair`.

    With `of` GPUs, each GPU of a node fails so often, and its node with it.
    """

    between: int
    repair: int
    of: Literal["node", "gpu"] = "node"

    def rate(self, gpus: int) -> float:
        """Return how often a node with so many GPUs fails, per nanosecond."""
        failing = gpus if self.of == "gpu" else 1
        return failing / self.between if self.between else math.inf


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConditions:
    """The conditions of a run besides fleet, pods and policy.

    The run stops at `until`, or when so many tasks have `ended`.
    """

    seed: int = 0
    life: LifeCycle = field(default_factory=LifeCycle)
    faults: Sequence[Fault] = ()
    random_faults: RandomFaults | None = None
    quotas: Mapping[str, Quota] = field(default_factory=dict)
    blocking: bool = False
    until: int | None = None
    ended: int | None = None


PodState = Literal["Pending", "Bound", "Running", "Succeeded", "Failed"]


Stream = Callable[[str], random.Random]


@dataclass(frozen=True, slots=True)
class Delays:
    """The random delays of one run; `stream` returns the random stream of a name."""

    life: LifeCycle
    stream: Stream

    def length_of(self, stage: Stage) -> int:
        """Return how long a stage lasts, in nanoseconds."""
        if not stage.jitter:
            return stage.delay
        return stage.delay + int(self.stream(stage.name).random() * stage.jitter)

    def run(self, duration: int) -> tuple[int, bool]:
        """Return how long a run takes, and whether it fails early."""
        if not self.life.failure:
            return duration, False
        chance = self.stream("failure")
        fails = chance.random() < self.life.failure
        return int(duration * chance.random()) if fails else duration, fails


class Quotas:
    """The resources held by the pods of each queue with a quota.

    >>> from dralab.simulation.workloads.openb import PodRequest
    >>> quotas = Quotas({"a": Quota(cpu=3000)})
    >>> pod = Pod(name="p", queue="a", request=PodRequest(2000, 0, 0, ""))
    >>> quotas.allows([pod]), quotas.allows([pod, pod])
    (True, False)
    >>> quotas.count_held(pod, 1)
    >>> quotas.allows([pod])
    False
    """

    def __init__(self, quotas: Mapping[str, Quota]) -> None:
        self.quotas = quotas
        self._held: dict[str, Counter[str]] = {queue: Counter() for queue in quotas}

    def has_quota(self, pod: Pod) -> bool:
        """Whether a pod is in a queue with a quota."""
        return pod.queue in self.quotas

    def allows(self, pods: Sequence[Pod]) -> bool:
        """Whether all of some pods fit into their queue's quota."""
        quota = self.quotas.get(pods[0].queue)
        if quota is None:
            return True
        held = self._held[pods[0].queue]
        wanted = {
            "cpu": (quota.cpu, sum(pod.request.cpu for pod in pods)),
            "gpu": (quota.gpu_milli, sum(pod.request.demand for pod in pods)),
            "pods": (quota.pods, len(pods)),
        }
        return all(
            limit is None or held[name] + more <= limit for name, (limit, more) in wanted.items()
        )

    def count_held(self, pod: Pod, sign: int) -> None:
        """Count what a pod takes (1) or gives back (-1)."""
        if pod.queue in self._held:
            self._held[pod.queue].update(
                cpu=sign * pod.request.cpu, gpu=sign * pod.request.demand, pods=sign
            )

    @staticmethod
    def refusal(queue: str) -> str:
        """Return the message about a pod that exceeds the quota."""
        return f"the quota of queue {queue!r} is used up"
