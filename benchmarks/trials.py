"""How many trials a second: programs under faults, in process, beside Sieve and Kamera.

    python -m benchmarks.trials [SEEDS]

Processor seconds of one process, which hardly depend on what else runs; the runs without faults
and the search for shortest schedules are not counted.
"""

import statistics
import sys
import time
from pathlib import Path

from dralab.testing.scenario import load
from dralab.testing.trial import expected_end, run_trial, schedule

ROOT = Path(__file__).parents[1]
SCENARIOS = {
    "an operator of 40 lines": "examples/60-find-the-bug/fixed.yaml",
    "job-controller": "tests/testing/own/jobs.yaml",
    "deployment-controller and replicaset-controller": "tests/testing/own/deployments.yaml",
    "statefulset-controller and daemonset-controller": "tests/testing/own/sets.yaml",
    "scheduler and resourceclaim-controller": "tests/testing/own/claims.yaml",
    "two nodes with a driver": "tests/testing/own/nodes.yaml",
    "five controllers, garbage collector among them": "tests/testing/own/garbage.yaml",
    "persistentvolume-binder-controller": "tests/testing/own/volumes.yaml",
    "device-taint-eviction-controller": "tests/testing/own/taints.yaml",
    "node-lifecycle-controller": "tests/testing/own/lifecycle.yaml",
    "clusterrole-aggregation-controller": "tests/testing/own/roles.yaml",
}
# Published seconds of one scenario of a controller.
OTHERS = "Kamera (SOSP'26): 0.11 to 0.58 s; Sieve (OSDI'22): 233 to 842 s"


def main() -> None:
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 40
    print(f"one trial, processor seconds (median of {seeds} seeds); {OTHERS}")
    for title, path in SCENARIOS.items():
        scenario = load(ROOT / path)
        expected = expected_end(scenario)
        seconds, steps, failed = [], 0, 0
        for seed in range(seeds):
            begun = time.process_time()
            result = run_trial(scenario, expected, schedule(scenario, expected, seed), seed)
            seconds.append(time.process_time() - begun)
            steps += result.steps
            failed += result.failed
        median = statistics.median(seconds)
        print(
            f"  {title}: {median:.3f} s ({1 / median:.0f}/s), {steps // seeds} events, "
            f"{failed} failed"
        )


if __name__ == "__main__":
    main()
