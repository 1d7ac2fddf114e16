"""HTTP over ASGI: request bodies, responses and streams, each with limits.

Subclasses of `AsgiBase` answer the requests: the API server's application and a node's endpoint.
"""

import asyncio
import contextlib
import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, Protocol

from dralab.api.status import ApiError
from dralab.apiserver.http.connections.body_memory import BodyMemory
from dralab.apiserver.http.connections.listening import ADMITTED
from dralab.apiserver.http.connections.promises import DirectPromise, Promise
from dralab.apiserver.http.connections.read_sockets import (
    NORMAL_CLOSURE,
    failed_watch_socket,
    read_socket,
)
from dralab.apiserver.http.connections.scopes import request_of
from dralab.apiserver.http.connections.sending import (
    CLOSE,
    Message,
    Receive,
    Send,
    compressed,
    deny,
    failed,
    refused,
    respond,
    sent_whole,
    started,
    too_large,
    upgrade_required,
)
from dralab.apiserver.http.connections.stream_turns import (
    DIRECT_STREAM,
    DirectStream,
    OpenOutlet,
    StreamTurns,
)
from dralab.apiserver.http.messages import (
    ByteStream,
    HttpRequest,
    HttpResponse,
    Proxied,
    Source,
    Upgrade,
    WatchError,
    program_of,
)
from dralab.values.records import dataclass

logger = logging.getLogger(__name__)

