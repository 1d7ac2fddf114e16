"""Scenario files: what they say, what is refused, and that the same file gives the same bytes."""

import copy
import json

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.kernel.durations import duration
from dralab.scenarios.errors import InputError
from dralab.simulation import dispatch
from dralab.simulation.campaigns import comparison
from dralab.simulation.results import metrics, outputs
from dralab.simulation.results.result import Result, StateSample, Task
from dralab.simulation.scenario import scenario as scenarios

S = 1_000_000_000

FLEET = "fleet:\n  nodes:\n  - {count: 2, name: n, cpu: 4, memory: 16Gi, gpus: 2, model: A}\n"
WEEK = (
    "name: week\nseed: 3\nfleet:\n  nodes:\n"
    "  - {count: 4, name: gpu, cpu: 64, memory: 256Gi, gpus: 8, model: A100}\n"
    "workload:\n  generate:\n    count: 100\n    users: 3\n"
    "    arrivals: {process: poisson, over: 1d}\n"
    "    duration: {distribution: lognormal, median: 1h, sigma: 1.0}\n"
    "    pods:\n    - {weight: 2, cpu: 4, memory: 8Gi, gpus: 1, gpu_milli: 400}\n"
    "    - {weight: 1, cpu: 8, memory: 8Gi, gpus: 4, gang: 2}\n"
    "scheduler: fgd\nlifecycle: {start: {delay: 5s, jitter: 2s}, release: 15s, failure: 0.05, retries: 1}\n"
    "faults:\n- {node: gpu-1, at: 6h, for: 1h}\n"
)


@pytest.fixture
def scenario(tmp_path):
    def write(text, name="scenario.yaml"):
        path = tmp_path / name
        path.write_text(text)
        return path

    return write


def run(path, **changes):
    return dispatch.begin(scenarios.load(path, **changes)).go()


def times(result):
    return {t.id: (t.started // S, t.ended // S) for t in result.tasks if t.ended is not None}


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (90, 90),
        ("90s", 90),
        ("1h30m", 5400),
        ("1.5h", 5400),
        ("7d", 604_800),
        ("250ms", 0.25),
        (0, 0),
    ],
)
def test_a_duration_is_seconds_or_a_text_with_units(given, expected):
    assert duration(given) == round(expected * S)


@pytest.mark.parametrize("given", ["soon", "", "5", "-5s", -5, None, "5x", "h", True])
def test_what_is_no_duration_is_refused(given):
    with pytest.raises(ValueError, match="not a duration"):
        duration(given)


def test_pods_wait_for_room_and_start_when_it_is_freed(scenario):
    path = scenario(
        "fleet: {nodes: [{name: a, cpu: 1}]}\n"
        "workload: {pods: [{name: p, count: 3, every: 10s, duration: 30s, cpu: 1}]}\n"
        "scheduler: firstfit\n"
    )
    assert times(run(path)) == {"p-0": (0, 30), "p-1": (30, 60), "p-2": (60, 90)}


@pytest.mark.thorough
def test_the_bursts_of_batkube_have_their_ideal_numbers(scenario):
    def numbers(count, seconds, every, extra=""):
        path = scenario(
            "fleet: {nodes: [{name: n, count: 16, cpu: 1}]}\n"
            f"workload: {{pods: [{{name: p, count: {count}, every: {every}s, duration: {seconds}s, cpu: 1}}]}}\n"
            f"scheduler: default\n{extra}"
        )
        found = metrics.metrics_of(run(path))
        return found["makespan"], round(found["wait_mean"], 3), found["wait_max"]

    assert numbers(200, 170, 0) == (2210, 979.2, 2040)
    assert numbers(200, 170, 10) == (2280, 57.6, 120)
    assert numbers(200, 160, 10) == (2150, 0, 0)
    assert numbers(200, 90, 5) == (1205, 57.6, 120)
    assert numbers(300, 200, 0) == (3800, 1776, 3600)
    assert numbers(150, 200, 10) == (2050, 168, 360)
    # A core that stays occupied 15 s longer than the run: what a real small cluster does.
    release = "lifecycle: {release: 15s}\n"
    assert numbers(200, 170, 0, release)[:2] == (2390, 1065.6)
    assert numbers(200, 170, 10, release)[:2] == (2460, 144.0)
    assert numbers(200, 160, 10, release)[:2] == (2330, 86.4)


