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
import threading
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import httptools

from dralab.kernel.clock import SECOND, WallClock

PIECE: Final = 64 * 1024
CONNECT: Final = 10.0  # seconds
# Of connections, whatever time the objects on the other side live in.
CLOCK: Final = WallClock()
FRESH: Final = SECOND // 10  # in which a server does not close an idle connection
PORTS: Final = {"http": 80, "https": 443}
# In a request line or a header these would begin another one.
UNSENDABLE: Final = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
SPACES: Final = re.compile(r"[\x00-\x20\x7f]")


class UnansweredError(Exception):
    """There is no answer, or none that is HTTP: `str` says why."""


class CutOffError(UnansweredError):
    """The connection broke before the whole answer had come: it may be had by another one."""


class HttpReply(NamedTuple):
    """A whole answer."""

    status: int
    body: bytes


class HttpConnections:
    """The connections to one server; any thread may ask, each request has one to itself.

    `server` is a URL, whose path is put before those of requests. `timeout` is in seconds, for the
    server's next bytes. `kept`: idle connections that are not closed. ValueError: not such a URL.
    """

    def __init__(
        self,
        server: str,
        *,
        tls: ssl.SSLContext | None = None,
        timeout: float = 30.0,
        kept: int = 64,
    ) -> None:
        parts = urlsplit(server)
        if parts.scheme not in PORTS or not parts.hostname:
            raise ValueError(f"{server} is not an address such as https://127.0.0.1:6443")
        self._host, self._port = parts.hostname, parts.port or PORTS[parts.scheme]
        self._named = parts.netloc.rpartition("@")[2]
        self._path = parts.path.rstrip("/")
        self._tls = tls if parts.scheme == "https" else None
        self._timeout = timeout
        self._kept = kept
        self._idle: list[_OpenConnection] = []
        self._lock = threading.Lock()
        self._closed = False
        # For clients that are dropped rather than closed.
        weakref.finalize(self, _close_all, self._idle)
        # The heads of requests that differ in nothing but the path: there are few.
        self._heads: dict[tuple[tuple[str, str], ...], bytes] = {}

    def ask(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None = None
    ) -> HttpReply:
        """Return the whole answer to a request. UnansweredError."""
        request = self._request(method, path, headers, body)
        connection = self._connection()
        try:
            reply = connection.ask(request)
        except (OSError, httptools.HttpParserError) as error:
            connection.close()
            raise _unanswered(error) from error
        except BaseException:
            connection.close()
            raise
        if connection.goes_on:
            with self._lock:
                if not self._closed and len(self._idle) < self._kept:
                    self._idle.append(connection)
                    return reply
        connection.close()
        return reply

    def open(self, path: str, headers: Mapping[str, str], *, timeout: float) -> "StreamedReply":
        """Return the answer to a GET as soon as it begins. UnansweredError."""
        request = self._request("GET", path, headers, None)
        connection = self._connected()
        try:
            return connection.open(request, timeout)
        except (OSError, httptools.HttpParserError) as error:
            connection.close()
            raise _unanswered(error) from error
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the idle connections now, each other one after its request."""
        with self._lock:
            self._closed = True
            _close_all(self._idle)

    def _request(
        self, method: str, path: str, headers: Mapping[str, str], body: bytes | None
    ) -> bytes:
        key = tuple(headers.items())
        head = self._heads.get(key)
        if head is None:
            lines = [f"Host: {self._named}", *(f"{name}: {value}" for name, value in key)]
            if any(map(UNSENDABLE.search, lines)):
                raise UnansweredError("a header has a line break or another control character")
            head = "".join(f"{line}\r\n" for line in lines).encode()
            if len(self._heads) > 64:  # tokens change
                self._heads.clear()
            self._heads[key] = head
        if SPACES.search(path):
            raise UnansweredError(f"a space or a control character in {path!r}")
        line = f"{method} {self._path}{path} HTTP/1.1\r\n".encode()
        if body is None:
            # A length even of nothing, as servers expect it of these.
            empty = b"" if method in {"GET", "DELETE"} else b"Content-Length: 0\r\n"
            return b"%b%b%b\r\n" % (line, head, empty)
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (line, head, len(body), body)

    def _connection(self) -> "_OpenConnection":
        while True:
            with self._lock:
                if not self._idle:
                    break
                found = self._idle.pop()
            if 0 <= CLOCK.now() - found.used_at < FRESH or not found.has_news():
                return found
            found.close()  # the server closed it meanwhile, or said what was not asked for
        return self._connected()

    def _connected(self) -> "_OpenConnection":
        try:
            plain = socket.create_connection((self._host, self._port), CONNECT)
        except OSError as error:
            raise UnansweredError(_why(error)) from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            found = plain
            if self._tls is not None:
                found = self._tls.wrap_socket(plain, server_hostname=self._host)
            _bound_waiting(found, self._timeout)
        except (OSError, ValueError) as error:
            plain.close()
            raise _unanswered(error) from error
        return _OpenConnection(found)


class _OpenConnection:
    """One connection, on which one request after the other is answered."""

    def __init__(self, opened: socket.socket) -> None:
        self.goes_on = False
        self.used_at = CLOCK.now()
        self._socket = opened
        self._poll = select.poll() if hasattr(select, "poll") else None
        if self._poll is not None:
            self._poll.register(opened, select.POLLIN)

    def has_news(self) -> bool:
        """Whether something has come, an end for example, although nothing was asked."""
        if self._poll is not None:
            return bool(self._poll.poll(0))
        return bool(select.select([self._socket], [], [], 0)[0])

    def ask(self, request: bytes) -> HttpReply:
        """Return the answer to a request. OSError, HttpParserError."""
        reading = _AnswerReading()
        receive, feed = self._socket.recv, reading.feed
        self._socket.sendall(request)
        while not reading.over:
            feed(receive(PIECE))
        self.goes_on = reading.keeps_alive
        self.used_at = CLOCK.now()
        return HttpReply(reading.status, reading.take())

    def open(self, request: bytes, timeout: float) -> "StreamedReply":
        """Return the answer to a request once it has begun. OSError, HttpParserError."""
        reading = _AnswerReading()
        self._socket.sendall(request)
        while not reading.status:
            reading.feed(self._socket.recv(PIECE))
        _bound_waiting(self._socket, timeout)
        return StreamedReply(self._socket, reading)

    def close(self) -> None:
        """Close it."""
        self._socket.close()


class StreamedReply:
    """An answer that is read as it comes: by one thread, while any thread may shut it."""

    def __init__(self, connection: socket.socket, reading: "_AnswerReading") -> None:
        self.status = reading.status
        self._socket = connection
        self._reading = reading

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes. UnansweredError: it ends before its end, or is shut."""
        reading = self._reading
        try:
            while True:
                if piece := reading.take():
                    yield piece
                if reading.over:
                    return
                reading.feed(self._socket.recv(PIECE))
        except (OSError, ValueError, httptools.HttpParserError) as error:
            raise UnansweredError(_why(error)) from error

    def shutdown(self) -> None:
        """Wake the thread that reads; it sees the end."""
        with suppress(OSError):
            # Below TLS, whose state belongs to the thread that reads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the connection: for the thread that reads."""
        self._socket.close()


