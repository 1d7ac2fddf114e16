"""Patches Python's modules for a program in this process: time, randomness and environment.

Replaced are `time.time`, `time.monotonic`, `time.perf_counter` (with their `_ns` forms),
`time.sleep`, `os.urandom`, and `datetime.datetime` with its `now`, `utcnow` and `today`. What a
module took by `from time import time` before the program was loaded stays what it was. No thread
can be started, and a program that sends a signal or ends its process ends itself alone. All this
is so in the thread of the trial: others in the process, such as a server's, go on as they are.
"""

import datetime as dt
import importlib.util
import inspect
import os
import signal
import ssl
import sys
import sysconfig
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Final, cast

import dralab
from dralab.kernel.clock import SECOND, Clock, Nanoseconds

Patch = tuple[Any, str, Any]
# Clients that read KUBECONFIG once, when they are loaded.
READ_WHEN_LOADED: Final = ("kubernetes.config.kube_config", "kubernetes_asyncio.config.kube_config")
_Datetime = dt.datetime
_time_ns: Final = time.time_ns


class RealClock:
    """The machine's real time."""

    def now(self) -> Nanoseconds:
        """Return the machine's time, in nanoseconds since the Unix epoch."""
        return Nanoseconds(_time_ns())


class ProgramGlobals:
    """The patches of one program: `clock` may be skewed, `steady` is monotonic.

    `wait` passes time, `end` ends the program; it imports from `folder` first.
    """

    def __init__(
        self,
        clock: Clock,
        steady: Clock,
        wait: Callable[[int], object],
        *,
        chance: Random,
        environment: Mapping[str, str],
        folder: str = "",
        end: Callable[[], object],
    ) -> None:
        def exit_at_once(*_: object) -> None:
            end()

        def seconds() -> float:
            return clock.now() / SECOND

        def count() -> float:
            return steady.now() / SECOND

        def sleep(seconds: float) -> None:
            if seconds < 0:
                raise ValueError("sleep length must be non-negative")
            # What the rest of the trial does meanwhile is not this program's.
            with _replaced(self._before):
                wait(int(seconds * SECOND))

        self._thread = 0
        patches: list[Patch] = [
            (time, "time", seconds),
            (time, "time_ns", clock.now),
            (time, "monotonic", count),
            (time, "monotonic_ns", steady.now),
            (time, "perf_counter", count),
            (time, "perf_counter_ns", steady.now),
            (time, "sleep", sleep),
            (os, "urandom", chance.randbytes),
            (threading.Thread, "start", _refuse),
            (ssl, "create_default_context", _context_without_authorities),
            (os, "_exit", exit_at_once),
            (os, "abort", exit_at_once),
            (os, "kill", exit_at_once),
            (signal, "pthread_kill", exit_at_once),
            (signal, "raise_signal", exit_at_once),
        ]
        self._patches: list[Patch] = [
            *map(self._of_the_trial, patches),
            (dt, "datetime", _datetime_of(clock, self._is_of_the_trial)),
            (sys, "path", [folder, *sys.path] if folder else sys.path),
        ]
        self._before = [(module, name, getattr(module, name)) for module, name, _ in self._patches]
        self._environment = dict(environment)

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Install the patched time and environment variables inside."""
        self._thread = threading.get_ident()
        variables = {name: os.environ.get(name) for name in self._environment}
        os.environ.update(self._environment)
        try:
            with _replaced([*self._patches, *self._of_libraries()]):
                yield
        finally:
            for name, value in variables.items():
                if value is None:
                    os.environ.pop(name, None)
                else:
                    os.environ[name] = value

    def _of_libraries(self) -> Iterator[Patch]:
        """Yield what replaces parts of libraries, of those that have been loaded."""
        # What anyio would have a thread do, reading files for httpx and kr8s, is done here.
        if (apart := sys.modules.get("anyio.to_thread")) is not None:
            yield self._of_the_trial((apart, "run_sync", _done_here))
        kubeconfig = self._environment.get("KUBECONFIG")
        for name in READ_WHEN_LOADED if kubeconfig is not None else ():
            if (module := sys.modules.get(name)) is not None:
                yield module, "KUBE_CONFIG_DEFAULT_LOCATION", kubeconfig

    def _is_of_the_trial(self) -> bool:
        return threading.get_ident() == self._thread

    def _of_the_trial(self, patch: Patch) -> Patch:
        """Replace a function in the thread of the trial alone.

        An event loop in another thread would set its timers by the trial's time, and sleep for
        years once it has its own again.
        """
        module, name, here = patch
        elsewhere = getattr(module, name)

        def call(*given: Any, **named: Any) -> Any:
            return (here if self._is_of_the_trial() else elsewhere)(*given, **named)

        return module, name, call


def _refuse(_: threading.Thread) -> None:
    raise RuntimeError(
        "a program in this process cannot start threads: its trial would not repeat; run it as a "
        "process (`command:` in the scenario)"
    )


def _context_without_authorities(*_: object, **__: object) -> ssl.SSLContext:
    """Return a context for connections that are never made: reading authorities takes 20 ms."""
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


async def _done_here(call: Callable[..., Any], *given: Any, **_: Any) -> Any:
    return call(*given)


@contextmanager
def _replaced(patches: Sequence[Patch]) -> Iterator[None]:
    before = [(module, name, getattr(module, name)) for module, name, _ in patches]
    for module, name, value in patches:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


def _datetime_of(clock: Clock, is_asked: Callable[[], bool]) -> type[dt.datetime]:
    """Return a datetime class with the time of a clock if `is_asked`; makes plain ones."""

    def seconds() -> float:
        return (clock.now() if is_asked() else _time_ns()) / SECOND

    class Like(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, _Datetime)

        def __subclasscheck__(cls, subclass: type) -> bool:
            return issubclass(subclass, _Datetime)

    class ProgramDatetime(_Datetime, metaclass=Like):
        def __new__(cls, *given: Any, **named: Any) -> Any:
            return _Datetime(*given, **named)

        @classmethod
        def now(cls, tz: dt.tzinfo | None = None) -> Any:
            return _Datetime.fromtimestamp(seconds(), tz)

        @classmethod
        def utcnow(cls) -> Any:
            return _Datetime.fromtimestamp(seconds(), dt.UTC).replace(tzinfo=None)

        @classmethod
        def today(cls) -> Any:
            return cls.now()

    ProgramDatetime.__name__ = ProgramDatetime.__qualname__ = "datetime"
    return ProgramDatetime


Main = Callable[[], Awaitable[object]]
# Libraries are loaded once: what they keep is not a program's memory of the cluster.
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
OURS: Final = (sysconfig.get_path("stdlib"), str(Path(dralab.__file__).parent))


@dataclass(slots=True)
class ProgramFile:
    """`name` in a file of Python: a coroutine function without parameters."""

    path: Path
    name: str
    _own: set[str] = field(default_factory=set)

    def load(self) -> Main:
        """Load the file and its author's modules, like a new process."""
        self.forget()
        _forget_handlers()
        module_name = f"dralab_program_{self.path.stem}"
        spec = importlib.util.spec_from_file_location(module_name, self.path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        with _noting_imports(self._own):
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        return cast("Main", getattr(module, self.name))

    def forget(self) -> None:
        """Let the next start import its author's modules again."""
        for name in self._own:
            sys.modules.pop(name, None)
        self._own.clear()


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Import modules from a folder inside, and forget them: others may have the same names."""
    own: set[str] = set()
    sys.path.insert(0, str(folder))
    try:
        with _noting_imports(own):
            yield
    finally:
        sys.path.remove(str(folder))
        for name in own:
            file = getattr(sys.modules.get(name), "__file__", None) or ""
            if Path(file).is_relative_to(folder):
                del sys.modules[name]


@contextmanager
def _noting_imports(own: set[str]) -> Iterator[None]:
    """Note the modules that are imported, but for libraries: those stay."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and not _is_library(file):
                own.add(name)


def _is_library(file: str) -> bool:
    return file.startswith(OURS) or bool(INSTALLED.intersection(Path(file).parts))


def is_main(found: Any) -> bool:
    """Return whether something is the main function of a program on asyncio."""
    return inspect.iscoroutinefunction(found)


def _forget_handlers() -> None:
    """Clear kopf's handlers of the last start: loading a file registers them."""
    kopf = sys.modules.get("kopf")
    if kopf is not None:
        kopf.set_default_registry(None)
