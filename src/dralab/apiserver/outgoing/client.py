"""A client for short calls over HTTPS: one deadline for all of it, and an end to large answers.

It is called in threads beside the server's loop. Connections are kept for the next call; redirects
are not followed. Texts of errors are those of Go's client, which operators search for.
"""

import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache
from http import HTTPStatus
from typing import Final

import httptools

from dralab.apiserver.outgoing.targets import Address, CallTarget, Overdue, Unreachable
from dralab.kernel.clock import SECOND, Clock, WallClock

JSON: Final = "application/json"
LARGEST: Final = 8 * 1024 * 1024  # bytes of an answer's body
HEAD: Final = 64 * 1024
PIECE: Final = 64 * 1024
KEPT: Final = 32  # idle connections for each target
KEPT_FOR: Final = 20 * SECOND  # less than servers keep them
UNKNOWN_AUTHORITY: Final = frozenset({2, 18, 19, 20, 21})  # X509_V_ERR_… of OpenSSL
OUTDATED: Final = frozenset({9, 10})
OTHER_NAME: Final = frozenset({62, 63, 64})


@dataclass(slots=True)
class CallAnswer:
    """What a server answered; header names are in lower case."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""


class CallClient:
    """Calls targets; any thread may."""

    def __init__(self, clock: Clock | None = None) -> None:
        # Deadlines are those of other people's programs, whatever time the objects live in.
        self._clock = clock or WallClock()
        self._idle: dict[CallTarget, list[tuple[int, _PooledConnection]]] = {}
        self._lock = threading.Lock()

    def call(
        self,
        target: CallTarget,
        body: bytes,
        *,
        timeout: float,
        method: str = "POST",
        query: str = "",
        headers: Iterable[tuple[str, str]] = (),
    ) -> CallAnswer:
        """Return the answer to a request; `timeout` is in seconds. Unreachable."""
        deadline = self._clock.now() + int(timeout * SECOND)
        request = _request(target, body, method=method, query=query, headers=headers)
        head = method == "HEAD"
        while kept := self._kept(target):
            try:
                return self._asked(kept, request, deadline, head=head)
            except _Stale:
                continue  # the server closed it meanwhile
        try:
            return self._asked(self._connected(target, deadline), request, deadline, head=head)
        except _Stale as error:
            raise Unreachable("EOF") from error

    def open(
        self,
        target: CallTarget,
        *,
        timeout: float,
        query: str = "",
        headers: Iterable[tuple[str, str]] = (),
    ) -> "OpenAnswer":
        """Return the answer to a GET whose body is read as it comes. Unreachable.

        `timeout` is for the beginning of the answer.
        """
        deadline = self._clock.now() + int(timeout * SECOND)
        request = _request(target, b"", method="GET", query=query, headers=headers)
        connection = self._connected(target, deadline)
        try:
            return connection.open(request, lambda: (deadline - self._clock.now()) / SECOND)
        except _Stale as error:
            connection.close()
            raise Unreachable("EOF") from error
        except BaseException:
            connection.close()
            raise

    def close(self) -> None:
        """Close the connections that are kept."""
        with self._lock:
            idle, self._idle = self._idle, {}
        for several in idle.values():
            for _, connection in several:
                connection.close()

    def _kept(self, target: CallTarget) -> "_PooledConnection | None":
        oldest = self._clock.now() - KEPT_FOR
        with self._lock:
            several = self._idle.get(target) or []
            while several:
                since, found = several.pop()
                if since > oldest:
                    return found
                found.close()
        return None

    def _asked(
        self, connection: "_PooledConnection", request: bytes, deadline: int, *, head: bool
    ) -> CallAnswer:
        try:
            left = lambda: (deadline - self._clock.now()) / SECOND  # noqa: E731
            answer = connection.ask(request, left, head=head)
        except BaseException:
            connection.close()
            raise
        with self._lock:
            several = self._idle.setdefault(connection.target, [])
            if connection.goes_on and len(several) < KEPT:
                several.append((self._clock.now(), connection))
                return answer
        connection.close()
        return answer

    def _connected(self, target: CallTarget, deadline: int) -> "_PooledConnection":
        """Return a new connection to the first of its addresses that answers. Unreachable."""
        first: _NotConnected | None = None
        for address in target.addresses:
            left = (deadline - self._clock.now()) / SECOND
            if left <= 0:
                raise Overdue
            try:
                return _PooledConnection(target, address, left)
            except _NotConnected as error:
                first = first or error
        raise first or Unreachable("it has no address")


class _NotConnected(Unreachable):
    """No server answers at one address."""


class _Stale(Exception):  # noqa: N818 - a condition, which no caller sees
    """A connection was closed before an answer began."""


class _PooledConnection:
    """One connection, on which one request after the other is asked."""

    def __init__(self, target: CallTarget, address: Address, timeout: float) -> None:
        self.target = target
        self.goes_on = False
        try:
            plain = socket.create_connection(address, timeout)
        except TimeoutError:
            raise Overdue from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise _NotConnected(f"dial tcp {_shown(address)}: connect: {why}") from error
        try:
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = _context(target.ca, target.insecure, target.certificate).wrap_socket(
                plain, server_hostname=target.server_name
            )
        except TimeoutError:
            plain.close()
            raise Overdue from None
        except (OSError, ValueError) as error:
            plain.close()
            raise Unreachable(_tls_words(error, target)) from error

    def ask(self, request: bytes, left: Callable[[], float], *, head: bool) -> CallAnswer:
        """Send a request and return its answer, which has no body if asked for its `head`.

        Unreachable, _Stale.
        """
        reading = _Reading(head=head)
        self._read(request, reading, left, lambda: reading.over)
        self.goes_on = reading.keeps_alive
        return reading.answer

    def open(self, request: bytes, left: Callable[[], float]) -> "OpenAnswer":
        """Send a request and return its answer as soon as it begins. Unreachable, _Stale."""
        reading = _Pieces()
        self._read(request, reading, left, lambda: reading.begun)
        self._socket.settimeout(None)
        return OpenAnswer(self._socket, reading)

    def _read(
        self,
        request: bytes,
        reading: "_Reading",
        left: Callable[[], float],
        enough: Callable[[], bool],
    ) -> None:
        """Send a request and read what comes until that is enough. Unreachable, _Stale."""
        began = False
        try:
            self._socket.settimeout(_positive(left()))
            self._socket.sendall(request)
            while not enough():
                self._socket.settimeout(_positive(left()))
                data = self._socket.recv(PIECE)
                if not data:
                    if not began:
                        raise _Stale
                    reading.end()
                    break
                began = True
                reading.feed(data)
        except TimeoutError:
            raise Overdue from None
        except OSError as error:
            if not began:
                raise _Stale from error
            raise Unreachable((error.strerror or str(error)).lower()) from error

    def close(self) -> None:
        """Close it."""
        self._socket.close()


class _Reading:
    """Parses an answer. Unreachable if it is not HTTP, or larger than allowed."""

    def __init__(self, *, head: bool = False) -> None:
        self.answer = CallAnswer()
        self._head = head
        self.over = self.keeps_alive = False
        self._parts: list[bytes] = []
        self._problem: Unreachable | None = None
        self._size = self._beside = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Parse received bytes."""
        self._beside += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise self._problem or Unreachable("malformed HTTP response") from error
        # Trailers, and extensions of chunks, are kept by the parser as headers are.
        if self._beside > HEAD and not self.over:
            raise Unreachable("net/http: server response headers exceeded 65536 bytes; aborted")

    def end(self) -> None:
        """Handle the end of the connection: the answer is complete, or was cut off."""
        if not self.answer.status or "content-length" in self.answer.headers:
            raise Unreachable("unexpected EOF")
        if "chunked" in self.answer.headers.get("transfer-encoding", ""):
            raise Unreachable("unexpected EOF")
        self.on_message_complete()
        self.keeps_alive = False

    def on_header(self, name: bytes, value: bytes) -> None:
        """Store a header."""
        self.answer.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        """Store the status."""
        status = self._parser.get_status_code()
        if status >= HTTPStatus.OK:  # 100 Continue is not an answer yet
            self.answer.status = status
            # The parser waits for the body that Content-Length speaks of.
            self.over = self._head

    def on_body(self, data: bytes) -> None:
        """Store a piece of the body."""
        self._size += len(data)
        self._beside = 0
        if self._size > LARGEST:
            self._problem = Unreachable(f"the response body is larger than {LARGEST} bytes")
            raise self._problem  # which the parser replaces by an error of its own
        self._parts.append(data)

    def on_message_complete(self) -> None:
        """Handle the end of the answer."""
        if self.answer.status:
            self.answer.body = b"".join(self._parts)
            self.keeps_alive = bool(self._parser.should_keep_alive())
            self.over = True


