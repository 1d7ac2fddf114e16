"""An asyncio event loop on an engine's time: callbacks are events, nothing waits.

Programs on asyncio run on it as they are. A connection goes to whatever the loop was given to
connect to, in memory; what the loop does not have (files, signals, subprocesses, TLS, threads)
says so. Work for an executor is done at once, in the thread of the loop.
"""

import asyncio
import errno
import itertools
import logging
import math
import socket
import sys
import weakref
from asyncio import events as running
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import Context
from functools import partial
from typing import Any, Final, TypeVar, TypeVarTuple

from dralab.kernel.clock import SECOND, Clock
from dralab.runtime.engine import Engine, TimerHandle
from dralab.testing.memory_connections import MemoryTransport, connected

T = TypeVar("T")
Ts = TypeVarTuple("Ts")
# So often a loop that is buried is asked to end.
LAST_TURNS: Final = 50
Connect = Callable[[str, int], "tuple[VirtualLoop, asyncio.BaseProtocol] | None"]


def nowhere(_host: str, _port: int) -> None:
    """Connect to nothing."""


class VirtualLoop(asyncio.AbstractEventLoop):
    """A loop on an engine. Callbacks that are due run in the order in which they were given.

    `clock` is the time of the loop, which counts from the loop's beginning. `connect` returns the
    loop and the protocol at the other end of a connection, None where nothing listens. `around`
    makes the context in which callbacks run.
    """

    def __init__(
        self,
        engine: Engine,
        clock: Clock,
        *,
        connect: Connect = nowhere,
        around: Callable[[], AbstractContextManager[object]] = nullcontext,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._connect = connect
        self._around = around
        self._origin = clock.now()
        self._ready: list[asyncio.Handle] = []
        self._turning = False
        self._closed = False
        self._tasks: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()
        self._numbers = itertools.count(1)
        self._handler: Callable[[asyncio.AbstractEventLoop, dict[str, Any]], object] | None = None
        self._factory: Any = None
        self._addresses: dict[int, tuple[str, int]] = {}
        # Of a range that is for documents: nothing is there by chance.
        self._hosts: dict[str, str] = {}
        self._connections: set[MemoryTransport] = set()
        self.unhandled: Callable[[str], object] = str
        """Told of an error that nothing handled."""
        self.exited: Callable[[object], object] = id
        """Told of the code with which a callback wants the process to end."""

    # --- time -------------------------------------------------------------------------------------

    def time(self) -> float:
        """Return the seconds since the loop began."""
        return (self._clock.now() - self._origin) / SECOND

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.Handle:
        """Call at the present instant, after what is due already."""
        handle = asyncio.Handle(callback, args, self, context)
        self._add(handle)
        return handle

    call_soon_threadsafe = call_soon  # there are no other threads

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call in `delay` seconds."""
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,
    ) -> asyncio.TimerHandle:
        """Call at a time of `time`, and never before it."""
        handle = _Timer(when, callback, args, self, context)
        if self._closed:
            return handle
        due = math.ceil(when * SECOND)
        # Who asks at that time whether it has come must not be told no: time would stand still.
        due += due / SECOND < when
        delay = due - (self._clock.now() - self._origin)
        handle.event = self._engine.after(max(delay, 0), partial(self._add, handle))
        return handle

    def _timer_handle_cancelled(self, handle: "_Timer") -> None:
        if handle.event is not None:
            handle.event.cancel()

    def _add(self, handle: asyncio.Handle) -> None:
        self._ready.append(handle)
        if not self._turning and not self._closed:
            self._turning = True
            self._engine.soon(self._turn)

    def _turn(self) -> None:
        """Run due callbacks; new ones run in the next turn."""
        self._turning = False
        if self._closed:
            return
        ready, self._ready = self._ready, []
        with self._around(), self._running():
            for handle in ready:
                try:
                    if not handle.cancelled():
                        handle._run()  # noqa: SLF001 - what each loop does
                except SystemExit as error:
                    self.exited(error.code)
                if self.is_closed():  # by what it did
                    return

    @contextmanager
    def _running(self) -> Iterator[None]:
        before, hooks = running._get_running_loop(), sys.get_asyncgen_hooks()  # noqa: SLF001
        running._set_running_loop(self)  # noqa: SLF001
        sys.set_asyncgen_hooks(finalizer=self._finish_generator)
        try:
            yield
        finally:
            sys.set_asyncgen_hooks(*hooks)
            running._set_running_loop(before)  # noqa: SLF001

    def _finish_generator(self, generator: Any) -> None:
        if not self._closed:
            self.call_soon(self.create_task, generator.aclose())

    # --- tasks ------------------------------------------------------------------------------------

    def create_future(self) -> "asyncio.Future[Any]":
        """Return a future whose place in a set does not depend on the memory's addresses."""
        return _NumberedFuture(next(self._numbers), loop=self)

    def create_task(
        self, coro: Any, *, name: str | None = None, context: Context | None = None, **more: Any
    ) -> "asyncio.Task[Any]":
        """Begin a task."""
        if self._factory is not None:
            made: asyncio.Task[Any] = self._factory(self, coro)
        else:
            made = _NumberedTask(next(self._numbers), coro, loop=self, context=context, **more)
        if name is not None:
            made.set_name(name)
        self._tasks.add(made)
        return made

    def set_task_factory(self, factory: Any) -> None:
        """Set the task factory."""
        self._factory = factory

    def get_task_factory(self) -> Any:
        """Return the task factory."""
        return self._factory

    def run_in_executor(
        self, _executor: Any, func: Callable[[*Ts], T], *args: *Ts
    ) -> asyncio.Future[T]:
        """Do the work in the next turn; a future has its result."""
        done = self.create_future()

        def work() -> None:
            if done.cancelled():
                return
            try:
                result = func(*args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except Exception as error:  # noqa: BLE001 - of whoever awaits it
                done.set_exception(error)
            else:
                done.set_result(result)

        self.call_soon(work)
        return done

    def set_default_executor(self, executor: Any) -> None:
        """Do nothing: work is done here."""

    async def shutdown_default_executor(self, *_: Any) -> None:
        """Do nothing: no threads were begun."""

    async def shutdown_asyncgens(self) -> None:
        """Do nothing: each is finished when nothing refers to it."""

    # --- its own life -----------------------------------------------------------------------------

    def get_debug(self) -> bool:
        """Return False: what asyncio checks in debug mode takes real time."""
        return False

    def set_debug(self, enabled: bool) -> None:  # noqa: FBT001 - asyncio's
        """Do nothing."""

    def is_running(self) -> bool:
        """Whether it goes on: it runs as long as its engine does."""
        return not self._closed

    def is_closed(self) -> bool:
        """Whether it has ended."""
        return self._closed

    def close(self) -> None:
        """Close it like a process that ends: callbacks are dropped, connections break."""
        self._closed = True
        self._ready.clear()
        for each in list(self._connections):
            each.lose()

    def bury(self) -> None:
        """Unwind pending tasks of a closed loop, once none of them is on the stack.

        A process that is killed has no last words. In one process coroutines do: left to the
        garbage collector they would have them at any time. Here no time passes, nothing can be
        reached any more, and nothing is logged.
        """
        before = logging.root.manager.disable
        logging.disable(logging.CRITICAL)
        try:
            with self._around(), self._running():
                for _ in range(LAST_TURNS):
                    under_way = [task for task in list(self._tasks) if not task.done()]
                    if not under_way:
                        break
                    for task in under_way:
                        task.cancel()
                    self._run_out()
                closed: set[asyncio.Task[Any]] = set()
                for _ in range(LAST_TURNS):
                    # What is closed may begin another task.
                    left = {each for each in list(self._tasks) if not each.done()} - closed
                    closed |= left
                    for task in left:
                        _close(task.get_coro())
        finally:
            logging.disable(before)
        self._ready.clear()

    def _run_out(self) -> None:
        """Run what is ready, and what that makes ready, for a while."""
        for _ in range(LAST_TURNS):
            ready, self._ready = self._ready, []
            for handle in ready:
                with suppress(SystemExit):
                    if not handle.cancelled():
                        handle._run()  # noqa: SLF001 - what each loop does
            if not ready:
                return

    def stop(self) -> None:
        """Stop."""
        self.close()

    def set_exception_handler(self, handler: Any) -> None:
        """Set the handler of unhandled errors."""
        self._handler = handler

    def get_exception_handler(self) -> Any:
        """Return the handler of unhandled errors."""
        return self._handler

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an unhandled error, which a process would log."""
        error = context.get("exception")
        what = f": {type(error).__name__}: {error}" if error is not None else ""
        self.unhandled(f"{context.get('message', 'an error was not handled')}{what}")

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """Report an unhandled error, unless the loop is closed."""
        if self._closed:
            return
        if self._handler is not None:
            self._handler(self, context)
        else:
            self.default_exception_handler(context)

    def add_signal_handler(self, _sig: int, _callback: Callable[[*Ts], object], *_: *Ts) -> None:
        """Do nothing: no signals are sent; programs are killed without notice."""

    def remove_signal_handler(self, _sig: int) -> bool:
        """Do nothing."""
        return False

    # --- connections ------------------------------------------------------------------------------

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        """Return one address, which stands for the name."""
        name = host.decode("ascii") if isinstance(host, bytes) else str(host)
        address = self._hosts.setdefault(name, f"192.0.2.{len(self._hosts) + 1}")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, int(port or 0)))]

    async def getnameinfo(self, sockaddr: Any, *_: Any) -> tuple[str, str]:
        """Return an address as it is."""
        return str(sockaddr[0]), str(sockaddr[1])

    async def sock_connect(self, sock: socket.socket, address: Any) -> None:
        """Remember a socket's peer: data does not pass through the socket."""
        self._addresses[sock.fileno()] = (str(address[0]), int(address[1]))

    async def create_connection(
        self,
        protocol_factory: Callable[[], Any],
        host: str | None = None,
        port: int | None = None,
        *,
        sock: socket.socket | None = None,
        ssl: Any = None,
        **_: Any,
    ) -> Any:
        """Connect in memory. ConnectionRefusedError: nothing listens; TLS is not possible."""
        if ssl:
            raise NotImplementedError("a program in this process connects without TLS")
        if sock is not None:
            host, port = self._addresses.pop(sock.fileno(), ("", 0))
            sock.close()
        named = {address: name for name, address in self._hosts.items()}
        host = named.get(str(host), str(host))
        found = self._connect(host, int(port or 0))
        if found is None:
            text = f"nothing listens at {host}:{port}: a trial has no network but its server"
            raise ConnectionRefusedError(errno.ECONNREFUSED, text)
        protocol = protocol_factory()
        transport = connected(self, protocol, *found)
        self._connections.add(transport)
        transport.on_lost(self._connections.discard)
        return transport, protocol


def _close(coroutine: Any) -> None:
    """Close a coroutine that ignores cancellation."""
    for _ in range(LAST_TURNS):
        try:
            coroutine.close()
        except Exception:  # noqa: BLE001, S112 - it goes on, or fails while it ends
            continue
        return


class _Timer(asyncio.TimerHandle):
    event: TimerHandle | None = None


class _NumberedFuture(asyncio.Future[Any]):
    def __init__(self, number: int, *, loop: VirtualLoop) -> None:
        super().__init__(loop=loop)
        self._number = number

    def __hash__(self) -> int:
        return self._number


class _NumberedTask(asyncio.Task[Any]):
    # Set before the task begins, which may be in a set at once.
    _number = 0

    def __init__(self, number: int, coro: Any, **options: Any) -> None:
        self._number = number
        super().__init__(coro, **options)
        # A task whose process was killed is not a mistake of anyone.
        self._log_destroy_pending = False

    def __hash__(self) -> int:
        return self._number
