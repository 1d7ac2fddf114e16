"""What memory remains after many pods were created and deleted.

    python -m benchmarks.freed --pods 50000

The server's verbs in this process, over a store in memory, with a clock that the benchmark moves:
its history ends ten minutes later (`dralab.apiserver.storage.freed_memory`). Prints MiB resident.
"""

import argparse
import gc
import sys
from collections import Counter
from pathlib import Path

from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.storage.freed_memory import trim_heap
from dralab.kernel.clock import SECOND, ManualClock
from dralab.runtime.local import LocalClient
from dralab.runtime.resources import PODS


def resident() -> int:
    """Return the resident memory in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) // 1024
    return 0


def main() -> None:
    """Create, delete, and wait."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pods", type=int, default=50_000)
    count = parser.parse_args().pods
    clock = ManualClock(1_700_000_000 * SECOND)
    server = ApiServer(MemoryStore(), clock=clock)
    client = LocalClient(server.resources, server.hub)
    container = {"name": "main", "image": "registry.example/web:1.2.3"}

    def create(number: int) -> None:
        pod = {"metadata": {"name": f"p{number}"}, "spec": {"containers": [container]}}
        client.create(PODS, pod, "default")

    create(10**9)
    server.tick()

    def show(what: str) -> None:
        gc.collect()
        trim_heap()
        sys.stdout.write(f"{what:40} {resident():6}\n")

    show("start")
    for number in range(count):
        create(number)
    show(f"{count} pods")
    for number in range(count):
        client.delete(PODS, f"p{number}", "default", options={"gracePeriodSeconds": 0})
    server.tick()
    show("deleted")
    for _ in range(50):
        clock.advance(30 * SECOND)
        server.tick()
    show("25 minutes later")
    kinds = Counter(type(each).__name__ for each in gc.get_objects())
    sys.stdout.write(f"states in memory: {kinds['Stored']}, changes: {kinds['Change']}\n")


if __name__ == "__main__":
    main()
