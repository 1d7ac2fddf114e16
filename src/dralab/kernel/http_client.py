"""HTTP/1.1 to one server: connections that are kept, answers read whole or piece by piece.

A request takes a tenth of the processor time that it takes in urllib3, whose connections, headers
and answers are objects of several layers. No redirects, no proxies, no second attempts: who asks
decides what an error means.
"""

import re
import select
import socket
import ssl
import struct
import sys
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from dralab.kernel.clock import SECOND, WallClock
from dralab.kernel.http_answers import HttpAnswer

Address = tuple[str, int]
Headers = Iterable[tuple[str, str]]
Step = Literal["request", "connect", "tls", "answer"]
Left = Callable[[], float]
Dial = Callable[[Address, float], socket.socket]
PIECE: Final = 64 * 1024
LONG_HEAD: Final = 8 * 1024  # bytes of a request's head that is not kept
CONNECT: Final = 10.0  # seconds
# Of connections, whatever time the objects on the other side live in.
CLOCK: Final = WallClock()
FRESH: Final = SECOND // 10  # in which a server does not close an idle connection
PORTS: Final = {"http": 80, "https": 443}
# In a request line or a header these would begin another one.
UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
SPACES: Final = re.compile(r"[\x00-\x20\x7f]")


class UnansweredError(Exception):
    """There is no valid HTTP answer: `str` says why in a few words.

    `step` is what failed, for the reason `cause`; `begun` says whether something had come, and
    `reused` whether the connection had served other requests.
    """

    def __init__(
        self,
        why: str = "",
        *,
        step: Step = "answer",
        cause: Exception | None = None,
        address: Address | None = None,
        begun: bool = False,
        reused: bool = False,
    ) -> None:
        super().__init__(why or _why(cause))
        self.step, self.cause, self.address = step, cause, address
        self.begun, self.reused = begun, reused


class CutOffError(UnansweredError):
    """The connection broke before the whole answer had come: a retry may succeed."""


