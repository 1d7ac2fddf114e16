"""An unmodified kube-scheduler under the virtual clock: batkube's burst, and where its time goes.

    DRALAB_KUBE_SCHEDULER=./kube-scheduler python -m benchmarks.stock_scheduler [NODES PODS]

The yardstick is the ideal schedule: rounds of 170 s, each with as many pods as there are cores.
"""

import os
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path

from dralab.simulation.engines.external.run import ExternalRun
from dralab.simulation.results import metrics
from dralab.simulation.scenario import scenario as scenarios

LENGTH = 170  # seconds that a pod runs
SCENARIO = """
fleet: {{nodes: [{{name: node, count: {nodes}, cpu: 1}}]}}
workload: {{pods: [{{name: job, count: {pods}, cpu: 1, duration: {length}s}}]}}
scheduler: external
external:
  start: "2026-01-01T00:00:00Z"
  timer_slack: {slack}
  command: ["{scheduler}", "--config={{config}}", --secure-port=0]
"""


def used(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def burst(scheduler: str, nodes: int, pods: int, slack: int, folder: Path) -> None:
    path = folder / "burst.yaml"
    path.write_text(
        SCENARIO.format(nodes=nodes, pods=pods, length=LENGTH, slack=slack, scheduler=scheduler)
    )
    began = time.perf_counter()
    ours, theirs = used(resource.RUSAGE_SELF), used(resource.RUSAGE_CHILDREN)
    result = ExternalRun(scenarios.load(path)).go()
    found = metrics.metrics_of(result)
    rounds = -(-pods // nodes)
    print(
        f"{pods} pods on {nodes} nodes, timer_slack {slack}: {time.perf_counter() - began:.1f} s, "
        f"{used(resource.RUSAGE_SELF) - ours:.1f} s of processors for dralab and "
        f"{used(resource.RUSAGE_CHILDREN) - theirs:.1f} s for the scheduler; "
        f"makespan {found['makespan']:g} (ideal {rounds * LENGTH}), "
        f"mean wait {found['wait_mean']:g}"
    )
    print(next(note for note in result.notes if "jumps" in note))


def main() -> None:
    scheduler = os.environ.get("DRALAB_KUBE_SCHEDULER") or shutil.which("kube-scheduler")
    if scheduler is None:
        print("no kube-scheduler on the PATH, and DRALAB_KUBE_SCHEDULER names none")
        return
    nodes, pods = map(int, sys.argv[1:3] if len(sys.argv) > 2 else (16, 200))
    with tempfile.TemporaryDirectory() as folder:
        for slack in (0, 10):
            burst(scheduler, nodes, pods, slack, Path(folder))


if __name__ == "__main__":
    main()
