"""kube-scheduler and kube-controller-manager, untouched, through hours or a week of virtual time.

    DRALAB_KUBE_SCHEDULER=./kube-scheduler \\
    DRALAB_KUBE_CONTROLLER_MANAGER=./kube-controller-manager python -m benchmarks.stock_week [HOURS]

Ten CronJobs make 60 pods an hour (10,080 in a week) beside a Deployment, on four nodes of which
one goes down each day. Processor seconds of dralab and of the programs hardly depend on what else
runs; a week is 168 hours.
"""

import os
import resource
import sys
import tempfile
import time
from pathlib import Path

from dralab.simulation.engines.external.run import ExternalRun
from dralab.simulation.scenario import scenario as scenarios

CRON = """
apiVersion: batch/v1
kind: CronJob
metadata: {{name: cron-{number}, namespace: default}}
spec:
  schedule: "{number}-59/10 * * * *"
  jobTemplate:
    spec:
      template:
        metadata: {{annotations: {{simulation.dralab.dev/runs: {seconds}s}}}}
        spec:
          restartPolicy: Never
          containers: [{{name: main, image: none, resources: {{requests: {{cpu: 500m}}}}}}]
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: main, image: none, resources: {requests: {cpu: 500m}}}]
"""
SCENARIO = """
fleet: {{nodes: [{{name: node, count: 4, cpu: 8}}]}}
workload: {{manifests: objects.yaml}}
scheduler: external
external:
  start: "2026-01-01T00:00:00Z"
  controllers: external
  warm_up: 30
  timer_slack: 10
  schedulers:
    default-scheduler: ["{scheduler}", "--config={{config}}", --secure-port=0]
    manager:
    - "{manager}"
    - "--kubeconfig={{kubeconfig}}"
    - --secure-port=0
    - --controllers=*,-persistentvolume-attach-detach-controller,-resourcequota-controller
faults: [{faults}]
stop: {{at: {hours}h}}
"""


def used(who: int) -> float:
    """Return processor seconds."""
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def main() -> None:
    """Run, and print what it took."""
    names = ("DRALAB_KUBE_SCHEDULER", "DRALAB_KUBE_CONTROLLER_MANAGER")
    missing = [name for name in names if name not in os.environ]
    if missing:
        print(f"set {' and '.join(missing)}")
        return
    hours = int(sys.argv[1]) if len(sys.argv) > 1 else 2
    faults = (
        f"{{node: node-{day % 4}, at: {24 * day * 60 + 40}m, for: 30m}}"
        for day in range(-(-hours // 24))
    )
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        objects = [CRON.format(number=n, seconds=60 + 20 * n) for n in range(10)]
        (folder / "objects.yaml").write_text("---".join([*objects, WEB]))
        path = folder / "week.yaml"
        path.write_text(
            SCENARIO.format(
                scheduler=os.environ[names[0]],
                manager=os.environ[names[1]],
                faults=", ".join(faults),
                hours=hours,
            )
        )
        began = time.perf_counter()
        ours, theirs = used(resource.RUSAGE_SELF), used(resource.RUSAGE_CHILDREN)
        result = ExternalRun(scenarios.load(path)).go()
    ended = sum(task.state == "Succeeded" for task in result.tasks)
    print(
        f"{hours} h, {ended} pods ended: {time.perf_counter() - began:.1f} s, "
        f"{used(resource.RUSAGE_SELF) - ours:.1f} s of processors for dralab and "
        f"{used(resource.RUSAGE_CHILDREN) - theirs:.1f} s for the programs; load "
        f"{os.getloadavg()[0]:.0f}"
    )
    print(next(note for note in result.notes if "jumps" in note))


if __name__ == "__main__":
    main()
