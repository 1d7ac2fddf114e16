"""Upstream's unmodified programs under faults: a known bug is found, and no false alarm is raised.

kubernetes/kubernetes#137210: with a view that lags behind its own writes the job controller makes
pods that no completion needs. The gate StaleControllerConsistencyJob (1.36) waits for the view.
"""

from pathlib import Path

import pytest

import stockparts
from dralab.kernel.clock import SECOND
from dralab.testing.faults import PlannedFault
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import expected_end, run_trial
from dralab.virtualtime import unavailable

HERE = Path(__file__).parent / "upstream"
OWN = Path(__file__).parent.parent / "testing" / "own"
COMPLETIONS = 3
JOBS = """
programs:
  - command: [{binary}, --kubeconfig, "{{kubeconfig}}", --leader-elect=false, --secure-port=0,
      --controllers=job-controller, --feature-gates=StaleControllerConsistencyJob={gate}]
    name: manager
script:
  - apply: job.yaml
  - wait: 20s
cluster: {{nodes: 2, controllers: false}}
# The gate promises to read its own writes, not to make each pod once: a lost answer still doubles.
faults: {{allow: [hold-watch, expire-watch, end-watch, slow, pause]}}
invariants:
  - python: checks.py:no_pod_twice
"""
CHECKS = f"""
def no_pod_twice(objects, history):
    made = [e for e in history.entries if e.text.startswith("create pods") and e.revision]
    more = len(made) > {COMPLETIONS}
    return f"{{len(made)}} pods were made for {COMPLETIONS} completions" if more else ""
"""
SCHEDULER = """
programs:
  - command: [{binary}, --kubeconfig, "{{kubeconfig}}", --leader-elect=false, --secure-port=0]
    name: scheduler
script:
  - apply: claims-pods.yaml
  - scale: {{apiVersion: apps/v1, kind: Deployment, name: ml}}
    replicas: 6
    after: 15s
  - scale: {{apiVersion: apps/v1, kind: Deployment, name: ml}}
    replicas: 2
    after: 15s
  - delete: {{apiVersion: v1, kind: Pod, selector: app=ml, most: 1}}
    after: 10s
cluster: {{nodes: 2, drivers: [gpu], scheduler: false}}
"""

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.timeout(900),
    pytest.mark.skipif(unavailable() is not None, reason=str(unavailable())),
]
needs_manager = stockparts.needs(stockparts.MANAGER)
needs_scheduler = stockparts.needs(stockparts.SCHEDULER)


def jobs(folder, gate):
    binary = stockparts.found(stockparts.MANAGER)
    (folder / "scenario.yaml").write_text(JOBS.format(binary=binary, gate=gate))
    (folder / "checks.py").write_text(CHECKS)
    (folder / "job.yaml").write_text((HERE / "job.yaml").read_text())
    scenario = load(folder / "scenario.yaml")
    return scenario, expected_end(scenario)


@needs_manager
def test_a_job_controller_that_does_not_see_its_own_writes_makes_pods_twice(tmp_path, seeds):
    scenario, expected = jobs(tmp_path, "false")
    assert search(scenario, expected, seeds(100), fail_fast=True).failures


@needs_manager
def test_a_job_controller_that_waits_for_its_own_writes_makes_no_pod_twice(tmp_path, seeds):
    scenario, expected = jobs(tmp_path, "true")
    # Each of its updates of the Job stays unseen for a while once.
    for nth in range(1, expected.traffic.events["manager", "jobs.batch"] + 1):
        hold = PlannedFault(
            fault="hold-watch", program="manager", verb="watch", resource="jobs.batch",
            nth=nth, duration=5 * SECOND,
        )  # fmt: skip
        assert run_trial(scenario, expected, [hold], 0).violations == ()
    assert search(scenario, expected, seeds(60)).failures == {}


@needs_scheduler
def test_the_scheduler_raises_no_false_alarm(tmp_path, seeds):
    binary = stockparts.found(stockparts.SCHEDULER)
    (tmp_path / "scenario.yaml").write_text(SCHEDULER.format(binary=binary))
    (tmp_path / "claims-pods.yaml").write_text((OWN / "claims-pods.yaml").read_text())
    scenario = load(tmp_path / "scenario.yaml")
    assert search(scenario, expected_end(scenario), seeds(30)).failures == {}