class _Pieces(_Reading):
    """Parses an answer of any length, whose body is read in pieces."""

    def __init__(self) -> None:
        super().__init__()
        self.begun = False

    def on_headers_complete(self) -> None:
        """Store the status."""
        super().on_headers_complete()
        self.begun = bool(self.answer.status)

    def on_body(self, data: bytes) -> None:
        """Store a piece of the body."""
        self._beside = 0
        self._parts.append(data)

    def take(self) -> bytes:
        """Return the part of the body received since the last call."""
        found = b"".join(self._parts)
        self._parts.clear()
        return found

    def on_message_complete(self) -> None:
        """Handle the end of the answer."""
        self.over = self.begun


class OpenAnswer:
    """A streamed answer: one thread reads its pieces, any thread may close it."""

    def __init__(self, connection: ssl.SSLSocket, reading: _Pieces) -> None:
        self.status = reading.answer.status
        self.headers = reading.answer.headers
        self._socket = connection
        self._reading = reading
        self._closed = False

    def pieces(self) -> Iterator[bytes]:
        """Yield the body as it comes; it ends when it is over, or closed. Unreachable."""
        reading = self._reading
        try:
            while True:
                if piece := reading.take():
                    yield piece
                if reading.over or self._closed:
                    return
                data = self._socket.recv(PIECE)
                reading.feed(data) if data else reading.end()
        except (OSError, ValueError) as error:
            if not self._closed:
                raise Unreachable(str(error).lower()) from error
        finally:
            self._socket.close()

    def close(self) -> None:
        """Stop: a thread that waits for more goes on and sees the end."""
        self._closed = True
        with suppress(OSError):
            # Below TLS, whose state belongs to the thread that reads.
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _request(
    target: CallTarget,
    body: bytes,
    *,
    method: str,
    query: str,
    headers: Iterable[tuple[str, str]],
) -> bytes:
    """Return the bytes of a request. Unreachable if a header has a line break."""
    path = f"{target.path}?{query}" if query else target.path
    lines = [f"{method} {path} HTTP/1.1", f"Host: {target.host}"]
    given = list(headers)
    known = {name.lower() for name, _ in given}
    given += [(name, JSON) for name in ("Accept", "Content-Type") if name.lower() not in known]
    lines += [f"{name}: {value}" for name, value in given]
    lines += [f"Content-Length: {len(body)}", "", ""]
    if any("\r" in line or "\n" in line for line in lines):
        raise Unreachable("a header or path has a line break")
    return "\r\n".join(lines).encode() + body


