"""Threads beside that of the loop, and the requests that wait for one: clients take turns.

A lane has so many threads. Where more requests come, they wait by user and program, as in `turns`:
one client's large requests do not keep those of others waiting.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, NamedTuple, TypeVar

from dralab.apiserver.fairness.flow_control import Flow
from dralab.apiserver.fairness.queues import FairQueue
from dralab.apiserver.http.messages import HttpRequest, program_of

Answered = TypeVar("Answered")


class _WaitingRequest(NamedTuple):
    """A request that waits for a thread. A tuple generic in its answer is not worth its words."""

    request: HttpRequest
    future: "asyncio.Future[object]"


class Lane(Generic[Answered]):
    """Some threads that `answer` requests; to be used in the thread of the loop alone."""

    def __init__(
        self,
        name: str,
        threads: int,
        flow_of: Callable[[HttpRequest], Flow],
        answer: Callable[[HttpRequest], Answered],
    ) -> None:
        self._free = threads
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._flow_of, self._answer = flow_of, answer
        self._queue: FairQueue[_WaitingRequest] = FairQueue()

    def submit(self, request: HttpRequest) -> "asyncio.Future[Answered]":
        """Answer a request when a thread is free for it. QueueFull."""
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        if self._free:
            self._begin(_WaitingRequest(request, future))
        else:
            flow = self._flow_of(request)
            self._queue.push(
                _WaitingRequest(request, future), flow.level, flow.name, program_of(request)
            )
        return future  # type: ignore[return-value]  # see _Waiting

    def close(self) -> None:
        """Answer no more; those that wait are cancelled."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        for waiting in self._queue.take_batch(len(self._queue)):
            waiting.future.cancel()

    def _begin(self, waiting: _WaitingRequest) -> None:
        self._free -= 1
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(self._pool, self._answer, waiting.request)

        def done(running: "asyncio.Future[Answered]") -> None:
            self._free += 1
            future = waiting.future
            if running.cancelled():
                future.cancel()
            elif (error := running.exception()) is not None:
                future.set_exception(error)
            else:
                future.set_result(running.result())
            self._go_on()

        running.add_done_callback(done)

    def _go_on(self) -> None:
        while self._free and self._queue:
            waiting = self._queue.take_batch(1)[0]
            if not waiting.future.cancelled():
                self._begin(waiting)
