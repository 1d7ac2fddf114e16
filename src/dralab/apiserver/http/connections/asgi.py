"""The API server as a plain ASGI application: mount it anywhere.

All requests that arrive in one turn of the loop are handled in one batch of the store, and are
answered when the batch is durable: that is group commit. Watches are opened after it. Nothing
here runs in parallel; other threads of the process share the store through its lock.
"""

import asyncio
import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import thread_time
from typing import TYPE_CHECKING, Final, Protocol

from dralab.api.status import ApiError
from dralab.apiserver.access.fairness.flow_control import Flow
from dralab.apiserver.access.fairness.queues import QueueFull
from dralab.apiserver.cpu_use import CpuUse
from dralab.apiserver.http.connections.asgi_base import (
    LAST_WORDS,
    AsgiBase,
    AsgiLimits,
    Outcome,
    abandon,
)
from dralab.apiserver.http.connections.lanes import Lane
from dralab.apiserver.http.connections.promises import Promise
from dralab.apiserver.http.connections.read_sockets import watch_socket
from dralab.apiserver.http.connections.sending import (
    Message,
    Receive,
    Send,
    failed,
    refused,
    started,
)
from dralab.apiserver.http.connections.turns import EVENTS, Turns
from dralab.apiserver.http.messages import (
    HEAVY,
    HEAVY_LANE,
    LARGE_LANE,
    LOOP,
    WAITING_LANE,
    WRITES_LANE,
    Answer,
    HttpRequest,
    HttpResponse,
    TakesLong,
    Upgrade,
    WatchStream,
    lane_for,
)
from dralab.apiserver.http.trying import refusal, write_failure
from dralab.apiserver.storage import Compacted, StorageUnavailable, Store, Unstorable
from dralab.apiserver.storage.watching import Hub, Subscription, TooManyWatchers
from dralab.values.records import dataclass

if TYPE_CHECKING:
    from dralab.apiserver.http.connections.tasks import Tasks

logger = logging.getLogger(__name__)

SHORT: Final = 2.0  # seconds: so short a watch ends without a bookmark, as a real server's does
BOOKMARKS_EVERY: Final = 5.0  # seconds between looks at which bookmarks are due
# Seconds after which a batch lets the loop have a turn: where others wait, they wait for two
# batches. It may be as long as the store took to write the last one, so that this does not double.
HELD: Final = 0.005
LONGEST_HELD: Final = 0.02
TOLD_EVERY: Final = 60.0  # seconds between lines of the log about a store that fails
READS: Final = frozenset({"GET", "HEAD"})
# Threads beside that of the loop. Writes to a shared store wait for it, so there are many.
LANES: Final = {
    LARGE_LANE: 1,
    HEAVY_LANE: 1,
    WRITES_LANE: 32,
    # Those that wait for webhooks, which may take seconds.
    WAITING_LANE: 200,
}
Asked = tuple[HttpRequest, Promise[Outcome]]


class Served(Protocol):
    """The server behind the ASGI edge."""

    store: Store
    hub: Hub

    def admit(self, request: HttpRequest) -> None:
        """Check a request before its body is read. ApiError: it is refused."""
        ...

    def handle(self, request: HttpRequest) -> Answer:
        """Answer a request; it raises nothing that a client could cause, but for TakesLong."""
        ...

    def handle_apart(self, request: HttpRequest) -> Answer:
        """Answer a request in a thread beside that of the loop, which may take seconds."""
        ...

    def reads_now(self, request: HttpRequest) -> bool:
        """Whether a request reads the latest state: asked if servers share the store."""
        ...

    def began(self, request: HttpRequest, status: int) -> None:
        """A long answer begins."""
        ...

    def ended(self, request: HttpRequest, status: int) -> None:
        """A long answer has ended."""
        ...

    def flow_of(self, request: HttpRequest) -> Flow:
        """Return the flow and priority level of a request."""
        ...

    def tick(self) -> None:
        """Do periodic work: send bookmarks, delete expired events. StorageUnavailable."""
        ...