def test_a_gang_starts_together_or_not_at_all(scenario):
    path = scenario(
        "fleet: {nodes: [{name: a, cpu: 3}]}\nworkload:\n  jobs:\n"
        "  - {name: one, machines: 2, duration: 10s}\n  - {name: two, machines: 2, duration: 10s}\n"
        "  - {name: three, machines: 1, duration: 5s}\nscheduler: firstfit\n"
    )
    assert times(run(path)) == {
        "one-0": (0, 10), "one-1": (0, 10), "three": (0, 5), "two-0": (10, 20), "two-1": (10, 20),
    }  # fmt: skip


def test_strict_order_lets_the_head_block_what_is_behind_it(scenario):
    text = (
        "fleet: {nodes: [{name: a, cpu: 3}]}\nworkload:\n  pods:\n"
        "  - {name: one, cpu: 2, duration: 10s}\n  - {name: two, cpu: 2, duration: 10s, at: 1s}\n"
        "  - {name: three, cpu: 1, duration: 5s, at: 1s}\n"
    )
    free = scenario(text + "scheduler: firstfit\n")
    assert times(run(free))["three"] == (1, 6)
    strict = scenario(text + "scheduler: {name: firstfit, strict_order: true}\n")
    assert times(run(strict))["three"] == (10, 15)


def test_a_higher_priority_goes_first_and_a_quota_holds_back(scenario):
    path = scenario(
        "fleet: {nodes: [{name: a, cpu: 2}]}\nqueues: {small: {cpu: 1}}\nworkload:\n  pods:\n"
        "  - {name: first, cpu: 2, duration: 10s}\n"
        "  - {name: low, cpu: 1, duration: 10s, at: 1s, queue: small}\n"
        "  - {name: high, cpu: 1, duration: 10s, at: 2s, queue: small, priority: 5}\n"
        "  - {name: free, cpu: 1, duration: 10s, at: 3s}\nscheduler: firstfit\n"
    )
    result = run(path)
    # A queue admits who comes first; whom it admits takes the place of those of lower priority.
    assert times(result) == {"first": (0, 10), "low": (10, 20), "free": (10, 20), "high": (20, 30)}


def test_a_pod_of_higher_priority_takes_a_place_by_any_policy(scenario):
    path = scenario(
        "fleet: {nodes: [{name: a, cpu: 9, gpus: 1, model: A}]}\nworkload:\n  pods:\n"
        "  - {name: low, cpu: 1, gpus: 1, gpu_milli: 600, duration: 10s}\n"
        "  - {name: high, cpu: 1, gpus: 1, gpu_milli: 500, duration: 10s, at: 2s, priority: 5}\n"
        "scheduler: fgd\n"
    )
    result = run(path)
    assert times(result) == {"high": (2, 12), "low": (12, 22)}
    assert [task.evictions for task in result.tasks] == [1, 0]


