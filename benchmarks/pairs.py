"""How much CPU time a request costs, beside another checkout of dralab: runs take turns.

    python -m benchmarks.pairs OTHER [plain] [tls] [user] [mounted] [etcd] [fan-out] [start]

OTHER is a checkout with its `.venv`. Both servers stay up and get the same load in short turns,
in the order A B B A, so what else runs on the machine slows both alike. Counted is the CPU time of
the server's threads. `plain` is without credentials; `tls` is the administrator with a token;
`user` is a user of `--token-auth-file` who may do by RBAC what it does, beside the other checkout's
administrator; `mounted` lets pods have a service account and its token; `etcd` is as `tls`, with
both stores in one etcd (`benchmarks.etcd` says which) under prefixes of their own.
"""

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.apiserver import PODS, pod
from benchmarks.etcd import etcd
from benchmarks.load import load

HERE = Path(__file__).parent.parent
ROUNDS = 12
COUNT = 1_000
STARTS = 12
USER_TOKEN = "benchmark-user"
KINDS = ("plain", "tls", "user", "mounted", "etcd", "fan-out", "start")


class Server:
    """A server process of one checkout; `wrap` changes the command that starts it."""

    def __init__(
        self,
        checkout: Path,
        place: Path,
        kind: str,
        wrap: Callable[[list[str]], list[str]] = list,
        store: str = "",
    ) -> None:
        self.name = checkout.name
        place.mkdir(parents=True)
        config = place / "kubeconfig"
        help_text = _run(checkout, "apiserver", "--help")
        options = ["--data", ":memory:", *(["--store", store] if store else [])]
        if kind != "mounted":
            options += ["--no-service-accounts"]
        modern = "--plain" in help_text
        if kind in {"plain", "fan-out"}:
            options += ["--plain"] if modern else []
        else:
            options += ["--tls"]
        users = place / "users.csv"
        if kind == "user" and modern:
            users.write_text(f'{USER_TOKEN},jane,1,"team"\n')
            users.chmod(0o600)
            options += ["--token-auth-file", str(users)]
        self.process = subprocess.Popen(
            wrap([
                *_python(checkout), "-m", "dralab", "apiserver", "--listen", "127.0.0.1:0",
                "--kubeconfig", str(config), *options,
            ]),
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, cwd=checkout,
        )  # fmt: skip
        assert self.process.stdout is not None
        self.url = self.process.stdout.readline().removeprefix("ready: ").strip()
        words = config.read_text().split()
        self.token = words[words.index("token:") + 1] if "token:" in words else ""
        if kind == "user" and modern:
            self._bind(place)
            self.token = USER_TOKEN
        if kind == "mounted":
            self._send(place, "/api/v1/namespaces/default/serviceaccounts", {
                "metadata": {"name": "default"},
            })  # fmt: skip

    def _bind(self, place: Path) -> None:
        """Let the user do everything with pods."""
        self._send(place, "/apis/rbac.authorization.k8s.io/v1/clusterroles", {
            "metadata": {"name": "pods"},
            "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["*"]}],
        })  # fmt: skip
        self._send(place, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", {
            "metadata": {"name": "jane"},
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "pods",
            },
            "subjects": [
                {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "jane"},
            ],
        })  # fmt: skip

    def _send(self, place: Path, path: str, value: dict[str, Any]) -> None:
        body = place / "body.json"
        body.write_text(json.dumps(value))
        load(self.url, token=self.token, method="POST", path=path, body=body, n=1, c=1)

    def load(self, **options: object) -> dict[str, Any]:
        return load(self.url, token=self.token, **options)

    def seconds(self) -> float:
        """Return the CPU time of the server's threads, to the nanosecond."""
        tasks = Path(f"/proc/{self.process.pid}/task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    def cost(self, **options: Any) -> float:
        """Return the microseconds of CPU time that a request of a load takes."""
        before = self.seconds()
        found = self.load(**options)
        taken = self.seconds() - before
        bad = {status for status in found["statuses"] if status not in {"200", "201"}}
        assert not bad, f"{self.name}: {found}"
        return taken / (options.get("watchers", 1) * options["n"]) * 1e6

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


def _python(checkout: Path) -> Sequence[str]:
    return [str(checkout / ".venv" / "bin" / "python")]


def _run(checkout: Path, *words: str) -> str:
    command = [*_python(checkout), "-m", "dralab", *words]
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=checkout).stdout


