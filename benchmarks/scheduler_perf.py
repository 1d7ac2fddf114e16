"""Upstream's own benchmark of DRA, from its own files: scheduler_perf against dralab.

    python -m benchmarks.scheduler_perf [--folder DRA] [--case NAME ...] [--beside PROGRAMS]

DRA is test/integration/scheduler_perf/dra of the module k8s.io/kubernetes; without it the Go
module proxy is asked. The table has every case, by the workloads in `TABLE`, or those that are
named. Each workload runs its operations (nodes, slices, classes, claims, pods)
against a server, a scheduler and the controller of claims in this process. Measured is from the
first pod of the measured operation to the last binding, creation of the pods included, as upstream
does; in seconds of the processor, so that other work on the machine counts less. "whole" is the
processor time of the workload with its preparation.

--beside names the folder of upstream's test programs (`tools/build_clients.py FOLDER
scheduler-perf`); each workload is also run by them, which takes minutes. They need etcd on the
PATH. Their rate is by the clock, as upstream states it: one sample a second, so there is none of
workloads that take less than two. Some numbers of upstream's files are changed (`CHANGED`). Their
processor time is that of the whole run, with the server, etcd and some 7 s to start.
"""

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import yaml

from dralab.allocation.fleet import Fleet
from dralab.allocation.inventory.placements import DevicePlacement
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.api.yaml_documents import single
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.controllers.claims import ResourceClaims
from dralab.kernel.randomness import Randomness
from dralab.runtime.client import Resource
from dralab.runtime.garbage import collect_rarely
from dralab.runtime.local import LocalClient
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLAIMS, CLASSES, NAMESPACES, NODES, PODS, SLICES
from dralab.runtime.simulated import SimulatedEngine
from dralab.scheduler.scheduler import Scheduler

MODULE = "k8s.io/kubernetes@v1.36.2"
WITHIN = "test/integration/scheduler_perf/dra"
# The default node of `createNodes`.
NODE = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {"generateName": "scheduler-perf-"},
    "status": {
        "capacity": {"pods": "110", "cpu": "4", "memory": "32Gi"},
        "conditions": [{"status": "True", "type": "Ready"}],
    },
}
# All cases, by a small workload, and that for which upstream's CI demands a rate.
TABLE = (
    "SchedulingWithResourceClaimTemplate/5000pods_500nodes",
    "SchedulingWithResourceClaimTemplate/2000pods_100nodes",
    "SchedulingWithResourceClaim/2000pods_100nodes",
    "SteadyStateClusterResourceClaimTemplate/*_100nodes",
    "PublishResourceSlices/500nodes",
    "ConsumableCapacity/2000pods_100nodes",
    "Partitionable/2000pods_100nodes",
    "PartitionableBacktracking/fast",
    "FirstAvailable/fast",
    "DeviceTaintToleration/fast",
    "ExtendedResource/fast",
    "*ExtendedResource*/2000pods_200nodes",
)
# Numbers that are changed in upstream's files, for both sides. Upstream looks at every pool for
# each node and pod: with 2,000 pools it does not end in its 30 minutes. Ten pods are too few for
# a rate.
CHANGED: Mapping[str, Mapping[str, int]] = {
    "ConsumableCapacity/2000pods_100nodes": {
        "nodesWithDRA": 20,
        "resourceSlices": 400,
        "measurePods": 400,
    },
    "Partitionable/2000pods_100nodes": {
        "nodesWithDRA": 20,
        "resourceSlices": 400,
        "initClaims": 400,
        "measurePods": 400,
    },
    "FirstAvailable/fast": {"nodesWithDRA": 100, "count": 1000},
    "DeviceTaintToleration/fast": {"nodesWithDRA": 100, "measurePods": 1000},
    "ExtendedResource/fast": {"nodesWithDRA": 50, "classes": 500, "measurePods": 500},
}
STEP = re.compile(r"{{\s*(?:(\w+) )?\.Index(?: (\d+))?\s*}}")


