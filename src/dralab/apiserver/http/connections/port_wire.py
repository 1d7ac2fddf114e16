"""HTTP with a process in a pod, over one connection of port-forward.

Whether a port is the pod's own, and how its node is reached, is for port-forward to say: nothing
here opens a socket. The answer streams; a client that reads slowly makes the process wait.
"""

import asyncio
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from enum import StrEnum
from http import HTTPStatus
from typing import Final

from dralab.apiserver.http.connections.byte_feeds import Feed
from dralab.apiserver.http.messages import ByteStream, HttpResponse, Upgrade
from dralab.apiserver.outgoing.client import unread_words
from dralab.kernel.http_answers import HttpAnswer, LargeAnswerError, NotHttpError

DATA: Final = 0
ERRORS: Final = 1
PORT_BYTES: Final = 2  # with which each channel begins
HEAD: Final = 64 * 1024
PAGE: Final = 4 * 1024 * 1024  # bytes of an HTML page whose links are changed
HOP: Final = frozenset(
    {
        "connection", "content-length", "keep-alive", "proxy-authenticate", "proxy-authorization",
        "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade",
    }
)  # fmt: skip
# Headers by which a process would act on all pages of this server, and not on its own alone.
KEPT_BACK: Final = frozenset(
    {
        "clear-site-data", "content-security-policy", "service-worker-allowed", "set-cookie",
        "strict-transport-security", "x-content-type-options",
    }
)  # fmt: skip
BODILESS: Final = frozenset({HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED})


class PortFailure(StrEnum):
    """Why a port of a pod cannot be reached, as the error channel of a port-forward begins."""

    TIMEOUT = "timeout"
    REFUSED = "refused"

    def message(self, why: str) -> str:
        """Return what is written to the error channel."""
        return f"{self}: {why}"

    @classmethod
    def of(cls, content: bytes) -> "PortFailure":
        """Return the failure that a node has written; one of another program is a refusal."""
        found = content.partition(b":")[0]
        return next((each for each in cls if each.encode() == found), cls.REFUSED)


# As Go's net package has them.
FAILURES: Final = {
    PortFailure.TIMEOUT: "i/o timeout",
    PortFailure.REFUSED: "connect: connection refused",
}


class NotReached(Exception):  # noqa: N818 - a fact, which becomes a Status
    """The process does not answer; `str` is Go's message."""


class PortWire:
    """One connection to a port of a pod; `address` is what messages call it."""

    def __init__(self, upgrade: Upgrade, address: str) -> None:
        self.address = address
        self._source, self._send = upgrade.source, upgrade.receive
        self._news = asyncio.Event()
        self._left = {DATA: PORT_BYTES, ERRORS: PORT_BYTES}
        self._tls: ssl.SSLObject | None = None
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        loop = asyncio.get_running_loop()
        self._source.notify(lambda: _call_in(loop, self._news.set))

    async def secure(self) -> None:
        """Begin TLS. A pod's certificate is not known, so any is accepted. NotReached."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE  # as kube-apiserver's transport of proxies
        secured = context.wrap_bio(self._in, self._out)
        while True:
            try:
                secured.do_handshake()
                break
            except ssl.SSLWantReadError:
                await self._write(self._out.read())
                self._in.write(await self._plain() or self._raise("EOF"))
            except ssl.SSLError:
                self._raise("tls: first record does not look like a TLS handshake")
        await self._write(self._out.read())
        self._tls = secured

    async def write(self, data: bytes) -> None:
        """Send bytes to the process."""
        if self._tls is not None:
            self._tls.write(data)
            data = self._out.read()
        await self._write(data)

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield what the process sends, until it closes the connection. NotReached."""
        while data := await self._plain():
            if self._tls is None:
                yield data
                continue
            self._in.write(data)
            with suppress(ssl.SSLWantReadError):
                while piece := self._tls.read(HEAD):
                    yield piece

    def close(self) -> None:
        """Close the connection."""
        self._source.close()
        self._news.set()

    async def _write(self, data: bytes) -> None:
        waiting = self._send(bytes([DATA]) + data)
        if isinstance(waiting, Awaitable):
            await waiting

    async def _plain(self) -> bytes:
        """Return the next bytes; empty at the end. NotReached."""
        while True:
            self._news.clear()
            found = b"".join(self._data(item) for item in self._source.take_items())
            if found or self._source.done:
                return found
            await self._news.wait()

    def _data(self, item: bytes) -> bytes:
        channel, content = item[0], item[1:]
        skipped = min(self._left.get(channel, 0), len(content))
        self._left[channel] = self._left.get(channel, 0) - skipped
        content = content[skipped:]
        if channel == ERRORS and content:
            self._raise(f"dial tcp {self.address}: {FAILURES[PortFailure.of(content)]}")
        return content if channel == DATA else b""

    def _raise(self, why: str) -> bytes:
        raise NotReached(why)