class HttpReply(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes
    answer: HttpAnswer | None = None

    def headers(self) -> dict[str, str]:
        """Return the headers, whose names are in lower case."""
        return {} if self.answer is None else self.answer.named()


class HttpConnections:
    """The connections to one server; any thread may ask, each request has one to itself.

    `server` is a URL, whose path is put before those of requests. It is connected to at the first
    of `addresses` that answers, by `dial`, and must have a certificate for `server_name`; without
    these all is by its URL. `timeout` is in seconds, for the server's next bytes. `kept`: idle
    connections that are not closed, for `kept_for` nanoseconds. ValueError: not such a URL.
    """

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        kept: int = 64,
        kept_for: int | None = None,
        addresses: Sequence[Address] = (),
        server_name: str = "",
        dial: Dial = socket.create_connection,
    ) -> None:
        parts = urlsplit(server)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"{server} is not an address such as https://127.0.0.1:6443")
        self._addresses = addresses or ((parts.hostname, parts.port or PORTS[parts.scheme]),)
        self._named = parts.netloc.rpartition("@")[2]
        self._path = parts.path.rstrip("/")
        self._tls = tls if parts.scheme == "https" else None
        self._server_name = server_name or parts.hostname
        self._dial = dial
        self._timeout = timeout
        self._kept, self._kept_for = kept, kept_for
        self._idle: list[_OpenConnection] = []
        self._lock = threading.Lock()
        self._closed = False
        # For clients that are dropped rather than closed.
        weakref.finalize(self, _close_all, self._idle)
        # The heads of requests that differ in nothing but the path: there are few.
        self._heads: dict[tuple[tuple[str, str], ...], bytes] = {}

    def ask(
        self,
        method: str,
        path: str,
        headers: Headers = (),
        body: bytes | None = None,
        *,
        left: Left | None = None,
        most_body: int = sys.maxsize,
    ) -> HttpReply:
        """Return the whole answer to a request. UnansweredError.

        `left` returns the seconds that are left for all of it, in place of `timeout`. TimeoutError
        from it ends the request.
        """
        request = self._request(method, path, headers, body)
        answer = HttpAnswer(most_body=most_body, bodiless=method == "HEAD")
        connection = self._begin(request, answer, left, reuse=True)
        reply = HttpReply(answer.status, answer.take(), answer)
        if answer.keeps_alive:
            with self._lock:
                if not self._closed and len(self._idle) < self._kept:
                    self._idle.append(connection)
                    return reply
        connection.close()
        return reply

    def open(
        self,
        method: str,
        path: str,
        headers: Headers = (),
        body: bytes | None = None,
        *,
        timeout: float | None,
        left: Left | None = None,
    ) -> "StreamedReply":
        """Return the answer as soon as it begins. UnansweredError.

        `timeout` is for its next bytes, `left` for its beginning.
        """
        request = self._request(method, path, headers, body)
        answer = HttpAnswer(bodiless=method == "HEAD")
        connection = self._begin(request, answer, left, reuse=False)
        try:
            connection.bound_waiting(timeout)
        except OSError as error:
            connection.close()
            raise _unanswered(error, begun=True) from error
        return StreamedReply(connection, answer)

    def _begin(
        self, request: bytes, answer: HttpAnswer, left: Left | None, *, reuse: bool
    ) -> "_OpenConnection":
        """Send a request; return the connection once its answer is there, or without `reuse` begun.

        UnansweredError.
        """
        connection = self._waiting() if reuse else None
        reused = connection is not None
        if connection is None:
            connection = self._connected(left)
        try:
            connection.ask(request, answer, left, whole=reuse)
        except (OSError, ValueError) as error:
            connection.close()
            raise _unanswered(error, begun=answer.begun, reused=reused) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def close(self) -> None:
        """Close the idle connections now, each other one after its request."""
        with self._lock:
            self._closed = True
            _close_all(self._idle)

    def _request(self, method: str, path: str, headers: Headers, body: bytes | None) -> bytes:
        key = tuple(headers)
        head = self._heads.get(key)
        if head is None:
            lines = [f"{name}: {value}" for name, value in key]
            if not any(name.lower() == "host" for name, _ in key):
                lines.insert(0, f"Host: {self._named}")
            if any(map(UNSENDABLE.search, lines)):
                why = "a header has a line break or another control character"
                raise UnansweredError(why, step="request")
            head = "".join(f"{line}\r\n" for line in lines).encode()
            if len(self._heads) > 64:  # tokens change
                self._heads.clear()
            if len(head) < LONG_HEAD:
                self._heads[key] = head
        if SPACES.search(path):
            why = f"a space or a control character in {path!r}"
            raise UnansweredError(why, step="request")
        line = f"{method} {self._path}{path} HTTP/1.1\r\n".encode()
        if body is None:
            # A length even of nothing, as servers expect it of these.
            empty = b"" if method in {"GET", "HEAD", "DELETE"} else b"Content-Length: 0\r\n"
            return b"%b%b%b\r\n" % (line, head, empty)
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (line, head, len(body), body)

    def _waiting(self) -> "_OpenConnection | None":
        """Return an idle connection that the server has not closed."""
        while True:
            with self._lock:
                if not self._idle:
                    return None
                found = self._idle.pop()
            idle = CLOCK.now() - found.used_at
            if 0 <= idle < FRESH:
                return found
            if (self._kept_for is None or idle < self._kept_for) and not found.has_news():
                return found
            found.close()  # the server closed it meanwhile, or said what was not asked for

    def _connected(self, left: Left | None) -> "_OpenConnection":
        """Return a new connection to the first address that answers. UnansweredError."""
        first: UnansweredError | None = None
        for address in self._addresses:
            try:
                plain = self._dial(address, CONNECT if left is None else left())
                break
            except OSError as error:
                found = _unanswered(error, step="connect", address=address)
                if isinstance(error, TimeoutError):
                    raise found from error
                first = first or found
        else:
            raise first or UnansweredError("it has no address", step="connect")
        try:
            with suppress(OSError):
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                plain = self._tls.wrap_socket(plain, server_hostname=self._server_name)
            connection = _OpenConnection(plain)
            if left is None:
                connection.bound_waiting(self._timeout)
        except (OSError, ValueError) as error:
            plain.close()
            raise _unanswered(error, step="tls") from error
        return connection


