"""How many instructions requests and a start take, which other programs do not change.

    python -m benchmarks.instructions CHECKOUT ... [--kind tls] [--count 1500]

The kinds are those of `benchmarks.pairs`.

Each CHECKOUT has its `.venv`; without one it is this checkout. The server runs under Valgrind's
callgrind, fifty times as slow, so a batch of requests may take as long as it wants. Instructions
are not time, but the same on a busy machine: repeated runs differ by less than 1 %.
"""

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.apiserver import PODS, pod
from benchmarks.pairs import HERE, Server, stores

# A batch ends after some milliseconds, which under callgrind is one request.
PATIENT = """
import importlib, runpy, sys
try:
    batches = importlib.import_module("dralab.apiserver.http.connections.asgi")
    batches.HELD = batches.LONGEST_HELD = 100.0
    tasks = importlib.import_module("dralab.apiserver.http.connections.tasks")
    tasks.HELD = 100.0
except ImportError:
    pass  # an older checkout, which has no such limit
sys.argv[0] = "dralab"
runpy.run_module("dralab", run_name="__main__")
"""
TOTAL = re.compile(r"^(?:summary|totals): (\d+)", re.MULTILINE)
WARM_UP = 600


class Counted:
    """A server under callgrind."""

    def __init__(
        self, checkout: Path, place: Path, kind: str, store: str, *, patient: bool
    ) -> None:
        place.mkdir()
        self._place = place

        def wrap(command: list[str]) -> list[str]:
            at = command.index("-m")
            if patient:
                command = [*command[:at], "-c", PATIENT, *command[at + 2 :]]
            tool = ["valgrind", "--tool=callgrind", "-q", f"--callgrind-out-file={place}/out"]
            return [*tool, *(["--instr-atstart=no"] if patient else []), *command]

        self.server = Server(checkout, place / "server", kind, wrap, store)

    def control(self, *words: str) -> None:
        command = ["callgrind_control", *words, str(self.server.process.pid)]
        subprocess.run(command, check=True, capture_output=True)

    def millions(self) -> float:
        """Return what has been counted since it was last asked."""
        before = set(self._place.glob("out*"))
        self.control("-d")
        (written,) = set(self._place.glob("out*")) - before
        return int(TOTAL.findall(written.read_text())[-1]) / 1e6


def requests(checkout: Path, place: Path, kind: str, store: str, count: int) -> None:
    """Print the instructions of a create, a get and a delete."""
    body = place / "pod.json"
    body.write_text(json.dumps(pod(0)))
    path = f"{PODS}/p-%d"
    create = {"method": "POST", "path": PODS, "body": body}
    loads = {
        "create": create,
        "get": {"path": path},
        "delete": {"method": "DELETE", "path": f"{path}?gracePeriodSeconds=0"},
    }
    counted = Counted(checkout, place / f"requests-{checkout.name}", kind, store, patient=True)
    try:
        counted.server.load(**create, n=WARM_UP, first=900_000)
        for what, options in loads.items():
            counted.control("-i", "on")
            counted.control("-z")
            done = counted.server.load(**options, n=count, first=0)
            counted.control("-i", "off")
            if set(done["statuses"]) - {"200", "201"}:
                sys.exit(f"{checkout.name}: {done}")
            each = counted.millions() / count * 1e3
            print(f"{checkout.name:12} {kind:6} {what:7} {each:9,.0f} thousand", flush=True)
    finally:
        counted.server.process.kill()
        counted.server.process.wait()


def main() -> None:
    """Count and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", nargs="*", type=Path, default=[HERE])
    parser.add_argument("--kind", default="tls", choices=("plain", "tls", "user", "etcd"))
    parser.add_argument("--count", type=int, default=1_500)
    given = parser.parse_args()
    if shutil.which("valgrind") is None:
        sys.exit("there is no valgrind: install it, then try again")
    with tempfile.TemporaryDirectory() as text:
        for checkout in given.checkouts:
            own, place = checkout.resolve(), Path(text) / checkout.resolve().name
            place.mkdir()
            with stores(given.kind, place) as (store, _):
                started = Counted(own, place / "start", given.kind, store, patient=False)
                print(f"{own.name:12} {given.kind:6} start   {started.millions():9,.0f} million")
                started.server.process.kill()
                started.server.process.wait()
                requests(own, place, given.kind, store, given.count)


if __name__ == "__main__":
    main()
