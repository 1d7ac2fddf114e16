"""Nodes that go down in rounds: who loses what, what policies do meanwhile, and what results say."""

import random

import numpy as np
import orjson
import pytest
import yaml
from tests.simulation.engines.fast.test_round_run import measured

import dralab
from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError
from dralab.simulation import dispatch
from dralab.simulation.engines.fast import time_division
from dralab.simulation.reports.gantt import gantt
from dralab.simulation.results import outputs
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario.schedulers import ROUNDS
from dralab.web.run_desk import RunDesk

MEASURED = {"rounds:sia", "rounds:optimus", "rounds:pollux"}
TWO_NODES = {
    "nodes": [
        {"name": "fast", "cpu": 8, "gpus": 2, "model": "v100"},
        {"name": "slow", "cpu": 8, "gpus": 2, "model": "k80"},
    ]
}


def run(trainings, scheduler="rounds:fifo", **more):
    """Return a run and its tasks by name."""
    content = {"fleet": TWO_NODES, "workload": {"trainings": trainings}, "round": "6m", **more}
    found = dralab.simulate(content, scheduler=scheduler)
    return found, {task.id.removeprefix("default/"): task for task in found.result.tasks}


def minutes(stays):
    """Return when something was held, in minutes."""
    return [(stay.since / SECOND / 60, stay.until / SECOND / 60) for stay in stays]


def long_training(**more):
    """Return an hour of work, whose start takes a minute."""
    return {"name": "t", "gpus": 2, "duration": "1h", "startup": "1m", **more}


def test_a_training_whose_node_goes_down_goes_on_from_its_last_checkpoint():
    """Of 24 minutes of work it keeps 20; it comes again in the round after the repair."""
    found, tasks = run(
        [long_training(speeds={"v100": 1})],
        lifecycle={"checkpoint": "10m", "restart": "2m"},
        faults=[{"at": "25m", "for": "10m", "node": "fast"}],
    )
    assert minutes(tasks["t"].stays) == [(0, 25), (36, 36 + 1 + 2 + 40)]
    assert tasks["t"].evictions == 1
    # Lost are the start and 4 minutes; then it starts and loads its checkpoint.
    assert found.summary["redone_gpu_hours"] == pytest.approx(2 * 5 / 60)
    assert found.summary["idle_gpu_hours"] == pytest.approx(2 * 3 / 60)
    [down] = gantt(found.result)["outages"]
    assert down[1:] == [25 * 60, 35 * 60]


@pytest.mark.parametrize(
    ("where", "end"), [("lifecycle", 1 + 2 + 40), ("training", 1 + 2 + 36), ("none", 1 + 60)]
)
def test_without_a_checkpoint_all_is_lost_since_it_got_its_gpus(where, end):
    """A training's own interval of 12 minutes replaces that of the life cycle, which is 10."""
    life = {"restart": "2m"} | ({} if where == "none" else {"checkpoint": "10m"})
    own = {"checkpoint": "12m"} if where == "training" else {}
    _, tasks = run(
        [long_training(speeds={"v100": 1}, **own)],
        lifecycle=life,
        faults=[{"at": "25m", "for": "10m", "node": "fast"}],
        round=0,
    )
    assert minutes(tasks["t"].stays) == [(0, 25), (35, 35 + end)]


def test_giving_up_gpus_is_a_checkpoint():
    """The short one comes after 18 minutes; what was done before its turn is not lost."""
    _, tasks = run(
        [
            {"name": "long", "gpus": 2, "duration": "1h", "speeds": {"v100": 1}},
            {"name": "short", "gpus": 2, "duration": "6m", "at": "13m", "speeds": {"v100": 1}},
        ],
        "rounds:shortest",
        faults=[{"at": "33m", "for": "1m", "node": "fast"}],
    )
    assert minutes(tasks["long"].stays) == [(0, 18), (24, 33), (36, 36 + 42)]
    assert tasks["long"].wasted == 9 * 60 * SECOND


