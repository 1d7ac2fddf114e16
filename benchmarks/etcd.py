"""How fast several servers are over one etcd, and a kube-apiserver on the same one.

    python -m benchmarks.etcd                one server and two, etcd with and without fsync
    python -m benchmarks.etcd --turns 8      one server beside a kube-apiserver, in turns

The etcd is the one that DRALAB_ETCD names, or the one on the PATH; kube-apiserver is the one that
DRALAB_KUBE_APISERVER names, or the one on the PATH (`tools/build_clients.py` builds it). Load and
pods are those of `benchmarks.apiserver`: a compiled client with 16 keep-alive connections on the
same machine. In turns, both servers stay up on one etcd, each with its own prefix, over TLS with a
token; the order is A B B A, so that what else runs on the machine slows both alike.
"""

import argparse
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from benchmarks import kube
from benchmarks.apiserver import PODS, YARDSTICK, Server, pod
from benchmarks.load import load

COUNT = 3_000
EACH = 500  # requests of a turn


@contextmanager
def etcd(place: Path, *options: str) -> Iterator[str]:
    """Run one member; yield its address."""
    program = os.environ.get("DRALAB_ETCD") or shutil.which("etcd")
    if program is None:
        sys.exit("there is no etcd: put one on the PATH, or name it in DRALAB_ETCD")
    client, peer = kube.free_port(), kube.free_port()
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


def loads(body: Path) -> dict[str, dict[str, object]]:
    """Return the options of the load for each row."""
    path = f"{PODS}/p-%d"
    return {
        "pod creates/s": {"method": "POST", "path": PODS, "body": body},
        "pod gets/s": {"path": path},
        "pod gets from memory/s": {"path": f"{path}?resourceVersion=0"},
        "pod deletes/s": {"method": "DELETE", "path": f"{path}?gracePeriodSeconds=0"},
    }


def rates(targets: Sequence[Server], body: Path) -> dict[str, float]:
    """Return requests a second through all servers together, each with its own objects."""
    kinds = loads(body)
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
    parser.add_argument("--turns", type=int, default=0)
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2])
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as text:
        body = Path(text) / "pod.json"
        body.write_text(json.dumps(pod(0)))
        for name, options in (("without fsync", ["--unsafe-no-fsync"]), ("fsync", [])):
            for count in [0] if given.turns else given.servers:
                place = Path(text) / f"{name}-{count}"
                place.mkdir()
                with etcd(place, *options) as address:
                    if given.turns:
                        in_turns(f"etcd {name}", address, given.turns, body)
                    else:
                        show(f"{count} server(s), etcd {name}", address, count, body)


def show(title: str, address: str, count: int, body: Path) -> None:
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
            yardstick = YARDSTICK.get(what)
            ratio = f"   {rate / yardstick:5.1f} times" if yardstick else ""
            print(f"{title:32}{what:34}{rate:10,.0f}{ratio}", flush=True)
    finally:
        for server in servers:
            server.stop()


class Turn(NamedTuple):
    """What one load took: requests a second, and those a second of the server's CPU time."""

    rate: float
    per_core: float


def in_turns(title: str, address: str, count: int, body: Path) -> None:
    """Compare a server with a kube-apiserver on the same etcd."""
    program = kube.program()
    if program is None:
        sys.exit(
            "there is no kube-apiserver: put one on the PATH, or name it in DRALAB_KUBE_APISERVER"
        )
    place = body.parent / title
    home = place / "dralab"
    home.mkdir(parents=True)
    other = kube.KubeApiserver(program, place / "kube", address.replace("etcd:", "http:"))
    ours = Server(home, ("--data", ":memory:", "--store", address))
    found: dict[str, tuple[list[Turn], list[Turn]]] = {}
    try:
        for number in range(count + 1):
            for what, options in loads(body).items():
                pairs = found.setdefault(what, ([], []))
                for who, server in ((0, other), (1, ours))[:: 1 if number % 2 else -1]:
                    before = server.seconds()
                    done = load(
                        server.url, token=server.token, n=EACH, first=number * 10_000, **options
                    )
                    assert set(done["statuses"]) <= {"200", "201"}, done
                    if number:  # the first round warms up
                        spent = server.seconds() - before
                        pairs[who].append(Turn(done["per_second"], EACH / spent))
    finally:
        ours.stop()
        other.stop()
    for what, (theirs, mine) in found.items():
        for name, each in (("", 0), (" per core", 1)):
            a = statistics.median(turn[each] for turn in theirs)
            b = statistics.median(turn[each] for turn in mine)
            ratio = statistics.median(y[each] / x[each] for x, y in zip(theirs, mine, strict=True))
            print(
                f"{title:22}{what + name:34}kube-apiserver {a:8,.0f}   dralab {b:8,.0f}   "
                f"{ratio:5.2f} times (median of pairs)",
                flush=True,
            )
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
