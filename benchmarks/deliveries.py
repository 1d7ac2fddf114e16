"""How much CPU time a change costs for each client that watches it, beside another checkout.

    python -m benchmarks.deliveries OTHER [--watchers 100] [--rounds 8] [--tls]

Pods are created one by one, each when all watchers have heard of the last, and 16 at once: then
they are stored together and sent in one piece. OTHER is a checkout with its `.venv`; the servers
take turns. Counted are the threads of the server, so what the watchers do does not count.
"""

import argparse
import json
import os
import selectors
import signal
import socket
import ssl
import statistics
import tempfile
from pathlib import Path

from benchmarks.apiserver import PODS, pod
from benchmarks.pairs import HERE, Server, turns

PIECE = 1 << 20
AT_ONCE = 16
PODS_A_ROUND = 16


class Watched:
    """A server, its watchers, and the connections that create pods; all read by this thread."""

    def __init__(self, checkout: Path, place: Path, watchers: int, *, tls: bool) -> None:
        self.name = checkout.name
        self.server = Server(checkout, place, "tls" if tls else "plain")
        self._context: ssl.SSLContext | None = None
        if tls:
            self._context = ssl.create_default_context()
            self._context.check_hostname = False
            self._context.verify_mode = ssl.CERT_NONE
        host, _, port = self.server.url.rpartition("/")[2].rpartition(":")
        self._address = host, int(port)
        self._selector = selectors.DefaultSelector()
        self._watchers = watchers
        self._number = 0
        for _ in range(watchers):
            watcher = self._connection()
            watcher.sendall(self._head("GET", "/api/v1/pods?watch=1&resourceVersion=0") + b"\r\n")
            watcher.settimeout(0)
            self._selector.register(watcher, selectors.EVENT_READ)
        self._creators = [self._connection() for _ in range(AT_ONCE)]

    def cost(self, at_once: int) -> float:
        """Return the µs of CPU time of the server for a pod and a watcher."""
        before = self.server.seconds()
        heard = 0
        for done in range(at_once, PODS_A_ROUND + 1, at_once):
            creators = self._creators[:at_once]
            pid = self.server.process.pid
            os.kill(pid, signal.SIGSTOP)  # so that all of them are there when it looks
            for creator in creators:
                creator.sendall(self._create())
            os.kill(pid, signal.SIGCONT)
            for creator in creators:
                _take_answer(creator)
            while heard < done * self._watchers:
                heard += self._hear()
        return (self.server.seconds() - before) / (PODS_A_ROUND * self._watchers) * 1e6

    def _hear(self) -> int:
        found = 0
        for key, _ in self._selector.select(1):
            watcher = key.fileobj
            assert isinstance(watcher, socket.socket)
            try:
                while piece := watcher.recv(PIECE):
                    found += piece.count(b'"ADDED"')
            except (BlockingIOError, ssl.SSLWantReadError):
                continue
        return found

    def _connection(self) -> socket.socket:
        plain = socket.create_connection(self._address)
        return plain if self._context is None else self._context.wrap_socket(plain)

    def _head(self, method: str, path: str) -> bytes:
        token = f"Authorization: Bearer {self.server.token}\r\n" if self.server.token else ""
        host = f"{self._address[0]}:{self._address[1]}"
        return f"{method} {path} HTTP/1.1\r\nHost: {host}\r\n{token}".encode()

    def _create(self) -> bytes:
        value = pod(0)
        value["metadata"]["name"] = f"p-{self._number}"
        self._number += 1
        body = json.dumps(value).encode()
        head = f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        return self._head("POST", PODS) + head + body


def _take_answer(creator: socket.socket) -> None:
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += creator.recv(PIECE)
    head, _, body = answer.partition(b"\r\n\r\n")
    assert b" 201 " in head, answer
    length = int(head.lower().partition(b"content-length:")[2].split(b"\r\n")[0])
    while len(body) < length:
        body += creator.recv(PIECE)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", type=Path)
    parser.add_argument("--watchers", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        servers = [
            Watched(checkout, Path(place) / str(number), options.watchers, tls=options.tls)
            for number, checkout in enumerate([options.other.resolve(), HERE])
        ]
        try:
            for at_once in (1, AT_ONCE):
                costs: tuple[list[float], list[float]] = ([], [])
                for number, order in turns(options.rounds + 1):
                    for who in order:
                        cost = servers[who].cost(at_once)
                        if number:  # the first round warms up
                            costs[who].append(cost)
                other, ours = (statistics.median(its) for its in costs)
                print(
                    f"{at_once:2} at once: other {other:.1f} µs a delivery, here {ours:.1f} µs: "
                    f"{other / ours:.0%} of its rate",
                    flush=True,
                )
        finally:
            for each in servers:
                each.server.stop()
    print(f"load {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
