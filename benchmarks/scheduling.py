"""How fast `dralab scheduler` allocates and binds pods over HTTP, beside another checkout.

    python -m benchmarks.scheduling [OTHER] [--nodes 100] [--pods 1000] [--turns 5] [--tls]

A server (`dralab apiserver`, memory store) and a scheduler (`dralab scheduler`) are a process each.
Each pod has a claim for one device; pods and claims are there when the scheduler starts. A turn
ends when all pods are bound and their events are written. Shown are the CPU times of both processes
for a pod, from the scheduler's `ready` on, and the pods a second that the busier of the two allows
on a core of its own. OTHER is a checkout with its `.venv`; turns alternate.

Beside them: published figures for kube-scheduler and an API server are 40 to 241 pods/s.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import orjson

from benchmarks.scheduler import CLASS, UPSTREAM_API, claim, devices_of, node, pod
from dralab.runtime import kubeconfig
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import CLAIMS, CLASSES, EVENTS, NODES, PODS, SLICES

HERE = Path(__file__).parent.parent


class Turn(NamedTuple):
    """What a pod took: µs of the server's CPU, of the scheduler's, and pods a second by clock."""

    server: float
    scheduler: float
    rate: float


class Program:
    """A dralab command of one checkout, running until `stop`."""

    def __init__(self, checkout: Path, *words: str) -> None:
        python = checkout / ".venv" / "bin" / "python"
        self.process = subprocess.Popen(
            [str(python), "-m", "dralab", *words], cwd=checkout, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip

    def wait_ready(self) -> None:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line.startswith("ready"), line

    def seconds(self) -> float:
        """Return the CPU time of the program's threads, to the nanosecond."""
        found = 0
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            try:
                found += int((task / "schedstat").read_text().split()[0])
            except OSError:
                continue  # it has ended: threads of this kind did next to nothing
        return found / 1e9

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def turn(checkout: Path, place: Path, nodes: int, pods: int, *, tls: bool) -> Turn:
    """Return what scheduling the pods took in one checkout."""
    config = place / "kubeconfig"
    options = ["--tls"] if tls else ["--plain"]
    server = Program(
        checkout, "apiserver", "--data", ":memory:", "--listen", "127.0.0.1:0",
        "--kubeconfig", str(config), *(options if not is_old(checkout) or tls else []),
        "--no-service-accounts",
    )  # fmt: skip
    server.wait_ready()
    client = RemoteClient(kubeconfig.read(config))
    try:
        fill(client, nodes, pods)
        scheduler = Program(checkout, "scheduler", "--kubeconfig", str(config))
        try:
            scheduler.wait_ready()
            before, began = (server.seconds(), scheduler.seconds()), time.perf_counter()
            already = count_events(client)
            while (done := count_events(client)) < pods:
                time.sleep(0.1)
            seconds = time.perf_counter() - began
            taken = server.seconds() - before[0], scheduler.seconds() - before[1]
        finally:
            scheduler.stop()
        bound = sum(bool(obj["spec"].get("nodeName")) for obj in client.list(PODS).items)
        why = Counter(
            event["message"].replace(event["involvedObject"]["name"], "P")
            for event in client.list(EVENTS).items
            if event["reason"] != "Scheduled"
        ).most_common(3)
        assert bound == pods, f"{bound} of {pods} bound, {done} events: {why}"
    finally:
        client.close()
        server.stop()
    each = done - already
    return Turn(taken[0] / each * 1e6, taken[1] / each * 1e6, each / seconds)


def is_old(checkout: Path) -> bool:
    """Whether a checkout is of before `--plain`."""
    return '"--tls/--plain"' not in (checkout / "src/dralab/cli/apiserver.py").read_text()


def count_events(client: RemoteClient) -> int:
    """Return how many events there are, without fetching them: by an answer with one of them."""
    answer = client.stream("/api/v1/namespaces/default/events", {"limit": "1"}, 30)
    page = orjson.loads(b"".join(answer.pieces()))
    answer.close()
    return len(page["items"]) + int(page["metadata"].get("remainingItemCount", 0))


def fill(client: RemoteClient, nodes: int, pods: int) -> None:
    """Create nodes, their devices, claims and pods."""
    client.create(CLASSES, CLASS)

    def one_node(number: int) -> None:
        obj = node(number)
        made = client.create(NODES, obj)
        client.update(NODES, {**made, "spec": {}})  # without the taint of a node that is not ready
        client.create(SLICES, devices_of(obj["metadata"]["name"], -(-pods // nodes)))

    def one_pod(number: int) -> None:
        name = f"pod-{number:06d}"
        client.create(CLAIMS, claim(name), "default")
        client.create(PODS, pod(name), "default")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(one_node, range(nodes)))
        list(pool.map(one_pod, range(pods)))


def turns(checkouts: list[Path], rounds: int) -> Iterator[int]:
    """Yield whose turn it is: A B B A …"""
    for number in range(rounds):
        yield from range(len(checkouts)) if number % 2 == 0 else reversed(range(len(checkouts)))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("other", nargs="?", type=Path)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--tls", action="store_true")
    options = parser.parse_args()
    checkouts = [HERE] if options.other is None else [options.other.resolve(), HERE]
    found: list[list[Turn]] = [[] for _ in checkouts]
    with tempfile.TemporaryDirectory() as place:
        for number, who in enumerate(turns(checkouts, options.turns)):
            here = Path(place) / str(number)
            here.mkdir()
            found[who].append(
                turn(checkouts[who], here, options.nodes, options.pods, tls=options.tls)
            )
    for checkout, its in zip(checkouts, found, strict=True):
        server = statistics.median(one.server for one in its)
        scheduler = statistics.median(one.scheduler for one in its)
        rate = 1e6 / max(server, scheduler)
        clock = statistics.median(one.rate for one in its)
        print(
            f"{checkout.name}: server {server:.0f} µs, scheduler {scheduler:.0f} µs a pod: "
            f"{rate:,.0f} pods/s with a core each ({rate / UPSTREAM_API:.1f} x the best published "
            f"for kube-scheduler, 240.8); by the clock {clock:,.0f}"
        )
    print(f"load {os.getloadavg()[0]:.1f}", file=sys.stderr)


if __name__ == "__main__":
    main()
