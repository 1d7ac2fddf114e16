"""Network and IPC namespaces without names: they are gone when this process and theirs are.

A thread enters one for a moment: what it starts or opens then belongs there. Linux alone has them,
and only a process with CAP_SYS_ADMIN may make them.
"""

import contextlib
import ctypes
import os
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")
# linux/sched.h
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWNET: Final = 0x40000000
OWN_NET: Final = "/proc/thread-self/ns/net"
OWN_IPC: Final = "/proc/thread-self/ns/ipc"


@dataclass(frozen=True, slots=True)
class PodNamespaces:
    """The namespaces of a node or pod, as open files; `ipc` is None where it is the machine's."""

    net: int
    ipc: int | None = None

    @classmethod
    def new(cls) -> "PodNamespaces":
        """Make a network namespace. OSError: this process may not."""
        return cls(_in_thread(lambda: _made(CLONE_NEWNET, OWN_NET)))

    def with_ipc(self) -> "PodNamespaces":
        """Return this network with IPC objects of its own; close that alone with `close_ipc`."""
        return PodNamespaces(self.net, _in_thread(lambda: _made(CLONE_NEWIPC, OWN_IPC)))

    @property
    def path(self) -> str:
        """The network namespace, for programs that this process starts."""
        return f"/proc/{os.getpid()}/fd/{self.net}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Be in them with this thread alone."""
        wanted = [(self.net, CLONE_NEWNET, OWN_NET)]
        if self.ipc is not None:
            wanted.append((self.ipc, CLONE_NEWIPC, OWN_IPC))
        with contextlib.ExitStack() as back:
            for file, kind, own in wanted:
                before = os.open(own, os.O_RDONLY | os.O_CLOEXEC)
                back.callback(os.close, before)
                _set(file, kind)
                back.callback(_set, before, kind)
            yield

    def socket(self, kind: int = socket.SOCK_STREAM) -> socket.socket:
        """Return a socket there; any thread may use it."""
        with self.entered():
            # With its protocol: asyncio switches Nagle's algorithm off for TCP that says so.
            protocol = socket.IPPROTO_TCP if kind == socket.SOCK_STREAM else 0
            return socket.socket(socket.AF_INET, kind, protocol)

    def set_sysctl(self, name: str, value: str) -> None:
        """Set a parameter of the kernel, as `sysctl` names it, for these alone. OSError."""
        with self.entered():
            Path("/proc/sys", *name.split(".")).write_text(value)

    def close(self) -> None:
        """Let them go: they are gone once no process is in them."""
        os.close(self.net)
        self.close_ipc()

    def close_ipc(self) -> None:
        """Let the IPC namespace go."""
        if self.ipc is not None:
            os.close(self.ipc)


def problem() -> str:
    """Return why this process can make no network namespaces; empty if it can."""
    try:
        PodNamespaces.new().close()
    except (OSError, AttributeError) as error:
        return str(getattr(error, "strerror", "") or error).lower()
    return ""


def _made(kind: int, own: str) -> int:
    _checked(_libc().unshare(kind), "unshare")
    return os.open(own, os.O_RDONLY | os.O_CLOEXEC)


def _set(file: int, kind: int) -> None:
    _checked(_libc().setns(file, kind), "setns")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _in_thread(work: Callable[[], T]) -> T:
    """Do work in a thread that ends with it: it leaves no thread in another namespace."""
    found: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            errors.append(error)

    thread = threading.Thread(target=run, name="namespace")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return found[0]