def test_what_keeps_a_pod_from_each_node_is_counted_by_reason(scenario):
    path = scenario(
        "fleet:\n  nodes:\n  - {name: down, cpu: 8, gpus: 1, model: A}\n"
        "  - {name: small, cpu: 1, gpus: 1, model: A}\n"
        "  - {name: little, cpu: 8, memory: 1Gi, gpus: 1, model: A}\n"
        "  - {name: full, cpu: 8, pods: 1}\n  - {name: other, cpu: 8, gpus: 1, model: B}\n"
        "  - {name: taken, cpu: 8, gpus: 1, model: A}\n"
        "faults: [{node: down, at: 0}]\nworkload:\n  pods:\n"
        "  - {name: a, cpu: 7, memory: 2Gi, duration: 1h, node_labels: {kubernetes.io/hostname: full}}\n"
        "  - {name: b, cpu: 1, memory: 2Gi, gpus: 1, gpu_milli: 600, duration: 1h, "
        "node_labels: {kubernetes.io/hostname: taken}}\n"
        "  - {name: p, at: 1m, cpu: 2, memory: 2Gi, gpus: 1, gpu_milli: 500, models: A, duration: 1m}\n"
        "stop: {at: 30m}\nscheduler: firstfit\n"
    )
    result = run(path)
    assert result.tasks[-1].reason == (
        "0/6 nodes are available: 1 Insufficient GPUs with 500 milli left, 1 Insufficient memory, "
        "1 Too many pods, 1 node(s) had GPUs of another model, 1 node(s) had untolerated taint "
        "{node.kubernetes.io/unreachable: }, 2 Insufficient cpu."
    )
    assert set(result.refusals) >= {"Insufficient cpu", "Insufficient memory"}


def test_a_node_that_goes_down_evicts_and_comes_back(scenario):
    path = scenario(
        "fleet: {nodes: [{name: a, cpu: 1}]}\nfaults: [{node: a, at: 5s, for: 10s}]\n"
        "workload: {pods: [{name: p, cpu: 1, duration: 20s}]}\nscheduler: firstfit\n"
    )
    result = run(path)
    assert times(result) == {"p": (15, 35)}
    assert result.tasks[0].evictions == 1


def test_a_pod_that_fits_nowhere_does_not_hold_up_the_end_and_says_why(scenario):
    path = scenario(FLEET + "workload: {pods: [{name: p, cpu: 9, duration: 1s}]}\nscheduler: fgd\n")
    result = run(path)
    assert (result.tasks[0].state, result.tasks[0].reason) == (
        "Pending",
        "0/2 nodes are available: 2 Insufficient cpu.",
    )
    assert metrics.metrics_of(result)["never_started"] == 1


@pytest.mark.thorough
def test_the_same_scenario_and_seed_give_the_same_bytes_and_another_seed_others(scenario, tmp_path):
    path = scenario(WEEK)

    def files(seed):
        folder = tmp_path / f"out-{seed}"
        return [p.read_bytes() for p in outputs.write(run(path, seed=seed), folder)]

    assert files(3) == files(3)
    assert files(3) != files(4)


@pytest.mark.thorough
def test_a_run_that_was_stopped_goes_on_to_the_very_same_end(scenario, tmp_path):
    for text in (
        WEEK,
        WEEK.split("workload:", maxsplit=1)[0].replace(
            "nodes:\n  - {count: 4, name: gpu, cpu: 64, memory: 256Gi, gpus: 8, model: A100}",
            "hosts: 3",
        )
        + "workload: {jobs: [{name: j, count: 30, every: 3s, duration: 20s, walltime: 30s}]}\nscheduler: easy\n",
    ):
        loaded = scenarios.load(scenario(text))
        whole = outputs.summary(dispatch.begin(loaded).go())
        asked = []
        first = dispatch.begin(loaded)
        part = first.go(stop=lambda asked=asked: asked.append(1) or len(asked) > 2)
        assert not part.complete
        assert sum(t.ended is not None for t in part.tasks) < len(part.tasks)
        first.save(tmp_path / "checkpoint")
        resumed = dispatch.begin(loaded, tmp_path / "checkpoint")
        assert outputs.summary(resumed.go()) == whole


def test_a_checkpoint_of_another_scenario_is_refused(scenario, tmp_path):
    path = scenario(WEEK)
    dispatch.begin(scenarios.load(path)).save(tmp_path / "checkpoint")
    with pytest.raises(InputError, match="another scenario"):
        dispatch.begin(scenarios.load(path, seed=99), tmp_path / "checkpoint")
    with pytest.raises(InputError, match="not a checkpoint"):
        dispatch.begin(scenarios.load(path), path)


