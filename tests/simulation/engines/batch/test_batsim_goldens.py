"""Against the results of real Batsim runs."""

import csv

import pytest
from tests.simulation.engines.batch.finished import run_batsim

from dralab.simulation.engines.batch import outputs
from dralab.simulation.engines.batch.durations import Durations
from dralab.simulation.engines.batch.engine import BatchOptions
from dralab.simulation.host_sets import render
from dralab.simulation.platforms import simgrid_xml
from dralab.simulation.platforms.platform import plain
from dralab.simulation.workloads import batsim

MEDIUM = ("batsim", "evalys", "examples", "batsim_outputs", "medium_late")
HOSTS = {
    "cluster512": 513,
    "cluster512_pfs": 514,
    "cluster_energy_128": 129,
    "cluster_locality_32x16": 513,
    "cluster_locality_4x128": 513,
    "cluster_locality_8x16": 129,
    "cluster_locality_8x64": 513,
    "energy_platform": 5,
    "energy_platform_homogeneous": 5,
    "energy_platform_homogeneous_no_net": 8,
    "energy_platform_homogeneous_no_net_1": 2,
    "graphene": 144,
    "platform": 16,
    "properties_example": 8,
    "simple_coalloc_platform": 35,
    "small_platform": 5,
    "small_platform_pfs0": 6,
    "small_platform_replay_usage": 5,
    "small_platform_usage_replay": 5,
    "small_platform_dvfs": 5,
}


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("scheduler", ["easy", "conservative"])
def test_every_start_end_and_machine_equals_batsims_own_run(testdata, scheduler):
    folder = testdata(*MEDIUM)
    run = run_batsim([folder / "medium_late.json"], platform=None, scheduler=scheduler)
    golden = rows_of(folder / scheduler / "out_jobs.csv")
    assert len(golden) == 801
    for row in golden:
        record = run.records[f"w0!{row['job_id']}"]
        ours = (f"{record.started / 1e9:f}", f"{record.ended / 1e9:f}", render(record.machines))
        assert ours == (row["starting_time"], row["finish_time"], row["allocated_resources"])


@pytest.mark.parametrize("scheduler", ["easy", "conservative"])
def test_the_files_say_what_batsims_files_say(testdata, scheduler):
    folder = testdata(*MEDIUM)
    run = run_batsim([folder / "medium_late.json"], platform=None, scheduler=scheduler)
    states = (folder / scheduler / "out_machine_states.csv").read_text()
    assert sorted(outputs.machine_states_csv(run).split()) == sorted(states.split())
    golden = rows_of(folder / scheduler / "out_schedule.csv")[0]
    ours = dict(zip(*(line.split(",") for line in outputs.schedule_csv(run).split()), strict=True))
    compared = set(golden) - {"consumed_joules", "scheduling_time", "simulation_time"}
    assert len(compared) == 18
    assert {key: ours[key] for key in compared} == {key: golden[key] for key in compared}


def totals(rows):
    """Recompute the times of `schedule.csv` from the rows of any `jobs.csv`, read by name.

    Empty fields are those of refused jobs.
    """
    ran = [row for row in rows if row.get("starting_time")]
    count = len(rows)

    def column(name):
        return [float(row[name]) for row in ran]

    waits, turnarounds = column("waiting_time"), column("turnaround_time")
    stretches = column("stretch")
    return {
        "makespan": max(column("finish_time"), default=0.0),
        "max_slowdown": max(stretches, default=0.0),
        "max_turnaround_time": max(turnarounds, default=0.0),
        "max_waiting_time": max(waits, default=0.0),
        "mean_slowdown": sum(stretches) / count if count else 0.0,
        "mean_turnaround_time": sum(turnarounds) / count if count else 0.0,
        "mean_waiting_time": sum(waits) / count if count else 0.0,
        "nb_jobs": float(count),
        "nb_jobs_success": float(sum(row["success"] == "1" for row in rows)),
    }


