"""Queues of waiting requests, served in turn: levels by shares, then users, then programs.

Upstream gives each priority level seats and shuffles flows into queues, because its requests run
side by side. Here they are answered one after the other, in batches; so a level gets its share of
each batch, every flow of the level has its own queue, and the flow that has used least CPU time of
late comes first: those that ask for as much take turns. Within a flow the programs of one user take
turns as well: upstream does not tell them apart.
"""

from collections import OrderedDict, deque
from collections.abc import Hashable, Iterator
from dataclasses import field
from heapq import heappop, heappush, heapreplace
from typing import Final, Generic, TypeVar

from dralab.apiserver.cpu_use import CpuUse
from dralab.values.records import dataclass

Item = TypeVar("Item")

EACH: Final = 1e-4  # seconds of CPU time that a request is taken for before it is measured
PROGRAMS: Final = 32  # queues of one flow; programs beyond share the last one


@dataclass(frozen=True, slots=True)
class PriorityLevel:
    """A priority level: its share of each batch, and how much may wait.

    `per_flow` and `in_all` bound the requests that wait; None: there is no bound. An exempt level
    is served before all others.
    """

    name: str
    shares: int = 1
    exempt: bool = False
    per_flow: int | None = None
    in_all: int | None = None


class QueueFull(Exception):  # noqa: N818 - an answer: 429
    """Too many requests of one flow, or of one level, are waiting already."""


@dataclass(slots=True)
class _Flow(Generic[Item]):
    """The waiting items of one user: a queue for each program."""

    programs: OrderedDict[str, deque[Item]] = field(default_factory=OrderedDict)
    count: int = 0

    def push(self, program: str, item: Item, *, first: bool) -> None:
        queue = self.programs.get(program)
        if queue is None:
            if len(self.programs) >= PROGRAMS:
                program = next(reversed(self.programs))
            queue = self.programs.setdefault(program, deque())
        if first:
            queue.appendleft(item)
            self.programs.move_to_end(program, last=False)
        else:
            queue.append(item)
        self.count += 1

    def pop(self) -> Item:
        program, queue = self.programs.popitem(last=False)
        item = queue.popleft()
        if queue:
            self.programs[program] = queue
        self.count -= 1
        return item


@dataclass(slots=True)
class _Waiting(Generic[Item]):
    """The waiting items of one level, and in which order their flows are looked at."""

    level: PriorityLevel
    flows: dict[Hashable, _Flow[Item]] = field(default_factory=dict)
    order: list[tuple[float, int, Hashable]] = field(default_factory=list)
    count: int = 0
    credit: float = 0.0

    def pop(self, use: CpuUse, number: int) -> Item:
        """Take an item of the flow that has used least CPU time, and count it as used."""
        while True:
            known, _, name = self.order[0]
            used = use.of((self.level.name, name))
            if used <= known:
                break
            heapreplace(self.order, (used, number, name))  # it has used more meanwhile
        flow = self.flows[name]
        item = flow.pop()
        heappop(self.order)
        if flow.count:
            heappush(self.order, (used + EACH, number, name))
        else:
            del self.flows[name]
        use.charge((self.level.name, name), EACH)
        self.count -= 1
        return item


class FairQueue(Generic[Item]):
    """Items that wait, taken level by level and flow by flow. Not for several threads.

    >>> queue = FairQueue()
    >>> low = PriorityLevel("low")
    >>> for item in ("a1", "a2", "a3"):
    ...     queue.push(item, low, flow="a")
    >>> queue.push("b1", low, flow="b")
    >>> queue.take_batch(3)
    ['a1', 'b1', 'a2']
    """

    def __init__(self, use: CpuUse | None = None) -> None:
        self._levels: dict[str, _Waiting[Item]] = {}
        self.count = 0  # of the items
        self._use = CpuUse() if use is None else use
        self._number = 0  # of the last flow that was put in order

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[Item]:
        for waiting in self._levels.values():
            for flow in waiting.flows.values():
                for queue in flow.programs.values():
                    yield from queue

    def push(self, item: Item, level: PriorityLevel, flow: Hashable, program: str = "") -> None:
        """Add an item behind those of its program. QueueFull."""
        waiting = self._at(level)
        found = waiting.flows.get(flow)
        if (level.in_all is not None and waiting.count >= level.in_all) or (
            level.per_flow is not None and found is not None and found.count >= level.per_flow
        ):
            raise QueueFull(level.name)
        self._add(waiting, item, flow, program, first=False)

    def put_back(self, item: Item, level: PriorityLevel, flow: Hashable, program: str = "") -> None:
        """Put back an item that was taken, in front; of several, the last first."""
        self._use.charge((level.name, flow), -EACH)
        self._add(self._at(level), item, flow, program, first=True)

    def _at(self, level: PriorityLevel) -> _Waiting[Item]:
        waiting = self._levels.get(level.name)
        if waiting is None:
            waiting = self._levels[level.name] = _Waiting(level)
        waiting.level = level
        return waiting

    def _add(
        self, waiting: _Waiting[Item], item: Item, flow: Hashable, program: str, *, first: bool
    ) -> None:
        found = waiting.flows.get(flow)
        if found is None:
            found = waiting.flows[flow] = _Flow()
            self._number += 1
            used = self._use.of((waiting.level.name, flow))
            heappush(waiting.order, (used, -self._number if first else self._number, flow))
        found.push(program, item, first=first)
        waiting.count += 1
        self.count += 1

    def take_batch(self, most: int) -> list[Item]:
        """Take up to so many items: exempt levels first, then each level by its shares."""
        taken: list[Item] = []
        while self.count and len(taken) < most:
            waiting = self._next_level()
            self._number += 1
            taken.append(waiting.pop(self._use, self._number))
            self.count -= 1
            if not waiting.count:
                del self._levels[waiting.level.name]
        return taken

    def _next_level(self) -> _Waiting[Item]:
        """Return the next level by smooth weighted round robin."""
        if len(self._levels) == 1:
            return next(iter(self._levels.values()))
        for waiting in self._levels.values():
            if waiting.level.exempt:
                return waiting
        total, best = 0, None
        for waiting in self._levels.values():
            weight = max(waiting.level.shares, 1)
            waiting.credit += weight
            total += weight
            if best is None or waiting.credit > best.credit:
                best = waiting
        assert best is not None  # noqa: S101 - there is one: something waits
        best.credit -= total
        return best
