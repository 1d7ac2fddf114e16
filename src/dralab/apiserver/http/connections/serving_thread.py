"""A thread that serves HTTP on its own loop, and reports when it has answered everything.

`serving` has the server itself, for callers who bring the loop.
"""

import asyncio
import select
import selectors
import threading
from collections.abc import Callable
from typing import Final

from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.connections.serving import HttpServer

# Turns of the loop from a request in a socket to its answer, and some more: for loops that do not
# say whether they have work.
TURNS: Final = 6


class WatchedLoop(asyncio.SelectorEventLoop):
    """A loop that says whether it has work."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        super().__init__(selector)
        fileno = getattr(selector, "fileno", None)  # of epoll and kqueue
        self.waits_on: int | None = None if fileno is None else int(fileno())
        self._poll = select.poll() if hasattr(select, "poll") else None
        if self._poll is not None and self.waits_on is not None:
            self._poll.register(self.waits_on, select.POLLIN)

    @property
    def has_work(self) -> bool | None:
        """Whether a callback is ready, or a descriptor; None where that can't be said."""
        ready = getattr(self, "_ready", None)
        if ready is None or self.waits_on is None or self._poll is None:
            return None
        return bool(ready) or bool(self._poll.poll(0))


class ServingThread:
    """Serves from `start` to `stop`.

    With `fast`, uvloop is used where it is installed. Without, `waits_on` is known, which callers
    need who move the clock.
    """

    def __init__(self, http: HttpServer, *, fast: bool = True) -> None:
        self._http = http
        self._fast = fast
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over: asyncio.Event | None = None
        self._started = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="dralab-server", daemon=True)

    @property
    def waits_on(self) -> int | None:
        """The descriptor on which the thread waits; it can be read if the thread has to wake.

        None where that is not known: on a loop of another kind, or system.
        """
        return self._loop.waits_on if isinstance(self._loop, WatchedLoop) else None

    def start(self) -> None:
        """Return once requests are answered; raise what the start raised."""
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        """Answer what was asked, and end."""
        if self._loop is not None and self._over is not None:
            self._loop.call_soon_threadsafe(self._over.set)
            self._thread.join()

    def when_idle(self, edge: AsgiApp, call: Callable[[], object], *, events: bool = False) -> None:
        """Call `call` in the thread once `edge` has read and answered everything.

        Everything but events, which are left for last; with `events`, those too.
        """
        loop = self._loop
        if loop is None:
            raise RuntimeError("the server does not run")

        def look(turns: int) -> None:
            idle = edge.idle and not (events and edge.has_requests)
            works = loop.has_work if isinstance(loop, WatchedLoop) else None
            if idle and (not turns if works is None else not works):
                call()
            else:
                loop.call_soon(look, turns - 1 if idle else TURNS)

        loop.call_soon_threadsafe(look, TURNS)

    def _run(self) -> None:
        async def main() -> None:
            self._loop = asyncio.get_running_loop()
            self._over = asyncio.Event()
            await self._http.start()
            self._started.set()
            await self._over.wait()
            await self._http.stop()

        factory = (loop_factory() if self._fast else None) or _watched_loop
        try:
            with asyncio.Runner(loop_factory=factory) as runner:
                runner.run(main())
        except BaseException as error:  # noqa: BLE001 - raised by `start`
            self._failure = error
        finally:
            self._started.set()


def _watched_loop() -> asyncio.AbstractEventLoop:
    return WatchedLoop(selectors.DefaultSelector())


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """Return uvloop's loop where the extra `uvloop` is installed."""
    try:
        import uvloop
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory
