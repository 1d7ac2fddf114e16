"""How long a small client waits beside 500 greedy connections, in CPU time of the server's loop.

    python -m benchmarks.waiting

On a machine that is busy with other programs, `benchmarks.fairness` measures these as well. Here
the connections are transports in the server's process, and the clock is the CPU time of its thread:
the calls of the system for sockets are missing, and nothing else counts.
"""

import asyncio
import gc
import json
import os
import sys
import time
from collections.abc import Callable
from random import Random
from typing import Any, Final

from dralab.apiserver.http.connections.asgi import AsgiApp
from dralab.apiserver.http.connections.listening import listen
from dralab.apiserver.http.connections.serving import HttpServer
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.runtime.garbage import collect_rarely

CONNECTIONS: Final = 500
SECONDS: Final = 6.0  # of CPU time for each load
PAUSE: Final = 0.05  # seconds at most between two gets
MAPS: Final = "/api/v1/namespaces/default/configmaps"
LOADS: Final = {
    "creates": ("POST", MAPS),
    "gets": ("GET", f"{MAPS}/there"),
    "lists of 500": ("GET", f"{MAPS}?limit=500"),
}
SMALL: Final = {"metadata": {"generateName": "c-"}, "data": {"a": "b" * 500}}


class Connection(asyncio.Transport):
    """A connection that asks the server's protocol and hears when an answer begins."""

    def __init__(self, server: HttpServer) -> None:
        super().__init__()
        self.answered: Callable[[], None] = lambda: None
        self.protocol = server.accept(asyncio.get_running_loop())
        self.protocol.connection_made(self)

    def ask(self, method: str, path: str, agent: str, value: object = None) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: {agent}\r\n"
        if body:
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        self.protocol.data_received(f"{head}\r\n".encode() + body)

    async def get(self, path: str) -> None:
        answered = asyncio.Event()
        self.answered = answered.set
        self.ask("GET", path, "kubectl")
        await answered.wait()

    def write(self, data: Any) -> None:
        if bytes(data[:9]) == b"HTTP/1.1 ":
            self.answered()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("127.0.0.1", 1) if name in {"peername", "sockname"} else default

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Ask no more: it asks once for each answer anyway."""

    resume_reading = close = abort = pause_reading


async def measured(what: str) -> None:
    """Print how long a small client waits beside a load."""
    server = HttpServer(AsgiApp(ApiServer(MemoryStore())), listen("127.0.0.1", 0))
    await server.start()
    first = Connection(server)
    first.ask("POST", MAPS, "load", {"metadata": {"name": "there"}, "data": {"a": "b"}})
    await first.get(f"{MAPS}/there")
    for _ in range(CONNECTIONS):
        first.ask("POST", MAPS, "load", SMALL)
        await first.get(f"{MAPS}/there")
    gc.collect()
    collect_rarely()  # as `dralab apiserver`
    method, path = LOADS[what]
    loop, count = asyncio.get_running_loop(), 0

    def greedy(connection: Connection) -> None:
        def answered() -> None:
            nonlocal count
            count += 1
            loop.call_soon(ask)

        def ask() -> None:
            connection.ask(method, path, "load", SMALL if method == "POST" else None)

        connection.answered = answered
        ask()

    for _ in range(CONNECTIONS):
        greedy(Connection(server))
    chance, small, waits = Random(1), Connection(server), list[float]()
    began = time.thread_time()
    while time.thread_time() - began < SECONDS:
        until = time.thread_time() + chance.uniform(0, PAUSE)
        while time.thread_time() < until:  # noqa: ASYNC110 - the server goes on meanwhile
            await asyncio.sleep(0)
        asked = time.thread_time()
        await small.get("/api/v1/namespaces/default")
        waits.append((time.thread_time() - asked) * 1e3)
    rate = count / (time.thread_time() - began)
    waits.sort()
    print(
        f"{CONNECTIONS} connections, {what}: p50 {waits[len(waits) // 2]:.0f} ms, p99 "
        f"{waits[int(len(waits) * 0.99)]:.0f} ms of CPU time, greedy {rate:,.0f}/s of CPU time",
        flush=True,
    )
    os._exit(0)  # there are 500 connections that would ask for ever


def main() -> None:
    """Measure each load in a process of its own."""
    for what in sys.argv[1:] or LOADS:
        if (child := os.fork()) == 0:
            asyncio.run(measured(what))
        os.waitpid(child, 0)


if __name__ == "__main__":
    main()
