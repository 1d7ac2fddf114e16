"""Scenarios in rounds: who runs when and where, by which policy, and what is refused."""

import random
from itertools import pairwise

import pytest
import yaml

import dralab
from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError
from dralab.simulation import dispatch
from dralab.simulation.engines.fast import round_policies
from dralab.simulation.reports.gantt import gantt
from dralab.simulation.reproductions import tiresias
from dralab.simulation.results import trace
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario.schedulers import ROUNDS

FLEET = {
    "nodes": [
        {"name": "fast", "cpu": 8, "gpus": 2, "model": "v100"},
        {"name": "slow", "cpu": 8, "gpus": 2, "model": "k80"},
    ]
}
ONE_GPU = {"nodes": [{"name": "only", "cpu": 8, "gpus": 1, "model": "v100"}]}
ONE_EACH = [
    {"name": "a", "steps": 400, "speeds": {"v100": 2, "k80": 1}},
    {"name": "b", "steps": 400, "speeds": {"v100": 2, "k80": 1}},
]


def scenario(trainings, *, fleet=FLEET, **more):
    """Return the content of a scenario with rounds of a minute."""
    return {"fleet": fleet, "workload": {"trainings": trainings}, "round": "1m", **more}


def run(trainings, scheduler="rounds:fifo", **more):
    """Return a run and its tasks by name."""
    found = dralab.simulate(scenario(trainings, **more), scheduler=scheduler)
    return found, {task.id.removeprefix("default/"): task for task in found.result.tasks}


def ends(trainings, scheduler="rounds:fifo", **more):
    """Return when the trainings end, in seconds, in the order of their names."""
    _, tasks = run(trainings, scheduler, **more)
    return [task.ended and task.ended / SECOND for _, task in sorted(tasks.items())]


def test_a_training_runs_at_the_speed_of_the_fastest_gpu_that_is_free():
    trainings = [
        {"name": n, "gpus": 2, "steps": 300, "speeds": {"v100": 2, "k80": 1}} for n in "ab"
    ]
    assert ends(trainings) == [150, 300]


