"""A real etcd to test with: the one that DRALAB_ETCD names, one on the PATH, or the Go module."""

import os
import shutil
import signal
import socket
import subprocess
import time
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, Self

import pytest

prefixes = (f"/test-{number}" for number in count())
SOURCE = Path(__file__).parent / "conformance" / "etcd"


@cache
def binary() -> Path:
    """Return the program; the test is skipped where there is none."""
    if named := os.environ.get("DRALAB_ETCD"):
        return Path(named)
    if found := shutil.which("etcd"):
        return Path(found)
    if shutil.which("go") is None:
        pytest.skip("no etcd: neither DRALAB_ETCD nor the PATH has one, and Go is not installed")
    fetched = subprocess.run(
        ["go", "mod", "download"], cwd=SOURCE, capture_output=True, text=True, check=False
    )
    if fetched.returncode:
        pytest.skip(f"etcd's Go module cannot be had: {fetched.stderr.strip().splitlines()[-1]}")
    # Go keeps what it has compiled: only the first time takes minutes.
    target = (
        Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "dralab-tests" / "etcd"
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    subprocess.run(["go", "build", "-o", str(target), "."], cwd=SOURCE, check=True)
    return target


class Etcd:
    """Members of one etcd, on free ports of this machine; `with Etcd(place, members=3) as etcd`."""

    def __init__(
        self,
        place: Path,
        *,
        members: int = 1,
        options: tuple[str, ...] = (),
        scheme: str = "http",
    ) -> None:
        self.scheme = scheme
        self.place = place
        self.options = options
        self.peers = [_free_port() for _ in range(members)]
        self.ports = [_free_port() for _ in range(members)]
        self.processes: list[subprocess.Popen[bytes] | None] = [None] * members

    @property
    def url(self) -> str:
        return "etcd://" + ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def __enter__(self) -> Self:
        for index in range(len(self.ports)):
            self.start(index)
        for port in self.ports:
            _await_port(port)
        return self

    def __exit__(self, *_: object) -> None:
        for index in range(len(self.ports)):
            self.kill(index)

    def start(self, index: int) -> None:
        """Start a member, again after a kill."""
        cluster = ",".join(f"m{i}=http://127.0.0.1:{port}" for i, port in enumerate(self.peers))
        peer, client = self.peers[index], self.ports[index]
        with (self.place / f"m{index}.log").open("ab") as log:
            self.processes[index] = subprocess.Popen(
                [
                    str(binary()),
                    f"--name=m{index}",
                    f"--data-dir={self.place / f'm{index}'}",
                    f"--listen-peer-urls=http://127.0.0.1:{peer}",
                    f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
                    f"--listen-client-urls={self.scheme}://127.0.0.1:{client}",
                    f"--advertise-client-urls={self.scheme}://127.0.0.1:{client}",
                    f"--initial-cluster={cluster}",
                    "--log-level=warn",
                    *self.options,
                ],
                stdout=log,
                stderr=log,
            )

    def kill(self, index: int) -> None:
        """Kill a member with SIGKILL, if it runs."""
        process = self.processes[index]
        if process is not None:
            process.send_signal(signal.SIGKILL)
            process.wait()
            self.processes[index] = None


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _await_port(port: int) -> None:
    for _ in range(600):
        with socket.socket() as found:
            if found.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)  # noqa: TID251 - a program of its own starts
    raise TimeoutError(f"nothing listens at port {port}")


def etcd_store(url: str, prefix: str = "", *, window: int = 50) -> Any:
    """Return a store in an etcd: an empty one, or one more under the same prefix."""
    from dralab.apiserver.storage.etcd import EtcdAddress, EtcdStore

    address = EtcdAddress.read(url, prefix=prefix or next(prefixes))
    return EtcdStore(address, window=window)
