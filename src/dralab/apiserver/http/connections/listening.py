"""The sockets on which a server listens, and whose connections end where room is short.

First those from which no request has been let in yet. What is sent on them is left to `serving`.
"""

import asyncio
import errno
import logging
import os
import resource
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple

logger = logging.getLogger(__name__)

BACKLOG: Final = 2048
RESERVE: Final = 128  # descriptors that connections leave to files, nodes and processes
TOLD_EVERY: Final = 60.0  # seconds between lines about connections that are too many
# In the `state` of ASGI's scope: call it when a request has been let in.
ADMITTED: Final = "admitted"


class ServingError(Exception):
    """The server cannot serve; `str` is one line that says what to do."""


class AddressInUse(ServingError):  # noqa: N818 - a fact, named as the system names it
    """The address is in use already; `holder` is the process that has it, if known."""

    def __init__(self, host: str, port: int, holder: str = "") -> None:
        super().__init__(host, port, holder)
        self.host, self.port, self.holder = host, port, holder

    @property
    def fact(self) -> str:
        """The problem alone, without the advice."""
        return f"{self.host}:{self.port} is in use" + (f" by {self.holder}" if self.holder else "")

    def __str__(self) -> str:
        other = "it" if self.holder else "the other program"
        return f"{self.fact}: stop {other} or choose another address with --listen"


def listen(host: str, port: int, device: str = "") -> socket.socket:
    """Return a listening socket; port 0 asks for any free port. ServingError.

    With a `device` it takes only what comes in there: other machines may send packets to any
    address of this one. That needs root, on Linux.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio switches Nagle's algorithm off only where the protocol is named; with it, head and
    # body of an answer, written apart, are 40 ms apart.
    found = Listener(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if device:
            found.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, device.encode())
        found.bind((host, port))
        found.listen(BACKLOG)
        found.settimeout(0)
    except OSError as error:
        found.close()
        if error.errno == errno.EADDRINUSE:
            raise AddressInUse(host, port) from error
        why = (error.strerror or str(error)).lower()
        raise ServingError(f"cannot listen on {host}:{port}: {why}") from error
    except BaseException:
        found.close()
        raise
    return found


def address(listener: socket.socket) -> tuple[str, int]:
    """Return the host and port at which a socket listens."""
    name = listener.getsockname()
    return str(name[0]), int(name[1])


class Listener(socket.socket):
    """A listening socket that leaves descriptors for files, nodes and processes.

    A new descriptor has the lowest free number: one above the cap says that all below it are used.
    Then the oldest connection that has asked nothing yet ends for the new one, if there is one.
    asyncio would report each `accept` that fails, thousands of times a second.
    """

    def __init__(self, family: int) -> None:
        super().__init__(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        self._spare = os.open(os.devnull, os.O_RDONLY)
        self._told = -TOLD_EVERY
        self.newcomers = Newcomers()
        self._ending: socket.socket | None = None
        self.accepts = True  # until the server stops

    def accept(self) -> tuple[socket.socket, Any]:
        """Return the next connection. ConnectionAbortedError: one too many came and is closed.

        BlockingIOError: another one ends for it first, or the server stops.
        """
        if not self.accepts or (self._ending is not None and self._ending.fileno() >= 0):
            raise BlockingIOError
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        cap = sys.maxsize if limit == resource.RLIM_INFINITY else limit - reserved(limit)
        self._ending = None
        if self._next_descriptor(limit) >= cap:
            self._ending = self.newcomers.end_oldest()
        if self._ending is not None:
            raise BlockingIOError
        try:
            found, peer = super().accept()
        except OSError as error:
            if error.errno not in {errno.EMFILE, errno.ENFILE} or self._spare < 0:
                raise
            # Closed with the descriptor kept for this; else it would stay in the backlog.
            spare, self._spare = self._spare, -1
            os.close(spare)
            try:
                super().accept()[0].close()
            finally:
                self._spare = os.open(os.devnull, os.O_RDONLY)
        else:
            if found.fileno() < cap:
                self.newcomers.add(found, peer[0])
                return found, peer
            found.close()
        self._tell(limit)
        raise ConnectionAbortedError(errno.ECONNABORTED, "too many connections")

    def _next_descriptor(self, limit: int) -> int:
        """Return the number that a new descriptor gets: the lowest that is free."""
        try:
            found = os.dup(self._spare)
        except OSError:
            return limit
        os.close(found)
        return found

    def listen(self, backlog: int = BACKLOG, /) -> None:
        """Listen, always with the same backlog: asyncio's own is how many it accepts in a turn."""
        super().listen(max(backlog, BACKLOG))

    def close(self) -> None:
        """Close it, with the descriptor that was kept."""
        super().close()
        if self._spare >= 0:
            os.close(self._spare)
            self._spare = -1

    def _tell(self, limit: int) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told >= TOLD_EVERY:
            self._told = now
            logger.warning(
                "new connections are closed at once: nearly all of the %d file descriptors of "
                "this process are in use; `ulimit -n` raises the limit",
                limit,
            )


def reserved(limit: int) -> int:
    """Return how many of the descriptors are reserved, and not for connections."""
    return min(RESERVE, limit // 4)


class _Newcomer(NamedTuple):
    connection: socket.socket
    end: Callable[[], None]


class Newcomers:
    """The connections by the host that they come from, oldest first."""

    def __init__(self) -> None:
        self._hosts: dict[int, str] = {}  # by descriptor
        self._waiting: dict[str, dict[int, _Newcomer]] = {}

    def __len__(self) -> int:
        """Return how many there are; some may be closed by now."""
        return len(self._hosts)

    def add(self, connection: socket.socket, host: str) -> None:
        """A connection begins, perhaps with a handshake."""
        number = connection.fileno()
        self.admitted(number)  # the last one with that descriptor was closed without a request
        self._hosts[number] = host

        def end() -> None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

        self._waiting.setdefault(host, {})[number] = _Newcomer(connection, end)

    def connected(self, number: int, end: Callable[[], None]) -> None:
        """The handshake of a connection is over; `end` ends it."""
        host = self._hosts.get(number)
        if host is not None:
            waiting = self._waiting[host]
            waiting[number] = waiting[number]._replace(end=end)

    def admitted(self, number: int) -> None:
        """A request of a connection was let in: it stays."""
        host = self._hosts.pop(number, None)
        if host is not None:
            waiting = self._waiting[host]
            del waiting[number]
            if not waiting:
                del self._waiting[host]

    def end_oldest(self) -> socket.socket | None:
        """End the oldest connection of the host that has most; the loop closes it soon."""
        while self._waiting:
            waiting = max(self._waiting.values(), key=len)
            number, oldest = next(iter(waiting.items()))
            self.admitted(number)
            if oldest.connection.fileno() == number:
                oldest.end()
                return oldest.connection
        return None
