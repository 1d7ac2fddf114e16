"""How fast the API server is, beside a measured kube-apiserver 1.36 with etcd 3.6.

    python -m benchmarks.apiserver                 all rows
    python -m benchmarks.apiserver memory tls      some: memory tls relaxed relaxed-tls fsync many

The server is a process of its own, the load comes from a compiled client (benchmarks/go/load) on
the same machine over 16 keep-alive connections. Pods have 1.5 KB when they are stored, those of
the fan-out 3.7 KB; all are defaulted and validated. The yardstick was measured on two shared
cores over TLS, its etcd without fsync: compare it with the rows of TLS.
"""

import atexit
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.load import load

PODS = "/api/v1/namespaces/default/pods"
# kube-apiserver 1.36 + etcd 3.6 without fsync, two shared cores, 16 connections, TLS.
YARDSTICK = {
    "pod creates/s": 1_392.0,
    "pod gets/s": 3_698.0,
    "pod deletes/s": 978.0,
    "create at 200/s, p50 ms": 1.55,
    "create at 200/s, p99 ms": 3.0,
    "list of 3,000 pods, ms": 95.0,
    "watch deliveries/s": 50_000.0,
    "start to ready, s": 3.3,
    "resident when empty, MiB": 280.0,
}
ROWS: dict[str, Sequence[str]] = {
    "memory": ("--plain", "--data", ":memory:"),
    "tls": ("--data", ":memory:"),
    "relaxed": ("--plain", "--durability", "relaxed"),
    "relaxed-tls": ("--durability", "relaxed"),
    "fsync": ("--plain", "--durability", "fsync"),
}


def pod(padding: int) -> dict[str, Any]:
    """A pod as a Deployment makes them; `padding` bytes of annotation make it larger."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p-%d",
            "labels": {"app": "web", "tier": "front", "pod-template-hash": "5d4f8c7b9"},
            **({"annotations": {"example.org/note": "n" * padding}} if padding else {}),
        },
        "spec": {
            "nodeSelector": {"disk": "ssd"},
            "tolerations": [{"key": "dedicated", "operator": "Exists", "effect": "NoSchedule"}],
            "volumes": [{"name": "config", "configMap": {"name": "web"}}],
            "containers": [
                {
                    "name": "main",
                    "image": "registry.example/web:1.2.3",
                    "args": ["--port=8080"],
                    "ports": [{"name": "http", "containerPort": 8080}],
                    "env": [{"name": "MODE", "value": "production"}],
                    "resources": {
                        "requests": {"cpu": "250m", "memory": "256Mi"},
                        "limits": {"cpu": "1", "memory": "512Mi"},
                    },
                    "volumeMounts": [{"name": "config", "mountPath": "/etc/web"}],
                }
            ],
        },
    }


class Server:
    """A server process, and how long it took to answer."""

    def __init__(self, place: Path, options: Sequence[str]) -> None:
        data = [] if "--data" in options else ["--data", str(place / "data")]
        config = place / "kubeconfig"
        began = time.perf_counter()
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "dralab", "apiserver", "--listen", "127.0.0.1:0",
                "--kubeconfig", str(config), *data, *options,
            ],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        atexit.register(self.process.kill)  # also where the benchmark fails halfway
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().removeprefix("ready: ").strip()
        self.start = time.perf_counter() - began
        words = config.read_text().split()
        self.token = words[words.index("token:") + 1] if "token:" in words else ""

    def load(self, **options: object) -> dict[str, Any]:
        return load(self.url, token=self.token, **options)

    def seconds(self) -> float:
        """Return the processor time that the server has used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().split()
        return (int(fields[13]) + int(fields[14])) / os.sysconf("SC_CLK_TCK")

    def resident(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) / 1024
        raise AssertionError("the server is gone")

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def measured(options: Sequence[str], place: Path) -> dict[str, float]:
    small, large = place / "small.json", place / "large.json"
    small.write_text(json.dumps(pod(0)))
    large.write_text(json.dumps(pod(2_150)))
    server = Server(place, options)
    found = {"start to ready, s": server.start, "resident when empty, MiB": server.resident()}
    path, grace = f"{PODS}/p-%d", "?gracePeriodSeconds=0"
    server.load(method="POST", path=PODS, body=small, n=500, first=900_000)  # warm up
    rounds: dict[str, Any] = {
        "pod creates/s": [
            {"method": "POST", "path": PODS, "body": small, "n": 5_000, "first": number * 10_000}
            for number in range(3)
        ],
        "pod gets/s": [{"path": path, "n": 5_000}] * 3,
        "pod deletes/s": [
            {"method": "DELETE", "path": path + grace, "n": 5_000, "first": number * 10_000}
            for number in range(2)
        ],
    }
    for what, runs in rounds.items():
        before = server.seconds()
        found[what] = best(server.load(**run) for run in runs)
        total = sum(run["n"] for run in runs)
        # What the server would do with a core of its own: less shaken by what else runs.
        found[f"  {what} per core"] = total / (server.seconds() - before)
    steady = server.load(method="POST", path=PODS, body=small, n=1_000, first=100_000, rate=200)
    found["create at 200/s, p50 ms"] = steady["p50_ms"]
    found["create at 200/s, p99 ms"] = steady["p99_ms"]
    lists = server.load(path=f"{PODS}?limit=3000", n=20, c=1)
    found["list of 3,000 pods, ms"] = lists["p50_ms"]
    found["  its size, MB"] = lists["bytes"] / 20 / 1e6
    watch = f"/api/v1/pods?watch=1&resourceVersion={revision(server)}"
    fan = server.load(
        method="POST", path=PODS, body=large, n=1_000, first=200_000,
        watch=watch, watchers=200, events=1_000,
    )  # fmt: skip
    found["watch deliveries/s"] = 200 * 1_000 / fan["until_last_delivery"]
    one = server.load(path=path, n=1, first=200_000, c=1)
    found["  size of its objects, B"] = one["bytes"]
    server.stop()
    return found


