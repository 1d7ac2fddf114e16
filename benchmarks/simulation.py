"""Simulated weeks per real minute.

    python -m benchmarks.simulation                 all rows, each in a process of its own
    python -m benchmarks.simulation openb swf       some of them

openb, swf, easy, fleet, cluster and kube-scheduler are the groups of rows.
`openb` and `swf` need the reference traces beside the project, `kube-scheduler` one in PATH or
DRALAB_KUBE_SCHEDULER. Beside: the FGD authors' own simulator (10 minutes on 2 vCPU, their
statement) and batkube's published times. One core each, but for the rows with an outside scheduler.
"""

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from dralab.simulation import dispatch
from dralab.simulation.engines import placement as experiment
from dralab.simulation.engines.batch import outputs
from dralab.simulation.engines.batch import run as runs
from dralab.simulation.engines.external.run import ExternalRun
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.workloads import openb
from dralab.simulation.workloads.openb import GpuNode, PodRequest

TESTDATA = Path(__file__).parents[1] / ".." / "shared" / "testdata"
SECOND = 1_000_000_000
AUTHORS = 600.0
Row = tuple[str, float, float, str]


def rows_openb() -> Iterator[Row]:
    folder = TESTDATA / "alibaba-openb"
    nodes = openb.read_nodes(folder / "openb_node_list_gpu_node.csv")
    pods = openb.read_pods(folder / "openb_pod_list_default.csv")
    for policy in ("firstfit", "bestfit", "fgd"):
        began = time.perf_counter()
        outcome = experiment.run(nodes, pods, policy=policy, seed=42)
        took = time.perf_counter() - began
        name = f"openb default, {len(outcome.measures):,} pods, 1,213 nodes, {policy}"
        yield name, took, AUTHORS / took, "the authors' simulator: 10 minutes"


def rows_swf() -> Iterator[Row]:
    path = TESTDATA / "swf" / "NASA-iPSC-1993-3.1-cln.swf"
    for scheduler in ("easy", "conservative"):
        began = time.perf_counter()
        run = runs.of_swf(path, hosts=128, scheduler=scheduler)
        run.run()
        took = time.perf_counter() - began
        simulated = float(outputs.summary(run)["makespan"])
        yield f"NASA iPSC, 18,239 jobs, {scheduler}", took, simulated / took, "real time"


def rows_easy() -> Iterator[Row]:
    """EASY where more jobs come than can run, and where they can: growth over the sizes."""
    for load, sizes in ((1.3, (12_500, 25_000, 50_000, 100_000)), (0.7, (100_000, 1_000_000))):
        for count in sizes:
            # Powers of two up to 64 are 127 / 7 machines on the average, and run for an hour.
            over = count * 127 / 7 * 3600 / (128 * load)
            content = {
                "fleet": {"hosts": 128},
                "workload": {
                    "generate": {
                        "count": count,
                        "arrivals": {"process": "poisson", "over": over},
                        "duration": {"distribution": "exponential", "mean": 3600},
                        "overestimate": {"least": 1, "most": 3},
                        "jobs": [{"machines": {"distribution": "powers", "least": 1, "most": 64}}],
                    }
                },
                "scheduler": "easy",
                "seed": 1,
            }
            scenario = scenarios.load(Path("easy.yaml"), content=content)
            began = time.process_time()
            found = dispatch.begin(scenario).go()
            took = time.process_time() - began
            yield f"EASY, load {load}, {count:,} jobs", took, found.end / SECOND / took, "real time"


