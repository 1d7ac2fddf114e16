"""k8s-cluster-simulator's configuration, phases, order and metrics."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError
from dralab.simulation import dispatch
from dralab.simulation.engines.fast import tick_metrics as metrics
from dralab.simulation.scenario import scenario, simulator_config
from dralab.simulation.workloads import phases

CONFIG = """\
logLevel: warn
tick: 5
metricsTick: 10
startClock: 2024-05-01T00:00:00+09:00
metricsLogger:
- {dest: out.json, formatter: JSON}
- {dest: out.txt, formatter: humanReadable}
- {dest: out.table, formatter: table}
cluster:
- metadata: {name: big, labels: {zone: a}}
  status: {allocatable: {cpu: 8, memory: 16Gi, nvidia.com/gpu: 2, pods: 4}}
- metadata: {name: small}
  status: {allocatable: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 1, pods: 2}}
"""
POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: two-phases
  annotations:
    simSpec: |
      - seconds: 5
        resourceUsage: {cpu: 1, memory: 2Gi, nvidia.com/gpu: 0}
      - seconds: 10
        resourceUsage: {cpu: 2, memory: 4Gi, nvidia.com/gpu: 1}
spec:
  priority: 3
  containers:
  - name: main
    resources:
      requests: {cpu: 3, memory: 5Gi, nvidia.com/gpu: 1}
      limits: {cpu: 6, memory: 6Gi, nvidia.com/gpu: 1}
"""


@pytest.fixture
def files(tmp_path):
    (tmp_path / "config.yaml").write_text(CONFIG)
    (tmp_path / "pods.yaml").write_text(POD)
    return tmp_path


def test_use_follows_the_phases_and_is_nothing_after_them():
    found = phases.parse(
        "- {seconds: 5, resourceUsage: {cpu: 1}}\n- {seconds: 10, resourceUsage: {cpu: 2, memory: 4Gi}}"
    )
    assert [phases.usage_at(found, s).get("cpu", 0) for s in (0, 4, 5, 7, 14, 15)] == [
        1,
        1,
        2,
        2,
        2,
        0,
    ]
    assert phases.usage_at(found, 7)["memory"] == 4 << 30
    assert phases.total(found) == 15


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be a list|no YAML list"),
        ("5", "must be a list"),
        ("- {seconds: 5}", "resourceUsage must be given"),
        ("- {seconds: -5, resourceUsage: {}}", "whole seconds"),
        ("- {seconds: 5, resourceUsage: {cpu: lots}}", "not a quantity"),
    ],
)
def test_a_broken_annotation_is_named(text, problem):
    with pytest.raises(ValueError, match=problem):
        phases.parse(text)


def test_the_command_runs_a_configuration_and_writes_three_formats(files):
    done = CliRunner().invoke(
        main, ["simulate", "run", str(files / "config"), str(files / "pods.yaml")]
    )
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == {
        "seconds": 15, "pods": 1, "succeeded": 1, "deleted": 0, "over_capacity": 0, "pending": 0,
    }  # fmt: skip
    text = (files / "out.json").read_text()
    assert "\n" not in text
    written = json.loads(text)
    assert written["Clock"] == "2024-05-01T00:00:10+09:00"
    assert list(written["Nodes"]) == ["big", "small"]
    assert set(written["Nodes"]["big"]) == {
        "Allocatable", "RunningPodsNum", "TerminatingPodsNum", "FailedPodsNum",
        "TotalResourceRequest", "TotalResourceUsage",
    }  # fmt: skip
    pod = written["Pods"]["default/two-phases"]
    assert pod == {
        "ResourceRequest": {"cpu": "3", "memory": "5Gi", "nvidia.com/gpu": "1"},
        "ResourceLimit": {"cpu": "6", "memory": "6Gi", "nvidia.com/gpu": "1"},
        "ResourceUsage": {"cpu": "2", "memory": "4Gi", "nvidia.com/gpu": "1"},
        "BoundAt": "2024-05-01T00:00:00+09:00", "Node": "big", "ExecutedSeconds": 10,
        "Priority": 3, "Status": "Ok",
    }  # fmt: skip
    assert written["Queue"] == {"PendingPodsNum": 0}
    people = (files / "out.txt").read_text()
    assert (
        "    big: Pods 1(0)/4, memMB 4096/5120/16384, cpu 2/3/8, nvidia.com/gpu 1/1/2, Failed 0"
        in people
    )
    assert (
        "    default/two-phases: prio 3, bound at 2024-05-01T00:00:00+09:00 on big, status Ok, elapsed 10 s, memMB"
        in people
    )
    assert "memory (MB)" in (files / "out.table").read_text()


