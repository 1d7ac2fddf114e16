"""The interface between a pod's life cycle and the container runtime."""

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import field
from queue import SimpleQueue
from typing import Final, NamedTuple, Protocol, runtime_checkable

from dralab.contracts.cdi_cache import ContainerConfig
from dralab.node.logs import ContainerLog
from dralab.node.network.sandbox import ON_MACHINE, Sandbox
from dralab.node.privileges import PLAIN, Privileges
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass

MOST_TYPED: Final = 1024 * 1024  # bytes of input that may wait for a command


class VolumeFile(NamedTuple):
    """A file of a volume; `owner` is the user that it belongs to, None for the kubelet's."""

    content: bytes
    mode: int = 0o644
    owner: int | None = None


def no_files(_volume: str) -> Mapping[str, VolumeFile]:
    """Return an empty volume."""
    return {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ContainerStart:
    """The start parameters of a container; `argv` is empty if the image decides.

    `args` is the part of it that the image's own command would get. `files` returns what is in a
    volume, by path; ConfigError names what is missing. `init` says that others wait for its end,
    `ends` says of these and of containers of Jobs that they are to end by themselves.
    """

    namespace: str
    pod: str
    pod_uid: str
    node: str
    name: str
    image: str
    argv: Sequence[str]
    working_dir: str
    config: ContainerConfig
    annotations: Mapping[str, str]
    ends: bool
    log: ContainerLog
    init: bool = False
    limits: Mapping[str, str] = field(default_factory=dict)
    # Requests and limits, as the node has granted them.
    resources: JsonObject = field(default_factory=dict)
    args: Sequence[str] = ()
    # Where the container leaves its termination message; empty if it leaves none.
    message_path: str = ""
    # The CPUs it is confined to, as Linux lists them; empty for all.
    cpus: str = ""
    files: Callable[[str], Mapping[str, VolumeFile]] = no_files
    privileges: Privileges = PLAIN
    # What the pod's own files in /etc say, by path, and its host name; for mount namespaces.
    etc: Mapping[str, str] = field(default_factory=dict)
    hostname: str = ""
    # What it shares with the other containers of its pod.
    sandbox: Sandbox = ON_MACHINE
    # Whether it can be typed into, by the first client alone, and whether that is a terminal.
    stdin: bool = False
    stdin_once: bool = False
    tty: bool = False


@dataclass(frozen=True, slots=True)
class ContainerExit:
    """How a container ended; `error` where it could not even begin."""

    code: int
    reason: str = ""
    message: str = ""


# How a container ends whose program is not there, as containerd tells it.
START_ERROR: Final = ContainerExit(128, "StartError")


class ContainerStartError(Exception):
    """A container cannot be started; the text goes into the pod's events."""


class ProgramNotFound(ContainerStartError):  # noqa: N818 - a fact, of which an end is made
    """A container's program does not exist: container runtimes report it as an exit."""


class ImageNotReady(Exception):  # noqa: N818 - nothing has gone wrong
    """A container can be started in `delay` nanoseconds, when its image is pulled."""

    def __init__(self, delay: int) -> None:
        super().__init__(f"in {delay} ns")
        self.delay = delay


class ExecSession:
    """The client of a command in a container: its input, and whether it is still connected.

    The server's thread puts things in, a thread of the session hands them to the command: it
    may be slow to read.
    """

    def __init__(self, *, stdin: bool = False, tty: bool = False) -> None:
        self.stdin = stdin
        self.tty = tty
        self._lock = threading.Lock()
        self._typed: SimpleQueue[bytes | None] = SimpleQueue()
        self._waiting = 0
        self._rooms: list[asyncio.Future[None]] = []
        self._size: tuple[int, int] | None = None
        self._gone = False
        self._resize: Callable[[int, int], None] | None = None
        self._leave: Callable[[], None] | None = None

    def typed(self, data: bytes | None) -> None:
        """Hand input on; None ends it."""
        if self.stdin:
            with self._lock:
                self._waiting += len(data or b"")
            self._typed.put(data)

    def room(self) -> Awaitable[None] | None:
        """Return what to wait for before more input is sent; None if the command keeps up."""
        with self._lock:
            if self._waiting < MOST_TYPED or self._gone:
                return None
            future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._rooms.append(future)
        return future

    def resize(self, width: int, height: int) -> None:
        """Set the size of the terminal."""
        with self._lock:
            self._size, told = (width, height), self._resize
        if told is not None:
            told(width, height)

    def leave(self) -> None:
        """Signal that the command's client is gone: that ends its input, and not the command."""
        with self._lock:
            self._gone, told = True, self._leave
        self.typed(None)
        self._make_room()
        if told is not None:
            told()

    def connect(
        self,
        take: Callable[[bytes | None], None],
        resize: Callable[[int, int], None],
        leave: Callable[[], None],
    ) -> None:
        """Send all input to a command, including the input that came before it.

        `leave` is called when the client is gone.
        """
        with self._lock:
            self._resize, self._leave = resize, leave
            size, gone = self._size, self._gone
        if size is not None:
            resize(*size)
        if gone:
            leave()
        if self.stdin:
            threading.Thread(target=self._hand_on, args=(take,), daemon=True).start()

    def _hand_on(self, take: Callable[[bytes | None], None]) -> None:
        while True:
            data = self._typed.get()
            take(data)
            if data is None:
                return
            with self._lock:
                self._waiting -= len(data)
                enough = self._waiting < MOST_TYPED
            if enough:
                self._make_room()

    def _make_room(self) -> None:
        with self._lock:
            rooms, self._rooms = self._rooms, []
        for each in rooms:
            with contextlib.suppress(RuntimeError):  # its loop is closed: the client is gone
                each.get_loop().call_soon_threadsafe(_grant, each)


def _grant(room: asyncio.Future[None]) -> None:
    if not room.done():
        room.set_result(None)


class Container(Protocol):
    """One run of a container."""

    def stop(self, grace: float) -> None:
        """Ask it to end, and end it after `grace` seconds; `ended` is called then."""
        ...

    def resize(self, resources: JsonObject) -> str:
        """Apply other requests and limits; return "" or why that is impossible."""
        ...

    def run(
        self,
        argv: Sequence[str],
        output: Callable[[int, bytes], None],
        session: ExecSession | None = None,
        timeout: float | None = None,
    ) -> int:
        """Run a command in it (exec, probes), output by channel 1 or 2; return its exit code.

        It is given up after `timeout` seconds, with code 124. ContainerStartError: this runtime
        cannot.
        """
        ...


@runtime_checkable
class Attachable(Protocol):
    """A container that a client can attach to."""

    def attach(
        self, output: Callable[[int, bytes], None], session: ExecSession
    ) -> Callable[[], None]:
        """Forward its output from now on, and a client's input; returns how to stop."""
        ...


class ContainerRuntime(Protocol):
    """A container runtime.

    `ports_at` is the address at which the ports of their processes are; empty if they have
    none. There, `listens` is asked before each connection.
    """

    name: str
    version: str
    ports_at: str

    def start(self, start: ContainerStart, ended: Callable[[ContainerExit], None]) -> Container:
        """Start a container; `ended` is called once, as an event of the engine.

        ContainerStartError: it cannot be. ImageNotReady: ask again later.
        """
        ...

    def listens(self, pod_uid: str, port: int) -> bool | None:
        """Return whether a connection to a port leads only to the pod; None if unknown."""
        ...

    def refresh_files(
        self, pod_uid: str, volume: str, files: Callable[[], Mapping[str, VolumeFile]]
    ) -> None:
        """Replace the contents of a volume, if it has a directory."""
        ...

    def forget_pod(self, pod_uid: str) -> None:
        """Remove what the containers of a deleted pod shared."""
        ...