# In the `extensions` of ASGI's scope: takes a whole body that has come already; None where it has
# to be waited for.
WHOLE_BODY: Final = "dralab.whole_body"
SMALL: Final = 64 * 1024  # bytes: bodies up to here are not counted
LAST_WORDS: Final = 10.0  # seconds to read what is left of an answer that is over
WholeBody = Callable[[], bytes | None]
Answering = Callable[[Message, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsgiLimits:
    """Limits on clients; times in seconds, sizes in bytes.

    Without `timers` watches do not end by themselves, and no bookmark is sent unasked: where
    time is simulated, real seconds mean nothing.
    """

    body: int = 3 * 1024 * 1024  # k8s.io/apiserver MaxRequestBodyBytes
    body_time: float = 60.0  # for a body to come, and before that for room for a large one
    bodies: int = 128 * 1024 * 1024  # of all large bodies that are read or wait for their answer
    watch_time: float = 3_600.0  # where the client names no timeout
    batch: int = 64  # requests handled before the loop looks at its sockets again
    timers: bool = True
    records: int = 8  # so many of them events: no client waits for those


class Opened(Protocol):
    """An answer of a kind that only the subclass knows; it sends itself."""

    async def answer(
        self, answering: "AsgiBase", scope: Message, receive: Receive, send: Send
    ) -> None:
        """Send it all."""
        ...

    def over_socket(self, headers: Mapping[str, str], offered: Sequence[str]) -> Upgrade:
        """Return it as a WebSocket; `offered` are the client's protocols. ApiError: it can't be."""
        ...

    def close(self) -> None:
        """The client is gone before it began."""
        ...


class Exchange(Protocol):
    """A request that has come whole, and the connection on which it is answered."""

    scope: Any

    def send_whole(self, status: int, head: bytes, body: bytes) -> bool:
        """Send an answer in one piece. False: that cannot be done here."""
        ...

    def go_on(self, answering: Answering) -> None:
        """Answer in a task, by the messages of ASGI."""
        ...


Outcome = HttpResponse | ByteStream | Upgrade | Proxied | Opened


class AsgiBase(ABC):
    """An ASGI application; `submit` says how requests are answered."""

    # Whether small requests may be given to `answer_directly`.
    direct = False

    def __init__(self, limits: AsgiLimits | None = None) -> None:
        self.limits = limits or AsgiLimits()
        self.bodies = BodyMemory(self.limits.bodies)
        self._woken: list[asyncio.Event | DirectStream] = []
        self._stream_turns: StreamTurns | None = None
        self._wake_lock = threading.Lock()
        self.loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Answer one request, or take part in the server's life."""
        if self.loop is None:
            self._begin()
        kind = scope["type"]
        if kind == "http":
            await self._http(scope, receive, send)
        elif kind == "lifespan":
            await self._lifespan(receive, send)
        else:
            await self._websocket(scope, receive, send)

    def _begin(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self.begin(self.loop)

    def answer_directly(self, exchange: Exchange, body: bytes) -> None:
        """Answer a small request that has come whole, with a task only if the answer needs one."""
        if self.loop is None:
            self._begin()
        request = request_of(exchange.scope)
        try:
            self._check(request, exchange.scope)
        except ApiError as error:
            self._deliver_directly(request, exchange, refused(error))
            return
        request.body = body
        self.submit_to(
            request,
            DirectPromise(
                partial(self._deliver_directly, request, exchange),
                partial(_fail, exchange),
            ),
        )

    def _deliver_directly(self, request: HttpRequest, exchange: Exchange, outcome: Outcome) -> None:
        if not isinstance(outcome, HttpResponse) or not sent_whole(
            outcome, exchange.send_whole, request.audit_id
        ):
            exchange.go_on(partial(self._deliver, request, outcome))

    def _check(self, request: HttpRequest, scope: Message) -> None:
        if request.repeated is not None and "host" in request.repeated:
            # A proxy between may have read the other one.
            raise ApiError.bad_request("too many Host headers")
        self.admit(request)
        if (admitted := (scope.get("state") or {}).get(ADMITTED)) is not None:
            admitted()

    @abstractmethod
    def admit(self, request: HttpRequest) -> None:
        """Check a request before its body is read. ApiError: it is refused."""

    @abstractmethod
    def submit(self, request: HttpRequest) -> "Awaitable[Outcome]":
        """Answer a request, in the thread of the loop."""

    def submit_to(self, request: HttpRequest, answered: Promise[Outcome]) -> None:
        """Answer a request, in the thread of the loop. Needed where `direct` is set."""
        raise NotImplementedError

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:  # noqa: B027 - most have nothing to begin
        """Called at the first request, in this loop."""

    def close(self) -> None:
        """End what continues and forget the loop."""
        self.loop = None
        self._stream_turns = None

    def began(self, request: HttpRequest, status: int) -> None:  # noqa: B027 - few need it
        """A long answer begins: a stream, a connection."""

    def ended(self, request: HttpRequest, status: int) -> None:  # noqa: B027 - few need it
        """A long answer has ended."""

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        while True:
            message = await receive()
            if message["type"] == "lifespan.shutdown":
                self.close()
                await send({"type": "lifespan.shutdown.complete"})
                return
            await send({"type": "lifespan.startup.complete"})

    async def _http(self, scope: Message, receive: Receive, send: Send) -> None:
        request = request_of(scope)
        headers = request.headers
        try:
            self._check(request, scope)
        except ApiError as error:
            # A body is thrown away as it comes; one without an end would come for ever.
            endless = "transfer-encoding" in headers or self._too_long(headers)
            await respond(
                refused(error, *((CLOSE,) if endless else ())), scope, send, request.audit_id
            )
            return
        if "content-length" in headers or "transfer-encoding" in headers:
            outcome: Outcome = await self._with_body(request, scope, receive)
        else:
            outcome = await self._outcome(request)
        await self._deliver(request, outcome, scope, receive, send)

    async def _deliver(
        self, request: HttpRequest, outcome: Outcome, scope: Message, receive: Receive, send: Send
    ) -> None:
        """Send the answer of a request, asking a node for it where necessary."""
        if isinstance(outcome, Proxied):
            outcome = await self._asked(request, outcome)
        if isinstance(outcome, HttpResponse):
            if "accept-encoding" in request.headers:
                outcome = await compressed(request, outcome)
            await respond(outcome, scope, send, request.audit_id)
        elif isinstance(outcome, ByteStream):
            self.began(request, outcome.status)
            try:
                await self.stream(
                    started(outcome.status, outcome.headers, request.audit_id),
                    outcome.source,
                    scope=scope,
                    receive=receive,
                    send=send,
                )
            finally:
                self.ended(request, outcome.status)
        elif isinstance(outcome, Upgrade):
            outcome.source.close()
            await respond(upgrade_required(), scope, send, request.audit_id)
        else:
            try:
                await outcome.answer(self, scope, receive, send)
            finally:
                self.ended(request, HTTPStatus.OK)

    async def _outcome(self, request: HttpRequest) -> HttpResponse | ByteStream | Upgrade | Opened:
        """Answer a request, asking a node for the answer where necessary."""
        outcome = await self.submit(request)
        return await self._asked(request, outcome) if isinstance(outcome, Proxied) else outcome

    async def _asked(
        self, request: HttpRequest, outcome: Proxied
    ) -> HttpResponse | ByteStream | Upgrade:
        """Ask a node for an answer."""
        try:
            answer = await outcome.ask()
        except ApiError as error:
            answer = refused(error)
        except Exception:
            logger.exception("%s %s failed", request.method, request.path)
            answer = failed()
        if isinstance(answer, HttpResponse):
            self.ended(request, answer.status)
        return answer

    async def _with_body(
        self, request: HttpRequest, scope: Message, receive: Receive
    ) -> HttpResponse | ByteStream | Upgrade | Opened:
        """Answer a request whose body has to be read; a large one only where there is room."""
        announced = request.headers.get("content-length", "")
        size = int(announced) if announced.isdigit() else self.limits.body
        if size > self.limits.body:
            return too_large(self.limits.body)
        if size <= SMALL:
            take: WholeBody | None = (scope.get("extensions") or {}).get(WHOLE_BODY)
            if take is not None and (body := take()) is not None:
                request.body = body
                return await self._outcome(request)
            return await self._body(request, receive) or await self._outcome(request)
        user = "" if request.user is None else request.user.name
        try:
            async with asyncio.timeout(self.limits.body_time):
                await self.bodies.take(user, program_of(request), size)
        except TimeoutError:
            text = "too many large request bodies are being read; try again later"
            wait = {"retryAfterSeconds": 1}
            error = ApiError("TooManyRequests", text, details=wait)
            return refused(error, ("retry-after", "1"), CLOSE)
        try:
            outcome = await self._body(request, receive) or await self._outcome(request)
            request.body = b""  # a stream may go on for hours
        finally:
            self.bodies.give_back(user, size)
        return outcome

    async def _body(self, request: HttpRequest, receive: Receive) -> HttpResponse | None:
        """Read a body; return the refusal where it is too large, or does not come."""
        limit, size = self.limits.body, 0
        parts: list[bytes] = []
        more = True
        try:
            async with asyncio.timeout(self.limits.body_time):
                while more and size <= limit:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        # What came of it may be a whole object by chance, and not what was meant.
                        return refused(ApiError.bad_request("the request body ended too early"))
                    parts.append(message.get("body", b""))
                    size += len(parts[-1])
                    more = message.get("more_body", False)
        except TimeoutError:
            return refused(ApiError("Timeout", "the request body did not arrive in time", code=408))
        if size > limit:
            return too_large(limit)
        request.body = parts[0] if len(parts) == 1 else b"".join(parts)
        return None

    def _too_long(self, headers: Mapping[str, str]) -> bool:
        announced = headers.get("content-length", "0")
        return announced.isdigit() and int(announced) > self.limits.body

    # --- streams --------------------------------------------------------------------------

    async def stream(
        self, start: Message, source: Source, *, scope: Message, receive: Receive, send: Send
    ) -> None:
        """Send what a source has, as it comes, until it is done or the client is gone."""
        opening: OpenOutlet | None = (scope.get("extensions") or {}).get(DIRECT_STREAM)
        if opening is not None:
            await send(start)
            outlet = opening()
            if outlet is not None:
                if self._stream_turns is None:
                    self._stream_turns = StreamTurns(
                        asyncio.get_running_loop(), timers=self.limits.timers
                    )
                if await self._stream_turns.sent(source, outlet, self._wake):
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
                return

        async def pass_on(items: Sequence[bytes]) -> None:
            piece = items[0] if len(items) == 1 else b"".join(items)
            await send({"type": "http.response.body", "body": piece, "more_body": True})

        gone = asyncio.get_running_loop().create_task(disconnected(receive))
        gone.add_done_callback(lambda _: source.close())
        try:
            if opening is None:
                await send(start)
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            if await self.pump(source, pass_on) and not gone.done():
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            gone.cancel()

    async def pump(
        self, source: Source, pass_on: Callable[[Sequence[bytes]], Awaitable[None]]
    ) -> bool:
        """Send what a source has; return whether it ended by itself, rather than being cut off."""
        news, current, pumping = asyncio.Event(), asyncio.current_task(), True

        def cut_off() -> None:
            if pumping and current is not None:
                current.cancel()

        def ready() -> None:
            # Called in the writer's thread, perhaps with the store's lock held.
            if source.cut:
                self.soon(cut_off)  # it may be waiting for a client that reads nothing
            else:
                self._wake(news)

        try:
            source.notify(ready)
            while not source.done:
                await news.wait()
                news.clear()
                while items := source.take_items():
                    await pass_on(items)
        except asyncio.CancelledError:
            if not source.cut:
                raise
        finally:
            pumping = False
            source.close()
        if source.cut:
            logger.info("a stream was aborted: %s", source.cut)
        return not source.cut

    async def _websocket(self, scope: Message, receive: Receive, send: Send) -> None:
        await receive()  # websocket.connect
        # The headers of the handshake are not in the scope.
        request = request_of(scope, method="GET")
        request.headers = {**request.headers, "upgrade": "websocket"}
        if scope["subprotocols"]:
            request.headers["sec-websocket-protocol"] = ", ".join(scope["subprotocols"])
        try:
            self._check(request, scope)
        except ApiError as error:
            await deny(scope, refused(error), send)
            return
        # Without the token that stands beside them.
        protocols = request.headers.get("sec-websocket-protocol", "")
        offered = [each for part in protocols.split(",") if (each := part.strip())]
        outcome = await self._outcome(request)
        try:
            if isinstance(outcome, WatchError):
                outcome = failed_watch_socket(outcome, request.headers, offered)
            elif isinstance(outcome, (HttpResponse, ByteStream)):
                outcome = read_socket(outcome, offered)
            elif not isinstance(outcome, Upgrade):
                outcome = outcome.over_socket(request.headers, offered)
        except ApiError as error:
            abandon(outcome)
            outcome = refused(error)
        if isinstance(outcome, HttpResponse):
            # As a real server, which serves what needs no WebSocket without one.
            await deny(scope, outcome, send, request.audit_id)
            return
        self.began(request, HTTPStatus.SWITCHING_PROTOCOLS)
        try:
            with outcome.lasting():
                await self._serve_socket(outcome, offered, receive, send)
        finally:
            self.ended(request, HTTPStatus.SWITCHING_PROTOCOLS)

    async def _serve_socket(
        self, upgrade: Upgrade, offered: Sequence[str], receive: Receive, send: Send
    ) -> None:
        """Open a WebSocket and pass messages on, both ways, until one side is done."""
        source = upgrade.source
        # Nothing is named that the client has not: some speak a protocol and name none.
        named = upgrade.protocol if upgrade.protocol in offered else None
        await send({"type": "websocket.accept", "subprotocol": named})
        listening = asyncio.get_running_loop().create_task(_listen(receive, upgrade.receive))
        listening.add_done_callback(lambda _: source.close())

        async def pass_on(items: Sequence[bytes]) -> None:
            for item in items:
                content = {"text": item.decode()} if upgrade.text else {"bytes": item}
                # Where the client is gone, what it sent before is still passed on.
                with contextlib.suppress(OSError):
                    await send({"type": "websocket.send", **content})

        try:
            whole = await self.pump(source, pass_on)
            if not listening.done():
                code = NORMAL_CLOSURE if whole else upgrade.code_if_cut
                # A client that was cut off may read nothing at all.
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if whole else LAST_WORDS):
                        await send({"type": "websocket.close", "code": code})
        finally:
            listening.cancel()

    def _wake(self, news: "asyncio.Event | DirectStream") -> None:
        if threading.get_ident() == self._thread:
            news.set()
            return
        with self._wake_lock:
            self._woken.append(news)
            first = len(self._woken) == 1
        if first:
            self.soon(self._wake_all)

    def _wake_all(self) -> None:
        with self._wake_lock:
            woken, self._woken = self._woken, []
        for news in woken:
            news.set()

    def soon(self, call: Callable[[], object]) -> None:
        """Call something in the loop, from any thread."""
        if self.loop is not None and not self.loop.is_closed():
            self.loop.call_soon_threadsafe(call)


def abandon(outcome: Outcome) -> None:
    """Close what was opened for a client that is gone."""
    if isinstance(outcome, (ByteStream, Upgrade)):
        outcome.source.close()
    elif not isinstance(outcome, (HttpResponse, Proxied)):
        outcome.close()


async def disconnected(receive: Receive) -> None:
    """Wait until a client is gone; what it still sends is thrown away."""
    while (await receive())["type"] != "http.disconnect":
        pass


async def _listen(receive: Receive, tell: Callable[[bytes], Awaitable[None] | None]) -> None:
    """Pass on each message of a WebSocket until the client leaves, with back pressure."""
    while (message := await receive())["type"] == "websocket.receive":
        content = message.get("bytes")
        waiting = tell(content if content is not None else (message.get("text") or "").encode())
        if waiting is not None:
            await waiting


def _fail(exchange: Exchange, error: BaseException) -> None:
    async def fail(_scope: Message, _receive: Receive, _send: Send) -> None:
        raise error

    exchange.go_on(fail)
