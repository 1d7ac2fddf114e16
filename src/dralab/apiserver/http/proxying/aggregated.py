"""Passes requests on to aggregated API servers, with the user in headers.

An answer is passed on once it is there as a whole, with limits on time and size; watches as they
come, each read by a thread. Connections that change their protocol are refused.

Source: k8s.io/kube-aggregator `pkg/apiserver/handler_proxy.go`.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

from dralab.api.status import ApiError
from dralab.apiserver.access.users import User
from dralab.apiserver.http.connections.body_memory import BodyMemory
from dralab.apiserver.http.connections.byte_feeds import Feed
from dralab.apiserver.http.messages import (
    Answer,
    ByteStream,
    HttpRequest,
    HttpResponse,
    Proxied,
    program_of,
)
from dralab.apiserver.http.routing import is_watch, query_of
from dralab.apiserver.outgoing.targets import CallTarget, Overdue, Unreachable
from dralab.apiserver.verbs.aggregation.services import RemoteVersion, RemoteVersions
from dralab.kernel.http_client import StreamedReply, UnansweredError

TIMEOUT: Final = 60.0  # seconds for a whole answer
MOST: Final = 200  # requests at a time, and watches
REFUSAL: Final = 64 * 1024  # bytes of the answer to a watch that is refused
TEXT: Final = (("Content-Type", "text/plain; charset=utf-8"),)
PASSED_ON: Final = ("accept", "content-type", "user-agent", "if-none-match")
# A page that another server sends must not act as one of this server's own, with its token.
SAFE: Final = (("X-Content-Type-Options", "nosniff"), ("Content-Security-Policy", "sandbox"))
ANSWERED: Final = ("content-type", "etag", "warning", "retry-after", "vary", "cache-control")


Ask = Callable[[HttpRequest, RemoteVersion, User], HttpResponse | ByteStream]


class AggregatedApis:
    """Answers requests for the groups of other servers; users were authorized before."""

    def __init__(self, remote: RemoteVersions) -> None:
        self.remote = remote
        self._watches: dict[Feed, str] = {}  # by whom
        # One thread for each request, as other servers may take their time; no user has all, and
        # one of each user is let in whatever others have.
        self._room = BodyMemory(MOST)
        self._threads = ThreadPoolExecutor(2 * MOST, thread_name_prefix="aggregated")

    def answer(self, request: HttpRequest, parts: Sequence[str], user: User) -> Answer | None:
        """Return the answer of another server; None if none answers for that group."""
        if not self.remote.all:
            return None
        match list(parts):
            case ["apis", group, version, *_]:
                found = self.remote.find(group, version)
            case ["openapi", "v3", "apis", group, version]:
                found = self.remote.find(group, version)
                found = found if found is not None and found.openapi else None
            case _:
                found = None
        if found is None:
            return None
        if not found.available:
            return HttpResponse(status=503, headers=TEXT, body=b"service unavailable\n")
        if "upgrade" in request.headers:
            raise ApiError(
                "MethodNotAllowed",
                f"connections to {found.group}/{found.version} that change their protocol are not "
                "passed on to its API server",
                code=HTTPStatus.NOT_IMPLEMENTED,
                details={},
            )
        watches = request.method == "GET" and is_watch(query_of(request.query))
        ask = self._watched if watches else self._asked
        return Proxied(ask=lambda: self._waited(ask, request, found, user))

    async def _waited(
        self, ask: Ask, request: HttpRequest, found: RemoteVersion, user: User
    ) -> HttpResponse | ByteStream:
        """Ask in a thread of these requests alone. ApiError."""
        await self._room.take(user.name, program_of(request), 1)
        loop, call = asyncio.get_running_loop(), self._threads.submit(ask, request, found, user)

        def left(_: object) -> None:
            with suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(self._room.give_back, user.name, 1)

        call.add_done_callback(left)
        return await asyncio.wrap_future(call)

    def _target(self, request: HttpRequest, found: RemoteVersion) -> CallTarget:
        # A percent sign was one of the path that was authorized: the other server must not take it
        # for the beginning of a slash.
        return self.remote.target(found, quote(request.path, safe="/:@!$&'()*+,;=-._~"))

    def _asked(self, request: HttpRequest, found: RemoteVersion, user: User) -> HttpResponse:
        try:
            target = self._target(request, found)
            answer = self.remote.context.outgoing.client.call(
                target,
                request.body,
                method=request.method,
                query=request.query,
                timeout=TIMEOUT,
                headers=[*_passed_on(request), *_identity(user)],
            )
        except Unreachable as error:
            return _unreachable(error)
        if _leads_away(answer.status):
            return _redirected()
        return HttpResponse(
            status=answer.status, headers=_answered(answer.headers), body=answer.body
        )

    def _watched(
        self, request: HttpRequest, found: RemoteVersion, user: User
    ) -> HttpResponse | ByteStream:
        """Begin a watch, and read it in a thread of its own."""
        own = list(self._watches.values()).count(user.name)
        if own >= MOST // 2 or len(self._watches) >= MOST:
            raise ApiError(
                "TooManyRequests",
                f"{len(self._watches)} watches of aggregated API servers are open, {own} of them "
                f"are of {user.name}: {MOST} are possible, {MOST // 2} of one user",
                details={"retryAfterSeconds": 1},
            )
        try:
            answer = self.remote.context.outgoing.client.open(
                self._target(request, found),
                query=request.query,
                timeout=TIMEOUT,
                headers=[*_passed_on(request), *_identity(user)],
            )
        except Unreachable as error:
            return _unreachable(error)
        headers = _answered(answer.headers())
        if answer.status != HTTPStatus.OK:
            refused = HttpResponse(status=answer.status, headers=headers, body=_beginning(answer))
            return _redirected() if _leads_away(answer.status) else refused
        feed = Feed(on_close=answer.shutdown)
        self._watches[feed] = user.name
        threading.Thread(
            target=self._copy, args=(answer, feed), name="aggregated-watch", daemon=True
        ).start()
        return ByteStream(source=feed, headers=headers)

    def _copy(self, answer: StreamedReply, feed: Feed) -> None:
        try:
            for piece in answer.pieces():
                if not feed.offer(piece):
                    break
            feed.end()
        except UnansweredError as error:
            feed.abort(str(error))
        finally:
            answer.close()
            self._watches.pop(feed, None)


def _passed_on(request: HttpRequest) -> list[tuple[str, str]]:
    return [(name, request.headers[name]) for name in PASSED_ON if name in request.headers]


def _answered(headers: Mapping[str, str]) -> list[tuple[str, str]]:
    return [*((name, headers[name]) for name in ANSWERED if name in headers), *SAFE]


def _leads_away(status: int) -> bool:
    """Whether an answer would redirect the client to another host."""
    return (
        HTTPStatus.MULTIPLE_CHOICES <= status < HTTPStatus.BAD_REQUEST
        and status != HTTPStatus.NOT_MODIFIED
    )


def _redirected() -> HttpResponse:
    text = b"the backend attempted to redirect this request, which is not permitted"
    return HttpResponse(status=502, headers=TEXT, body=text)


def _unreachable(error: Unreachable) -> HttpResponse:
    """Return the error for a server that cannot be reached. ApiError: it answers too late."""
    if isinstance(error, Overdue):
        raise ApiError(
            "Timeout", "Timeout: request did not complete within the allotted timeout", details={}
        ) from error
    text = f"error trying to reach service: {error}\n"
    return HttpResponse(status=503, headers=TEXT, body=text.encode())


def _beginning(answer: StreamedReply) -> bytes:
    """Return a refusal, truncated if it is long."""
    found = b""
    with suppress(UnansweredError):
        for piece in answer.pieces():
            found += piece
            if len(found) >= REFUSAL:
                break
    answer.close()
    return found[:REFUSAL]


def _identity(user: User) -> Iterator[tuple[str, str]]:
    """Yield the headers that name the user, which the proxy's certificate vouches for."""
    yield _header("X-Remote-User", user.name)
    if user.uid:
        yield _header("X-Remote-Uid", user.uid)
    for group in user.groups:
        yield _header("X-Remote-Group", group)
    for key, values in user.extra.items():
        for value in values:
            yield _header(f"X-Remote-Extra-{quote(key, safe='')}", value)


def _header(name: str, value: str) -> tuple[str, str]:
    """Return a header. Unreachable: its readers would read another value.

    They drop spaces around it: "admin " would be "admin" there.
    """
    if value != value.strip() or not value.isprintable():
        raise Unreachable(f'net/http: invalid header field value for "{name}"')
    return name, value