def revision(server: Server) -> str:
    """Return the revision at which the server is."""
    import ssl
    import urllib.request

    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # our own server, just started
    headers = {"Authorization": f"Bearer {server.token}"} if server.token else {}
    request = urllib.request.Request(f"{server.url}{PODS}?limit=1", headers=headers)  # noqa: S310
    secure = server.url.startswith("https")
    with urllib.request.urlopen(request, context=context if secure else None) as answer:  # noqa: S310
        return str(json.load(answer)["metadata"]["resourceVersion"])


def best(runs: Any) -> float:
    rates = []
    for run in runs:
        assert set(run["statuses"]) <= {"200", "201"}, run
        rates.append(run["per_second"])
    return max(rates)


def many(place: Path) -> None:
    """100,000 pods: how much memory, how long to list and to start again."""
    body = place / "small.json"
    body.write_text(json.dumps(pod(0)))
    server = Server(place, ("--durability", "relaxed"))
    run = server.load(method="POST", path=PODS, body=body, n=100_000)
    lists = server.load(path=f"{PODS}?limit=500", n=50, c=1)
    resident = server.resident()
    server.stop()
    again = Server(place, ("--durability", "relaxed"))
    print(f"100,000 pods: {run['per_second']:,.0f} creates/s, {resident:,.0f} MiB resident")
    print(f"  page of 500: {lists['p50_ms']:.1f} ms; start with them: {again.start:.2f} s,")
    print(f"  {again.resident():,.0f} MiB resident")
    again.stop()


def show(name: str, found: dict[str, float]) -> None:
    print(f"\n{name}: dralab apiserver {' '.join(ROWS[name])}")
    for what, value in found.items():
        line = f"  {what:28}{value:>12,.2f}" if value < 100 else f"  {what:28}{value:>12,.0f}"
        if what in YARDSTICK:
            higher = what.endswith("/s")
            ratio = value / YARDSTICK[what] if higher else YARDSTICK[what] / value
            line += f"   {ratio:5.1f} times kube-apiserver + etcd ({YARDSTICK[what]:,.6g})"
        print(line, flush=True)


def main() -> None:
    chosen = sys.argv[1:] or [*ROWS, "many"]
    print(f"{os.cpu_count()} cores shared by server and client, Python {sys.version.split()[0]}")
    for name in chosen:
        with tempfile.TemporaryDirectory() as place:
            if name == "many":
                many(Path(place))
            else:
                show(name, measured(ROWS[name], Path(place)))


if __name__ == "__main__":
    main()
