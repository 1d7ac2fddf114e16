"""The base class of policies, and what their methods are given. Times are seconds of the run."""

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from types import MappingProxyType
from typing import Any, Final

from dralab.values.records import dataclass

WHOLE_GPU = 1000
NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


def _nothing() -> Mapping[str, Any]:
    return NOTHING


class OwnPolicy:
    """A scheduler of your own: derive from it, and define the methods that it decides with.

    - `order(task)`: a number or a tuple of numbers; the waiting task with the smallest is tried
      first. It is asked when a task arrives and whenever it may be tried again; in rounds, for all
      tasks before each round.
    - `prefer(task, node)`: how good a node with room is, higher is better; None: not there.
    - `place(task, nodes)`: one of the nodes with room, or None to wait (jobs: their machines;
      trainings: nodes of one model with room together).
    - `preempt(task)`: running tasks of one node that end so that a task fits which has no room.
    - `resize(task)`: how many machines a waiting or running job gets, or a training GPUs; None: as
      it is. Its work stays the same: twice the machines need half the time.

    Without `prefer` and `place` the first node with room is taken. `self.state` is what there is
    now; chance comes from `self.rng`, which is seeded by the run. An engine refuses a policy with a
    method that it cannot heed. What a method is given cannot be changed.

        class ShortestFirst(dralab.Policy):
            def order(self, task):
                return task.estimate


        dralab.simulate("week.yaml", scheduler=ShortestFirst)
    """

    rng: random.Random
    state: "PolicyState"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskFacts:
    """What a scenario and the run know of a task besides what it asks for."""

    name: str
    user: str
    queue: str = ""
    gang: str = ""
    arrives: float
    duration: float | None
    estimate: float
    started: float | None = None
    served: float = 0.0
    nodes: Sequence[str] = ()
    body: Mapping[str, Any] | None = None
    done: float | None = None
    speeds: Mapping[str, float] = field(default_factory=_nothing)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PolicyTask:
    """A task: a pod, or a job that asks for machines.

    `cpu` is in milli, `memory` in bytes; of `gpus` GPUs it asks for `gpu_milli` each, of one of the
    `models` (joined by `|`; empty: any). `requests` are all amounts that a pod asks for.
    """

    key: str
    namespace: str = ""
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=_nothing)
    requests: Mapping[str, int] = field(default_factory=_nothing)
    cpu: int = 0
    memory: int = 0
    gpus: int = 0
    gpu_milli: int = 0
    models: str = ""
    machines: int = 0
    # From the first look at them on, pods that ask alike are told apart, which takes time.
    facts: Callable[[], TaskFacts] = field(repr=False)

    @property
    def name(self) -> str:
        """The name in the scenario."""
        return self.facts().name

    @property
    def user(self) -> str:
        """Whose it is."""
        return self.facts().user

    @property
    def queue(self) -> str:
        """The queue that it was put into."""
        return self.facts().queue

    @property
    def gang(self) -> str:
        """The pods that start together with it, by their common name."""
        return self.facts().gang

    @property
    def arrives(self) -> float:
        """When it arrived, in seconds."""
        return self.facts().arrives

    @property
    def duration(self) -> float | None:
        """How many seconds it will run, which no scheduler knows; None: unknown or for ever."""
        return self.facts().duration

    @property
    def estimate(self) -> float:
        """How many seconds its user says it runs; where nobody said, its duration (or infinity)."""
        return self.facts().estimate

    @property
    def started(self) -> float | None:
        """Since when it runs, in seconds; None: it waits."""
        return self.facts().started

    @property
    def served(self) -> float:
        """How many seconds it has run: in this run, and what checkpoints kept of earlier ones."""
        return self.facts().served

    @property
    def nodes(self) -> Sequence[str]:
        """The names of its node or machines, while it has them."""
        return self.facts().nodes

    @property
    def done(self) -> float | None:
        """The part of its work that is done, in rounds; None: not known."""
        return self.facts().done

    @property
    def speeds(self) -> Mapping[str, float]:
        """Its steps per second on each model of GPU it can run on, in rounds."""
        return self.facts().speeds

    @property
    def body(self) -> Mapping[str, Any] | None:
        """The object that it was read from, where it was one."""
        return self.facts().body


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class PolicyNode:
    """A node or machine, and what is left of it: CPU in milli, memory in bytes, milli of each GPU.

    A machine of jobs has neither: it is free, or it is not among the nodes.
    """

    name: str
    labels: Mapping[str, str] = field(default_factory=_nothing)
    cpu: int = 0
    memory: int = 0
    gpus: tuple[int, ...] = ()
    model: str = ""
    cpu_in_all: int = 0
    memory_in_all: int = 0

    @property
    def idle_gpus(self) -> int:
        """The number of idle GPUs."""
        return sum(left == WHOLE_GPU for left in self.gpus)


@dataclass(frozen=True, slots=True, kw_only=True)
class StateReaders:
    """How an engine answers for each field of a `PolicyState`; `noted` hears of each question."""

    now: Callable[[], float]
    waiting: Callable[[], Iterable[PolicyTask]]
    running: Callable[[], Iterable[PolicyTask]]
    nodes: Callable[[], Iterable[PolicyNode]]
    noted: Callable[[], None] = lambda: None


class PolicyState:
    """What there is at the time of a decision. Each property is read anew whenever it is used."""

    __slots__ = ("_readers",)

    def __init__(self, readers: StateReaders) -> None:
        self._readers = readers

    @property
    def now(self) -> float:
        """The time, in seconds since the run began."""
        self._readers.noted()
        return self._readers.now()

    @property
    def waiting(self) -> tuple[PolicyTask, ...]:
        """The queue: tasks that wait, in the order of their arrival."""
        self._readers.noted()
        return tuple(self._readers.waiting())

    @property
    def running(self) -> tuple[PolicyTask, ...]:
        """The tasks that have a node or machines, in the order of their arrival."""
        self._readers.noted()
        return tuple(self._readers.running())

    @property
    def nodes(self) -> tuple[PolicyNode, ...]:
        """The fleet, with what is left of it; of machines those that are free."""
        self._readers.noted()
        return tuple(self._readers.nodes())


def read_only(value: Any) -> Any:
    """Return JSON that nobody can change: mappings are proxies, lists are tuples."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: read_only(each) for key, each in value.items()})
    return tuple(map(read_only, value)) if isinstance(value, (list, tuple)) else value