def test_formats_of_other_tools_run_in_a_scenario(scenario, workload_file, tmp_path):
    workload_file((1, 0, 2, 50, 10), (2, 0, 1, 50, 10), machines=2)
    (tmp_path / "log.swf").write_text("1 0 0 10 2 -1 -1 2 15 -1 1 7 1 1 1 1 -1 -1\n")
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\np0,1000,10,1,500,,LS,Running,5,25,5\n"
    )
    (tmp_path / "nodes.csv").write_text("sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1000000,2,T4\n")
    (tmp_path / "ticks.yaml").write_text(
        "tick: 5\ncluster:\n- metadata: {name: left}\n"
        "  status: {allocatable: {cpu: 4, memory: 8Gi, nvidia.com/gpu: 2, pods: 9}}\n"
    )
    (tmp_path / "pods.yaml").write_text(
        "apiVersion: v1\nkind: Pod\nmetadata:\n  name: one\n  annotations:\n"
        "    simulation.dralab.dev/arrives: 3s\n    simulation.dralab.dev/runs: 10s\n"
        "spec:\n  containers:\n  - name: c\n    resources: {requests: {cpu: 500m}}\n---\n"
        "apiVersion: batch/v1\nkind: Job\nmetadata:\n  name: two\nspec:\n  parallelism: 2\n"
        "  template:\n    metadata:\n      annotations:\n        simSpec: |\n"
        "          - {seconds: 5, resourceUsage: {cpu: 1}}\n          - {seconds: 10, resourceUsage: {cpu: 2}}\n"
        "    spec:\n      containers:\n      - name: c\n        resources: {limits: {nvidia.com/gpu: 1}}\n"
    )
    cases = [
        ("hosts: 2", "batsim: jobs.json", "easy", {"1": (0, 10), "2": (10, 20)}),
        ("hosts: 2", "batsim: jobs.json", "firstfit", {"1-0": (0, 10), "1-1": (0, 10), "2": (10, 20)}),
        ("hosts: 2", "swf: log.swf", "easy", {"1": (0, 10)}),
        ("openb: nodes.csv", "openb: pods.csv", "fgd", {"p0": (5, 25)}),
        ("openb: nodes.csv", "manifests: pods.yaml", "fgd",
         {"one": (3, 13), "two-0": (0, 15), "two-1": (0, 15)}),
        ("simulator: ticks.yaml", "manifests: pods.yaml", "bestfit",
         {"one": (3, 13), "two-0": (0, 15), "two-1": (0, 15)}),
        ("shape: {name: h100, nodes: 1}", "manifests: pods.yaml", "packing",
         {"one": (3, 13), "two-0": (0, 15), "two-1": (0, 15)}),
    ]  # fmt: skip
    for fleet, work, scheduler, expected in cases:
        path = scenario(f"fleet: {{{fleet}}}\nworkload: {{{work}}}\nscheduler: {scheduler}\n")
        assert times(run(path)) == expected, (fleet, work)


@pytest.mark.parametrize(
    ("text", "line", "where", "problem"),
    [
        (FLEET + "workload: {pods: []}\nscheduler: magic\n", 5, "scheduler", "'magic' is not one of"),
        (FLEET + "workload:\n  pods:\n  - {name: p, cpu: -1, duration: 1}\n", 6,
         "workload.pods[0].cpu", "negative"),
        (FLEET + "workload:\n  pods:\n  - {name: p, cpu: much}\n", 6, "workload.pods[0].cpu", "not a quantity"),
        (FLEET + "workload:\n  pods:\n  - {name: p, colour: red}\n", 6, "workload.pods[0].colour", "is unknown"),
        (FLEET + "workload:\n  pods:\n  - {name: p, duration: -5}\n", 6, "workload.pods[0].duration", "not a duration"),
        (FLEET + "workload:\n  batsim: ../../etc/passwd\n", 5, "workload.batsim", "outside the folder"),
        (FLEET + "workload:\n  swf: none.swf\n", 5, "workload.swf", "there is no file"),
        (FLEET + "workload: {}\n", 4, "workload", "must have one of"),
        ("fleet: {nodes: []}\nworkload: {pods: []}\n", 1, "fleet", "has no node"),
        (FLEET + "workload: {pods: []}\nlifecycle: {failure: 2}\n", 5, "lifecycle.failure", "probability"),
        (FLEET + "workload: {pods: []}\nfaults: [{node: x, at: 1}]\n", 5, "faults[0].node", "no node 'x'"),
        (FLEET + "workload: {pods: []}\nfaults: {every: 1d, repair: 1h}\n", None, "stop", "give `at`"),
        (FLEET + "seed: 1\nseed: 2\n", 5, "seed", "given twice"),
        ("[1, 2]", None, "", "one mapping"),
        ("a: [", 2, "", "not YAML"),
        (FLEET + "workload: {generate: {count: 5, arrivals: {process: poisson}, pods: [{duration: 1}]}}\n", 4,
         "workload.generate.arrivals.over", "must be given"),
    ],
)  # fmt: skip
def test_a_broken_scenario_is_named_with_line_and_field(scenario, text, line, where, problem):
    with pytest.raises(InputError) as caught:
        scenarios.load(scenario(text))
    assert problem in str(caught.value)
    assert caught.value.where == where
    if line is not None:
        assert caught.value.line == line