PODS = """\
fleet: {nodes: [{name: n, cpu: 4}]}
workload:
  pods:
  - {name: low, cpu: 3, duration: 40s}
  - {name: high, cpu: 3, duration: 10s, at: 5s, priority: 7}
tick: 5s
"""


def test_the_head_of_the_queue_blocks_what_is_behind_it(tmp_path):
    text = (
        "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload:\n  pods:\n"
        "  - {name: a, cpu: 3, duration: 9s}\n  - {name: b, cpu: 2, duration: 10s, at: 1s}\n"
        "  - {name: c, cpu: 1, duration: 10s, at: 2s}\ntick: 5s\n"
    )
    assert lives(run(tmp_path, text, scheduler="ticks")) == {
        "a": ("Succeeded", 0, 9), "b": ("Succeeded", 10, 20), "c": ("Succeeded", 10, 20),
    }  # fmt: skip


def test_preemption_deletes_the_fewest_pods_of_lower_priority(tmp_path):
    text = (
        "fleet: {nodes: [{name: n, cpu: 4}]}\nworkload:\n  pods:\n"
        "  - {name: low, cpu: 2, duration: 300s}\n"
        "  - {name: mid, cpu: 2, duration: 300s, priority: 1}\n"
        "  - {name: high, cpu: 2, duration: 10s, at: 10s, priority: 9}\ntick: 5s\n"
    )
    assert lives(run(tmp_path, text, scheduler="ticks-preemption")) == {
        "low": ("Failed", 0, 10), "mid": ("Succeeded", 0, 300), "high": ("Succeeded", 40, 50),
    }  # fmt: skip


def test_pods_that_fit_nowhere_do_not_keep_a_run_going(tmp_path):
    text = PODS.replace("cpu: 3, duration: 10s", "cpu: 5, duration: 10s")
    found = run(tmp_path, text, scheduler="ticks")
    assert (found.complete, found.end // SECOND) == (True, 40)
    assert found.tasks[1].reason == "0/1 nodes are available: 1 Insufficient cpu."


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("dest: out.json", "dest: ''", "stdout, stderr or a path"),
        ("formatter: JSON", "formatter: XML", "'XML' is not one of"),
        ("tick: 5", "tick: 0", "at least 1"),
        ("+09:00", "", "no time zone"),
        ("name: small", "name: big", "two nodes 'big'"),
        ("cpu: 8,", "cpu: lots,", "not a quantity"),
    ],
)
def test_a_broken_configuration_is_named(files, old, new, problem):
    (files / "config.yaml").write_text(CONFIG.replace(old, new, 1))
    with pytest.raises(InputError, match=problem):
        simulator_config.read(files / "config.yaml")


def test_metrics_never_leave_the_folder_and_pods_need_phases(files):
    (files / "config.yaml").write_text(CONFIG.replace("out.json", "../out.json"))
    with pytest.raises(InputError, match="outside the folder"):
        metrics.MetricsWriter(simulator_config.read(files / "config.yaml"))
    (files / "pods.yaml").write_text(POD.replace("simSpec", "other"))
    done = CliRunner().invoke(
        main, ["simulate", "run", str(files / "config"), str(files / "pods.yaml")]
    )
    assert done.exit_code == 2


SCENARIO = """\
fleet: {simulator: config.yaml}
workload: {manifests: pods.yaml}
scheduler: ticks
"""


def run(folder, text, **more):
    (folder / "scenario.yaml").write_text(text)
    return dispatch.begin(scenario.load(folder / "scenario.yaml", **more)).go()


