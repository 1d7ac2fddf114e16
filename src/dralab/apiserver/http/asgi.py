"""The API server as a plain ASGI application: mount it anywhere.

All requests that arrive in one turn of the loop are handled in one batch of the store, and are
answered when the batch is durable: that is group commit. Watches are opened after it. Nothing
here runs in parallel; other threads of the process share the store through its lock.
"""

import asyncio
import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Final, Protocol

from dralab.api.status import ApiError
from dralab.apiserver.http.asgi_base import (
    AsgiBase,
    AsgiLimits,
    Outcome,
    Receive,
    Send,
    abandon,
    failed,
    refused,
    started,
)
from dralab.apiserver.http.messages import Answer, HttpRequest, HttpResponse, WatchStream
from dralab.apiserver.storage import Compacted, StorageUnavailable, Store, Unstorable
from dralab.apiserver.watching import Hub, Subscription, TooManyWatchers

logger = logging.getLogger(__name__)

SHORT: Final = 2.0  # seconds: so short a watch ends without a bookmark, as a real server's does
BOOKMARKS_EVERY: Final = 5.0  # seconds between looks at which bookmarks are due
LAST_WORDS: Final = 10.0  # seconds to read what is left when a watch's time is over
HEAVY: Final = 128 * 1024  # bytes of a body whose reading may take a tenth of a second
EVENTS: Final = "/events"  # in the path of records, which nobody waits for


class Served(Protocol):
    """What stands behind the edge."""

    store: Store
    hub: Hub

    def admit(self, request: HttpRequest) -> None:
        """Look at a request before its body is read. ApiError: it is refused."""
        ...

    def handle(self, request: HttpRequest) -> Answer:
        """Answer a request; it raises nothing that a client could cause."""
        ...

    def tick(self) -> None:
        """Do what is due: bookmarks, the end of old events. StorageUnavailable."""
        ...