class AsgiApp(AsgiBase):
    """The ASGI application. `served` may be exchanged between requests: a fresh store per test."""

    direct = True

    def __init__(self, served: Served, limits: AsgiLimits | None = None) -> None:
        super().__init__(limits)
        self.served = served
        self._use = CpuUse(self._seconds)
        self._turns: Turns[Promise[Outcome]] = Turns(
            self._flow_of,
            batch=self.limits.batch,
            records=self.limits.records,
            use=self._use,
        )
        self._bookmarks: asyncio.TimerHandle | None = None
        self._apart: dict[str, Lane[Outcome | TakesLong]] = {}
        self._under_way: set[Promise[Outcome]] = set()
        self._outdated: list[Asked] = []
        self._made_tasks: Tasks | None = None
        self._refreshing = False
        self._held = HELD
        self._failures_told: dict[type[StorageUnavailable], float] = {}  # when, in seconds

    def _seconds(self) -> float:
        return self.loop.time() if self.loop is not None and self.limits.timers else 0.0

    def _flow_of(self, request: HttpRequest) -> Flow:
        return self.served.flow_of(request)  # of the server that is served now

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send bookmarks from now on."""
        if not self.limits.timers:
            return
        self._bookmarks = loop.call_later(BOOKMARKS_EVERY, self._tick)

    def close(self) -> None:
        """End all watches and forget the loop."""
        self.served.hub.close()
        if self._bookmarks is not None:
            self._bookmarks.cancel()
        self._bookmarks = None
        for lane in self._apart.values():
            lane.close()
        self._apart.clear()
        if self._made_tasks is not None:
            self.served.store.read_in(None)
            self._made_tasks = None
        super().close()

    def admit(self, request: HttpRequest) -> None:
        """Check a request before its body is read. ApiError: it is refused."""
        self.served.admit(request)

    def began(self, request: HttpRequest, status: int) -> None:
        """A long answer begins."""
        self.served.began(request, status)

    def ended(self, request: HttpRequest, status: int) -> None:
        """A long answer has ended."""
        self.served.ended(request, status)

    # --- one batch per turn of the loop ---------------------------------------------------

    def submit(self, request: HttpRequest) -> asyncio.Future[Outcome]:
        """Answer a request in the batch of this turn; a large one in its own thread."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        self.submit_to(request, future)
        return future

    def submit_to(self, request: HttpRequest, answered: Promise[Outcome]) -> None:
        """Do the same; the answer is given to a promise."""
        if request.body and (weight := request.weight) > HEAVY:
            self._answer_in(lane_for(weight), request, answered)
            return
        shared = self.served.store.shared
        if shared and request.method not in READS:
            self._answer_in(WRITES_LANE, request, answered)
            return
        request.lane = LOOP
        if shared and self.served.reads_now(request):
            self._outdated.append((request, answered))
            if not self._refreshing:
                self._refresh()
        else:
            self._await_turn((request, answered))

    def _await_turn(self, *asked: Asked) -> None:
        if not self._turns:
            asyncio.get_running_loop().call_soon(self._turn)
        for one in asked:
            self._turns.add_request(one)

    def _answer_in(self, lane: str, request: HttpRequest, answered: Promise[Outcome]) -> None:
        """Answer a request in a worker thread, while the loop goes on.

        They share the server with the loop through the store's lock, which they hold for moments.
        """
        request.lane = lane
        if answered not in self._under_way:
            self._under_way.add(answered)
            answered.add_done_callback(self._under_way.discard)
        try:
            self._lane(lane).submit(request, answered)
        except QueueFull:
            answered.set_result(_too_many())

    def _finish(
        self, request: HttpRequest, answered: Promise[Outcome], outcome: Outcome | TakesLong
    ) -> None:
        """Pass on what a thread has answered, or have it answered in another one."""
        if isinstance(outcome, TakesLong):
            if not answered.done():
                self._answer_in(outcome.lane, request, answered)
        elif answered.done():
            abandon(outcome)
        else:
            answered.set_result(outcome)

    def _lane(self, name: str) -> Lane[Outcome | TakesLong]:
        if name not in self._apart:
            self._apart[name] = Lane(
                name,
                LANES[name],
                self._flow_of,
                self._answer,
                self._finish,
                leave_room=name == WAITING_LANE,
                use=self._use,
                tasks=self._tasks if name == WRITES_LANE else None,
            )
        return self._apart[name]

    def _refresh(self) -> None:
        """Let a shared store catch up with other servers; then answer the waiting requests."""
        self._refreshing = True

        def refresh() -> None:
            refusal = None
            waiting, self._outdated = self._outdated, []
            try:
                self.served.store.refresh()
            except Exception as error:  # noqa: BLE001 - it is told to who waits
                refusal = _unread(error)
            self._refreshing = False
            if refusal is None:
                self._await_turn(*waiting)
            else:
                for _, future in waiting:
                    if not future.done():
                        future.set_result(refusal)
            if self._outdated:
                self._refresh()

        self._tasks.submit(refresh)

    @property
    def _tasks(self) -> "Tasks":
        """Where requests wait for a shared store."""
        lock = self.served.store.lock
        if self._made_tasks is None or self._made_tasks.lock is not lock:
            from dralab.apiserver.http.connections.tasks import Tasks

            self._made_tasks = Tasks(lock)
            self.served.store.read_in(self._made_tasks.loop)
        return self._made_tasks

    @property
    def idle(self) -> bool:
        """Whether every request that was read has been answered, except for events."""
        return not (self._under_way or self._outdated or self._refreshing) and all(
            EVENTS in request.path for request in self._turns
        )

    @property
    def has_requests(self) -> bool:
        """Whether some request that was read waits for its turn, events included."""
        return bool(self._turns)

    def _turn(self) -> None:
        waiting, too_many = self._turns.take_batch()
        for _, future in too_many:
            if not future.done():
                future.set_result(_too_many())
        answered = self._batch([one for one in waiting if "watch" not in one[0].query])
        answered += [(one, self._open(one[0])) for one in waiting if "watch" in one[0].query]
        for (request, future), outcome in answered:
            if isinstance(outcome, TakesLong):
                if not future.done():
                    self._answer_in(outcome.lane, request, future)
            elif future.done():
                abandon(outcome)
            else:
                future.set_result(outcome)
        # After the answers: they are sent before the next batch begins.
        if self._turns:
            asyncio.get_running_loop().call_soon(self._turn)

    def _batch(self, waiting: Sequence[Asked]) -> list[tuple[Asked, Outcome | TakesLong]]:
        """Answer requests, as many as there is time for; the others are taken first next time."""
        answered: list[tuple[Asked, Outcome | TakesLong]] = []
        # First the loop's time: that of the CPU takes a call of the system.
        now = asyncio.get_running_loop().time if self.limits.timers else None
        until, worked = (now() + self._held, thread_time()) if now is not None else (0.0, 0.0)
        last = until - self._held
        crowded = bool(self._turns)
        try:
            with self.served.store.batch():
                for one in waiting:
                    answered.append((one, self._answer(one[0])))
                    if now is None:
                        continue
                    before, last = last, now()
                    if crowded:
                        flow = self._flow_of(one[0])
                        self._use.charge((flow.level.name, flow.name), last - before)
                    # What other programs on this core take helps no client that waits.
                    if last > until and thread_time() - worked > self._held:
                        break
            if now is not None:
                self._held = min(max(HELD, now() - last), LONGEST_HELD)
        except StorageUnavailable as error:
            # None of the batch's writes has happened; reads are answered again.
            refused_write = self._unavailable(error)
            answered = [
                (one, self._answer(one[0]) if one[0].method == "GET" else refused_write)
                for one, _ in answered
            ]
        if len(answered) < len(waiting):
            self._turns.put_back(waiting[len(answered) :])
        return answered

    def _answer(self, request: HttpRequest) -> Outcome | TakesLong:
        """Answer a request; a watch that has no `watch=` in its query begins here too."""
        served = self.served
        try:
            answer = (
                served.handle(request) if request.lane == LOOP else served.handle_apart(request)
            )
        except TakesLong as condition:
            return condition
        except StorageUnavailable as error:
            return self._unavailable(error)
        except (RecursionError, Unstorable):
            return refused(ApiError.bad_request("the object is nested too deeply"))
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return failed()
        if isinstance(answer, WatchStream):
            return self._watch(answer, request.audit_id)
        return answer

    def _open(self, request: HttpRequest) -> Outcome | TakesLong:
        with self.served.store.lock:
            return self._answer(request)

    def _watch(self, stream: WatchStream, audit_id: str) -> Outcome:
        try:
            subscription = self.served.hub.open(stream.watching, stream.encoder)
            return _Watch(stream, subscription, self, audit_id)
        except Compacted as error:
            text = f"too old resource version: {error.requested} ({error.compacted})"
            return refused(ApiError("Expired", text))
        except TooManyWatchers as error:
            return refused(
                ApiError("TooManyRequests", str(error), details={"retryAfterSeconds": 1})
            )

    def _unavailable(self, error: StorageUnavailable) -> HttpResponse:
        """Return the error for a write. The log has one line a minute, however many are refused."""
        failure, now = write_failure(error), self._seconds()
        told = self._failures_told.get(type(error))
        if told is None or now - told >= TOLD_EVERY:
            self._failures_told[type(error)] = now
            logger.error("%s", failure)
        return refusal(failure)

    def _tick(self) -> None:
        if self.loop is not None:
            try:
                self.served.tick()
            except StorageUnavailable as error:
                self._unavailable(error)  # which tells the log
            self._bookmarks = self.loop.call_later(BOOKMARKS_EVERY, self._tick)


