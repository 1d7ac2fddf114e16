"""Pods with claims, decided without a cluster (`--scheduler dralab-fast`), on fleets of four sizes.

    python -m benchmarks.fast            1,000 to 100,000 nodes, ten pods a node (5 GB)
    python -m benchmarks.fast 100000     one size: so many nodes

A week, nodes with 8 GPUs, each pod with a claim from a template for 1 to 8 GPUs or half of one. CPU
time, one core, each size in a process of its own.
"""

import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dralab.simulation.engines.fast.run import FastRun
from dralab.simulation.scenario import scenario as scenarios

SIZES = (1_000, 3_000, 10_000, 100_000)
PODS_A_NODE = 10
SCENARIO = """
seed: 1
fleet: {{nodes: [{{name: n, count: {nodes}, cpu: 64, memory: 256Gi, gpus: 8, model: A100}}]}}
scheduler: dralab-fast
workload:
  generate:
    count: {pods}
    arrivals: {{process: poisson, over: 7d}}
    duration: {{distribution: exponential, mean: 100h}}
    pods:
      - {{weight: 4, gpus: 1, cpu: 4, memory: 8Gi}}
      - {{weight: 2, gpus: 2, cpu: 8, memory: 8Gi}}
      - {{weight: 1, gpus: 4, cpu: 16, memory: 16Gi}}
      - {{weight: 1, gpus: 8, cpu: 32, memory: 16Gi}}
      - {{weight: 4, gpus: 1, gpu_milli: 500, cpu: 2, memory: 4Gi}}
"""


def one(nodes: int) -> None:
    pods = PODS_A_NODE * nodes
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(SCENARIO.format(nodes=nodes, pods=pods))
        began = time.process_time()
        run = FastRun(scenarios.load(path))
        loaded = time.process_time()
        result = run.go()
        over = time.process_time()
    assert all(task.state == "Succeeded" for task in result.tasks)
    waited = sum(task.bound != task.submitted for task in result.tasks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{pods:9,} pods, {nodes:7,} nodes x 8: {loaded - began:6.1f} s to load, "
        f"{over - loaded:7.1f} s to run ({1e6 * (over - loaded) / pods:5.0f} us a pod), "
        f"{waited:,} waited, {peak:.2f} GB",
        flush=True,
    )


def main() -> None:
    if len(sys.argv) > 1:
        one(int(sys.argv[1]))
        return
    for nodes in SIZES:
        subprocess.run([sys.executable, "-m", "benchmarks.fast", str(nodes)], check=True)


if __name__ == "__main__":
    main()