def test_users_schedulers_are_python_files_beside_the_scenario(scenario, tmp_path):
    (tmp_path / "mine.py").write_text(
        "class Fullest:\n"
        "    def prefer(self, pod, node):\n"
        "        return -node.cpu if node.name != 'n-0' else None\n"
    )
    path = scenario(
        FLEET + "workload: {pods: [{name: p, cpu: 1, duration: 1s}]}\nscheduler: mine.py:Fullest\n"
    )
    result = run(path)
    assert [result.lanes[lane] for lane in result.tasks[0].lanes] == ["n-1"]
    with pytest.raises(InputError, match="there is no class 'Other'"):
        scenarios.load(path, scheduler="mine.py:Other")
    with pytest.raises(InputError, match="outside the folder"):
        scenarios.load(path, scheduler="../mine.py:Fullest")


@pytest.mark.parametrize(("strict", "waits"), [("true", [0, 90, 80]), ("false", [0, 90, 0])])
def test_in_strict_order_a_late_small_pod_waits_behind_the_head(scenario, strict, waits):
    pods = (
        "[{name: j, cpu: 5900m, duration: 100s}, {name: w, at: 10s, cpu: 5, duration: 50s},"
        " {name: s, at: 20s, cpu: 100m, duration: 5s}]"
    )
    path = scenario(
        f"fleet: {{nodes: [{{name: n, cpu: 6}}]}}\nworkload: {{pods: {pods}}}\n"
        f"scheduler: {{name: firstfit, strict_order: {strict}}}\n"
    )
    tasks = run(path).tasks
    assert [(task.started - task.submitted) // S for task in tasks] == waits


@pytest.mark.parametrize("name", ["dralab", "external"])
def test_a_strict_order_is_refused_where_the_scheduler_has_its_own(scenario, name):
    path = scenario(
        FLEET + "workload: {pods: [{name: p, duration: 1s}]}\n"
        f"scheduler: {{name: {name}, strict_order: true}}\n"
    )
    with pytest.raises(InputError, match="strict_order is for built-in policies"):
        scenarios.load(path)


@pytest.mark.parametrize("answer", ["'x'", "[]", "float('inf')", "float('nan')", "1e300"])
def test_a_users_scheduler_that_returns_no_number_is_told_so_in_one_line(
    scenario, tmp_path, answer
):
    (tmp_path / "mine.py").write_text(
        f"class Odd:\n    def prefer(self, pod, node):\n        return {answer}\n"
    )
    path = scenario(
        FLEET + "workload: {pods: [{name: p, cpu: 1, duration: 1s}]}\nscheduler: mine.py:Odd\n"
    )
    done = CliRunner().invoke(main, ["simulate", "run", str(path)])
    assert done.exit_code == 2
    assert "mine.py:2: Odd.prefer: must return a number between" in done.stderr


@pytest.mark.thorough
def test_the_command_prints_a_summary_and_writes_files(scenario, tmp_path):
    path = scenario(WEEK)
    done = CliRunner().invoke(main, ["simulate", "run", str(path), "--write", str(tmp_path / "r")])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout) == json.loads((tmp_path / "r" / "summary.json").read_text())
    bad = CliRunner().invoke(main, ["simulate", "run", str(path), "--scheduler", "magic"])
    assert (bad.exit_code, bad.stdout) == (2, "")


