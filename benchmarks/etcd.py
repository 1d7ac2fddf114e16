"""How fast several servers are over one etcd, beside a kube-apiserver 1.36 on an etcd.

    python -m benchmarks.etcd                        one server and two, etcd with and without fsync
    python -m benchmarks.etcd --beside URL TOKEN     also another server, on an etcd of its own

The etcd is the one that DRALAB_ETCD names, or the one on the PATH. Load and pods are those of
`benchmarks.apiserver`: a compiled client with 16 keep-alive connections on the same machine. The
yardstick is that of `benchmarks.apiserver`; `--beside` measures the pair in one run.
"""

import argparse
import json
import math
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks.apiserver import PODS, YARDSTICK, Server, pod
from benchmarks.load import load

COUNT = 3_000


@contextmanager
def etcd(place: Path, *options: str) -> Iterator[str]:
    """Run one member; yield its address."""
    program = os.environ.get("DRALAB_ETCD") or shutil.which("etcd")
    if program is None:
        sys.exit("there is no etcd: put one on the PATH, or name it in DRALAB_ETCD")
    client, peer = _free_port(), _free_port()
    member = subprocess.Popen(
        [
            program, f"--data-dir={place / 'etcd'}", "--log-level=fatal",
            f"--listen-client-urls=http://127.0.0.1:{client}",
            f"--advertise-client-urls=http://127.0.0.1:{client}",
            f"--listen-peer-urls=http://127.0.0.1:{peer}", *options,
        ]
    )  # fmt: skip
    try:
        while True:
            with socket.socket() as found:
                if found.connect_ex(("127.0.0.1", client)) == 0:
                    break
            time.sleep(0.05)
        yield f"etcd://127.0.0.1:{client}"
    finally:
        member.terminate()
        member.wait()


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Other(NamedTuple):
    """A server that runs already."""

    url: str
    token: str

    def seconds(self) -> float:
        """Its processor time is not known."""
        return math.nan


def rates(targets: Sequence[Server | Other], body: Path) -> dict[str, float]:
    """Return requests a second through all servers together, each with its own objects."""
    path = f"{PODS}/p-%d"
    kinds: dict[str, dict[str, object]] = {
        "pod creates/s": {"method": "POST", "path": PODS, "body": body},
        "pod gets/s": {"path": path},
        "pod gets from memory/s": {"path": f"{path}?resourceVersion=0"},
        "pod deletes/s": {"method": "DELETE", "path": f"{path}?gracePeriodSeconds=0"},
    }
    found = {}
    each = COUNT // len(targets)
    for number, target in enumerate(targets):  # warm up
        first = 900_000 + number * 1_000
        load(target.url, token=target.token, n=200, first=first, **kinds["pod creates/s"])
    with ThreadPoolExecutor(len(targets)) as pool:
        for what, options in kinds.items():
            before = sum(target.seconds() for target in targets)
            runs = [
                pool.submit(
                    load, target.url, token=target.token, n=each, first=number * 100_000, **options
                )
                for number, target in enumerate(targets)
            ]
            done = [run.result() for run in runs]
            assert all(set(one["statuses"]) <= {"200", "201"} for one in done), done
            found[what] = sum(one["per_second"] for one in done)
            spent = sum(target.seconds() for target in targets) - before
            # What servers would do with cores of their own: less shaken by what else runs.
            found[f"  {what} per core"] = len(targets) * each / spent
    return found


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--beside", nargs=2, metavar=("URL", "TOKEN"))
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2])
    beside = parser.parse_args().beside
    with tempfile.TemporaryDirectory() as text:
        body = Path(text) / "pod.json"
        body.write_text(json.dumps(pod(0)))
        other = rates([Other(*beside)], body) if beside else {}
        for name, options in (("without fsync", ["--unsafe-no-fsync"]), ("fsync", [])):
            for count in parser.parse_args().servers:
                place = Path(text) / f"{name}-{count}"
                place.mkdir()
                with etcd(place, *options) as address:
                    show(f"{count} server(s), etcd {name}", address, count, body, other)


def show(title: str, address: str, count: int, body: Path, other: dict[str, float]) -> None:
    """Print the figures of so many servers over one etcd."""
    place = body.parent / title
    place.mkdir()
    servers = []
    for number in range(count):
        home = place / str(number)
        home.mkdir()
        servers.append(Server(home, ("--plain", "--data", ":memory:", "--store", address)))
    try:
        for what, rate in rates(servers, body).items():
            yardstick = other.get(what) or YARDSTICK.get(what)
            ratio = f"   {rate / yardstick:5.1f} times" if yardstick else ""
            print(f"{title:32}{what:34}{rate:10,.0f}{ratio}", flush=True)
    finally:
        for server in servers:
            server.stop()


if __name__ == "__main__":
    main()