@dataclass(frozen=True)
class Workload:
    """A test case with the parameters of one of its workloads."""

    name: str
    folder: Path
    operations: Sequence[Mapping[str, Any]]
    params: Mapping[str, Any]


@dataclass
class Measured:
    """How many pods were bound, and what that took."""

    pods: int = 0
    seconds: float = 0.0
    whole: float = 0.0

    @property
    def rate(self) -> float:
        return self.pods / self.seconds if self.seconds else 0.0


def workloads(folder: Path) -> Iterator[Workload]:
    """Yield the workloads of all files below a folder."""
    for path in sorted(folder.rglob("performance-config.yaml")):
        for case in yaml.safe_load(path.read_text()):
            for item in case["workloads"]:
                name = f"{case['name']}/{item['name']}"
                yield Workload(
                    name, path.parent, case["workloadTemplate"], item.get("params") or {}
                )


def change_numbers(folder: Path) -> None:
    """Write the numbers of `CHANGED` into a copy of upstream's files."""
    for path in folder.rglob("performance-config.yaml"):
        cases = yaml.safe_load(path.read_text())
        for case in cases:
            for item in case["workloads"]:
                numbers = {**CHANGED.get(f"{case['name']}/{item['name']}", {})}
                count = numbers.pop("count", None)
                item.get("params", {}).update(numbers)
                for operation in case["workloadTemplate"]:
                    if count and "count" in operation:
                        operation["count"] = count
        path.write_text(yaml.safe_dump(cases, sort_keys=False))


