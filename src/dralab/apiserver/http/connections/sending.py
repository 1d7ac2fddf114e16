"""Whole answers over ASGI: how they are sent, and those that the edge itself gives."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, MutableMapping, Sequence
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final

import orjson

from dralab.api.status import ApiError
from dralab.apiserver.http.messages import HttpRequest, HttpResponse

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

JSON: Final = ("content-type", "application/json")
CLOSE: Final = ("connection", "close")
GZIP_FROM: Final = 128 * 1024  # as k8s.io/apiserver: smaller answers are sent as they are
LOOPBACK: Final = ("127.", "::1")
# In the `extensions` of ASGI's scope: sends a whole answer at once, where the server can.
WHOLE_ANSWER: Final = "dralab.whole_answer"
WHOLE_UP_TO: Final = 64 * 1024  # bytes: it is copied to be sent with its head
SLICE: Final = 128 * 1024  # bytes sent at a time
WholeAnswer = Callable[[int, bytes, bytes], bool]


def failed() -> HttpResponse:
    """Return what a client gets for a defect."""
    return refused(ApiError("InternalError", "Internal Server Error", code=500))


def refused(error: ApiError, *headers: tuple[str, str]) -> HttpResponse:
    """Return an error as an answer."""
    return HttpResponse(
        status=error.code,
        headers=(JSON, *headers),
        body=orjson.dumps(error.status(), option=orjson.OPT_APPEND_NEWLINE),
    )


def started(status: int, headers: Iterable[tuple[str, str]], audit_id: str = "") -> Message:
    """Return ASGI's message that begins an answer."""
    raw = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in headers]
    if audit_id:
        raw.append((b"audit-id", audit_id.encode("latin-1")))
    return {"type": "http.response.start", "status": status, "headers": raw}


async def deny(scope: Message, answer: HttpResponse, send: Send, audit_id: str = "") -> None:
    """Answer without a WebSocket, with the whole answer where the ASGI server can send it."""
    if "websocket.http.response" not in (scope.get("extensions") or {}):
        await send({"type": "websocket.close", "code": 1008})
        return
    content = answer.content
    headers = [*answer.headers, ("content-length", str(len(content)))]
    start = started(answer.status, headers, audit_id)
    await send({**start, "type": "websocket.http.response.start"})
    await send({"type": "websocket.http.response.body", "body": content})


def upgrade_required() -> HttpResponse:
    """Return the answer for a client that has to speak WebSocket."""
    error = ApiError.bad_request("Upgrade request required")
    return refused(error, ("connection", "Upgrade"), ("upgrade", "websocket"))


def sent_whole(answer: HttpResponse, whole: WholeAnswer, audit_id: str) -> bool:
    """Send an answer in one piece where it is small and the connection allows it."""
    body = answer.body
    return (
        isinstance(body, bytes)
        and len(body) <= WHOLE_UP_TO
        and (head := head_of(answer.headers, audit_id)) is not None
        and whole(answer.status, head, body)
    )


async def respond(answer: HttpResponse, scope: Message, send: Send, audit_id: str = "") -> None:
    """Send an answer."""
    whole: WholeAnswer | None = (scope.get("extensions") or {}).get(WHOLE_ANSWER)
    if whole is not None and sent_whole(answer, whole, audit_id):
        return
    body = answer.body
    parts = (body,) if isinstance(body, bytes) else body
    start = started(answer.status, answer.headers, audit_id)
    if answer.status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED):
        start["headers"].append((b"content-length", b"%d" % sum(len(part) for part in parts)))
    await send(start)
    pieces = list(_pieces(parts)) or [b""]
    for piece in pieces[:-1]:
        await send({"type": "http.response.body", "body": piece, "more_body": True})
    await send({"type": "http.response.body", "body": pieces[-1]})


def _pieces(parts: Iterable[bytes]) -> Iterator[bytes | memoryview]:
    """Yield what is sent at a time: TLS would copy the rest of a long part again and again."""
    for part in parts:
        if len(part) <= SLICE:
            yield part
            continue
        view = memoryview(part)
        for begin in range(0, len(part), SLICE):
            yield view[begin : begin + SLICE]


def too_large(limit: int) -> HttpResponse:
    """Return the answer for a body of more than so many bytes."""
    # The rest of the body is not read, so the connection cannot go on.
    text = f"Request entity too large: limit is {limit}"
    return refused(ApiError("RequestEntityTooLarge", text), CLOSE)


async def compressed(request: HttpRequest, answer: HttpResponse) -> HttpResponse:
    """Return an answer compressed where that is worth it: never for a client on this machine."""
    if request.peer.startswith(LOOPBACK) or "gzip" not in request.headers["accept-encoding"]:
        return answer
    names = {name.lower() for name, _ in answer.headers}
    content = answer.content
    if len(content) < GZIP_FROM or "content-encoding" in names:
        return answer
    import gzip

    # In a thread, which the interpreter lets run beside this one.
    packed = await asyncio.to_thread(gzip.compress, content, compresslevel=1)
    return HttpResponse(
        status=answer.status,
        headers=(*answer.headers, ("content-encoding", "gzip"), ("vary", "Accept-Encoding")),
        body=packed,
    )


LONGEST_KEPT: Final = 256  # characters of all headers of an answer


def head_of(headers: Sequence[tuple[str, str]], audit_id: str = "") -> bytes | None:
    """Return headers as they are sent; None if they are about the connection, too.

    `audit_id` must not have line breaks.

    ValueError: one would end before its end.
    """
    if sum([len(value) for _, value in headers]) > LONGEST_KEPT:
        found = _spelled(headers)
    else:
        found = _kept(tuple(headers))  # nearly all answers have the same few
    if audit_id and found is not None:
        return b"%baudit-id: %b\r\n" % (found, audit_id.encode("latin-1"))
    return found


def _spelled(headers: Sequence[tuple[str, str]]) -> bytes | None:
    if any(name.lower() == "connection" for name, _ in headers):
        return None
    text = "".join([f"{name.lower()}: {value}\r\n" for name, value in headers])
    if not text.count("\r") == text.count("\n") == len(headers) or "\0" in text:
        raise ValueError(f"a header of an answer has a line break: {headers}")
    return text.encode("latin-1")


_kept = lru_cache(maxsize=256)(_spelled)
