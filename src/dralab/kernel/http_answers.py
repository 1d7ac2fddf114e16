"""Parses an HTTP/1.1 answer from the bytes of a connection, within bounds."""

import sys
from contextlib import suppress
from typing import Final

import httptools

MOST_HEAD: Final = 64 * 1024  # bytes of headers, trailers and extensions of chunks in a row
UNREAD: Final = (httptools.HttpParserError, httptools.HttpParserUpgrade)  # by the parser


class NotHttpError(ValueError):
    """The bytes are not an HTTP answer."""

    def __init__(self) -> None:
        super().__init__("the answer is not HTTP")


class LargeAnswerError(ValueError):
    """An answer's `part`, "head" or "body", is larger than `limit` bytes."""

    def __init__(self, part: str, limit: int) -> None:
        super().__init__(f"the {part} of the answer is larger than {limit} bytes")
        self.part, self.limit = part, limit


class EndedError(ConnectionError):
    """The connection ended before the answer did."""

    def __init__(self) -> None:
        super().__init__("the server closed the connection")


class HttpAnswer:
    """One answer as it comes: `status` is 0 until its head is there.

    `bodiless`: it answers a HEAD. `upgrades`: it may be 101, which ends with its head. What follows
    its end belongs to no answer and is dropped.
    """

    status = _size = _beside = 0
    over = keeps_alive = False

    def __init__(
        self, *, most_body: int = sys.maxsize, bodiless: bool = False, upgrades: bool = False
    ) -> None:
        self._most_body = most_body
        self._upgrades = upgrades
        self._bodiless = bodiless
        self._body: list[bytes] = []
        self._head: list[bytes] = []
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse received bytes; empty means the end. EndedError, NotHttpError, LargeAnswerError."""
        if not data:
            self._end()
            return
        if not self.status:
            self._head.append(data)
        self._beside += len(data)
        try:
            self._parser.feed_data(data)
        except UNREAD as error:
            if not self.over:
                raise NotHttpError from error
            self.keeps_alive = False
        if self._size > self._most_body:
            raise LargeAnswerError("body", self._most_body)
        # Trailers, and extensions of chunks, are kept by the parser as headers are.
        if self._beside > MOST_HEAD and not self.over:
            raise LargeAnswerError("head", MOST_HEAD)

    @property
    def begun(self) -> bool:
        """Whether anything has come."""
        return bool(self._size or self._beside)

    def take(self) -> bytes:
        """Return what has come of the body since the last time."""
        pieces = self._body
        if len(pieces) == 1:
            return pieces.pop()
        found = b"".join(pieces)
        pieces.clear()
        return found

    def pending(self) -> int:
        """Return how many bytes of the body `take` would return."""
        return sum(map(len, self._body))

    def headers(self) -> list[tuple[str, str]]:
        """Return the headers in their order."""
        found = _Headers()
        for data in self._head:
            found.feed(data)
        return found.pairs

    def named(self) -> dict[str, str]:
        """Return the headers, whose names are in lower case."""
        return {name.lower(): value for name, value in self.headers()}

    def is_bounded(self) -> bool:
        """Whether its length is known; else it ends with its connection."""
        found = self.named()
        return "content-length" in found or "chunked" in found.get("transfer-encoding", "")

    def _end(self) -> None:
        if not self.over and (not self.status or self.is_bounded()):
            raise EndedError
        self.over, self.keeps_alive = True, False

    def on_headers_complete(self) -> None:
        """Record the status; interim answers such as 100 Continue are skipped."""
        if self.over:
            self.keeps_alive = False
            return
        status = self._parser.get_status_code()
        upgraded = status == 101 and self._upgrades
        if status >= 200 or upgraded:
            self.status = status
            # The parser waits for the body that Content-Length speaks of.
            self.over = self._bodiless or upgraded

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body."""
        if not self.over:
            self._size += len(data)
            self._beside = 0
            self._body.append(data)

    def on_message_complete(self) -> None:
        """Note the end."""
        if self.status and not self.over:
            self.over = True
            self.keeps_alive = bool(self._parser.should_keep_alive())


class _Headers:
    """Parses the headers of an answer lazily: most callers do not need them."""

    def __init__(self) -> None:
        self.pairs: list[tuple[str, str]] = []
        self._over = False
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take what came until the end of the head, and maybe more."""
        with suppress(*UNREAD):
            self._parser.feed_data(data)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header."""
        if not self._over:
            self.pairs.append((name.decode("latin-1"), value.decode("latin-1")))

    def on_headers_complete(self) -> None:
        """Drop headers of interim answers, and trailers."""
        status = self._parser.get_status_code()
        self._over = self._over or status >= 200 or status == 101
        if not self._over:
            self.pairs.clear()
