"""Memory, descriptors and latency of a server over a long time, as numbers.

    python -m benchmarks.endurance --minutes 10 --event-ttl 2m

200 changes a second over kept-alive connections: pods that come, change and go, and an event for
each. One line every ten seconds; at the end everything is deleted. The server should be level once
the first events end, and give back what was deleted.
"""

import argparse
import http.client
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PODS = "/api/v1/namespaces/default/pods"
EVENTS = "/api/v1/namespaces/default/events"
ALIVE = 1_000  # pods at a time
LINE = 10.0  # seconds
FREED = 60.0  # seconds


class Server:
    """A server of its own process, seen from outside."""

    def __init__(self, data: str, event_ttl: str) -> None:
        command = [sys.executable, "-m", "dralab", "apiserver", "--plain"]
        command += ["--listen", "127.0.0.1:0", "--data", data, "--durability", "relaxed"]
        command += ["--event-ttl", event_ttl]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        host = self.process.stdout.readline().removeprefix("ready: http://").strip()
        self.http = http.client.HTTPConnection(host, timeout=60)
        self.times: list[float] = []

    def ask(self, method: str, path: str, body: Any = None) -> None:
        """Send a request and note how long its answer took."""
        began = time.perf_counter()
        data = None if body is None else json.dumps(body)
        self.http.request(method, path, data, {"Content-Type": "application/json"})
        answer = self.http.getresponse()
        answer.read()
        self.times.append(time.perf_counter() - began)
        if answer.status >= 400:
            sys.exit(f"{method} {path}: {answer.status}")

    def line(self, minutes: float) -> str:
        """Return what the server is like now, and how fast it was since the line before."""
        place = Path(f"/proc/{self.process.pid}")
        [rss] = [
            int(line.split()[1]) // 1024
            for line in (place / "status").read_text().splitlines()
            if line.startswith("VmRSS:")
        ]
        files = len(list((place / "fd").iterdir()))
        taken = sorted(self.times) or [0.0]
        self.times = []
        median, slow = taken[len(taken) // 2], taken[len(taken) * 99 // 100]
        return f"{minutes:8.1f} {rss:8} {files:6} {median * 1e3:8.2f} {slow * 1e3:8.2f}"


def pod(number: int) -> dict[str, Any]:
    """Return a small pod."""
    containers = [{"name": "main", "image": "registry.example/web:1.2.3"}]
    return {"metadata": {"name": f"p{number}"}, "spec": {"containers": containers}}


def event(number: int) -> dict[str, Any]:
    """Return what is recorded of a pod."""
    about = {"kind": "Pod", "namespace": "default", "name": f"p{number}"}
    return {
        "metadata": {"name": f"p{number}.{number:x}", "namespace": "default"},
        "involvedObject": about,
        "reason": "Scheduled",
        "message": f"Successfully assigned default/p{number} to node-{number % 7}",
    }


def change(server: Server, number: int) -> None:
    """Do the next of the four changes of a pod's life."""
    pods, step = divmod(number, 4)
    if step == 0:
        server.ask("POST", PODS, pod(pods))
    elif step == 1:
        server.ask("POST", EVENTS, event(pods))
    elif step == 2:
        server.ask("PUT", f"{PODS}/p{pods}/status", {**pod(pods), "status": {"phase": "Running"}})
    elif pods >= ALIVE:
        server.ask("DELETE", f"{PODS}/p{pods - ALIVE}")


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--rate", type=int, default=200, help="changes a second")
    parser.add_argument("--event-ttl", default="1h", help="how long the server keeps events")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as data:
        server = Server(data, options.event_ttl)
        try:
            print(" minutes  RSS MiB  files   p50 ms   p99 ms", flush=True)
            began = shown = time.monotonic()
            number = 0
            while (now := time.monotonic()) < began + options.minutes * 60:
                if now >= shown + LINE:
                    print(server.line((now - began) / 60), flush=True)
                    shown = now
                change(server, number)
                number += 1
                time.sleep(max(0.0, began + number / options.rate - time.monotonic()))
            print(server.line(options.minutes), flush=True)
            for path in (PODS, EVENTS):
                server.ask("DELETE", path)
            print(server.line(options.minutes), "after the deletion of everything")
            # What is free goes back to the system when the server next looks, every few seconds.
            time.sleep(FREED)
            server.ask("GET", PODS)
            print(server.line(options.minutes), f"{FREED:.0f} seconds later")
        finally:
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