@lru_cache(maxsize=256)
def _context(
    ca: str,
    insecure: bool,  # noqa: FBT001 - the cache is by position
    certificate: tuple[str, str] | None,
) -> ssl.SSLContext:
    """Return the TLS settings. ValueError if the CA bundle cannot be read."""
    found = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    found.minimum_version = ssl.TLSVersion.TLSv1_2
    if insecure:
        found.check_hostname = False
        found.verify_mode = ssl.CERT_NONE
    elif ca:
        try:
            found.load_verify_locations(cadata=ca)
        except ssl.SSLError as error:
            raise ValueError("unable to load root certificates: unable to parse bytes") from error
        # As in Go: a certificate of the bundle is trusted without its issuer, and the names
        # that count are the alternative ones.
        found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
        found.hostname_checks_common_name = False
    else:
        found.load_default_certs()
    if certificate is not None:
        found.load_cert_chain(*certificate)
    return found


def _positive(seconds: float) -> float:
    if seconds <= 0:
        raise TimeoutError
    return seconds


def _shown(address: Address) -> str:
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _tls_words(error: OSError | ValueError, target: CallTarget) -> str:
    """Return Go's message for a failed TLS handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        code, why = error.verify_code, error.verify_message
        if code in UNKNOWN_AUTHORITY:
            why = "certificate signed by unknown authority"
        elif code in OUTDATED:
            why = "certificate has expired or is not yet valid"
        elif code in OTHER_NAME:
            why = f"certificate is not valid for {target.server_name}"
        return f"tls: failed to verify certificate: x509: {why}"
    if isinstance(error, ssl.SSLEOFError):
        return "EOF"
    if isinstance(error, ssl.SSLError):
        if error.reason in {"WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE"}:
            return "http: server gave HTTP response to HTTPS client"
        return f"remote error: tls: {(error.reason or str(error)).lower().replace('_', ' ')}"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)