class AsgiApp(AsgiBase):
    """The ASGI application. `served` may be exchanged between requests: a fresh store per test."""

    def __init__(self, served: Served, limits: AsgiLimits | None = None) -> None:
        super().__init__(limits)
        self.served = served
        self._waiting: list[tuple[HttpRequest, asyncio.Future[Outcome]]] = []
        self._bookmarks: asyncio.TimerHandle | None = None
        self._heavy: ThreadPoolExecutor | None = None
        self._under_way: set[asyncio.Future[Outcome]] = set()

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send bookmarks from now on."""
        self._bookmarks = loop.call_later(BOOKMARKS_EVERY, self._tick)

    def close(self) -> None:
        """End all watches and forget the loop."""
        self.served.hub.close()
        if self._bookmarks is not None:
            self._bookmarks.cancel()
        self._bookmarks = None
        if self._heavy is not None:
            self._heavy.shutdown(wait=False, cancel_futures=True)
            self._heavy = None
        super().close()

    def admit(self, request: HttpRequest) -> None:
        """Look at a request before its body is read. ApiError: it is refused."""
        self.served.admit(request)

    # --- one batch per turn of the loop ---------------------------------------------------

    def submit(self, request: HttpRequest) -> asyncio.Future[Outcome]:
        """Have a request answered in the batch of this turn; a large one in a thread of its own."""
        loop = asyncio.get_running_loop()
        if len(request.body) > HEAVY:
            return self._heavily(request, loop)
        future: asyncio.Future[Outcome] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._turn)
        self._waiting.append((request, future))
        return future

    def _heavily(
        self, request: HttpRequest, loop: asyncio.AbstractEventLoop
    ) -> asyncio.Future[Outcome]:
        """Have a request answered in the one thread for large bodies.

        Reading megabytes takes seconds, during which the loop has its turns. The thread shares the
        server with the loop as any other thread of the process does: through the store's lock.
        """
        if self._heavy is None:
            self._heavy = ThreadPoolExecutor(max_workers=1, thread_name_prefix="large-bodies")
        answered: asyncio.Future[Outcome] = loop.run_in_executor(self._heavy, self._answer, request)
        self._under_way.add(answered)
        answered.add_done_callback(self._under_way.discard)
        return answered

    @property
    def idle(self) -> bool:
        """Whether every request that was read has been answered, but for events."""
        return not self._under_way and all(EVENTS in request.path for request, _ in self._waiting)

    def _turn(self) -> None:
        waiting = self._next()
        outcomes = self._batch([one for one in waiting if "watch" not in one[0].query])
        outcomes += [
            (future, self._open(request)) for request, future in waiting if "watch" in request.query
        ]
        for future, outcome in outcomes:
            if not future.done():
                future.set_result(outcome)
            else:
                abandon(outcome)
        # After the answers: they are sent before the next batch begins.
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._turn)

    def _next(self) -> list[tuple[HttpRequest, asyncio.Future[Outcome]]]:
        """Take the requests of the next batch, in their order, but for events.

        A scheduler records an event for each decision, hundreds at a time, and decides one by one:
        each decision would wait behind records that nobody waits for. Some are taken each time.
        """
        waiting, limits = self._waiting, self.limits
        if len(waiting) == 1:
            self._waiting = []
            return waiting
        records = [one for one in waiting if EVENTS in one[0].path]
        others = [one for one in waiting if EVENTS not in one[0].path] if records else waiting
        self._waiting = others[limits.batch :] + records[limits.records :]
        return others[: limits.batch] + records[: limits.records]

    def _batch(
        self, waiting: Sequence[tuple[HttpRequest, asyncio.Future[Outcome]]]
    ) -> list[tuple[asyncio.Future[Outcome], Outcome]]:
        try:
            with self.served.store.batch():
                return [(future, self._answer(request)) for request, future in waiting]
        except StorageUnavailable as error:
            # None of the batch's writes has happened; what only reads is answered anew.
            refusal = _unavailable(error)
            return [
                (future, self._answer(request) if request.method == "GET" else refusal)
                for request, future in waiting
            ]

    def _answer(self, request: HttpRequest) -> Outcome:
        """Answer a request; a watch that has no `watch=` in its query begins here too."""
        try:
            answer = self.served.handle(request)
        except StorageUnavailable as error:
            return _unavailable(error)
        except (RecursionError, Unstorable):
            return refused(ApiError.bad_request("the object is nested too deeply"))
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return failed()
        if isinstance(answer, WatchStream):
            return self._watch(answer)
        return answer

    def _open(self, request: HttpRequest) -> Outcome:
        with self.served.store.lock:
            return self._answer(request)

    def _watch(self, stream: WatchStream) -> Outcome:
        try:
            subscription = self.served.hub.open(stream.watching, stream.encoder)
            return _Watch(stream, subscription, self)
        except Compacted as error:
            text = f"too old resource version: {error.requested} ({error.compacted})"
            return refused(ApiError("Expired", text))
        except TooManyWatchers as error:
            return refused(
                ApiError("TooManyRequests", str(error), details={"retryAfterSeconds": 1})
            )

    def _tick(self) -> None:
        if self.loop is not None:
            try:
                self.served.tick()
            except StorageUnavailable as error:
                _unavailable(error)  # which tells the log
            self._bookmarks = self.loop.call_later(BOOKMARKS_EVERY, self._tick)


@dataclass(frozen=True, slots=True)
class _Watch:
    """A watch on its way to a client."""

    stream: WatchStream
    subscription: Subscription[bytes]
    edge: AsgiApp

    async def answer(self, answering: AsgiBase, receive: Receive, send: Send) -> None:
        """Send the changes until its time is over."""
        edge, watch, loop = self.edge, self.subscription, asyncio.get_running_loop()
        timeout = self.stream.watching.timeout or edge.limits.watch_time
        hub = edge.served.hub
        over = loop.call_later(timeout, _finish, hub, watch, timeout > SHORT)
        # Whoever does not read the end of the watch either is not waited for.
        enough = loop.call_later(timeout + LAST_WORDS, watch.end, "its time is over")
        try:
            start = started(self.stream.status, self.stream.headers)
            await answering.stream(start, watch, receive=receive, send=send)
        finally:
            over.cancel()
            enough.cancel()

    def close(self) -> None:
        """Forget it: the client is gone."""
        self.subscription.close()


def _finish(hub: Hub, watch: Subscription[bytes], bookmark: bool) -> None:  # noqa: FBT001 - call_later
    if bookmark:
        hub.bookmark(watch)
    watch.finish()


def _unavailable(error: StorageUnavailable) -> HttpResponse:
    logger.error("the store takes no writes: %s", error)
    refusal = ApiError("ServiceUnavailable", f"the store takes no writes: {error}")
    return refused(refusal, ("retry-after", "1"))
