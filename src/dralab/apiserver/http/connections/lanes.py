"""Threads beside that of the loop, and the requests that wait for one: clients take turns.

A lane has so many threads. Where more requests come, they wait by user and program, as in `turns`:
one client's large requests do not keep those of others waiting, and who has used most CPU time of
late waits longest.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Callable, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from itertools import chain
from time import thread_time
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from dralab.apiserver.access.fairness.flow_control import Flow
from dralab.apiserver.access.fairness.queues import FairQueue, QueueFull
from dralab.apiserver.cpu_use import CpuUse
from dralab.apiserver.http.connections.promises import Promise
from dralab.apiserver.http.messages import HttpRequest, program_of

if TYPE_CHECKING:
    from dralab.apiserver.http.connections.tasks import Tasks

Answered = TypeVar("Answered")


class _WaitingRequest(NamedTuple):
    """A request that waits for a thread."""

    request: HttpRequest
    future: Promise[Any]


class _Done(NamedTuple, Generic[Answered]):
    """What a thread has done: the answer of a request, or why there is none."""

    waiting: _WaitingRequest
    answered: Answered | None
    error: BaseException | None
    seconds: float  # of CPU time


class Lane(Generic[Answered]):
    """Some threads that `answer` requests; to be used in the thread of the loop alone.

    `finish` is called there with each request, its future and its answer. What a request has cost
    in CPU time is charged to its flow. With `leave_room` a flow gets a further thread only while it
    has fewer than are free: one flow gets half of them, two a third each. When all are taken, there
    are as many again for flows that have none, so that a few flows cannot keep another one out.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        flow_of: Callable[[HttpRequest], Flow],
        answer: Callable[[HttpRequest], Answered],
        finish: Callable[[HttpRequest, Promise[Any], Answered], None],
        *,
        leave_room: bool = False,
        use: CpuUse | None = None,
        tasks: "Tasks | None" = None,
    ) -> None:
        self._free = threads  # below zero where flows that had none got one
        self._leave_room = leave_room
        self._spare = threads if leave_room else 0
        # How many requests of a flow have a thread, or are in the queue.
        self._begun: Counter[Hashable] = Counter()
        # The further requests of flows that have as many threads as they may.
        self._held: dict[Hashable, deque[_WaitingRequest]] = {}
        self._pool = tasks or ThreadPoolExecutor(threads + self._spare, thread_name_prefix=name)
        self._seconds = thread_time if tasks is None else tasks.seconds
        self._flow_of, self._answer, self._finish = flow_of, answer, finish
        self._use = CpuUse() if use is None else use
        self._queue: FairQueue[_WaitingRequest] = FairQueue(self._use)
        # What threads have done, and whether the loop knows that there is something.
        self._done: deque[_Done[Answered]] = deque()
        self._told = False

    def submit(self, request: HttpRequest, future: Promise[Any]) -> None:
        """Answer a request when a thread is free for it. QueueFull."""
        waiting, flow = _WaitingRequest(request, future), self._flow_of(request)
        if self._may_begin(flow.name):
            self._begin(waiting, flow)
        elif self._leave_room and self._begun[flow.name]:
            held = self._held.setdefault(flow.name, deque())
            if flow.level.per_flow is not None and len(held) >= flow.level.per_flow:
                raise QueueFull(flow.level.name)
            held.append(waiting)
        else:
            self._queue.push(waiting, flow.level, flow.name, program_of(request))
            self._begun[flow.name] += 1

    def close(self) -> None:
        """Answer no more; those that wait are cancelled."""
        self._pool.shutdown(wait=False)
        for waiting in chain(self._queue.take_batch(len(self._queue)), *self._held.values()):
            waiting.future.cancel()

    def _may_begin(self, name: Hashable) -> bool:
        if self._free <= -self._spare:
            return False
        return not self._leave_room or self._begun[name] < max(self._free, 1)

    def _begin(self, waiting: _WaitingRequest, flow: Flow) -> None:
        self._free -= 1
        self._begun[flow.name] += 1
        self._pool.submit(self._work, waiting, asyncio.get_running_loop())

    def _work(self, waiting: _WaitingRequest, loop: asyncio.AbstractEventLoop) -> None:
        """Answer a request in a thread of the lane.

        The loop is woken once for all that is done by then: that takes a call of the system, and
        with a future of each thread three turns of the loop.
        """
        began = self._seconds()
        try:
            answered, error = self._answer(waiting.request), None
        except BaseException as raised:  # noqa: BLE001 - it is told to who awaits the future
            answered, error = None, raised
        self._done.append(_Done(waiting, answered, error, self._seconds() - began))
        if not self._told:
            self._told = True
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._collect)

    def _collect(self) -> None:
        # First: who appends from here on tells again.
        self._told = False
        while self._done:
            waiting, answered, error, seconds = self._done.popleft()
            self._free += 1
            flow = self._flow_of(waiting.request)
            self._use.charge((flow.level.name, flow.name), seconds)
            self._end(flow.name)
            self._queue_next(flow.name)
            if error is None:
                self._finish(waiting.request, waiting.future, cast("Answered", answered))
            elif not waiting.future.done():
                waiting.future.set_exception(error)
        while self._free > -self._spare and (self._queue or self._queue_held()):
            waiting = self._queue.take_batch(1)[0]
            flow = self._flow_of(waiting.request)
            self._end(flow.name)
            if waiting.future.cancelled():
                self._queue_next(flow.name)
            elif self._may_begin(flow.name):
                self._begin(waiting, flow)
            else:
                self._held.setdefault(flow.name, deque()).appendleft(waiting)

    def _end(self, name: Hashable) -> None:
        self._begun[name] -= 1
        if not self._begun[name]:
            del self._begun[name]

    def _queue_held(self) -> bool:
        """Queue a request of each flow that may have a thread; return whether any is queued."""
        for name in [name for name in self._held if self._may_begin(name)]:
            self._queue_next(name)
        return bool(self._queue)

    def _queue_next(self, name: Hashable) -> None:
        """Queue the next request of a flow that had all the threads it may have."""
        if held := self._held.get(name):
            waiting = held.popleft()
            flow = self._flow_of(waiting.request)
            level = replace(flow.level, per_flow=None, in_all=None)  # it was let in before
            self._queue.push(waiting, level, name, program_of(waiting.request))
            self._begun[name] += 1
            if not held:
                del self._held[name]