class _OpenConnection:
    """One connection, on which one request after the other is answered."""

    def __init__(self, opened: socket.socket) -> None:
        self.used_at = CLOCK.now()
        self.socket = opened
        self.receive, self.close = opened.recv, opened.close
        self._poll = select.poll() if hasattr(select, "poll") else None
        if self._poll is not None:
            self._poll.register(opened, select.POLLIN)

    def has_news(self) -> bool:
        """Whether data or an end has arrived although nothing was asked."""
        if self._poll is not None:
            return bool(self._poll.poll(0))
        return bool(select.select([self.socket], [], [], 0)[0])

    def ask(self, request: bytes, answer: HttpAnswer, left: Left | None, *, whole: bool) -> None:
        """Send a request and read its answer, or the beginning of it. OSError, ValueError."""
        receive, feed = self.receive, answer.feed
        if left is not None:
            self.socket.settimeout(left())
        self.socket.sendall(request)
        while not (answer.over if whole else answer.status):
            if left is not None:
                self.socket.settimeout(left())
            feed(receive(PIECE))
        self.used_at = CLOCK.now()

    def bound_waiting(self, seconds: float | None) -> None:
        """Set a timeout after which waiting raises an OSError.

        The system's own limit spares a poll before each read and write, after each of which a
        thread has to wait for the interpreter again; Python's TLS does not know it.
        """
        opened = self.socket
        opened.settimeout(seconds)
        if seconds is None or isinstance(opened, ssl.SSLSocket):
            return
        if hasattr(socket, "SO_RCVTIMEO"):
            whole = int(seconds)
            limit = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
            opened.settimeout(None)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


class StreamedReply:
    """An answer that is streamed: read by one thread, and shut down by any."""

    def __init__(self, connection: _OpenConnection, answer: HttpAnswer) -> None:
        self.status, self.headers = answer.status, answer.named
        self._connection = connection
        self._answer = answer

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes. UnansweredError: it ends before its end, or is shut."""
        answer = self._answer
        try:
            while True:
                if piece := answer.take():
                    yield piece
                if answer.over:
                    return
                answer.feed(self._connection.receive(PIECE))
        except (OSError, ValueError) as error:
            raise UnansweredError(cause=error, begun=True) from error

    def shutdown(self) -> None:
        """Wake the thread that reads; it sees the end."""
        with suppress(OSError):
            # Below TLS, whose state belongs to the thread that reads.
            socket.socket.shutdown(self._connection.socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection: for the thread that reads."""
        self._connection.close()


def until(seconds: float) -> Left:
    """Return a function of the seconds left. It raises TimeoutError at the end."""
    deadline = CLOCK.now() + int(seconds * SECOND)

    def left() -> float:
        found = (deadline - CLOCK.now()) / SECOND
        if found <= 0:
            raise TimeoutError
        return found

    return left


def _close_all(idle: "list[_OpenConnection]") -> None:
    while idle:
        idle.pop().close()


def _unanswered(
    cause: OSError | ValueError,
    *,
    step: Step = "answer",
    address: Address | None = None,
    begun: bool = False,
    reused: bool = False,
) -> UnansweredError:
    # A connection that ends within the handshake of TLS is an error of TLS.
    cut = step != "connect" and isinstance(cause, ConnectionError | ssl.SSLEOFError)
    kind = CutOffError if cut else UnansweredError
    return kind(step=step, cause=cause, address=address, begun=begun, reused=reused)


def _why(error: Exception | None) -> str:
    """Return the cause of an error, in a few words."""
    if isinstance(error, (TimeoutError, BlockingIOError)):
        return "timed out"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