@dataclass(frozen=True, slots=True)
class _Watch:
    """A watch on its way to a client."""

    stream: WatchStream
    subscription: Subscription[bytes]
    edge: AsgiApp
    audit_id: str

    async def answer(
        self, answering: AsgiBase, scope: Message, receive: Receive, send: Send
    ) -> None:
        """Send the changes until the timeout."""
        start = started(self.stream.status, self.stream.headers, self.audit_id)
        with self._timed():
            await answering.stream(
                start, self.subscription, scope=scope, receive=receive, send=send
            )

    def over_socket(self, headers: Mapping[str, str], offered: Sequence[str]) -> Upgrade:
        """Return the changes until the timeout, each as a message of a WebSocket. ApiError."""
        upgrade = watch_socket(self.subscription, self.stream.encoding, headers, offered)
        return replace(upgrade, lasting=self._timed)

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """End the watch at its timeout."""
        edge, watch, loop = self.edge, self.subscription, asyncio.get_running_loop()
        timeout = self.stream.watching.timeout or edge.limits.watch_time
        hub, ends = edge.served.hub, list[asyncio.TimerHandle]()
        if edge.limits.timers:
            ends.append(loop.call_later(timeout, _finish, hub, watch, timeout > SHORT))
            # A client that does not read the end of the watch either is dropped.
            last = timeout + LAST_WORDS
            ends.append(loop.call_later(last, watch.end, "its timeout has expired"))
        try:
            yield
        finally:
            for end in ends:
                end.cancel()

    def close(self) -> None:
        """End it: the client is gone."""
        self.subscription.close()


def _finish(hub: Hub, watch: Subscription[bytes], bookmark: bool) -> None:  # noqa: FBT001 - call_later
    if bookmark:
        hub.bookmark(watch)
    watch.finish()


def _unread(error: BaseException) -> HttpResponse:
    """Return the error for reads if the shared store cannot be reached."""
    if not isinstance(error, StorageUnavailable):
        logger.error("the store could not be asked", exc_info=error)
        return failed()
    refusal = ApiError("ServiceUnavailable", f"the store cannot be read: {error}")
    return refused(refusal, ("retry-after", "1"))


def _too_many() -> HttpResponse:
    """Return the error for a client with too many waiting requests, in kube-apiserver's words."""
    return HttpResponse(
        status=429,
        headers=(("content-type", "text/plain; charset=utf-8"), ("retry-after", "1")),
        body=b"Too many requests, please try again later.\n",
    )
