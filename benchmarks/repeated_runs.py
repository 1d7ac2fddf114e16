"""How often an unmodified kube-scheduler does the same, under the virtual clock, with preemption.

    DRALAB_KUBE_SCHEDULER=./kube-scheduler python -m benchmarks.repeated_runs [RUNS]

61 pods of three priorities on four equal nodes: kube-scheduler chooses among ties at random, and
evicts pods twice. Equal are the bytes of `tasks.csv`.
"""

import hashlib
import os
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from dralab.simulation.engines.external.run import ExternalRun
from dralab.simulation.results import outputs
from dralab.simulation.scenario import scenario as scenarios

SCENARIO = """
fleet: {{nodes: [{{name: node, count: 4, cpu: 4}}]}}
workload:
  pods:
  - {{name: low, count: 48, cpu: 1, every: 5s, duration: 100s}}
  - {{name: middle, count: 12, cpu: 2, every: 13s, duration: 60s, priority: 10}}
  - {{name: urgent, at: 60s, cpu: 4, duration: 40s, priority: 100}}
scheduler: external
external:
  start: "2026-01-01T00:00:00Z"
  command: ["{scheduler}", "--config={{config}}", --secure-port=0]
"""


def tasks(scheduler: str, folder: Path) -> tuple[bytes, int]:
    """Return `tasks.csv` of one run, and how often a pod was evicted."""
    path = folder / "preemption.yaml"
    path.write_text(SCENARIO.format(scheduler=scheduler))
    result = ExternalRun(scenarios.load(path)).go()
    outputs.write(result, folder / "results")
    evicted = sum(task.evictions for task in result.tasks)
    return (folder / "results" / "tasks.csv").read_bytes(), evicted


def main() -> None:
    """Run, and count the different outcomes."""
    scheduler = os.environ.get("DRALAB_KUBE_SCHEDULER") or shutil.which("kube-scheduler")
    if scheduler is None:
        print("no kube-scheduler on the PATH, and DRALAB_KUBE_SCHEDULER names none")
        return
    runs = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    seen: Counter[str] = Counter()
    began, evicted = time.perf_counter(), 0
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(runs):
            data, evicted = tasks(scheduler, Path(folder))
            seen[hashlib.sha256(data).hexdigest()[:12]] += 1
    wall = (time.perf_counter() - began) / runs
    print(
        f"{runs} runs of 61 pods, {evicted} evictions each, {wall:.1f} s each at load "
        f"{os.getloadavg()[0]:.0f}: {seen.most_common(1)[0][1]} equal ({dict(seen)})"
    )


if __name__ == "__main__":
    main()
