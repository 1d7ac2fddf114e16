"""The queue of requests for the next batch, and the choice among them.

While one batch holds all of them, they are taken in order. When more wait, clients take
turns: `fairness` says how. What answers a batch is left to `asgi`.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Generic, TypeVar

from dralab.apiserver.access.fairness.flow_control import Flow
from dralab.apiserver.access.fairness.queues import FairQueue, QueueFull
from dralab.apiserver.cpu_use import CpuUse
from dralab.apiserver.http.messages import HttpRequest, program_of
from dralab.values.records import dataclass

Answered = TypeVar("Answered")
Asked = tuple[HttpRequest, Answered]

EVENTS: Final = "/events"  # in the path of event records, which no client waits for


@dataclass(frozen=True, slots=True)
class _Placed(Generic[Answered]):
    """A request in the queue, with its flow and level."""

    asked: Asked[Answered]
    flow: Flow
    program: str


class Turns(Generic[Answered]):
    """The waiting requests; `flow_of` returns the flow and level of one.

    `batch` requests are taken at a time, and up to `records` events beside them: a scheduler
    records an event for each decision, hundreds at a time, and decides one by one; each decision
    would wait behind records that no client waits for.
    """

    def __init__(
        self,
        flow_of: Callable[[HttpRequest], Flow],
        *,
        batch: int,
        records: int,
        use: CpuUse | None = None,
    ) -> None:
        self._flow_of = flow_of
        self._most, self._most_records = batch, records
        self._new: list[Asked[Answered]] = []
        self._queue: FairQueue[_Placed[Answered]] = FairQueue(use)
        self._records: FairQueue[_Placed[Answered]] = FairQueue(use)

    def __len__(self) -> int:
        return len(self._new) + self._queue.count + self._records.count

    def __iter__(self) -> Iterator[HttpRequest]:
        for request, _ in self._new:
            yield request
        for queue in (self._queue, self._records):
            for placed in queue:
                yield placed.asked[0]

    def add_request(self, asked: Asked[Answered]) -> None:
        """Add a request."""
        self._new.append(asked)

    def take_batch(self) -> tuple[Sequence[Asked[Answered]], Sequence[Asked[Answered]]]:
        """Return the requests of the next batch, and those that must be refused."""
        new, self._new = self._new, []
        if len(new) <= self._most and not self._queue.count + self._records.count:
            if len(new) == 1 or not any(EVENTS in request.path for request, _ in new):
                return new, ()
            records = [one for one in new if EVENTS in one[0].path]
            if len(records) <= self._most_records:
                return [*(one for one in new if EVENTS not in one[0].path), *records], ()
        refused = []
        for one in new:
            placed = self._placed(one)
            queue = self._records if EVENTS in one[0].path else self._queue
            try:
                queue.push(placed, placed.flow.level, placed.flow.name, placed.program)
            except QueueFull:
                refused.append(one)
        taken = [*self._queue.take_batch(self._most), *self._records.take_batch(self._most_records)]
        return [placed.asked for placed in taken], refused

    def put_back(self, rest: Sequence[Asked[Answered]]) -> None:
        """Put back requests that were taken, before those of the same program."""
        for one in reversed(rest):
            placed = self._placed(one)
            queue = self._records if EVENTS in one[0].path else self._queue
            queue.put_back(placed, placed.flow.level, placed.flow.name, placed.program)

    def _placed(self, asked: Asked[Answered]) -> _Placed[Answered]:
        request = asked[0]
        agent = program_of(request)
        return _Placed(asked, self._flow_of(request), agent)