class _AnswerReading:
    """Parses one answer from the bytes of a connection."""

    def __init__(self) -> None:
        self.status = 0
        self.over = self.keeps_alive = False
        self._pieces: list[bytes] = []
        self._bounded = False  # by a length or by chunks; else it ends with the connection
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take what has come; nothing is the end. ConnectionError, HttpParserError."""
        if data:
            self._parser.feed_data(data)
        elif self.status and not self._bounded:
            self.over = True
        else:
            raise ConnectionError("the server closed the connection")

    def take(self) -> bytes:
        """Return what has come of the body since the last time."""
        pieces = self._pieces
        if len(pieces) == 1:
            return pieces.pop()
        found = b"".join(pieces)
        pieces.clear()
        return found

    def on_header(self, name: bytes, value: bytes) -> None:  # noqa: ARG002 - the parser's shape
        """Note whether the answer says where it ends."""
        if len(name) in {14, 17} and name.lower() in {b"content-length", b"transfer-encoding"}:
            self._bounded = True

    def on_headers_complete(self) -> None:
        """Note the status; what comes before an answer, as 100 Continue, is none."""
        status = self._parser.get_status_code()
        if status >= HTTPStatus.OK:
            self.status = status

    def on_body(self, data: bytes) -> None:
        """Keep a piece of the body."""
        self._pieces.append(data)

    def on_message_complete(self) -> None:
        """Note the end."""
        if self.status:
            self.over = True
            self.keeps_alive = self._parser.should_keep_alive()


def _bound_waiting(connection: socket.socket, seconds: float) -> None:
    """Have a connection raise an OSError when it has waited for so long.

    The system's own limit spares a poll before each read and write, after each of which a thread
    has to wait for the interpreter again; Python's TLS does not know it.
    """
    if isinstance(connection, ssl.SSLSocket) or not hasattr(socket, "SO_RCVTIMEO"):
        connection.settimeout(seconds)
        return
    whole = int(seconds)
    limit = struct.pack("ll", whole, int((seconds - whole) * 1_000_000))
    connection.settimeout(None)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def _close_all(idle: "list[_OpenConnection]") -> None:
    while idle:
        idle.pop().close()


def _unanswered(error: Exception) -> UnansweredError:
    # A connection that ends within the handshake of TLS is an error of TLS.
    cut = isinstance(error, ConnectionError | ssl.SSLEOFError)
    return CutOffError(_why(error)) if cut else UnansweredError(_why(error))


def _why(error: Exception) -> str:
    """Return what is wrong, in a few words."""
    if isinstance(error, httptools.HttpParserError):
        return "the answer is not HTTP"
    if isinstance(error, (TimeoutError, BlockingIOError)):
        return "timed out"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message}"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error)