def rows_fleet() -> Iterator[Row]:
    chance = random.Random(1)
    week = 7 * 86_400 * SECOND
    nodes = [GpuNode(f"n{i}", 64_000, 256 << 30, 8, "A100", 110) for i in range(10_000)]
    requests = [
        PodRequest(4000, 1000, 1, ""),
        PodRequest(8000, 1000, 2, ""),
        PodRequest(32_000, 1000, 8, ""),
        PodRequest(2000, 500, 1, ""),
        PodRequest(1000, 0, 0, ""),
        PodRequest(16_000, 1000, 4, ""),
    ]
    pods = [
        Pod(
            name=f"p{i}",
            request=chance.choices(requests, [4, 2, 1, 4, 3, 1])[0],
            memory=chance.choice([4, 8, 16]) << 30,
            arrives=int(chance.random() * week),
            duration=int(chance.expovariate(1 / (100 * 3600 * SECOND))),
        )
        for i in range(100_000)
    ]
    for policy in ("firstfit", "fgd"):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scenario.yaml"
            path.write_text(
                "fleet: {nodes: [{name: n, cpu: 1}]}\nworkload: {pods: [{name: p}]}\n"
                f"scheduler: {policy}\n"
            )
            one = scenarios.load(path)
        work = replace(one.work, pods=tuple(pods))
        loaded = replace(one, fleet=replace(one.fleet, nodes=tuple(nodes)), work=work)
        began = time.perf_counter()
        result = dispatch.begin(loaded).go()
        took = time.perf_counter() - began
        assert all(task.state == "Succeeded" for task in result.tasks)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
        name = f"100,000 pods, 10,000 nodes x 8 GPUs, a week, {policy} ({peak:.2f} GB)"
        yield name, took, result.end / SECOND / took, "real time"


def rows_cluster() -> Iterator[Row]:
    cases = [
        ("2,000 pods x 170 s, 160 nodes", "count: 160, cpu: 1", "count: 2000, cpu: 1"),
        ("2,000 pods with a GPU each, 20 nodes x 8", "count: 20, cpu: 64, gpus: 8",
         "count: 2000, cpu: 1, gpus: 1"),
    ]  # fmt: skip
    for name, nodes, pods in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scenario.yaml"
            path.write_text(
                f"fleet: {{nodes: [{{name: n, {nodes}}}]}}\nscheduler: dralab\n"
                f"workload: {{pods: [{{name: p, {pods}, duration: 170s}}]}}\n"
            )
            began = time.perf_counter()
            result = dispatch.begin(scenarios.load(path)).go()
            took = time.perf_counter() - began
        assert all(task.state == "Succeeded" for task in result.tasks)
        yield f"whole cluster: {name}", took, result.end / SECOND / took, "real time"


def rows_kube_scheduler() -> Iterator[Row]:
    program = os.environ.get("DRALAB_KUBE_SCHEDULER") or shutil.which("kube-scheduler")
    if program is None:
        print("skipped: no kube-scheduler (set DRALAB_KUBE_SCHEDULER)")
        return
    cases = [
        ("burst, 200 x 170 s on 16 nodes", 200, 16, 14.0, "batkube: 14 to 53 s"),
        ("2,000 x 170 s on 160 nodes", 2000, 160, 7.6, "a prototype: 7.6 s"),
    ]
    for name, pods, nodes, other, beside in cases:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "scenario.yaml"
            path.write_text(
                f"fleet: {{nodes: [{{name: n, count: {nodes}, cpu: 1}}]}}\n"
                f"workload: {{pods: [{{name: p, count: {pods}, duration: 170s, cpu: 1}}]}}\n"
                "scheduler: external\nexternal:\n  quiet_period: 0.05\n"
                f"  command: [{program}, '--config={{config}}', --secure-port=0]\n"
            )
            loaded = scenarios.load(path)
            began = time.perf_counter()
            result = ExternalRun(loaded).go()
            took = time.perf_counter() - began
            late = next(note for note in result.notes if note.startswith("late"))
            yield f"untouched kube-scheduler, {name} ({late})", took, other / took, beside


ROWS = {
    "openb": rows_openb,
    "swf": rows_swf,
    "easy": rows_easy,
    "fleet": rows_fleet,
    "cluster": rows_cluster,
    "kube-scheduler": rows_kube_scheduler,
}


def main() -> None:
    wanted = sys.argv[1:]
    if len(wanted) == 1:
        for name, took, ratio, beside in ROWS[wanted[0]]():
            print(f"{name:78} {took:8.2f} s {ratio:14,.1f} x  {beside}", flush=True)
        return
    for name in wanted or ROWS:
        if name in {"openb", "swf"} and not TESTDATA.exists():
            print(f"skipped {name}: the reference traces are not beside the project")
            continue
        subprocess.run([sys.executable, "-m", "benchmarks.simulation", name], check=True)


if __name__ == "__main__":
    main()