def test_a_training_ends_in_the_instant_its_node_goes_down_only_if_its_work_is_done():
    fault = [{"at": "1h", "for": "1m", "node": "fast"}]
    one, two = (
        run([{"name": "t", "duration": work, "speeds": {"v100": 1}}], faults=fault, round=0)[1]["t"]
        for work in ("60m", "61m")
    )
    assert (one.ended, one.wasted) == (3600 * SECOND, 0)
    assert (two.ended, two.wasted) == ((61 + 61) * 60 * SECOND, 3600 * SECOND)


def test_a_training_that_loses_its_node_gets_others_in_the_next_round():
    _, tasks = run(
        [long_training(speeds={"v100": 2, "k80": 1})],
        faults=[{"at": "10m", "node": "fast"}],
        lifecycle={"checkpoint": "1m"},
    )
    # 18 of its 60 minutes were done on the faster GPUs.
    assert minutes(tasks["t"].stays) == [(0, 10), (12, 12 + 1 + 42)]


def test_who_never_gets_gpus_again_waits():
    found, tasks = run([long_training(speeds={"v100": 1})], faults=[{"at": "10m", "node": "fast"}])
    assert (tasks["t"].ended, tasks["t"].reason) == (None, "waits for GPUs")
    assert tasks["t"].evictions == 1
    assert found.result.end < 3600 * SECOND


def test_the_pods_of_a_gang_are_lost_together():
    content = {
        "fleet": {"nodes": [{"name": "n", "count": 2, "cpu": 8, "gpus": 1}]},
        "workload": {
            "generate": {
                "count": 1,
                "duration": "30m",
                "arrivals": {"process": "burst"},
                "pods": [{"gpus": 1, "gang": 2}],
            }
        },
        "lifecycle": {"gangs": "recreate"},
        "faults": [{"at": "10m", "for": "1m", "node": "n-1"}],
        "round": "6m",
    }
    found = dralab.simulate(content, scheduler="rounds:fifo").result
    assert [minutes(task.stays) for task in found.tasks] == [[(0, 10), (12, 42)]] * 2
    assert [task.wasted for task in found.tasks] == [600 * SECOND] * 2


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("of", ["node", "gpu"])
def test_a_task_alone_loses_as_much_as_with_a_scheduler_of_pods(seed, of):
    """The same outages are drawn, and runs are lost and continued by the same rules."""
    content = {
        "seed": seed,
        "fleet": {"nodes": [{"name": "n", "cpu": 8, "gpus": 2}]},
        "workload": {
            "pods": [{"name": "p", "gpus": 2, "duration": "20h", "startup": "3m"}],
        },
        "lifecycle": {"checkpoint": "25m", "restart": "2m"},
        "faults": {"every": "4h", "repair": "15m", "of": of},
        "stop": {"at": "10d"},
    }
    pods = dralab.simulate(content, scheduler="firstfit")
    rounds = dralab.simulate({**content, "round": 0}, scheduler="rounds:fifo")
    [one], [two] = pods.result.tasks, rounds.result.tasks
    assert one.ended is not None
    assert two.ended == pytest.approx(one.ended, abs=1000)
    assert two.evictions == one.evictions > 0
    for name in ("redone_gpu_hours", "evictions", "succeeded"):
        assert rounds.summary[name] == pytest.approx(pods.summary[name])
    until = rounds.result.end
    assert [o for o in rounds.result.outages if o[2] < until] == [
        o for o in pods.result.outages if o[2] < until
    ]


def drawn(seed, widths=(1, 1, 2)):
    """Return trainings that come within two hours."""
    chance = random.Random(seed)
    return [
        {
            "name": f"t{number}",
            "at": chance.randrange(7200),
            "gpus": chance.choice(widths),
            "steps": chance.randrange(1000, 9000),
            "speeds": {"v100": chance.choice([1.5, 2, 4]), "k80": chance.choice([0.5, 1])},
            "startup": 7,
        }
        for number in range(12)
    ]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("scheduler", [*sorted({*ROUNDS} - MEASURED), "own"])
