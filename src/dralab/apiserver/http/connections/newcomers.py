"""Connections from which no request has been let in yet: the first that go where room is short."""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final, NamedTuple

# In the `state` of ASGI's scope: call it when a request has been let in.
ADMITTED: Final = "admitted"


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