def test_starting_takes_time_and_continuing_more():
    """B is shorter: at 120 s it gets the GPU, and a loads its checkpoint afterwards."""
    trainings = [
        {"name": "a", "duration": 300, "startup": 10},
        {"name": "b", "duration": 30, "at": 100, "startup": 10},
    ]
    found, tasks = run(trainings, "rounds:shortest", fleet=ONE_GPU, lifecycle={"restart": 5})
    # A did 110 s of work; then 10 + 5 s of the round at 180 s are lost.
    assert [tasks[n].ended / SECOND for n in "ab"] == [180 + 15 + 190, 120 + 40]
    assert [(s.since // SECOND, s.until // SECOND) for s in tasks["a"].stays] == [
        (0, 120),
        (180, 385),
    ]
    assert tasks["a"].evictions == 1
    assert tasks["a"].idle == 25 * SECOND
    assert found.summary["idle_gpu_hours"] == pytest.approx(35 / 3600)


def test_without_a_length_a_round_lasts_until_something_happens():
    trainings = [{"name": "a", "duration": 100}, {"name": "b", "duration": 10, "at": 5}]
    assert ends(trainings, "rounds:shortest", fleet=ONE_GPU, round=0) == [110, 15]


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize(
    ("name", "theirs"),
    [("fifo", "fifo"), ("fifo-fit", "fjf"), ("fewest-gpus", "sjf"), ("shortest", "shortest"),
     ("shortest-service", "shortest-gpu"), ("las", "dlas"), ("las-2d", "dlas-gpu")],
)  # fmt: skip
def test_a_scenario_ends_as_the_reproduction_does(name, theirs, seed, tmp_path):
    """The jobs of Tiresias' sample format, of GPUs on one node, job by job."""
    chance = random.Random(seed)
    at, jobs = 0, []
    for number in range(25):
        at += chance.randrange(300)
        jobs.append((number, chance.choice([1, 2, 4, 8]), at, chance.randrange(1, 9000)))
    lines = [",".join(map(str, job)) for job in jobs]
    (tmp_path / "jobs.csv").write_text("\n".join(["job_id,num_gpu,submit_time,duration", *lines]))
    (tmp_path / "needs.csv").write_text("duration\n1\n")
    published = tiresias.ends(tmp_path / "jobs.csv", tmp_path / "needs.csv", theirs, gpus=8)
    trainings = [{"name": str(n), "gpus": w, "at": at, "duration": d} for n, w, at, d in jobs]
    fleet = {"nodes": [{"name": "n", "cpu": 8, "gpus": 8}]}
    _, tasks = run(trainings, f"rounds:{name}", fleet=fleet, round=0)
    assert {key: task.ended / SECOND for key, task in tasks.items()} == {
        key: end for key, (_, end) in published.items()
    }


def drawn(seed):
    """Return trainings that come within an hour."""
    chance = random.Random(seed)
    return [
        {
            "name": f"t{number}",
            "at": chance.randrange(3600),
            "gpus": 1 if seed % 2 else chance.choice([1, 1, 2]),
            "steps": chance.randrange(100, 3000),
            "speeds": {"v100": chance.choice([1.5, 2, 4]), "k80": chance.choice([0.5, 1])},
            "startup": 7,
        }
        for number in range(12)
    ]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "scheduler", sorted({*ROUNDS} - {"rounds:sia", "rounds:optimus", "rounds:pollux"})
)
def test_whatever_decides_work_is_done_once_and_a_gpu_has_one_task(scheduler, seed):
    trainings = drawn(1 if scheduler == "rounds:allox" else seed)
    found, tasks = run(trainings, scheduler)
    lanes = found.result.lanes
    assert found.summary["succeeded"] == len(trainings)
    used = {}
    for each in trainings:
        task = tasks[each["name"]]
        held = 0.0
        for stay in task.stays:
            models = {lanes[lane].partition("/")[0] for lane in stay.lanes}
            assert len(models) == 1
            assert len(stay.lanes) == each["gpus"]
            speed = each["speeds"]["v100" if models == {"fast"} else "k80"]
            held += speed * (stay.until - stay.since) / SECOND
            for lane in stay.lanes:
                used.setdefault(lane, []).append((stay.since, stay.until))
        # What it lost to loading is between the speeds of the two models.
        lost = task.idle / SECOND
        slow, fast = sorted(each["speeds"].values())
        assert held - slow * lost >= each["steps"] * 0.9999
        if scheduler != "rounds:gandiva":  # pairs have half of the speed each
            assert held - fast * lost <= each["steps"] * 1.0001
    if scheduler != "rounds:gandiva":
        for spans in used.values():
            assert all(one[1] <= two[0] for one, two in pairwise(sorted(spans)))
    assert max(sample.gpu for sample in found.result.samples) <= 4000


def test_every_name_has_a_policy():
    known = {
        *round_policies.QUEUES,
        *round_policies.SHARES,
        *round_policies.POP,
        "throughput",
        "optimus",
        "pollux",
        "sia",
    }
    assert {f"rounds:{name}" for name in known} == set(ROUNDS)