class Bench:
    """A server, a scheduler and the controller of claims in this process, for one workload."""

    def __init__(self, workload: Workload) -> None:
        self.workload = workload
        self.engine = SimulatedEngine()
        self.engine.clock.advance_to(1_800_000_000 * 10**9)
        self.server = ApiServer(MemoryStore(), clock=self.engine.clock, randomness=Randomness(1))
        self.client = LocalClient(self.server.resources, self.server.hub)
        manager = Manager(self.engine, self.client, Randomness(2))
        ResourceClaims(manager)
        self.scheduler = Scheduler(manager, CelSelectorCompiler())
        manager.start()
        self.measured = Measured()
        self.templates: dict[str, str] = {}
        self.numbers: dict[str, int] = {}

    def run(self) -> Measured:
        collect_rarely()
        began = time.process_time()
        for operation in self.workload.operations:
            getattr(self, f"do_{operation['opcode']}")(operation)
        self.measured.whole = time.process_time() - began
        return self.measured

    def settle(self) -> None:
        self.engine.settle(at_most=1_000_000_000)

    def do_startCollectingMetrics(self, _: Mapping[str, Any]) -> None:  # noqa: N802
        self.measured.seconds -= time.process_time()

    def do_stopCollectingMetrics(self, _: Mapping[str, Any]) -> None:  # noqa: N802
        self.settle()
        self.measured.seconds += time.process_time()

    def do_createNodes(self, operation: Mapping[str, Any]) -> None:  # noqa: N802
        path = operation.get("nodeTemplatePath")
        for number in range(self.count(operation)):
            node = self.rendered(path, number) if path else NODE
            status = node["status"]
            made = self.client.create(NODES, self.named(node))
            # The server taints new nodes as not ready; upstream's has no such plugin on.
            made = self.client.update(NODES, {**made, "spec": {}})
            whole = {**status, "allocatable": status["capacity"]}
            self.client.update(NODES, {**made, "status": whole}, subresource="status")
        self.settle()

    def do_createResourceDriver(self, operation: Mapping[str, Any]) -> None:  # noqa: N802
        most = self.param(operation, "maxClaimsPerNode")
        for node in self.client.list(NODES).items:
            name = node["metadata"]["name"]
            if fnmatch(name, operation["nodes"]):
                self.client.create(SLICES, slice_of(operation["driverName"], name, most))
        self.settle()

    def do_createAny(self, operation: Mapping[str, Any]) -> None:  # noqa: N802
        for number in range(self.count(operation, default=1)):
            self.create(
                self.rendered(operation["templatePath"], number), operation.get("namespace")
            )
        self.settle()

    def do_allocResourceClaims(self, operation: Mapping[str, Any]) -> None:  # noqa: N802
        """Allocate claims without pods, each on a random node."""
        chance = random.Random(1)
        nodes = self.client.list(NODES).items
        fleet = Fleet(
            nodes,
            self.client.list(SLICES).items,
            self.client.list(CLASSES).items,
        )
        names = [node["metadata"]["name"] for node in nodes]
        for claim in self.client.list(CLAIMS, operation["namespace"]).items:
            chance.shuffle(names)
            tried = (fleet.allocate([claim], fleet.candidates_of([name])) for name in names)
            found = next((each for each in tried if isinstance(each, DevicePlacement)), None)
            if found is None:
                raise SystemExit(f"claim {claim['metadata']['name']} cannot be allocated")
            status = {"status": {"allocation": found.allocations[0]}}
            self.client.update(CLAIMS, {**claim, **status}, subresource="status")
        self.settle()

    def do_createPods(self, operation: Mapping[str, Any]) -> None:  # noqa: N802
        count, namespace = self.count(operation), operation["namespace"]
        path, measured = operation["podTemplatePath"], bool(operation.get("collectMetrics"))
        steady = self.param(operation, "steadyState", default=False)
        limit = _seconds(self.param(operation, "duration", default="0s")) if steady else 0.0
        self.ensure(namespace)
        began = time.process_time()
        while True:
            names = []
            for number in range(count):
                made = self.create(self.rendered(path, number), namespace)
                names.append(made["metadata"]["name"])
            self.settle()
            self.check(namespace, names)
            if measured:
                self.measured.pods += count
                self.measured.seconds = time.process_time() - began
            if not steady or time.process_time() - began >= limit:
                return
            for name in names:
                self.client.delete(PODS, name, namespace, options={"gracePeriodSeconds": 0})
            self.settle()

    def check(self, namespace: str, names: Sequence[str]) -> None:
        """All pods have nodes, or the workload did not do what it should."""
        for name in names:
            pod = self.client.get(PODS, name, namespace)
            if not pod["spec"].get("nodeName"):
                told = pod.get("status", {}).get("conditions")
                raise SystemExit(f"{self.workload.name}: pod {name} has no node: {told}")

    # --- objects

    def count(self, operation: Mapping[str, Any], default: int = 0) -> int:
        return int(self.param(operation, "count", default=default))

    def param(self, operation: Mapping[str, Any], name: str, default: Any = None) -> Any:
        if f"{name}Param" in operation:
            return self.workload.params[operation[f"{name}Param"].removeprefix("$")]
        return operation.get(name, default)

    def rendered(self, path: str, number: int) -> dict[str, Any]:
        """Read a template: of Go's language it uses `.Index`, `Mod` and `DivideInt`."""
        if path not in self.templates:
            self.templates[path] = (self.workload.folder / path).read_text()

        def value(found: re.Match[str]) -> str:
            function, argument = found[1], int(found[2] or 1)
            return str(number % argument if function == "Mod" else number // argument)

        # What is measured includes this: upstream renders its templates in Go.
        loaded: dict[str, Any] = single(STEP.sub(value, self.templates[path]))
        return loaded

    def create(self, item: dict[str, Any], namespace: str | None) -> dict[str, Any]:
        if namespace:
            self.ensure(namespace)
        kinds = self.server.resources.kinds
        kind = next(
            each
            for each in kinds
            if (each.api_version, each.kind) == (item["apiVersion"], item["kind"])
        )
        where = Resource(kind.group, kind.version, kind.plural, kind.namespaced)
        return self.client.create(where, self.named(item), namespace or "")

    def named(self, item: dict[str, Any]) -> dict[str, Any]:
        """Give a name for `generateName`, so that runs are alike."""
        metadata = dict(item["metadata"])
        if "name" not in metadata:
            prefix = metadata.pop("generateName")
            self.numbers[prefix] = self.numbers.get(prefix, 0) + 1
            metadata["name"] = f"{prefix}{self.numbers[prefix]:06d}"
        return {**item, "metadata": metadata}

    def ensure(self, namespace: str) -> None:
        if namespace not in self.numbers:
            self.numbers[namespace] = 0
            body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
            self.client.create(NAMESPACES, body)


def slice_of(driver: str, node: str, count: int) -> dict[str, Any]:
    """The slice that upstream's operation createResourceDriver makes."""
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": node},
        "spec": {
            "driver": driver,
            "nodeName": node,
            "pool": {"name": node, "generation": 0, "resourceSliceCount": 1},
            "devices": [
                {
                    "name": f"instance-{number}",
                    "attributes": {
                        "model": {"string": "A100"},
                        "family": {"string": "GPU"},
                        "driverVersion": {"version": "1.2.3"},
                        "dra.example.com/numa": {"int": number},
                    },
                    "capacity": {"memory": {"value": "1Gi"}},
                }
                for number in range(count)
            ],
        },
    }


