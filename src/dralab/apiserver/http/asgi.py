"""The API server as a plain ASGI application: mount it anywhere.

All requests that arrive in one turn of the loop are handled in one batch of the store, and are
answered when the batch is durable: that is group commit. Watches are opened after it. Nothing
here runs in parallel; other threads of the process share the store through its lock.
"""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Iterable, MutableMapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import (
    Answer,
    ByteStream,
    HttpRequest,
    HttpResponse,
    Source,
    Upgrade,
    WatchStream,
)
from dralab.apiserver.storage import Compacted, StorageUnavailable, Store, Unstorable
from dralab.apiserver.watching import Hub, Subscription, TooManyWatchers

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

logger = logging.getLogger(__name__)

JSON: Final = ("content-type", "application/json")
SHORT: Final = 2.0  # seconds: so short a watch ends without a bookmark, as a real server's does
BOOKMARKS_EVERY: Final = 5.0  # seconds between looks at which bookmarks are due
GZIP_FROM: Final = 128 * 1024  # as k8s.io/apiserver: smaller answers are sent as they are
LAST_WORDS: Final = 10.0  # seconds to read what is left when a watch's time is over
LOOPBACK: Final = ("127.", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class EdgeLimits:
    """What a client may ask of the edge; times in seconds, sizes in bytes."""

    body: int = 3 * 1024 * 1024  # k8s.io/apiserver MaxRequestBodyBytes
    body_time: float = 60.0  # for the rest of a body that did not come at once
    watch_time: float = 3_600.0  # where the client names no timeout
    batch: int = 64  # requests handled before the loop looks at its sockets again


class Served(Protocol):
    """What stands behind the edge."""

    store: Store
    hub: Hub

    def handle(self, request: HttpRequest) -> Answer:
        """Answer a request; it raises nothing that a client could cause."""
        ...


class Edge:
    """The ASGI application. `served` may be exchanged between requests: a fresh store per test."""

    def __init__(self, served: Served, limits: EdgeLimits | None = None) -> None:
        self.served = served
        self.limits = limits or EdgeLimits()
        self._waiting: list[tuple[HttpRequest, asyncio.Future[_Outcome]]] = []
        self._woken: list[asyncio.Event] = []
        self._wake_lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._bookmarks: asyncio.TimerHandle | None = None

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or take part in the server's life."""
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._websocket(scope, receive, send)

    def close(self) -> None:
        """End all watches and forget the loop."""
        self.served.hub.close()
        if self._bookmarks is not None:
            self._bookmarks.cancel()
        self._loop = self._bookmarks = None

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        headers = _headers(scope)
        body = b""
        if "content-length" in headers or "transfer-encoding" in headers:
            read = await self._body(headers, receive)
            if isinstance(read, HttpResponse):
                await _respond(read, send)
                return
            body = read
        request = _request(scope, headers, body)
        outcome = await self._submit(request)
        if isinstance(outcome, HttpResponse):
            if "accept-encoding" in headers:
                outcome = _compressed(request, outcome)
            await _respond(outcome, send)
        elif isinstance(outcome, ByteStream):
            start = _start(outcome.status, outcome.headers)
            await self._stream(start, outcome.source, receive=receive, send=send)
        elif isinstance(outcome, Upgrade):
            outcome.source.close()
            await _respond(_upgrade_required(), send)
        else:
            await self._watched(*outcome, receive=receive, send=send)

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes | HttpResponse:
        limit = self.limits.body
        announced = headers.get("content-length", "0")
        if announced.isdigit() and int(announced) > limit:
            return _too_large(limit)
        message = await receive()
        body: bytes = message.get("body", b"")
        if message.get("more_body"):
            parts, size = [body], len(body)
            try:
                async with asyncio.timeout(self.limits.body_time):
                    while message.get("more_body") and size <= limit:
                        message = await receive()
                        parts.append(message.get("body", b""))
                        size += len(parts[-1])
            except TimeoutError:
                return _refused(
                    ApiError("Timeout", "the request's body did not come in time", code=408)
                )
            body = b"".join(parts)
        return body if len(body) <= limit else _too_large(limit)

    # --- one batch per turn of the loop ---------------------------------------------------

    def _submit(self, request: HttpRequest) -> "asyncio.Future[_Outcome]":
        loop = self._loop
        if loop is None:
            loop = self._loop = asyncio.get_running_loop()
            self._thread = threading.get_ident()
            self._bookmarks = loop.call_later(BOOKMARKS_EVERY, self._tick)
        future: asyncio.Future[_Outcome] = loop.create_future()
        if not self._waiting:
            loop.call_soon(self._turn)
        self._waiting.append((request, future))
        return future

    def _turn(self) -> None:
        waiting = self._waiting[: self.limits.batch]
        del self._waiting[: self.limits.batch]
        if self._waiting and self._loop is not None:
            self._loop.call_soon(self._turn)
        outcomes = self._batch([one for one in waiting if "watch" not in one[0].query])
        outcomes += [
            (future, self._open(request)) for request, future in waiting if "watch" in request.query
        ]
        for future, outcome in outcomes:
            if not future.done():
                future.set_result(outcome)
            elif isinstance(outcome, (ByteStream, Upgrade)):
                outcome.source.close()
            elif not isinstance(outcome, HttpResponse):
                outcome[1].close()

    def _batch(
        self, waiting: "Sequence[tuple[HttpRequest, asyncio.Future[_Outcome]]]"
    ) -> "list[tuple[asyncio.Future[_Outcome], _Outcome]]":
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

    def _answer(self, request: HttpRequest) -> "_Outcome":
        """Answer a request; a watch that has no `watch=` in its query begins here too."""
        try:
            answer = self.served.handle(request)
        except StorageUnavailable as error:
            return _unavailable(error)
        except (RecursionError, Unstorable):
            return _refused(ApiError.bad_request("the object is nested too deeply"))
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            return _refused(ApiError("InternalError", "Internal Server Error", code=500))
        if isinstance(answer, WatchStream):
            return self._watch(answer)
        return answer

    def _open(self, request: HttpRequest) -> "_Outcome":
        with self.served.store.lock:
            return self._answer(request)

    def _watch(self, stream: WatchStream) -> "_Outcome":
        try:
            return stream, self.served.hub.open(stream.watching, stream.encoder)
        except Compacted as error:
            text = f"too old resource version: {error.requested} ({error.compacted})"
            return _refused(ApiError("Expired", text))
        except TooManyWatchers as error:
            return _refused(
                ApiError("TooManyRequests", str(error), details={"retryAfterSeconds": 1})
            )

    def _tick(self) -> None:
        if self._loop is not None:
            self.served.hub.tick()
            self._bookmarks = self._loop.call_later(BOOKMARKS_EVERY, self._tick)

    # --- watches ----------------------------------------------------------------------------

    async def _watched(
        self, stream: WatchStream, watch: Subscription[bytes], *, receive: Receive, send: Send
    ) -> None:
        hub, loop = self.served.hub, asyncio.get_running_loop()
        timeout = stream.watching.timeout or self.limits.watch_time
        over = loop.call_later(timeout, _finish, hub, watch, timeout > SHORT)
        # Whoever does not read the end of the watch either is not waited for.
        enough = loop.call_later(timeout + LAST_WORDS, watch.end, "its time is over")
        try:
            start = _start(stream.status, stream.headers)
            await self._stream(start, watch, receive=receive, send=send)
        finally:
            over.cancel()
            enough.cancel()

    async def _stream(
        self, start: Message, source: Source, *, receive: Receive, send: Send
    ) -> None:
        """Send what a source has, as it comes, until it is done or the client is gone."""

        async def pass_on(items: Sequence[bytes]) -> None:
            piece = items[0] if len(items) == 1 else b"".join(items)
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        gone = asyncio.get_running_loop().create_task(_disconnected(receive))
        gone.add_done_callback(lambda _: source.close())
        try:
            await send(start)
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            if await self._pump(source, pass_on) and not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()

    async def _pump(
        self, source: Source, pass_on: Callable[[Sequence[bytes]], Awaitable[None]]
    ) -> bool:
        """Hand on what a source has; return whether it came to its end, rather than cut off."""
        news, current = asyncio.Event(), asyncio.current_task()

        def ready() -> None:
            # Called in the thread of whoever writes, perhaps with the store's lock held.
            if source.cut and current is not None:
                self._soon(current.cancel)  # it may be waiting for a client that reads nothing
            else:
                self._wake(news)

        try:
            source.notify(ready)
            while not source.done:
                await news.wait()
                news.clear()
                while items := source.take():
                    await pass_on(items)
        except asyncio.CancelledError:
            if not source.cut:
                raise
            logger.info("a stream was cut off: %s", source.cut)
            return False
        finally:
            source.close()
        return True

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        outcome = await self._submit(_request(scope, _headers(scope), b"", method="GET"))
        if not isinstance(outcome, Upgrade):
            if isinstance(outcome, HttpResponse) and outcome.status < HTTPStatus.BAD_REQUEST:
                outcome = _refused(ApiError.bad_request("this path speaks no WebSocket"))
            if isinstance(outcome, HttpResponse):
                await _deny(scope, outcome, send)
            else:
                (outcome.source if isinstance(outcome, ByteStream) else outcome[1]).close()
                await send({"type": "websocket.close", "code": 1008})
            return
        source = outcome.source
        await send({"type": "websocket.accept", "subprotocol": outcome.protocol or None})
        listening = asyncio.get_running_loop().create_task(_listen(receive, outcome.receive))
        listening.add_done_callback(lambda _: source.close())

        async def pass_on(items: Sequence[bytes]) -> None:
            for item in items:
                await send({"type": "websocket.send", "bytes": item})

        try:
            whole = await self._pump(source, pass_on)
            if not listening.done():
                await send({"type": "websocket.close", "code": 1000 if whole else 1011})
        finally:
            listening.cancel()

    def _wake(self, news: asyncio.Event) -> None:
        if threading.get_ident() == self._thread:
            news.set()
            return
        with self._wake_lock:
            self._woken.append(news)
            first = len(self._woken) == 1
        if first:
            self._soon(self._wake_all)

    def _wake_all(self) -> None:
        with self._wake_lock:
            woken, self._woken = self._woken, []
        for news in woken:
            news.set()

    def _soon(self, call: Callable[[], object]) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call)


