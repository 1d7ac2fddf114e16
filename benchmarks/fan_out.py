"""How long a create takes while watchers are told of each, beside a kube-apiserver, in turns.

    python -m benchmarks.fan_out [--watchers 200] [--rate 100] [--turns 6]

Pods are created at a steady rate by a compiled client, and all of the watchers get each of them,
over TLS. dralab keeps them in memory; the kube-apiserver is on an etcd without fsync. Programs are
found as in `benchmarks.etcd`. Printed are the latencies of creates in ms, medians of the turns, and
the CPU time of the server for a create with its deliveries.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks import kube
from benchmarks.apiserver import PODS, Server, pod, revision
from benchmarks.etcd import etcd
from benchmarks.load import load

EACH = 200  # creates of a turn


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--watchers", type=int, default=200)
    parser.add_argument("--rate", type=int, default=100)
    parser.add_argument("--turns", type=int, default=6)
    given = parser.parse_args()
    program = kube.program()
    if program is None:
        sys.exit("there is no kube-apiserver: put one on the PATH, or name it")
    with tempfile.TemporaryDirectory() as text, etcd(Path(text), "--unsafe-no-fsync") as address:
        place = Path(text)
        body = place / "pod.json"
        body.write_text(json.dumps(pod(0)))
        there = address.replace("etcd:", "http:")
        home = place / "dralab"
        home.mkdir()
        servers = {
            "kube-apiserver": kube.KubeApiserver(program, place / "kube", there),
            "dralab": Server(home, ("--tls", "--data", ":memory:", "--no-service-accounts")),
        }
        found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in servers}
        try:
            for turn in range(given.turns + 1):
                for name in list(servers)[:: 1 if turn % 2 else -1]:
                    server = servers[name]
                    before = server.seconds()
                    done = load(
                        server.url, token=server.token, method="POST", path=PODS, body=body,
                        n=EACH, first=turn * 10_000, rate=given.rate, watchers=given.watchers,
                        watch=f"/api/v1/pods?watch=1&resourceVersion={revision(server)}",
                        events=EACH,
                    )  # fmt: skip
                    spent = (server.seconds() - before) / EACH * 1e6
                    if set(done["statuses"]) != {"201"}:
                        sys.exit(f"{name}: {done}")
                    if turn:  # the first one warms up
                        found[name].append((done["p50_ms"], done["p99_ms"], spent))
        finally:
            for server in servers.values():
                server.stop()
    for name, turns in found.items():
        p50, p99, spent = (statistics.median(column) for column in zip(*turns, strict=True))
        print(f"{name:15} p50 {p50:6.2f} ms   p99 {p99:7.2f} ms   {spent:8,.0f} µs of CPU a create")
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
