"""Writes streams straight to their connections, in turns of the loop beside those of requests.

A watcher's task would be woken for each change, and the change copied to be framed. Here a change
that a thousand clients watch is framed once, and the loop looks at its sockets in between: who
asks meanwhile is answered before the last of them has heard of it.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, Protocol

from dralab.apiserver.http.messages import Source

logger = logging.getLogger(__name__)

# In the `extensions` of ASGI's scope: returns the outlet of an answer that has begun.
DIRECT_STREAM: Final = "dralab.direct_stream"
SLICE: Final = 0.002  # seconds of a turn


class Outlet(Protocol):
    """The connection of a stream, as chunks of HTTP go into it. For the thread of the loop."""

    @property
    def is_full(self) -> bool:
        """Whether the client still has to read what was written, or is gone."""
        ...

    @property
    def is_gone(self) -> bool:
        """Whether the client is gone."""
        ...

    def write(self, chunk: bytes) -> None:
        """Write a chunk, framed."""
        ...

    def notify(self, ready: Callable[[], None]) -> None:
        """Call `ready` each time it is no longer full, and when the client is gone."""
        ...

    def close(self) -> None:
        """Notify no more."""
        ...


OpenOutlet = Callable[[], Outlet | None]


class StreamTurns:
    """The streams that have something to send, for one loop.

    Without `timers` all of them are served in one turn, so that nothing depends on real time.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, *, timers: bool) -> None:
        self.loop = loop
        self._timers = timers
        self._due: deque[DirectStream] = deque()
        self._items: Sequence[bytes] = ()
        self._chunk = b""

    async def sent(
        self, source: Source, outlet: Outlet, wake: "Callable[[DirectStream], None]"
    ) -> bool:
        """Send all that a source has; return whether the answer is to be ended.

        `wake` calls `set` of a stream in the thread of the loop; any thread may call it.
        """
        stream = DirectStream(self, source, outlet)
        try:
            source.notify(partial(wake, stream))
            await stream.over
        finally:
            outlet.close()
            source.close()
        if source.cut:
            logger.info("a stream was aborted: %s", source.cut)
        return not (source.cut or outlet.is_gone)

    def add_stream(self, stream: "DirectStream") -> None:
        """Serve a stream in the next turn."""
        self._due.append(stream)
        if len(self._due) == 1:
            self.loop.call_soon(self._turn)

    def chunk_of(self, items: Sequence[bytes]) -> bytes:
        """Return items as one chunk of HTTP; most streams in a row send the same ones."""
        if items is not self._items:
            data = items[0] if len(items) == 1 else b"".join(items)
            self._items, self._chunk = items, b"%x\r\n%b\r\n" % (len(data), data)
        return self._chunk

    def _turn(self) -> None:
        until = self.loop.time() + SLICE if self._timers else 0.0
        due = self._due
        try:
            while due:
                stream = due[0]
                # It stays in front until it is through: a turn is under way while there is one.
                stream.send()
                due.popleft()
                if until and self.loop.time() > until:
                    break
        finally:
            self._items, self._chunk = (), b""
            if due:
                self.loop.call_soon(self._turn)


class DirectStream:
    """A source and the outlet that it goes to."""

    __slots__ = ("_is_due", "_outlet", "_source", "_turns", "over")

    def __init__(self, turns: StreamTurns, source: Source, outlet: Outlet) -> None:
        self._turns = turns
        self._source = source
        self._outlet = outlet
        self._is_due = False
        self.over: asyncio.Future[None] = turns.loop.create_future()
        outlet.notify(self.set)

    def set(self) -> None:
        """Note that there is something to send, or to end for. In the thread of the loop."""
        if not self._is_due:
            self._is_due = True
            self._turns.add_stream(self)

    def send(self) -> None:
        """Send what the client has room for."""
        self._is_due = False
        source, outlet = self._source, self._outlet
        try:
            while not outlet.is_full and (items := source.take_items()):
                outlet.write(self._turns.chunk_of(items))
        except Exception as error:  # noqa: BLE001 - told to the task of this stream alone
            if not self.over.done():
                self.over.set_exception(error)
            return
        if (source.done or outlet.is_gone) and not self.over.done():
            self.over.set_result(None)