def turns(rounds: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Yield the rounds, and who is first in each."""
    for number in range(rounds):
        yield number, ((0, 1), (1, 0))[number % 2]


@contextmanager
def stores(kind: str, place: Path) -> Iterator[Sequence[str]]:
    """Yield where the servers keep their objects; nothing: in memory."""
    if kind != "etcd":
        yield ("", "")
        return
    with etcd(place, "--unsafe-no-fsync") as address:
        yield (f"{address}?prefix=/first", f"{address}?prefix=/second")


def compare(kind: str, checkouts: Sequence[Path], place: Path, addresses: Sequence[str]) -> None:
    servers = [
        Server(checkout, place / kind / str(number), kind, store=addresses[number])
        for number, checkout in enumerate(checkouts)
    ]
    body = place / "pod.json"
    body.write_text(json.dumps(pod(2_150 if kind == "fan-out" else 0)))
    path = f"{PODS}/p-%d"
    if kind == "fan-out":
        each = {"method": "POST", "path": PODS, "body": body, "n": 200, "events": 200}
        watch = {"watch": "/api/v1/pods?watch=1", "watchers": 100}
        loads: dict[str, dict[str, Any]] = {"delivery": each | watch}
    else:
        loads = {
            "create": {"method": "POST", "path": PODS, "body": body, "n": COUNT},
            "get": {"path": path, "n": COUNT},
            "delete": {"method": "DELETE", "path": f"{path}?gracePeriodSeconds=0", "n": COUNT},
        }
    found: dict[str, tuple[list[float], list[float]]] = {what: ([], []) for what in loads}
    try:
        for number, order in turns(ROUNDS + 1):
            for what, options in loads.items():
                for who in order:
                    first = number * 10_000
                    extra = dict(options) | {"first": first}
                    cost = servers[who].cost(**extra)
                    if number:  # the first round warms up
                        found[what][who].append(cost)
    finally:
        for server in servers:
            server.stop()
    for what, (other, ours) in found.items():
        show(kind, what, other, ours, "µs")


def show(kind: str, what: str, other: Sequence[float], ours: Sequence[float], unit: str) -> None:
    ratio = statistics.median(a / b for a, b in zip(other, ours, strict=True))
    # The least of many short runs is what other programs disturb least.
    a, b = min(other), min(ours)
    print(
        f"{kind:8} {what:9} other {a:8.2f} {unit}, here {b:8.2f} {unit} at best: "
        f"{a / b:6.1%} of its rate ({ratio:6.1%} in the median of pairs)",
        flush=True,
    )


def starts(checkouts: Sequence[Path], place: Path) -> None:
    """Print the CPU time from the start of a server to `ready`."""
    for kind in ("plain", "tls"):
        found: tuple[list[float], list[float]] = ([], [])
        for number, order in turns(STARTS):
            for who in order:
                server = Server(checkouts[who], place / f"start-{kind}-{number}-{who}", kind)
                found[who].append(server.seconds() * 1e3)
                server.stop()
        show(kind, "start", found[0], found[1], "ms")


def main() -> None:
    """Compare and print."""
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    checkouts = [Path(sys.argv[1]).resolve(), HERE]
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        for kind in sys.argv[2:] or KINDS:
            if kind == "start":
                starts(checkouts, Path(place))
            else:
                with stores(kind, Path(place)) as addresses:
                    compare(kind, checkouts, Path(place), addresses)
    print(f"load {os.getloadavg()[0]:.1f}, {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
