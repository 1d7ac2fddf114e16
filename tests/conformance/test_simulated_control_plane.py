"""The unmodified kube-scheduler and kube-controller-manager with simulated nodes and time."""

import pytest

import stockparts
from clocked import needs_clock
from dralab.simulation.engines.external.run import ExternalRun
from dralab.simulation.scenario import scenario as scenarios

pytestmark = [
    pytest.mark.conformance,
    needs_clock,
    stockparts.needs(stockparts.SCHEDULER, stockparts.MANAGER),
]

OBJECTS = """
apiVersion: batch/v1
kind: Job
metadata: {name: batch, annotations: {simulation.dralab.dev/runs: 100s}}
spec:
  completions: 4
  parallelism: 2
  template:
    spec:
      restartPolicy: Never
      containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: i, resources: {requests: {cpu: "1"}}}]
"""
SCENARIO = """
fleet: {{nodes: [{{name: node, count: 2, cpu: 2}}]}}
workload: {{manifests: objects.yaml}}
scheduler: external
external:
  start: "2026-01-01T00:00:00Z"
  controllers: external
  warm_up: 30
  timer_slack: 1
  schedulers:
    default-scheduler: [{scheduler}, "--config={{config}}", --secure-port=0]
    manager:
      - {manager}
      - "--kubeconfig={{kubeconfig}}"
      - --secure-port=0
      - "--controllers=*,-persistentvolume-attach-detach-controller"
faults: [{{node: node-1, at: 5m, for: 20m}}]
stop: {{at: 15m}}
"""


def test_both_stock_programs_run_jobs_and_replace_the_pods_of_a_lost_node(tmp_path):
    (tmp_path / "objects.yaml").write_text(OBJECTS)
    scenario = tmp_path / "scenario.yaml"
    text = SCENARIO.format(
        scheduler=stockparts.found(stockparts.SCHEDULER),
        manager=stockparts.found(stockparts.MANAGER),
    )
    scenario.write_text(text)
    result = ExternalRun(scenarios.load(scenario)).go()
    batch = [task for task in result.tasks if task.id.startswith("batch-")]
    assert [task.state for task in batch] == ["Succeeded"] * 4
    # Two at a time; what its timers do may be a second late.
    assert [round(task.bound / 1e9, -1) for task in batch] == [0, 0, 100, 100]
    web = [task.bound / 1e9 for task in result.tasks if task.id.startswith("web-")]
    # Lost at 300 s, missed 50 s later, evicted 300 s after that.
    replaced = [bound for bound in web if bound > 10]
    assert replaced
    assert all(645 <= bound <= 665 for bound in replaced)
    assert "late binds: 0" in result.notes
