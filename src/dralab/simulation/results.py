"""What every engine leaves behind, in one form: tasks, samples over time, what there was to use."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Sample(NamedTuple):
    """The state from `when` on; CPU and GPU in milli, fragmented GPU in milli."""

    when: int
    waiting: int
    running: int
    cpu: int
    gpu: int
    fragmented: float


class Task(NamedTuple):
    """A job or pod. Times in nanoseconds, None where they never came.

    `width` is processors (or CPU cores, at least 1); `lanes` are indices into the lanes it ran on.
    """

    id: str
    user: str
    state: str
    submitted: int
    bound: int | None
    started: int | None
    ended: int | None
    width: int
    lanes: tuple[int, ...]
    gpu_milli: int = 0
    reason: str = ""
    evictions: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One finished run.

    `capacity` maps a resource to how much there is (`machines`, or `cpu` and `gpu` in milli).
    `lanes` are names of machines, or of nodes and their devices (`node-3/gpu1`).
    """

    name: str
    scheduler: str
    seed: int
    tasks: Sequence[Task]
    samples: Sequence[Sample]
    lanes: Sequence[str]
    capacity: Mapping[str, int]
    end: int
    joules: float | None = None
    refusals: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    complete: bool = True
