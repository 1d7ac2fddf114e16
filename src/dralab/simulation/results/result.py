"""The result of every engine in one form: tasks, samples over time, and capacity."""

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, overload

from dralab.kernel.clock import SECOND

# Rows of samples that are moved to columns together.
MOST_ROWS: Final = 64


class StateSample(NamedTuple):
    """The state from `when` on; CPU and GPU in milli, fragmented GPU in milli, memory in bytes.

    `asked` is the CPU (or machines) that waiting tasks ask for; `types` is what is in use of each
    type of device, in milli. `ended`, `evicted`, `refused` and `joules` count from the beginning.
    """

    when: int
    waiting: int
    running: int
    cpu: int
    gpu: int
    fragmented: float
    memory: int = 0
    asked: int = 0
    ended: int = 0
    evicted: int = 0
    refused: int = 0
    joules: float = 0.0
    types: tuple[int, ...] = ()


class SampleColumns(Sequence[StateSample]):  # noqa: PLW1641 - as lists, it has no hash
    """Samples in columns of numbers, which take a fifth of the memory.

    The last rows are moved to the columns together: a run adds a row at each of its instants.
    """

    def __init__(self, types: int) -> None:
        # What a sample holds, with the numbers of its types at the end.
        self._rows: list[tuple[Any, ...]] = []
        self._last: tuple[Any, ...] = ()
        fractions = {"fragmented", "joules"}
        self._columns: list[array[Any]] = [
            array("d" if name in fractions else "q") for name in StateSample._fields[:-1]
        ] + [array("q") for _ in range(types)]

    def add(self, sample: StateSample) -> None:
        """Add a sample; it replaces one of the same time, and is dropped if nothing changed."""
        self.add_row((*sample[:-1], *sample.types))

    def add_row(self, row: tuple[Any, ...]) -> None:
        """Add a sample as what it holds, with the numbers of its types at the end."""
        last, rows = self._last, self._rows
        if last and last[0] == row[0]:
            if not rows:
                for column in self._columns:
                    column.pop()
            else:
                rows.pop()
        elif last[1:] == row[1:]:
            return
        self._last = row
        rows.append(row)
        if len(rows) >= MOST_ROWS:
            self._move_rows()

    def _move_rows(self) -> None:
        if self._rows:
            for column, values in zip(self._columns, zip(*self._rows, strict=True), strict=True):
                column.extend(values)
            self._rows.clear()

    def __len__(self) -> int:
        return len(self._columns[0]) + len(self._rows)

    @overload
    def __getitem__(self, index: int) -> StateSample: ...

    @overload
    def __getitem__(self, index: slice) -> list[StateSample]: ...

    def __getitem__(self, index: int | slice) -> StateSample | list[StateSample]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        self._move_rows()
        values: list[Any] = [column[index] for column in self._columns]
        common = len(StateSample._fields) - 1
        return StateSample._make([*values[:common], tuple(values[common:])])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)


class TaskStay(NamedTuple):
    """Which lanes a task held from when to when."""

    since: int
    until: int
    lanes: tuple[int, ...]


class Task(NamedTuple):
    """A job or pod. Times in nanoseconds, None if they never came.

    `width` is processors (or CPU cores, at least 1); `lanes` are indices into the lanes it ran on.
    `wasted` is the time of runs that were lost, less what checkpoints kept of them, `idle` the time
    in which it held its node or devices and did not run. A replica of a service was `wanted` for so
    long, and `served` for so long of it. One that ran in turns with others has `stays`, and the
    `lanes` of the last.
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
    wasted: int = 0
    idle: int = 0
    served: int = 0
    wanted: int = 0
    stays: tuple[TaskStay, ...] = ()

    def held(self, end: int) -> tuple[TaskStay, ...]:
        """Return when it held which lanes, in a run that ended at `end`."""
        if self.stays or self.started is None:
            return self.stays
        return (TaskStay(self.started, end if self.ended is None else self.ended, self.lanes),)


class NodeSpan(NamedTuple):
    """A node of a pool: it was paid for from `asked` to `gone`, and took pods from `ready` on.

    `price` is that of an hour; `reason` says why it went, empty if it was there at the end.
    """

    name: str
    pool: str
    price: float
    gpus: int
    asked: int
    ready: int | None
    gone: int
    reason: str = ""

    @property
    def hours(self) -> float:
        """How long it was paid for."""
        return (self.gone - self.asked) / (3600 * SECOND)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One finished run.

    `capacity` maps a resource to how much there is (`machines`, or `cpu` and `gpu` in milli,
    `memory` in bytes), `types` a type of device to its milli, in the order of the samples.
    `lanes` are names of machines, or of nodes and their devices (`node-3/gpu1`). Only what happens
    in the `interval` is measured; None: everything. `outages` say which lane was down from when to
    when. `own_numbers` are those that only this way to run has, beside the common ones.
    """

    name: str
    scheduler: str
    seed: int
    tasks: Sequence[Task]
    samples: Sequence[StateSample]
    lanes: Sequence[str]
    capacity: Mapping[str, int]
    end: int
    joules: float | None = None
    refusals: Mapping[str, int] = field(default_factory=dict)
    notes: Sequence[str] = ()
    complete: bool = True
    types: Mapping[str, int] = field(default_factory=dict)
    interval: tuple[int, int] | None = None
    outages: Sequence[tuple[int, int, int]] = ()
    own_numbers: Mapping[str, float | None] = field(default_factory=dict)
    nodes: Sequence[NodeSpan] = ()

    def all_capacity(self) -> dict[str, int]:
        """Return the capacity of resources, and of types of devices as `gpu[MODEL]`."""
        return {**self.capacity, **{f"gpu[{name}]": most for name, most in self.types.items()}}

    def in_use(self, name: str) -> Callable[[StateSample], float]:
        """Return a function of the use of a resource or type in a sample."""
        if name.startswith("gpu["):
            index = list(self.types).index(name[4:-1])
            return lambda sample: sample.types[index] if sample.types else 0
        field_name = {"machines": "cpu"}.get(name, name)
        return lambda sample: float(getattr(sample, field_name))