def lives(result):
    return {
        task.id: (task.state, task.started, task.ended) if task.started is None else (
            task.state, task.started // SECOND, task.ended // SECOND
        )
        for task in result.tasks
    }  # fmt: skip


def test_a_scenario_runs_tick_by_tick_with_the_ticks_of_the_configuration(files):
    found = run(files, SCENARIO)
    assert lives(found) == {"two-phases": ("Succeeded", 0, 15)}
    assert found.complete
    assert found.capacity == {"cpu": 12_000, "memory": 24 << 30, "gpu": 3000}
    assert [(sample.when // SECOND, sample.cpu, sample.running) for sample in found.samples] == [
        (0, 3000, 1), (15, 0, 0),
    ]  # fmt: skip
    slower = run(files, SCENARIO + "tick: 20s\n")
    assert slower.end // SECOND == 20


def test_pods_without_phases_use_what_they_request_and_preemption_is_a_choice(tmp_path):
    assert lives(run(tmp_path, PODS, scheduler="ticks")) == {
        "low": ("Succeeded", 0, 40), "high": ("Succeeded", 40, 50),
    }  # fmt: skip
    # What is deleted has its grace of 30 seconds.
    assert lives(run(tmp_path, PODS, scheduler="ticks-preemption")) == {
        "low": ("Failed", 0, 5), "high": ("Succeeded", 35, 45),
    }  # fmt: skip
    ended = run(tmp_path, PODS + "stop: {ended: 1}\n", scheduler="ticks")
    assert (ended.complete, ended.end // SECOND) == (True, 40)


def test_a_run_in_ticks_is_stopped_and_goes_on_from_its_checkpoint(tmp_path):
    many = PODS.replace("{name: low,", "{name: low, count: 200, every: 3s,")
    whole = run(tmp_path, many, scheduler="ticks")
    loaded = scenario.load(tmp_path / "scenario.yaml", scheduler="ticks")
    part = dispatch.begin(loaded)
    assert not part.go(stop=lambda: True).complete
    part.save(tmp_path / "checkpoint")
    assert dispatch.begin(loaded, tmp_path / "checkpoint").go() == whole


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            "duration: 40s",
            "memory: 1Gi",
            "Pod default/low: never ends: give it the annotation simSpec",
        ),
        ("tick: 5s", "tick: 1.5s", "tick: must be whole seconds"),
        ("tick: 5s", "scheduler: {name: ticks, strict_order: true}", "its own order"),
    ],
)
def test_what_no_tick_can_have_is_refused(tmp_path, old, new, problem):
    with pytest.raises(InputError, match=problem):
        run(tmp_path, PODS.replace(old, new), scheduler="ticks")


def test_ticks_are_for_the_schedulers_that_move_in_them(tmp_path):
    with pytest.raises(InputError, match="tick: is for ticks and ticks-preemption, not for 'fgd'"):
        run(tmp_path, PODS, scheduler="fgd")


def test_all_that_decides_where_a_pod_goes_counts(tmp_path):
    labelled = PODS.replace("duration: 40s", "duration: 40s, node_labels: {a: b}")
    found = run(tmp_path, labelled, scheduler="ticks")
    assert found.tasks[0].state == "Pending"
    assert "didn't match Pod's node affinity/selector" in found.tasks[0].reason


def test_scores_are_whole_points_and_of_equal_ones_the_first_node_is_taken():
    # 9 CPUs: 8 of 9 left are 8 points, and the larger node is the better one. With two pods it has
    # 7 of 9 left, 7 points as the smaller one has with 3 of 4.
    pod = {"duration": "1h", "cpu": 1, "memory": "2Gi"}
    content = {
        "fleet": {"nodes": [{"name": "a", "cpu": 4, "memory": "8Gi"}, {"name": "b", "cpu": 9, "memory": "18Gi"}]},
        "workload": {"pods": [{"name": "first"} | pod, {"name": "second", "at": "10s"} | pod]},
        "scheduler": "ticks",
    }  # fmt: skip
    result = dispatch.begin(scenario.load(Path("ticks"), content=content)).go()
    assert [result.lanes[task.lanes[0]] for task in result.tasks] == ["b", "a"]
