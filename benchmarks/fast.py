"""Pods decided without a cluster, on fleets of four sizes: CPU time, memory, and how they grow.

    python -m benchmarks.fast                       with claims (`--scheduler dralab-fast`)
    python -m benchmarks.fast firstfit              by a policy: GPUs are shared, without claims
    python -m benchmarks.fast dralab-fast 100000    one size: so many nodes
    python -m benchmarks.fast firstfit 1000000 9000 and so many pods

A week, ten pods a node, 100 to 100,000 nodes with 8 GPUs, each pod for 1 to 8 GPUs or half of
one. CPU time, one core, each size in a process of its own. The largest needs 4 GB. `growth` is that
of the time to run over that of the pods, as an exponent: 1 is linear.
"""

import math
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from dralab.simulation import dispatch
from dralab.simulation.scenario import scenario as scenarios

SIZES = (100, 1_000, 10_000, 100_000)
PODS_A_NODE = 10
SCENARIO = """
seed: 1
fleet: {{nodes: [{{name: n, count: {nodes}, cpu: 64, memory: 256Gi, gpus: 8, model: A100}}]}}
scheduler: {scheduler}
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


def one(scheduler: str, nodes: int, pods: int) -> None:
    """Print the seconds that one size takes, for the growth, and what it costs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scenario.yaml"
        path.write_text(SCENARIO.format(nodes=nodes, pods=pods, scheduler=scheduler))
        began = time.process_time()
        run = dispatch.begin(scenarios.load(path))
        loaded = time.process_time()
        result = run.go()
        over = time.process_time()
    assert all(task.state == "Succeeded" for task in result.tasks)
    waited = sum(task.bound != task.submitted for task in result.tasks)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6
    print(
        f"{over - loaded:7.1f} s to run, {1e6 * (over - loaded) / pods:4.0f} us a pod, "
        f"{loaded - began:5.1f} s to load, {waited:7,} waited, {peak:.2f} GB",
        flush=True,
    )


def main() -> None:
    scheduler = sys.argv[1] if len(sys.argv) > 1 else "dralab-fast"
    if len(sys.argv) > 2:
        nodes = int(sys.argv[2])
        one(scheduler, nodes, int(sys.argv[3]) if len(sys.argv) > 3 else PODS_A_NODE * nodes)
        return
    last = 0.0
    for before, nodes in zip((0, *SIZES), SIZES, strict=False):
        command = [sys.executable, "-m", "benchmarks.fast", scheduler, str(nodes)]
        told = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout.strip()
        took = float(told.split()[0])
        growth = f", growth {math.log(took / last, nodes / before):.2f}" if last else ""
        print(f"{PODS_A_NODE * nodes:9,} pods, {nodes:7,} nodes x 8: {told}{growth}", flush=True)
        last = took


if __name__ == "__main__":
    main()