def task(name, submitted, started, ended, width=1, user="a"):
    return Task(
        name, user, "Succeeded", submitted * S, started * S, started * S, ended * S, width, (0,)
    )


def test_every_number_of_three_tasks_is_that_worked_out_by_hand():
    tasks = [task("1", 0, 0, 100), task("2", 0, 100, 104), task("3", 50, 104, 124, user="b")]
    samples = [
        StateSample(w * S, q, r, r, 0, 0.0)
        for w, q, r in [(0, 1, 1), (50, 2, 1), (100, 1, 1), (104, 0, 1), (124, 0, 0)]
    ]
    found = metrics.metrics_of(
        Result(
            name="", scheduler="", seed=0, tasks=tasks, samples=samples, lanes=["n"],
            capacity={"cpu": 2}, end=124 * S,
        )
    )  # fmt: skip
    assert (found["makespan"], found["ended"]) == (124, 3)
    assert found["throughput_per_hour"] == pytest.approx(3 / 124 * 3600)
    assert (found["wait_mean"], found["wait_max"]) == (pytest.approx((0 + 100 + 54) / 3), 100)
    assert found["turnaround_mean"] == pytest.approx((100 + 104 + 74) / 3)
    assert found["slowdown_mean"] == pytest.approx((1 + 26 + 3.7) / 3)
    assert found["bounded_slowdown_mean"] == pytest.approx((1 + 10.4 + 3.7) / 3)
    assert found["utilisation_cpu"] == pytest.approx(124 / (124 * 2))
    assert found["mean_waiting"] == pytest.approx((50 * 1 + 50 * 2 + 4 * 1) / 124)
    assert found["wait_fairness"] == pytest.approx((5.7 + 3.7) ** 2 / (2 * (5.7**2 + 3.7**2)))


def test_means_over_seeds_have_a_deviation_and_an_interval_and_a_test_of_difference():
    found = comparison.over_seeds([1.0, 2.0, 3.0])
    assert (found["mean"], found["sd"]) == (2, 1)
    assert found["ci95"] == pytest.approx(4.303 / 3**0.5)
    assert comparison.over_seeds([5.0])["sd"] is None


def test_an_error_of_input_travels_between_processes():
    error = InputError("a.yaml", "must be given", line=3, where="fleet")
    assert str(copy.copy(error)) == str(error) == "a.yaml:3: fleet: must be given"


def test_runs_of_the_same_seed_are_compared_in_pairs():
    base = {1: 10.0, 2: 50.0, 3: 90.0}
    found = comparison.paired(base, {1: 12.0, 2: 51.0, 3: 93.0, 4: 0.0})
    assert found["difference"] == 2
    assert found["ci95"] == pytest.approx(4.303 / 3**0.5)
    assert found["significant"] == 0
    assert comparison.paired(base, {1: 12.0, 2: 52.1, 3: 91.9})["significant"] == 1
    assert comparison.paired(base, {1: 12.0})["significant"] is None
    assert comparison.paired(base, {7: 1.0})["difference"] is None


