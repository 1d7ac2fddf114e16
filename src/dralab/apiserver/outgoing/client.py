"""A client for short calls over HTTPS: one deadline for the whole call, and a size limit.

It is called in threads beside the server's loop. Connections are kept for the next call; redirects
are not followed. Texts of errors are those of Go's client, which operators search for.
"""

import ssl
import threading
from collections.abc import Iterable
from dataclasses import field
from functools import lru_cache
from typing import Final

from dralab.apiserver.outgoing.targets import Address, CallTarget, Overdue, Unreachable
from dralab.kernel.clock import SECOND
from dralab.kernel.http_answers import EndedError, LargeAnswerError, NotHttpError
from dralab.kernel.http_client import HttpConnections, StreamedReply, UnansweredError, until
from dralab.values.records import dataclass

JSON: Final = "application/json"
LARGEST: Final = 8 * 1024 * 1024  # bytes of an answer's body
KEPT: Final = 32  # idle connections for each target
KEPT_FOR: Final = 20 * SECOND  # less than servers keep them
TARGETS: Final = 1_000  # whose connections are kept
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
    """Calls targets; thread-safe."""

    def __init__(self) -> None:
        self._known: dict[CallTarget, HttpConnections] = {}
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
        left = until(timeout)
        connections = self._connections(target)
        path, sent_headers = _path(target, query), _complete(headers)
        sent = body if body or method not in {"GET", "HEAD"} else None
        while True:
            try:
                reply = connections.ask(
                    method, path, sent_headers, sent, left=left, most_body=LARGEST
                )
            except UnansweredError as error:
                if error.reused and not error.begun and not isinstance(error.cause, TimeoutError):
                    continue  # the server closed it meanwhile
                raise _unreachable(error, target) from error
            return CallAnswer(reply.status, reply.headers(), reply.body)

    def open(
        self,
        target: CallTarget,
        *,
        timeout: float,
        query: str = "",
        headers: Iterable[tuple[str, str]] = (),
    ) -> StreamedReply:
        """Return the answer to a GET whose body is read as it comes. Unreachable.

        `timeout` is for the beginning of the answer.
        """
        left = until(timeout)
        try:
            return self._connections(target).open(
                "GET", _path(target, query), _complete(headers), timeout=None, left=left
            )
        except UnansweredError as error:
            raise _unreachable(error, target) from error

    def close(self) -> None:
        """Close the connections that are kept."""
        with self._lock:
            known, self._known = self._known, {}
        for each in known.values():
            each.close()

    def _connections(self, target: CallTarget) -> HttpConnections:
        """Return the connections to a target. Unreachable: its settings of TLS are unusable."""
        with self._lock:
            found = self._known.get(target)
        if found is not None:
            return found
        try:
            found = HttpConnections(
                f"https://{target.host}",
                tls=_context(target.ca, target.insecure, target.certificate),
                addresses=target.addresses,
                server_name=target.server_name,
                kept=KEPT,
                kept_for=KEPT_FOR,
            )
        except (OSError, ValueError) as error:
            raise Unreachable(_tls_words(error, target)) from error
        if len(self._known) >= TARGETS:
            self.close()
        with self._lock:
            return self._known.setdefault(target, found)


def _path(target: CallTarget, query: str) -> str:
    return f"{target.path}?{query}" if query else target.path


def _complete(headers: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    given = list(headers)
    known = {name.lower() for name, _ in given}
    return given + [
        (name, JSON) for name in ("Accept", "Content-Type") if name.lower() not in known
    ]


def _unreachable(error: UnansweredError, target: CallTarget) -> Unreachable:
    """Return Go's message for a call that is not answered."""
    cause = error.cause
    if isinstance(cause, TimeoutError):
        return Overdue()
    if error.address is not None:
        return Unreachable(f"dial tcp {_shown(error.address)}: connect: {error}")
    if error.step == "tls" and isinstance(cause, (OSError, ValueError)):
        return Unreachable(_tls_words(cause, target))
    if isinstance(cause, (NotHttpError, LargeAnswerError)):
        return Unreachable(unread_words(cause))
    if error.step == "answer" and not error.begun:
        return Unreachable("EOF")
    return Unreachable("unexpected EOF" if isinstance(cause, EndedError) else str(error))


def unread_words(error: NotHttpError | LargeAnswerError) -> str:
    """Return Go's message for an answer that cannot be read."""
    if isinstance(error, NotHttpError):
        return "malformed HTTP response"
    if error.part == "body":
        return f"the response body is larger than {error.limit} bytes"
    return f"net/http: server response headers exceeded {error.limit} bytes; aborted"


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