def test_whatever_decides_nobody_runs_on_a_node_that_is_down(scheduler, seed):
    """Four nodes, one of which is down for good after two hours, the others again and again."""
    fleet = {
        "nodes": [
            {"name": "f", "count": 2, "cpu": 8, "gpus": 2, "model": "v100"},
            {"name": "s", "count": 2, "cpu": 8, "gpus": 2, "model": "k80"},
        ]
    }
    chance = random.Random(seed)
    faults = [{"at": "2h", "node": "f-1"}]
    for node in ("f-0", "f-0", "s-0", "s-1", "f-1"):
        faults += [{"at": chance.randrange(20_000), "for": chance.randrange(9000), "node": node}]
    # For a while there is no GPU at all, and for longer none of one model.
    faults += [{"at": "3h", "for": "20m", "node": node} for node in ("f-0", "s-0", "s-1")]
    faults += [{"at": "3h", "for": "70m", "node": "f-0"}]
    trainings = drawn(seed, (1,) if scheduler == "rounds:allox" else (1, 1, 2))
    decides = scheduler if scheduler != "own" else type("Mine", (dralab.Policy,), {
        "order": lambda self, task: task.arrives, "prefer": lambda self, task, node: 1,
    })  # fmt: skip
    found, tasks = run(
        trainings, decides, fleet=fleet, faults=faults, lifecycle={"checkpoint": "4m"}
    )
    lanes, down = found.result.lanes, {}
    for lane, since, until in found.result.outages:
        down.setdefault(lanes[lane], []).append((since, until))
    assert len(down) == 4
    assert found.summary["succeeded"] == len(trainings)
    assert found.summary["redone_gpu_hours"] > 0
    for each in trainings:
        task, most = tasks[each["name"]], 0.0
        for stay in task.stays:
            nodes = {lanes[lane].partition("/")[0] for lane in stay.lanes}
            for since, until in (span for node in nodes for span in down.get(node, ())):
                assert stay.until <= since + 1 or until <= stay.since
            speed = each["speeds"]["v100" if nodes <= {"f-0", "f-1"} else "k80"]
            most += speed * (stay.until - stay.since) / SECOND
        assert most >= each["steps"] * 0.999
        if len({*each["speeds"].values()}) == 1:
            lost = (task.wasted + task.idle) / SECOND
            assert most - lost * each["speeds"]["k80"] == pytest.approx(each["steps"], rel=1e-6)


@pytest.mark.parametrize(
    "name", ["fifo", "optimus", "sia", pytest.param("pollux", marks=pytest.mark.thorough)]
)
def test_measured_trainings_go_back_in_their_epochs(tmp_path, name):
    pytest.importorskip("scipy")
    pytest.importorskip("ortools")
    measured(tmp_path / "traces" / "net")
    batch = {"batch": 8} if name == "fifo" else {}
    content = {
        "fleet": {"nodes": [{"name": "n", "count": 2, "cpu": 8, "gpus": 2}]},
        "workload": {
            "profiles": "traces",
            "trainings": [{"name": "t", "kind": "net", "epochs": 2} | batch],
        },
        "lifecycle": {"checkpoint": "17s"},
        # The first epoch ends after a minute, or sooner with more GPUs.
        "faults": [{"at": 70, "for": 60, "node": f"n-{at}"} for at in range(2)],
        "scheduler": f"rounds:{name}",
        "round": "30s",
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(content))
    found = dralab.simulate(path)
    [task] = found.result.tasks
    assert task.ended is not None
    assert [stay.until for stay in task.stays if stay.until == 70 * SECOND] == [70 * SECOND]
    assert 0 < task.wasted < 17 * SECOND
    if name == "fifo":  # of the first epoch 60 s are kept, and 8 of the second
        assert task.wasted == 2 * SECOND
        assert task.ended == (150 + 52) * SECOND


def test_a_checkpoint_within_an_epoch_is_kept(tmp_path):
    """After 100 of 120 s, 75 s are in a checkpoint: of the second epoch, a quarter."""
    pytest.importorskip("scipy")
    measured(tmp_path / "traces" / "net")
    content = {
        "fleet": {"nodes": [{"name": "n", "cpu": 8, "gpus": 2}]},
        "workload": {
            "profiles": "traces",
            "trainings": [{"name": "t", "kind": "net", "epochs": 2, "batch": 8}],
        },
        "lifecycle": {"checkpoint": "75s"},
        "faults": [{"at": 100, "for": 5, "node": "n"}],
        "scheduler": "rounds:fifo",
        "round": "50s",
    }
    path = tmp_path / "scenario.yaml"
    path.write_text(yaml.safe_dump(content))
    [task] = dralab.simulate(path).result.tasks
    assert task.wasted == 25 * SECOND
    assert task.ended == (150 + 45) * SECOND


