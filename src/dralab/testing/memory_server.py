"""The server of a trial for programs in this process that speak HTTP: in memory, with the gate.

It serves on a loop of its own, on the trial's engine: in turns with everything else, at the same
instant. What happens to requests is in `gate`, to watches in `streams`.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Final

from dralab.apiserver.http.connections.asgi_base import AsgiLimits, Outcome
from dralab.apiserver.http.connections.exchanges import ServedConnections
from dralab.apiserver.http.connections.http_connections import HttpConnection
from dralab.apiserver.http.connections.promises import Promise
from dralab.apiserver.http.messages import HttpRequest
from dralab.testing.gate import PLACE, FaultyGate, GatedProcess, GateSurroundings, ProgramEdge
from dralab.testing.virtual_loop import VirtualLoop

# Where programs find it. The name does not exist, and says so where a socket is opened after all.
NAME: Final = "in-process.dralab.invalid"
PORT: Final = 80


class MemoryServer:
    """Serves a trial's API server to programs; their requests go through the gate."""

    def __init__(
        self,
        around: GateSurroundings,
        processes: Mapping[str, GatedProcess],
        turn: Callable[[], AbstractContextManager[object]],
    ) -> None:
        server = around.server
        gate = FaultyGate(around, processes, server.handle_apart)
        self._edge = _SingleThreadEdge(server, AsgiLimits(timers=False))
        # Instances have methods of their own from here on: this server is the trial's alone.
        server.handle = gate.handle  # type: ignore[method-assign]
        server.handle_apart = gate.handle  # type: ignore[method-assign]
        self.loop = VirtualLoop(  # type: ignore[abstract]  # the rest of asyncio's says that it is not there
            around.engine, around.engine.clock, around=turn
        )
        self._connections = ServedConnections(self._edge)

    @staticmethod
    def url(name: str) -> str:
        """Return the address of the server for a program."""
        return f"http://{NAME}{PLACE}{name}"

    def connect(self, host: str, port: int) -> "tuple[VirtualLoop, asyncio.BaseProtocol] | None":
        """Return the server's end of a connection; None: nothing listens there."""
        if host != NAME or port != PORT:
            return None
        return self.loop, HttpConnection(self._connections, self.loop)

    def close(self) -> None:
        """Clean up at the end of the trial."""
        self._edge.close()
        self.loop.close()
        self.loop.bury()


class _SingleThreadEdge(ProgramEdge):
    """Answers large requests in the loop too: threads would make trials nondeterministic."""

    def admit(self, request: HttpRequest) -> None:
        """Check a request. ApiError: it is refused."""
        # The name stands for this process; the server would take it for another machine's.
        request.headers = {**request.headers, "host": "localhost"}
        super().admit(request)

    def submit_to(self, request: HttpRequest, answered: Promise[Outcome]) -> None:
        """Answer a request in the batch of this turn."""
        self._await_turn((request, answered))
