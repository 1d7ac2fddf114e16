"""Network and IPC namespaces without names: they vanish with their processes.

A thread enters one for a moment: what it starts or opens then belongs there. Linux alone has them,
and only a process with CAP_SYS_ADMIN may make them.
"""

import contextlib
import ctypes
import errno
import os
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypeVar

T = TypeVar("T")
# linux/sched.h
CLONE_NEWIPC: Final = 0x08000000
CLONE_NEWNET: Final = 0x40000000


class KernelNamespace:
    """One namespace, held by an open file until `close`."""

    def __init__(self, kind: int, name: str) -> None:
        """Create one: `name` is its type in /proc. OSError: not permitted."""
        self.kind, self._own = kind, f"/proc/thread-self/ns/{name}"
        self._lock = threading.Lock()
        self._file: int | None = _in_thread(self._make)

    @property
    def path(self) -> str:
        """Where programs that this process starts find it. OSError: it is closed."""
        with self._lock:
            return f"/proc/{os.getpid()}/fd/{self._open()}"

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter it with this thread only. OSError: it is closed."""
        with contextlib.ExitStack() as back:
            with self._lock:
                # A file of its own: the number of a closed one may already be another pod's.
                there = os.dup(self._open())
            back.callback(os.close, there)
            before = os.open(self._own, os.O_RDONLY | os.O_CLOEXEC)
            back.callback(os.close, before)
            self._set(there)
            back.callback(self._set, before)
            yield

    def close(self) -> None:
        """Close it: it vanishes once no process is in it."""
        with self._lock:
            if self._file is not None:
                os.close(self._file)
                self._file = None

    def _open(self) -> int:
        if self._file is None:
            raise OSError(errno.ENETDOWN, "the pod has ended")
        return self._file

    def _make(self) -> int:
        _checked(_libc().unshare(self.kind), "unshare")
        return os.open(self._own, os.O_RDONLY | os.O_CLOEXEC)

    def _set(self, file: int) -> None:
        _checked(_libc().setns(file, self.kind), "setns")


class PodNamespaces:
    """The namespaces of a node or pod; without `ipc`, IPC objects are the machine's."""

    def __init__(self, net: KernelNamespace, ipc: KernelNamespace | None = None) -> None:
        self.net, self.ipc = net, ipc

    @classmethod
    def new(cls) -> "PodNamespaces":
        """Make a network namespace. OSError: this process may not."""
        return cls(KernelNamespace(CLONE_NEWNET, "net"))

    def with_ipc(self) -> "PodNamespaces":
        """Return this network with IPC objects of its own."""
        return PodNamespaces(self.net, KernelNamespace(CLONE_NEWIPC, "ipc"))

    @property
    def path(self) -> str:
        """Where programs that this process starts find the network namespace."""
        return self.net.path

    @contextlib.contextmanager
    def entered(self) -> Iterator[None]:
        """Enter them with this thread only. OSError: they are closed."""
        with self.net.entered(), self.ipc.entered() if self.ipc else contextlib.nullcontext():
            yield

    def socket(self) -> socket.socket:
        """Return a TCP socket there, which any thread may use. OSError."""
        with self.net.entered():
            # With its protocol: asyncio switches Nagle's algorithm off for TCP that says so.
            return socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)

    def set_sysctl(self, name: str, value: str) -> None:
        """Set a parameter of the kernel, as `sysctl` names it, for these alone. OSError."""
        with self.entered():
            Path("/proc/sys", *name.split(".")).write_text(value)

    def close(self) -> None:
        """Close them."""
        self.net.close()
        self.close_ipc()

    def close_ipc(self) -> None:
        """Close the IPC namespace: the network is shared with others."""
        if self.ipc is not None:
            self.ipc.close()


def problem() -> str:
    """Return the reason that prevents creating network namespaces; empty if none."""
    try:
        PodNamespaces.new().close()
    except (OSError, AttributeError) as error:
        return str(getattr(error, "strerror", "") or error).lower()
    return ""


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _in_thread(work: Callable[[], T]) -> T:
    """Run work in its own thread, so that no thread stays in another namespace."""
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
