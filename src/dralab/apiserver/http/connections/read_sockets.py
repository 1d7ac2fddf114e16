"""What is only read over a WebSocket: the log of a container, the events of a watch.

Source: k8s.io/streaming `pkg/wsstream/stream.go` for logs: each piece is one message, in binary or
as base64. k8s.io/apiserver `endpoints/handlers/watch.go` (HandleWS) for watches: each event is one
message, text where the encoding is; the handshake is that of golang.org/x/net/websocket.
"""

import base64
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import urlsplit

from dralab.api.status import ApiError
from dralab.apiserver.http.connections.byte_feeds import Feed
from dralab.apiserver.http.messages import (
    ByteStream,
    HttpResponse,
    Source,
    Upgrade,
    WatchError,
)
from dralab.apiserver.http.negotiation import Encoding
from dralab.values import cbor

BINARY: Final = "binary.k8s.io"
BASE64: Final = "base64.binary.k8s.io"
TEXT: Final = "text/plain"
NORMAL_CLOSURE: Final = 1000


def read_socket(
    answer: HttpResponse | ByteStream, offered: Sequence[str]
) -> HttpResponse | Upgrade:
    """Return an answer as a WebSocket that is only read, or as it is if it needs none.

    `offered` are the client's protocols; without any, messages are binary. ApiError: 403.
    """
    if not isinstance(answer, ByteStream) and not _is_text(answer):
        return answer
    protocol = next((each for each in offered if each in (BINARY, BASE64)), "")
    if offered and not protocol:
        raise ApiError(
            "Forbidden",
            f"a log is read with the WebSocket protocol {BINARY} or {BASE64}, not "
            f"{', '.join(offered)}",
            details={},
        )
    source = answer.source if isinstance(answer, ByteStream) else _whole(answer.content)
    text = protocol == BASE64
    if text:
        source = EachItem(source, lambda data: [base64.b64encode(data)])
    return Upgrade(source=source, receive=_ignore, protocol=protocol, text=text)


def watch_socket(
    events: Source, encoding: Encoding, headers: Mapping[str, str], offered: Sequence[str]
) -> Upgrade:
    """Return the events of a watch as a WebSocket; any one protocol is accepted and means nothing.

    It closes normally however the watch ends, as a real server's does: clients watch again.
    ApiError: a real server refuses the handshake.
    """
    _check_handshake(headers, offered)
    return Upgrade(
        source=EachItem(events, EVENTS[encoding]),
        receive=_ignore,
        protocol=offered[0] if offered else "",
        text=encoding == "json",
        code_if_cut=NORMAL_CLOSURE,
    )


def failed_watch_socket(
    answer: WatchError, headers: Mapping[str, str], offered: Sequence[str]
) -> Upgrade:
    """Return a watch that cannot begin as a WebSocket with one message. ApiError."""
    return watch_socket(_whole(answer.content), answer.encoding, headers, offered)


def _check_handshake(headers: Mapping[str, str], offered: Sequence[str]) -> None:
    """Refuse a watch over WebSocket where a real server does. ApiError: 400, 403.

    Which pages may have one is not decided here (`browser_guard`).
    """
    origin = headers.get("origin", "")
    try:
        is_url = origin.startswith("/") or bool(urlsplit(origin).scheme)
    except ValueError:
        is_url = False
    if not is_url:
        raise ApiError(
            "Forbidden",
            f'a watch over WebSocket needs the header Origin with a URL, not "{origin}"',
            details={},
        )
    if len(offered) > 1:
        raise ApiError.bad_request(
            f"a watch over WebSocket takes one protocol at most, not {', '.join(offered)}"
        )


def _lines(piece: bytes) -> Sequence[bytes]:
    return piece.splitlines(keepends=True)


def _frames(piece: bytes) -> Sequence[bytes]:
    """Return the messages of length-delimited protobuf, without their lengths."""
    found, at = [], 0
    while at < len(piece):
        begin = at + 4
        at = begin + int.from_bytes(piece[at:begin], "big")
        found.append(piece[begin:at])
    return found


# How what goes out together over HTTP is divided into events, by encoding.
EVENTS: Final[Mapping[Encoding, Callable[[bytes], Sequence[bytes]]]] = {
    "json": _lines,
    "protobuf": _frames,
    "cbor": cbor.sequence,
}


def _whole(content: bytes) -> Feed:
    feed = Feed(limit=len(content) + 1)
    if content:
        feed.put(content)
    feed.end()
    return feed


def _ignore(_message: bytes) -> None:
    """Ignore what the client sends: the socket is read-only."""


def _is_text(answer: HttpResponse) -> bool:
    media = next((text for name, text in answer.headers if name.lower() == "content-type"), "")
    return answer.status == HTTPStatus.OK and media.startswith(TEXT)


class EachItem:
    """A source whose items are each made into others."""

    def __init__(self, source: Source, made: Callable[[bytes], Sequence[bytes]]) -> None:
        self._source = source
        self._made = made

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self._source.done

    @property
    def cut(self) -> str | None:
        """Why it was cut off; None if it was not."""
        return self._source.cut

    def take_items(self) -> Sequence[bytes]:
        """Return what has come."""
        return [made for each in self._source.take_items() for made in self._made(each)]

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready` each time something may have come."""
        self._source.notify(ready)

    def close(self) -> None:
        """Stop."""
        self._source.close()