@pytest.mark.parametrize("scheduler", ["easy", "conservative"])
def test_the_totals_of_a_golden_jobs_file_are_those_of_its_schedule_file(testdata, scheduler):
    folder = testdata(*MEDIUM) / scheduler
    ours = totals(rows_of(folder / "out_jobs.csv"))
    golden = rows_of(folder / "out_schedule.csv")[0]
    assert {k: f"{v:.4f}" for k, v in ours.items()} == {
        key: f"{float(golden[key]):.4f}" for key in ours
    }


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("scheduler", "mean", "longest"),
    # pyss, the simulator of Feitelson's group, gives the second, too.
    [("fcfs", 19.736295, 305.466610), ("easy-counting", 8.672887, 388.682621)],
)
def test_the_other_schedulers_give_their_known_waits(testdata, scheduler, mean, longest):
    path = testdata(*MEDIUM, "medium_late.json")
    result = outputs.summary(run_batsim([path], platform=None, scheduler=scheduler))
    assert round(result["mean_waiting_time"], 6) == mean
    assert round(result["max_waiting_time"], 6) == longest


@pytest.mark.parametrize("version", ["batsim", "batsim-v4"])
def test_every_platform_file_loads_with_the_known_number_of_hosts(testdata, version):
    files = sorted(testdata("batsim", version, "platforms").rglob("*.xml"))
    assert len(files) >= 18
    for path in files:
        master = "graphene-1001.nancy.grid5000.fr" if path.stem == "graphene" else "master_host"
        platform = simgrid_xml.read(path, master=master)
        assert len(platform.hosts) == HOSTS[path.stem], path
        assert platform.width + len(platform.storage) + 1 == HOSTS[path.stem]


@pytest.mark.parametrize("version", ["batsim", "batsim-v4"])
def test_every_workload_file_loads(testdata, version):
    files = sorted(testdata("batsim", version, "workloads").rglob("*.json"))
    assert len(files) >= 25
    for path in files:
        assert batsim.read(path).jobs


@pytest.mark.parametrize(
    "name",
    [
        "test_compo_sequence_delay",
        "test_compo_sequence_ptaskcomp",
        "test_ptasks",
        "test_homo_ptasks",
    ],
)
def test_profiles_take_the_time_that_batsims_own_tests_expect(testdata, name):
    platform = simgrid_xml.read(testdata("batsim", "batsim", "platforms", "cluster512.xml"))
    workload = batsim.read(testdata("batsim", "batsim", "workloads", f"{name}.json"))
    durations = Durations(workload, platform)
    for job in workload.jobs:
        expected = workload.profile_sources[job.profile]["expected_execution_time"]
        run = durations.expected_run(job, platform.compute[: job.width])
        assert run.duration / 1e9 == pytest.approx(expected, abs=1e-6), job.id


@pytest.mark.parametrize("latency", [False, True])
def test_usage_traces_take_the_time_that_batsims_own_tests_expect(testdata, latency):
    platform = testdata("batsim", "batsim", "platforms", "small_platform_replay_usage.xml")
    path = testdata("batsim", "batsim", "workloads", "test_usage_trace.json")
    run = run_batsim(
        [path], platform=platform, scheduler="fcfs", options=BatchOptions(latency=latency)
    )
    jobs = batsim.read(path).jobs
    assert len(jobs) == 24
    for job in jobs:
        record = run.records[job.key]
        took = (record.ended - record.started) / 1e9
        assert took == pytest.approx(job.source["expected_execution_time"], abs=1e-6), job.key
        assert record.state == job.source["expected_state"], job.key
        # Batsim's messages come first.
        assert (record.started > job.submitted) == latency


def test_a_burst_of_equal_jobs_has_the_ideal_makespan_and_wait(workload_file):
    path = workload_file(*[(i, 0, 1, 1000, 200) for i in range(300)], machines=16)
    for scheduler in ("fcfs", "easy", "easy-counting", "conservative"):
        result = outputs.summary(run_batsim([path], platform=None, scheduler=scheduler))
        assert (result["makespan"], result["mean_waiting_time"]) == (3800.0, 1776.0)


def test_numbers_of_plain_hosts_are_resource_ids():
    assert [host.name for host in plain(12).compute][9:] == ["host9", "host10", "host11"]