async def _feed(answer: HttpAnswer, pieces: AsyncIterator[bytes]) -> None:
    """Take the next bytes of an answer. NotReached, StopAsyncIteration."""
    data = await anext(pieces)
    try:
        answer.feed(data)
    except (NotHttpError, LargeAnswerError) as error:
        raise NotReached(unread_words(error)) from error


async def exchange(
    wire: PortWire, request: bytes, *, bodiless: bool, prefix: str, ended: Callable[[], None]
) -> HttpResponse | ByteStream:
    """Send a request and return its answer, whose absolute links lead below `prefix`.

    `bodiless`: it is a HEAD. `ended` is called when the connection is closed. NotReached.
    """
    streams = False
    try:
        await wire.write(request)
        answer, pieces = HttpAnswer(), wire.pieces()
        while not answer.status:
            try:
                await _feed(answer, pieces)
            except StopAsyncIteration:
                raise NotReached("EOF") from None
        headers = _passed_on(answer, prefix)
        if bodiless or answer.status in BODILESS:
            return HttpResponse(status=answer.status, headers=headers)
        if _is_page(answer):
            body = await _whole(answer, pieces)
            if body is not None:
                page = with_prefix(body, prefix)
                return HttpResponse(status=answer.status, headers=headers, body=page)
        streams = True
        return _stream(wire, answer, pieces, headers, ended)
    finally:
        if not streams:
            wire.close()
            ended()


def _passed_on(answer: HttpAnswer, prefix: str) -> list[tuple[str, str]]:
    left_out = HOP | KEPT_BACK
    found = [
        (name, value)
        for name, value in answer.headers()
        if name.lower() not in left_out and not name.lower().startswith("access-control-")
    ]
    return [
        (name, f"{prefix}{value}" if name.lower() == "location" and _is_local(value) else value)
        for name, value in found
    ]


def _is_local(link: str) -> bool:
    return link.startswith("/") and not link.startswith("//")


def _is_page(answer: HttpAnswer) -> bool:
    headers = answer.named()
    media = headers.get("content-type", "").partition(";")[0].strip()
    length = headers.get("content-length", "")
    return (
        media == "text/html"
        and not headers.get("content-encoding")
        and (not length.isdecimal() or int(length) <= PAGE)
    )


async def _whole(answer: HttpAnswer, pieces: AsyncIterator[bytes]) -> bytes | None:
    """Return the whole body; None if it is too large, and stays in the answer."""
    while not answer.over and answer.pending() <= PAGE:
        try:
            await _feed(answer, pieces)
        except StopAsyncIteration:
            break
    large = answer.pending() > PAGE
    return None if large else answer.take()


def _stream(
    wire: PortWire,
    answer: HttpAnswer,
    pieces: AsyncIterator[bytes],
    headers: Sequence[tuple[str, str]],
    ended: Callable[[], None],
) -> ByteStream:
    room = asyncio.Event()
    loop = asyncio.get_running_loop()

    def close() -> None:
        _call_in(loop, task.cancel)

    feed = Feed(on_close=close, on_room=lambda: _call_in(loop, room.set))

    async def copy() -> None:
        try:
            while True:
                if piece := answer.take():
                    feed.put(piece)
                while not feed.room and not feed.done:
                    room.clear()
                    await room.wait()
                if answer.over or feed.done:
                    break
                await _feed(answer, pieces)
            feed.end()
        except StopAsyncIteration:
            feed.abort("unexpected EOF") if answer.is_bounded() else feed.end()
        except NotReached as error:
            feed.abort(str(error))
        finally:
            wire.close()
            ended()

    task = loop.create_task(copy())
    return ByteStream(source=feed, status=answer.status, headers=headers)


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[[], object]) -> None:
    with suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(call)


# Source of the attributes: k8s.io/apimachinery `pkg/util/proxy` (transport.go, atomsToAttrs).
TAGS: Final = (
    "a|applet|area|audio|base|blockquote|body|button|command|del|embed|form|frame|head|html|"
    "iframe|img|input|ins|link|object|q|script|source|video"
)
NAMES: Final = (
    "action|background|cite|classid|codebase|data|formaction|href|icon|longdesc|manifest|poster|"
    "profile|src|usemap"
)
TAG: Final = re.compile(rf"<(?:{TAGS})\b[^>]*>".encode(), re.IGNORECASE)
# Two slashes begin another host.
LINK: Final = re.compile(
    rf"""(\s(?:{NAMES})\s*=\s*["']?)(/(?!/)[^\s"'>]*)""".encode(), re.IGNORECASE
)


def with_prefix(page: bytes, prefix: str) -> bytes:
    """Return an HTML page whose absolute paths lead below a prefix.

    >>> with_prefix(b"<a href='/x'>/y</a> <a href=z> <img src=/p.png>", "/pods/w/proxy")
    b"<a href='/pods/w/proxy/x'>/y</a> <a href=z> <img src=/pods/w/proxy/p.png>"
    """
    start = prefix.encode()

    def moved(link: re.Match[bytes]) -> bytes:
        path = link[2]
        return link[0] if path.startswith(start) else link[1] + start + path

    return TAG.sub(lambda tag: LINK.sub(moved, tag[0]), page)