@pytest.mark.parametrize(
    "fault",
    [
        {"at": 1, "node": "fast", "taint": {"key": "k", "effect": "NoExecute"}},
        {"at": 1, "node": "fast", "happens": "prepare=slow:2"},
    ],
)
def test_faults_of_devices_and_drivers_are_refused(fault):
    with pytest.raises(InputError, match=r"faults: is for pods; in rounds, .* only nodes fail"):
        run([{"name": "a", "steps": 1}], faults=[fault])


def test_gangs_that_wait_for_a_pod_are_refused():
    with pytest.raises(InputError, match="lifecycle: is for pods"):
        run([{"name": "a", "steps": 1}], lifecycle={"gangs": "wait"})


def test_a_run_with_outages_goes_on_from_its_checkpoint(tmp_path):
    content = {
        "fleet": TWO_NODES,
        "workload": {"trainings": drawn(1)},
        "faults": {"every": "30m", "repair": "9m"},
        "stop": {"at": "2d"},
        "round": "1m",
    }
    loaded = scenarios.load(tmp_path / "s.yaml", content=content, scheduler="rounds:max-min")
    whole = dispatch.begin(loaded).go()
    stopped = dispatch.begin(loaded)
    left = iter(range(150))
    assert not stopped.go(stop=lambda: next(left, None) is None).complete
    stopped.save(tmp_path / "checkpoint")
    resumed = dispatch.begin(loaded, tmp_path / "checkpoint")
    assert resumed.result().outages == stopped.result().outages != []
    assert resumed.go() == whole


def test_stays_are_written_and_shown_one_by_one(tmp_path):
    found, _ = run(
        [long_training(speeds={"v100": 1})],
        faults=[{"at": "25m", "for": "10m", "node": "fast"}],
        lifecycle={"checkpoint": "10m"},
    )
    outputs.write(found.result, tmp_path, parquet=False)
    lines = (tmp_path / "stays.csv").read_text().splitlines()
    assert lines == [
        "id,started,ended,places",
        "default/t,0.000000,1500.000000,fast/gpu-0 fast/gpu-1",
        "default/t,2160.000000,4620.000000,fast/gpu-0 fast/gpu-1",
    ]
    assert list(found.stays["started"]) == [0.0, 2160.0]
    tasks = orjson.loads(RunDesk(tmp_path).run())["tasks"]
    assert tasks["id"] == ["default/t"] * 2
    assert tasks["submitted"] == [0.0, 1500.0]
    assert tasks["started"] == [0.0, 2160.0]
    assert tasks["ended"] == [1500.0, 4620.0]
    assert outputs.read_run(tmp_path).tasks == outputs.as_written(found.result).tasks


@pytest.mark.thorough
def test_campaigns_compare_the_gpu_hours_that_policies_lose(tmp_path):
    content = {
        "fleet": TWO_NODES,
        "workload": {"trainings": drawn(3)},
        "lifecycle": {"checkpoint": "5m", "restart": 30},
        "faults": {"every": "1h", "repair": "10m", "of": "gpu"},
        "stop": {"at": "2d"},
        "round": "6m",
    }
    grid = dralab.campaign([content], ["rounds:fifo", "rounds:las"], seeds=range(2))
    rows = list(grid.mean_ci("lost_gpu_hours"))
    assert len(rows) == 2
    assert all(row["mean"] > 0 for row in rows)


def test_shares_of_a_model_without_gpus_are_zero():
    speeds = np.array([[4.0, 1.0, 1.0], [2.0, 9.0, 1.0]])
    without = time_division.max_min(speeds[:, [0, 2]], np.ones(2), np.ones(2))
    found = time_division.max_min(speeds, np.array([1.0, 0.0, 1.0]), np.ones(2))
    assert found[:, 1].tolist() == [0.0, 0.0]
    assert found[:, [0, 2]] == pytest.approx(without)