def test_pods_and_gangs_share_gpus_in_rounds():
    """The two pods of a gang are one job; each has its GPU."""
    content = {
        "fleet": {"nodes": [{"name": "n", "count": 2, "cpu": 8, "gpus": 1}]},
        "workload": {
            "generate": {
                "count": 2, "duration": "90s", "arrivals": {"process": "burst"},
                "pods": [{"gpus": 1, "gang": 2}],
            }
        },
        "scheduler": "rounds:las-2d",
        "round": "1m",
    }  # fmt: skip
    found = dralab.simulate(content).result
    assert len(found.tasks) == 4
    for one, two in (found.tasks[:2], found.tasks[2:]):
        assert (one.started, one.ended) == (two.started, two.ended)
        assert {*one.lanes} & {*two.lanes} == set()
    assert sorted(task.ended // SECOND for task in found.tasks) == [90, 90, 210, 210]


def test_what_fits_nowhere_waits_with_a_reason():
    trainings = [{"name": "a", "gpus": 3, "duration": 60}, {"name": "b", "duration": 60}]
    found, tasks = run(trainings)
    assert tasks["a"].state == "Pending"
    assert tasks["a"].reason == "it needs 3 GPUs of one model, and of v100 there are 2"
    assert tasks["b"].ended == 60 * SECOND
    assert any("1 task was never started" in note for note in found.notes)


def test_a_run_ends_where_the_scenario_says():
    found, tasks = run([{"name": "a", "duration": 600}], stop={"at": 90})
    assert found.result.end == 90 * SECOND
    assert tasks["a"].state == "Running"


def test_a_stopped_run_goes_on_from_its_checkpoint(tmp_path):
    loaded = scenarios.load(
        tmp_path / "s.yaml", content=scenario(drawn(1)), scheduler="rounds:max-min"
    )
    whole = dispatch.begin(loaded).go()
    stopped = dispatch.begin(loaded)
    left = iter(range(20))
    assert not stopped.go(stop=lambda: next(left, None) is None).complete
    stopped.save(tmp_path / "checkpoint")
    resumed = dispatch.begin(loaded, tmp_path / "checkpoint")
    assert resumed.result().end == stopped.result().end
    assert resumed.go().tasks == whole.tasks


def test_charts_and_traces_show_each_stay():
    trainings = [{"name": "a", "duration": 300}, {"name": "b", "duration": 30, "at": 100}]
    found, _ = run(trainings, "rounds:shortest", fleet=ONE_GPU)
    rects = gantt(found.result)["rects"]
    assert [(start, end) for _, start, end, _ in rects] == [(0, 120), (180, 360), (120, 150)]
    spans = [(e["name"], e["pid"]) for e in trace.events(found.result) if e["ph"] == "X"]
    # A waits once, between its stays; b before its own.
    assert spans.count(("default/a", trace.QUEUE)) == 1
    assert spans.count(("default/b", trace.QUEUE)) == 1
    assert len(spans) == 5


# --- speeds


def test_speeds_between_numbers_of_gpus_are_interpolated():
    class Three(dralab.Policy):
        def resize(self, task):
            return 3

    fleet = {"nodes": [{"name": "n", "cpu": 8, "gpus": 4, "model": "v100"}]}
    speeds = {"v100": {"2": 2, 4: 3}}
    [end] = ends([{"name": "a", "gpus": 2, "steps": 100, "speeds": speeds}], Three, fleet=fleet)
    assert end == 40


def test_speeds_come_from_a_table_of_kinds(tmp_path, monkeypatch):
    table = '{"v100": {"(\'LM\', 1)": {"null": 4.0, "(\'LM\', 1)": [3.0, 3.0]}}}'
    (tmp_path / "speeds.json").write_text(table)
    monkeypatch.chdir(tmp_path)
    content = scenario([{"name": n, "kind": "LM", "steps": 120} for n in "ab"], fleet=ONE_GPU)
    content["workload"]["profiles"] = "speeds.json"
    found = dralab.simulate(content, scheduler="rounds:fifo")
    assert sorted(task.ended / SECOND for task in found.result.tasks) == [30, 90]
    # In a pair each is at 3 steps a second, and that pays.
    found = dralab.simulate(content, scheduler="rounds:gandiva")
    assert sorted(task.ended / SECOND for task in found.result.tasks) == [40, 40]


# --- a policy of one's own


def test_order_decides_anew_in_each_round():
    class LeastServed(dralab.Policy):
        def order(self, task):
            return task.served

    trainings = [{"name": n, "duration": 120} for n in "ab"]
    assert ends(trainings, LeastServed, fleet=ONE_GPU) == [180, 240]


def test_the_order_of_what_is_left_is_that_of_the_built_in_one():
    class Shortest(dralab.Policy):
        def order(self, task):
            return task.estimate * (1 - task.done)

    trainings = drawn(1)
    assert ends(trainings, Shortest) == ends(trainings, "rounds:shortest")


def test_without_an_order_who_runs_goes_on():
    class Slow(dralab.Policy):
        def prefer(self, task, node):
            return -task.speeds[node.model]

    trainings = [*ONE_EACH, {"name": "c", "steps": 100, "speeds": {"v100": 2, "k80": 1}}]
    found, tasks = run(trainings, Slow)
    # Both slow GPUs are taken, so c has a fast one.
    assert [tasks[n].ended / SECOND for n in "abc"] == [400, 400, 50]
    assert found.summary["evictions"] == 0


def test_place_chooses_nodes_or_lets_a_task_wait():
    class FastOnly(dralab.Policy):
        def place(self, task, nodes):
            fast = [node for node in nodes if node.model == "v100" and node.idle_gpus >= task.gpus]
            return fast[0] if fast else None

    trainings = [{"name": n, "gpus": 2, "duration": 50} for n in "ab"]
    _, tasks = run(trainings, FastOnly)
    assert [tasks[n].ended / SECOND for n in "ab"] == [50, 110]


def test_resize_gives_a_training_other_gpus_within_its_range():
    class Wide(dralab.Policy):
        def resize(self, task):
            return 2 if not self.state.waiting or self.state.now >= 60 else 1

    speeds = {"v100": {1: 1, 2: 1.5}}
    trainings = [{"name": "a", "steps": 150, "speeds": speeds, "startup": 1}]
    # A minute on one GPU, then on two.
    assert ends(trainings, Wide) == [pytest.approx(60 + 1 + (150 - 59) / 1.5)]


class Wrong(dralab.Policy):
    """Answers what it was made with."""

    answer = None


@pytest.mark.parametrize(
    ("method", "answer", "told"),
    [
        ("resize", 5, "must return from 1 to 1 GPUs for default/a, or None, and returned 5"),
        ("resize", True, "from 1 to 1 GPUs"),
        ("place", "nowhere", "must return nodes of one model with 1 idle GPUs"),
        ("place", ["fast", "slow"], "must return nodes of one model with 1 idle GPUs"),
        ("prefer", "much", "must return a number"),
        ("order", "first", "must return a number or a tuple"),
        ("preempt", [], "is not heeded by the engine rounds, which asks for order, place, prefer"),
        ("decide", [], "is not heeded by the engine rounds"),
    ],
)
def test_a_wrong_answer_is_told_with_its_method(method, answer, told):
    made = type("Mine", (dralab.Policy,), {method: lambda self, *given: answer})
    with pytest.raises(InputError, match=told):
        run(ONE_EACH, made)


# --- refusals


@pytest.mark.parametrize(
    ("training", "more", "told"),
    [
        ({"steps": 1, "duration": 1}, {}, "must have exactly one of steps, duration, epochs"),
        ({"steps": 0}, {}, "steps: must be above 0"),
        ({"steps": 1, "count": 10**9}, {}, "count: must be at most 5000000 and is 1000000000"),
        ({"steps": 1, "speeds": {"v100": 0}}, {}, r"speeds\.v100: must be above 0"),
        ({"steps": 1, "speeds": {"v100": {"0": 1}}}, {}, "is not a number of GPUs"),
        ({"steps": 1, "gpus": 3, "speeds": {"v100": {1: 1, 2: 2}}}, {}, "are for 1 to 2 GPUs, and it asks for 3"),
        ({"steps": 1, "kind": "LM"}, {}, "give that file to the workload"),
        ({"epochs": 1}, {}, "kind: must be given with `epochs`"),
        ({"steps": 1, "batch": 8}, {}, "batch: is of `epochs`, which are not given"),
        ({"steps": 1, "weight": 0}, {}, "weight: must be above 0"),
        ({"steps": 1}, {"scheduler": "fgd", "round": None}, "trainings run in rounds, and fgd is not for them"),
        ({"steps": 1}, {"scheduler": "fgd"}, "round: is for rounds:fifo"),
        ({"steps": 1}, {"scheduler": "rounds:none"}, "'rounds:none' is not one of"),
        ({"steps": 1}, {"scheduler": "rounds:max-min", "round": 0}, "needs rounds of a length"),
        ({"steps": 1, "gpus": 2}, {"scheduler": "rounds:allox"}, "one asks for 2"),
        ({"steps": 1}, {"scheduler": "rounds:optimus"}, "the fleet has v100, k80"),
        ({"steps": 1}, {"scheduler": "rounds:pollux"}, "the fleet has v100, k80"),
        ({"steps": 1}, {"scheduler": "rounds:sia"}, "goes by goodput"),
        ({"steps": 1}, {"fleet": {"nodes": [{"cpu": 1}]}}, "fleet: has no GPUs"),
    ],
)  # fmt: skip
def test_what_rounds_cannot_do_is_refused(training, more, told):
    options = {"scheduler": "rounds:fifo", **more}
    scheduler = options.pop("scheduler")
    with pytest.raises(InputError, match=told):
        run([{"name": "a", **training}], scheduler, **options)


@pytest.mark.parametrize(
    ("pod", "told"),
    [
        ({"gpus": 1}, "needs a `duration`"),
        ({"duration": "1m"}, "rounds share whole GPUs"),
        ({"gpus": 1, "gpu_milli": 500, "duration": "1m"}, "rounds share whole GPUs"),
        ({"gpus": 1, "duration": "1m", "node_labels": {"a": "b"}}, "by labels"),
    ],
)
def test_pods_that_rounds_cannot_run_are_refused(pod, told):
    content = {"fleet": FLEET, "workload": {"pods": [{"name": "a", **pod}]}}
    with pytest.raises(InputError, match=told):
        dralab.simulate(content, scheduler="rounds:fifo")


def measured(folder):
    """Write measurements of a kind: steps take as long on two GPUs as on one."""
    folder.mkdir(parents=True)
    placements = [f"{gpus},{batch},{batch / 80},0" for gpus in (1, 2, 11) for batch in (8, 16)]
    scalability = [f"2,{gpus},{batch},{batch / 80},0" for gpus in (2, 4) for batch in (8, 16)]
    files = {
        "placements.csv": ("placement,local_bsz,step_time,sync_time", placements),
        "scalability.csv": ("num_nodes,num_replicas,local_bsz,step_time,sync_time", scalability),
        "validation-8.csv": ("progress,iteration,grad_sqr,grad_var", ["600,600,1,9", "1200,1200,1,9"]),
        "validation-16.csv": ("progress,iteration,grad_sqr,grad_var", ["600,400,1,9", "1200,800,1,9"]),
    }  # fmt: skip
    for name, (header, rows) in files.items():
        (folder / name).write_text("\n".join([header, *rows]) + "\n")


@pytest.mark.parametrize(
    "name", ["fifo", "optimus", pytest.param("pollux", marks=pytest.mark.thorough)]
)
def test_measured_trainings_run_their_epochs(tmp_path, name):
    pytest.importorskip("scipy")
    measured(tmp_path / "traces" / "net")
    content = {
        "fleet": {"nodes": [{"name": "n", "count": 2, "cpu": 8, "gpus": 2}]},
        "workload": {
            "profiles": "traces",
            "trainings": [{"name": "t", "count": 3, "every": "1m", "kind": "net", "epochs": 2}],
        },
        "scheduler": f"rounds:{name}",
        "round": "1m",
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(content))
    one, again = dralab.simulate(path), dralab.simulate(path)
    assert one.summary["succeeded"] == 3
    # Alone with the smaller batch: 1,200 steps of 0.1 s.
    assert 0 < min(task.ended - task.started for task in one.result.tasks) <= 180 * SECOND
    assert [task.stays for task in one.result.tasks] == [task.stays for task in again.result.tasks]
