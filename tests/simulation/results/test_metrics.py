"""Every number has its definition, and is what a pencil says."""

import re
from pathlib import Path

import pytest

from dralab.scenarios.errors import InputError
from dralab.simulation.dispatch import begin, measured
from dralab.simulation.results import metrics, outputs
from dralab.simulation.results.result import Result, StateSample, Task
from dralab.simulation.scenario import scenario as scenarios

S = 1_000_000_000
DOCS = Path(__file__).parents[3] / "docs" / "concepts" / "metrics.md"


def task(name, submitted, started, ended, *, user="u", width=1, lanes=(0,), **more):
    def at(when):
        return None if when is None else when * S

    return Task(
        name, user, more.pop("state", "Succeeded"), at(submitted), at(started), at(started),
        at(ended), width, lanes, **more,
    )  # fmt: skip


# Two nodes with two GPUs of model A and two of model B.
THREE = Result(
    name="three", scheduler="s", seed=0,
    tasks=[
        task("a", 0, 0, 100, lanes=(0, 1)),
        task("b", 10, 100, 120, user="v", width=2, lanes=(2,), evictions=1),
        task("c", 20, 100, 104, lanes=(0,), state="Failed"),
        task("d", 30, None, None, lanes=(), state="Pending", reason="no room"),
    ],
    samples=[
        StateSample(0, 0, 1, 1000, 2000, 500.0, memory=10, asked=0, types=(2000, 0)),
        StateSample(20 * S, 2, 1, 1000, 2000, 500.0, memory=10, asked=3000, refused=2, types=(2000, 0)),
        StateSample(100 * S, 1, 2, 3000, 1000, 0.0, memory=30, asked=1000, types=(0, 1000)),
        StateSample(120 * S, 1, 0, 0, 0, 0.0, asked=1000, ended=3, types=(0, 0)),
    ],
    lanes=["n0", "n0/gpu0", "n1"], capacity={"cpu": 4000, "memory": 40, "gpu": 4000},
    types={"A": 2000, "B": 2000}, end=120 * S, refusals={"no room": 2}, joules=50.0,
)  # fmt: skip


def test_the_numbers_of_four_tasks_are_those_of_a_pencil():
    found = metrics.metrics_of(THREE)
    assert (found["tasks"], found["ended"], found["succeeded"], found["failed"]) == (4, 3, 2, 1)
    assert (found["never_started"], found["success_rate"], found["evictions"]) == (1, 0.5, 1)
    assert (found["makespan"], found["throughput_per_hour"]) == (120, 90)
    assert (found["wait_mean"], found["wait_max"]) == (170 / 3, 90)
    assert found["turnaround_max"] == 110
    assert found["slowdown_max"] == 84 / 4
    assert found["bounded_slowdown_max"] == 84 / 10
    assert found["slowdown_per_processor_max"] == 84 / 10
    assert found["slowdown_per_processor_median"] == 110 / 40
    assert found["utilisation_cpu"] == (100 * 1000 + 20 * 3000) / 120 / 4000
    assert found["utilisation_memory"] == (100 * 10 + 20 * 30) / 120 / 40
    assert found["utilisation_gpu"] == (100 * 2000 + 20 * 1000) / 120 / 4000
    assert found["utilisation_gpu[A]"] == 100 * 2000 / 120 / 2000
    assert found["utilisation_gpu[B]"] == 20 * 1000 / 120 / 2000
    assert found["fragmentation_of_gpu"] == 100 * 500 / 120 / 4000
    assert found["mean_waiting"] == (80 * 2 + 20 * 1) / 120
    assert found["mean_waiting_processors"] == (80 * 3 + 20 * 1) / 120
    # u: 1 and 8.4, v: 5.5; node n0 worked 100 + 4 s, n1 20 s.
    means = (9.4 / 2, 5.5)
    assert found["wait_fairness"] == pytest.approx(
        sum(means) ** 2 / (2 * sum(m * m for m in means))
    )
    assert found["load_variation"] == pytest.approx(42 / 62)
    assert (found["joules"], found["refused: no room"]) == (50.0, 2)


def test_only_the_interval_is_measured_where_one_is_given():
    from dataclasses import replace

    found = metrics.metrics_of(replace(THREE, interval=(10 * S, 110 * S)))
    assert (found["tasks"], found["ended"]) == (3, 2)
    assert found["utilisation_cpu"] == (90 * 1000 + 10 * 3000) / 100 / 4000
    assert found["load_variation"] == pytest.approx((94 - 10) / (94 + 10))


def test_every_number_is_defined_and_every_definition_stands_in_the_docs():
    for name in metrics.metrics_of(THREE):
        assert metrics.definition_of(name)
    text = DOCS.read_text()
    for name in metrics.DEFINITIONS:
        assert re.search(rf"`{name}[`_:]", text), name
    for column in outputs.SAMPLE_COLUMNS:
        assert f"`{column}`" in text, column


def test_the_table_of_samples_has_a_column_for_each_type_of_device():
    columns = outputs.sample_columns(THREE)
    assert columns[-2:] == ["gpu[A]", "gpu[B]"]
    rows = outputs.sample_rows(THREE)
    assert {len(row) for row in rows} == {len(columns)}
    assert dict(zip(columns, rows[1], strict=True))["refused"] == 2


NODES = (
    "fleet: {nodes: [{name: a, cpu: 4, gpus: 1, model: A}, {name: b, cpu: 4, gpus: 1, model: B}]}\n"
    "workload:\n  pods:\n"
    "  - {name: p, count: 3, cpu: 1, memory: 1Gi, gpus: 1, duration: 100s, every: 10s}\n"
    "  - {name: half, cpu: 1, gpus: 1, gpu_milli: 500, duration: 50s, at: 1s}\n"
)


@pytest.mark.parametrize("scheduler", ["firstfit", "dralab"])
def test_use_memory_and_fragmentation_follow_the_tasks_in_every_world(tmp_path, scheduler):
    path = tmp_path / "s.yaml"
    path.write_text(NODES + f"scheduler: {scheduler}\n")
    loaded = scenarios.load(path)
    result = measured(loaded, begin(loaded).go())
    busy = {"A": 0, "B": 0}
    for each in result.tasks:
        (lane,) = each.lanes
        model = "A" if result.lanes[lane].startswith("a/") else "B"
        busy[model] += (each.ended - each.started) // S * each.gpu_milli
    found = metrics.metrics_of(result)
    for model, area in busy.items():
        used = found[f"utilisation_gpu[{model}]"] * found["makespan"] * 1000
        assert used == pytest.approx(area)
    memory = 3 * 100 * 2**30 / (found["makespan"] * 2 * 64 * 2**30)
    assert found["utilisation_memory"] == pytest.approx(memory)
    assert found["fragmentation_of_gpu"] > 0
    assert found["mean_waiting_processors"] > 0
    last = result.samples[-1]
    assert (last.waiting, last.running, last.asked, last.cpu, last.memory, last.gpu) == (0,) * 6
    assert last.ended == 4


def test_an_interval_that_ends_before_it_begins_is_refused(tmp_path):
    path = tmp_path / "s.yaml"
    path.write_text(NODES + "measure: {from: 10s, to: 5s}\n")
    with pytest.raises(InputError, match=r"measure.to: must be after `from`"):
        scenarios.load(path)