def _seconds(text: str) -> float:
    return float(str(text).removesuffix("s"))


# --- upstream's own ------------------------------------------------------------------------------


def module_folder() -> Path:
    """Where upstream's files are, from the Go module proxy."""
    words = ["go", "mod", "download", "-json", MODULE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{MODULE} cannot be had: name its folder with --folder")
    return Path(json.loads(done.stdout)["Dir"]) / WITHIN


def beside(programs: Path, workload: Workload) -> tuple[float, str]:
    """Run upstream's benchmark of one workload: its processor time, and its rate or why none."""
    case, _, name = workload.name.partition("/")
    with tempfile.TemporaryDirectory() as place:
        words = [
            str((programs / f"{workload.folder.name}.test").resolve()),
            "-test.run=^$", "-test.benchtime=1ns", "-test.timeout=1h",
            f"-test.bench=^BenchmarkPerfScheduling$/^{case}$/^{name}$",
            "-perf-scheduling-label-filter=", f"-data-items-dir={place}",
        ]  # fmt: skip
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        done = subprocess.run(
            words, cwd=workload.folder, capture_output=True, text=True, check=False, env=os.environ
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        whole = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        rates = [
            f"{item['data']['Average']:.1f}"
            for path in Path(place).glob("*.json")
            for item in json.loads(path.read_text())["dataItems"] or ()
            if item["labels"].get("Metric") == "SchedulingThroughput"
        ]
        rate = rates[0] if rates else "no sample"
        if done.returncode:
            # Also where the rate is below the one that upstream's CI demands.
            print(done.stdout[-2000:], done.stderr[-2000:], file=sys.stderr)
            rate += f", exit code {done.returncode}"
        return whole, rate


def row(workload: Workload, programs: Path | None) -> str:
    """Measure one workload: a row of the table."""
    measured = Bench(workload).run()
    changed = ", ".join(f"{key} {value}" for key, value in CHANGED.get(workload.name, {}).items())
    cells = [
        workload.name + (f" ({changed})" if changed else ""),
        str(measured.pods or ""),
        f"{measured.seconds:.2f}",
        f"{measured.rate:,.0f}" if measured.pods else "",
        f"{measured.whole:.2f}",
    ]
    if programs:
        whole, rate = beside(programs, workload)
        cells += [f"{whole:.1f}", rate]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--case", action="append", help="CASE/WORKLOAD, with wildcards")
    parser.add_argument("--beside", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "dra"
        shutil.copytree(options.folder or module_folder(), folder, copy_function=shutil.copyfile)
        change_numbers(folder)
        found = list(workloads(folder))
        titles = ["workload", "pods", "CPU s", "pods per CPU s", "whole CPU s"]
        if options.beside:
            titles += ["upstream, whole CPU s", "its pods/s by the clock"]
        print(f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", sep="\n", flush=True)
        for pattern in options.case or TABLE:
            for workload in found:
                if fnmatch(workload.name, pattern):
                    print(row(workload, options.beside), flush=True)


if __name__ == "__main__":
    main()