_Outcome = HttpResponse | ByteStream | Upgrade | tuple[WatchStream, Subscription[bytes]]


def _headers(scope: Message) -> dict[str, str]:
    raw: Iterable[tuple[bytes, bytes]] = scope["headers"]
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in raw}


def _request(
    scope: Message, headers: dict[str, str], body: bytes, *, method: str = ""
) -> HttpRequest:
    client = scope.get("client")
    return HttpRequest(
        method=method or scope["method"],
        path=scope["path"],
        query=scope["query_string"].decode("latin-1"),
        headers=headers,
        body=body,
        peer=client[0] if client else "",
    )


def _finish(hub: Hub, watch: Subscription[bytes], bookmark: bool) -> None:  # noqa: FBT001 - call_later
    if bookmark:
        hub.bookmark(watch)
    watch.finish()


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _listen(receive: Receive, tell: Callable[[bytes], None]) -> None:
    """Tell each message of a WebSocket until the client leaves."""
    while (message := await receive())["type"] == "websocket.receive":
        content = message.get("bytes")
        tell(content if content is not None else (message.get("text") or "").encode())


async def _deny(scope: Message, answer: HttpResponse, send: Send) -> None:
    """Refuse a WebSocket, with the whole answer where the ASGI server can send it."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    start = _start(answer.status, answer.headers)
    await send({**start, "type": "websocket.http.response.start"})
    await send({"type": "websocket.http.response.body", "body": answer.content})


def _upgrade_required() -> HttpResponse:
    error = ApiError.bad_request("Upgrade request required")
    return _refused(error, ("connection", "Upgrade"), ("upgrade", "websocket"))


def _start(status: int, headers: Iterable[tuple[str, str]]) -> Message:
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    return {"type": "http.response.start", "status": status, "headers": raw}


async def _respond(answer: HttpResponse, send: Send) -> None:
    body = answer.body
    parts = (body,) if isinstance(body, bytes) else body
    start = _start(answer.status, answer.headers)
    if answer.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        start["headers"].append((b"content-length", b"%d" % sum(len(part) for part in parts)))
    await send(start)
    for part in parts[:-1]:
        await send({"type": "http.response.body", "body": part, "more_body": True})
    await send({"type": "http.response.body", "body": parts[-1] if parts else b""})


def _refused(error: ApiError, *headers: tuple[str, str]) -> HttpResponse:
    return HttpResponse(
        status=error.code, headers=(JSON, *headers), body=orjson.dumps(error.status())
    )


def _unavailable(error: StorageUnavailable) -> HttpResponse:
    logger.error("the store takes no writes: %s", error)
    refusal = ApiError("ServiceUnavailable", f"the store takes no writes: {error}")
    return _refused(refusal, ("retry-after", "1"))


def _too_large(limit: int) -> HttpResponse:
    # The rest of the body is not read, so the connection cannot go on.
    text = f"Request entity too large: limit is {limit}"
    return _refused(ApiError("RequestEntityTooLarge", text), ("connection", "close"))


def _compressed(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """Return an answer compressed where that is worth it: never for a client on this machine."""
    if request.peer.startswith(LOOPBACK) or "gzip" not in request.headers["accept-encoding"]:
        return answer
    names = {name.lower() for name, _ in answer.headers}
    content = answer.content
    if len(content) < GZIP_FROM or "content-encoding" in names:
        return answer
    import gzip

    return HttpResponse(
        status=answer.status,
        headers=(*answer.headers, ("content-encoding", "gzip"), ("vary", "Accept-Encoding")),
        body=gzip.compress(content, compresslevel=1),
    )