@pytest.mark.thorough
@pytest.mark.parametrize(
    "policy",
    [
        "kubernetes",
        "fragmentation-aware",
        pytest.param("pack", marks=pytest.mark.conformance),
        pytest.param("spread", marks=pytest.mark.conformance),
    ],
)
def test_the_policies_of_the_allocator_place_pods_and_give_no_gpu_twice(scenario, policy):
    path = scenario(WEEK.replace("faults:\n- {node: gpu-1, at: 6h, for: 1h}\n", ""))
    result = run(path, scheduler=f"allocation:{policy}")
    assert metrics.metrics_of(result)["ended"] >= len(result.tasks) - 3
    events = []
    for task in result.tasks:
        if task.ended is None:
            continue
        share = task.gpu_milli // len(task.lanes)
        events += [(task.started, 1, lane, share) for lane in task.lanes]
        events += [(task.ended + 15 * S, 0, lane, -share) for lane in task.lanes]
    held = {}
    for _, _, lane, share in sorted(events):
        held[lane] = held.get(lane, 0) + share
        assert held[lane] <= 1000
    again = run(path, scheduler=f"allocation:{policy}")
    assert outputs.task_rows(again) == outputs.task_rows(result)


DRAWN = (
    "fleet: {hosts: 64}\nseed: 5\nscheduler: easy\nworkload:\n  generate:\n    count: 300\n"
    "    users: 4\n    arrivals: {process: poisson, over: 1d}\n"
    "    duration: {distribution: lognormal, median: 20m, sigma: 1.2}\n"
    "    overestimate: {least: 1.5, most: 5}\n    jobs:\n    - {weight: 3, machines: 1}\n"
    "    - {weight: 2, machines: {distribution: powers, least: 2, most: 64}}\n"
    "    - {weight: 1, machines: {distribution: uniform, least: 3, most: 7}, duration: 5m, user: x}\n"
)


def test_rigid_jobs_are_drawn_with_sizes_run_times_and_overestimated_walltimes(scenario):
    loaded = scenarios.load(scenario(DRAWN))
    jobs = loaded.work.jobs.jobs
    assert len(jobs) == 300
    widths = {job.width for job in jobs}
    assert widths <= {1, 2, 3, 4, 5, 6, 7, 8, 16, 32, 64}
    assert {1, 64} <= widths
    lengths = loaded.work.jobs.profiles
    for job in jobs:
        assert 1.5 <= job.walltime / lengths[job.profile].duration < 5.01
    assert {job.user for job in jobs} == {"x", *(f"user-{n}" for n in range(4))}
    assert metrics.metrics_of(run(scenario(DRAWN)))["succeeded"] == 300
    assert scenarios.load(scenario(DRAWN)).work == loaded.work
    assert scenarios.load(scenario(DRAWN), seed=6).work != loaded.work
    # Drawn sizes do not change when run times do.
    other = scenarios.load(scenario(DRAWN.replace("20m", "40m"))).work.jobs.jobs
    assert [job.width for job in other] == [job.width for job in jobs]


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("hosts: 64", "hosts: 32", r"generate.jobs: job-\d+ drew 64 machines; there are 32"),
        ("least: 2, most: 64", "least: 5, most: 7", "no power of two"),
        ("least: 2, most: 64", "least: 5, most: 3", "must be from 5"),
        ("powers", "primes", "'primes' is not one of uniform, powers"),
        ("least: 1.5", "least: 0.5", "at least 1"),
        ("weight: 3", "weight: x", "must be a number"),
    ],
)
def test_jobs_that_cannot_be_drawn_are_named(scenario, old, new, problem):
    with pytest.raises(InputError, match=problem):
        scenarios.load(scenario(DRAWN.replace(old, new)))


def test_a_users_policy_sees_the_task_whole_and_pods_that_ask_alike_are_told_apart(
    scenario, tmp_path
):
    (tmp_path / "mine.py").write_text(
        "class ByUser:\n"
        "    def prefer(self, pod, node):\n"
        "        return 1 if node.name == pod.user else None\n"
    )
    path = scenario(
        FLEET + "workload: {pods: [{name: p, cpu: 1, duration: 1s, user: n-1},"
        " {name: q, cpu: 1, duration: 1s, user: n-0}, {name: r, cpu: 1, duration: 1s, user: x}]}\n"
        "scheduler: mine.py:ByUser\n"
    )
    result = run(path)
    assert [[result.lanes[lane] for lane in task.lanes] for task in result.tasks] == [
        ["n-1"], ["n-0"], [],
    ]  # fmt: skip
    assert "node(s) were refused by the policy" in result.tasks[2].reason
