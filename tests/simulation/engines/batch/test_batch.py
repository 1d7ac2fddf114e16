"""The engine and the schedulers, on small cases that can be worked out by hand."""

import json
from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.simulation.engines.batch.finished import run_batsim

from dralab.scenarios.errors import DecisionError
from dralab.simulation.engines.batch import outputs
from dralab.simulation.engines.batch import run as runs
from dralab.simulation.engines.batch.availability import Availability
from dralab.simulation.engines.batch.engine import BatchOptions, BatchSimulation
from dralab.simulation.engines.batch.messages import (
    CallMeLater,
    KillJobs,
    SchedulerReply,
    StartJob,
    SwitchPstate,
)
from dralab.simulation.engines.batch.schedulers import SCHEDULERS
from dralab.simulation.host_sets import members
from dralab.simulation.platforms import simgrid_xml
from dralab.simulation.platforms.platform import plain
from dralab.simulation.workloads.jobs import Delay, Job, Workload

S = 1_000_000_000


def workload(*jobs):
    """Jobs as (submitted, width, walltime, run), in seconds."""
    made = tuple(
        Job(id=str(i), submitted=s * S, width=w, walltime=limit * S, profile=f"d{run}")
        for i, (s, w, limit, run) in enumerate(jobs)
    )
    profiles = {f"d{run}": Delay(duration=run * S) for *_, run in jobs}
    return Workload(jobs=made, profiles=profiles, machines=4)


def starts(name, *jobs, hosts=4):
    simulation = BatchSimulation(plain(hosts), [workload(*jobs)], SCHEDULERS[name]())
    simulation.run()
    return [r.started // S for r in simulation.records.values()]


def test_back_filling_lets_a_short_job_pass_but_never_the_head_wait_longer():
    jobs = [(0, 3, 10, 10), (1, 4, 10, 10), (2, 1, 5, 5), (2, 1, 20, 20)]
    assert starts("fcfs", *jobs) == [0, 10, 20, 20]
    assert starts("easy", *jobs) == [0, 10, 2, 20]
    assert starts("easy-counting", *jobs) == [0, 10, 2, 20]
    assert starts("conservative", *jobs) == [0, 10, 2, 20]


def test_easy_starts_a_later_job_that_conservative_keeps_behind_a_reservation():
    # Job 3 would delay job 2 (which is not the head), and only conservative minds.
    jobs = [(0, 3, 10, 10), (0, 4, 10, 10), (0, 2, 10, 10), (1, 1, 9, 9), (1, 3, 10, 10)]
    assert starts("easy", *jobs)[3] == 1
    assert starts("conservative", *jobs)[3] == 1


def test_all_jobs_that_end_when_the_head_starts_count_for_what_is_left_beside_it():
    # Two jobs end at 10. The head takes three of the four processors; one is left for the last.
    jobs = [(0, 1, 10, 10), (0, 1, 10, 10), (1, 3, 10, 10), (1, 1, 100, 100)]
    assert starts("easy-counting", *jobs) == starts("easy", *jobs) == [0, 0, 10, 1]


def test_jobs_that_back_filling_rejects_are_a_warning_that_says_why():
    given = workload((0, 1, 5, 5), (0, 1, 5, 5))
    endless = replace(given, jobs=(given.jobs[0], replace(given.jobs[1], walltime=None)))
    told = {}
    for name in ("easy", "fcfs"):
        simulation = BatchSimulation(plain(2), [endless], SCHEDULERS[name]())
        simulation.run()
        told[name] = list(runs.warnings(simulation))
    assert told == {
        "easy": [
            "1 jobs were rejected, the first is 1: it has no walltime, which back-filling needs"
        ],
        "fcfs": [],
    }


def test_a_job_that_lasts_as_long_as_its_walltime_or_longer_ends_there():
    jobs = workload((0, 1, 5, 9), (0, 1, 5, 5), (9, 1, 5, 4))
    simulation = BatchSimulation(plain(2), [jobs], SCHEDULERS["fcfs"]())
    simulation.run()
    states = [r.state for r in simulation.records.values()]
    reached = "COMPLETED_WALLTIME_REACHED"
    assert states == [reached, reached, "COMPLETED_SUCCESSFULLY"]
    assert [r.ended // S for r in simulation.records.values()] == [5, 5, 13]


def test_jobs_of_one_time_come_in_the_order_of_their_ids_as_text():
    order = []
    simulation = BatchSimulation(
        plain(1),
        [workload(*((0, 1, 5, 1),) * 12)],
        Scripted(lambda news: order.extend(news.submitted) or []),
    )
    simulation.run()
    assert [job.id for job in order] == ["0", "1", "10", "11", *map(str, range(2, 10))]


def test_a_job_that_takes_no_time_is_written_with_ten_microseconds_as_in_batsim():
    simulation = BatchSimulation(plain(2), [workload((3, 1, 5, 0))], SCHEDULERS["easy"]())
    simulation.run()
    line = outputs.jobs_csv(simulation).splitlines()[1]
    assert ",COMPLETED_SUCCESSFULLY,3.000000,0.000010,3.000010,0.000000,0.000010,1.000000," in line
    found = outputs.summary(simulation)
    assert (found["makespan"], found["max_slowdown"], found["nb_jobs_success"]) == (3.00001, 1, 1)


def test_a_job_wider_than_the_machines_is_refused_and_leaves_its_times_empty():
    simulation = BatchSimulation(plain(2), [workload((0, 3, 5, 5))], SCHEDULERS["easy"]())
    simulation.run()
    line = outputs.jobs_csv(simulation).splitlines()[1]
    assert line == '0,w0,d5,0.000000,3,5.000000,0,REJECTED,,,,,,,,,""'


JOBS = st.lists(
    st.tuples(st.integers(0, 30), st.integers(1, 5), st.integers(1, 12), st.integers(1, 12)),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, max_examples=60)
@given(JOBS, st.sampled_from(sorted(SCHEDULERS)))
def test_no_two_jobs_ever_hold_one_machine_and_every_job_runs(jobs, name):
    simulation = BatchSimulation(plain(5), [workload(*jobs)], SCHEDULERS[name]())
    simulation.run()
    spans = []
    for record in simulation.records.values():
        assert record.started >= record.job.submitted
        assert record.machines.bit_count() == record.job.width
        assert record.ended - record.started == min(
            record.job.walltime, simulation.workloads["w0"].profiles[record.job.profile].duration
        )
        spans += [(m, record.started, record.ended) for m in members(record.machines)]
    spans.sort()
    for (machine, _, end), (other, start, _) in pairwise(spans):
        assert machine != other or start >= end


@settings(deadline=None, max_examples=60)
@given(JOBS)
def test_conservative_never_starts_a_job_after_the_time_first_promised(jobs):
    """With walltimes that are exact, the first reservation holds: an oracle by plain search."""
    jobs = sorted((s, w, run, run) for s, w, _, run in jobs)
    busy = [[] for _ in range(5)]
    expected = []
    for submitted, width, limit, _ in jobs:
        candidates = sorted({submitted, *(e for m in busy for _, e in m if e > submitted)})
        for start in candidates:
            free = [
                m for m, held in enumerate(busy)
                if all(e <= start or s >= start + limit for s, e in held)
            ]  # fmt: skip
            if len(free) >= width:
                for machine in free[:width]:
                    busy[machine].append((start, start + limit))
                expected.append(start)
                break
    assert starts("conservative", *jobs, hosts=5) == expected


@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 9)), max_size=12))
def test_what_is_added_and_removed_leaves_the_availability_as_it_was(jobs):
    plan = Availability(0b111111)
    for placement in [plan.reserve_earliest(width, length) for width, length in jobs]:
        plan.cancel(placement, 0)
    again = plan.reserve_earliest(6, 100)
    assert (again.start, again.machines) == (0, 0b111111)


class Scripted:
    """A scheduler that answers from a list."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.heard = []

    def begin(self, beginning):
        pass

    def decide(self, news):
        self.heard.append(news)
        return SchedulerReply(self.answers.pop(0)(news) if self.answers else ())

    def end(self, now):
        self.heard.append(now)


@pytest.mark.parametrize(
    ("decide", "message"),
    [
        (lambda news: [StartJob(news.submitted[0], 0b1)], "requests 2"),
        (lambda news: [StartJob(news.submitted[0], 0b110000)], "do not exist"),
        (lambda news: [StartJob(news.submitted[0], 0b11)] * 2, "already been started"),
        (lambda news: [StartJob(j, 0b11) for j in news.submitted], "busy"),
        (lambda news: [KillJobs(("w0!0",))], "does not run"),
        (lambda news: [KillJobs(("w0!77",))], "not submitted to it"),
    ],
)
def test_a_decision_that_cannot_be_stops_the_run_and_names_the_job(decide, message):
    simulation = BatchSimulation(plain(4), [workload((0, 2, 5, 5), (0, 2, 5, 5))], Scripted(decide))
    with pytest.raises(DecisionError, match=message):
        simulation.run()


def test_a_killed_job_ends_at_once_and_says_how_far_it_got():
    scheduler = Scripted(
        lambda news: [StartJob(news.submitted[0], 0b1), CallMeLater(4 * S)],
        lambda news: [KillJobs(("w0!0",))],
    )
    simulation = BatchSimulation(plain(1), [workload((0, 1, 9, 8))], scheduler)
    simulation.run()
    record = simulation.records["w0!0"]
    assert (record.state, record.ended) == ("COMPLETED_KILLED", 4 * S)
    assert [(job.id, progress) for job, progress in scheduler.heard[2].killed] == [("0", 0.5)]


def test_machines_that_leave_take_no_new_job_until_they_are_back(workload_file, tmp_path):
    path = workload_file((1, 0, 1, 50, 10), (2, 12, 2, 50, 10), machines=2)
    events = tmp_path / "events.txt"
    events.write_text(
        '{"type": "machine_unavailable", "resources": "0", "timestamp": 5}\n'
        '{"type": "machine_available", "resources": "0", "timestamp": 30}\n'
    )
    for scheduler in SCHEDULERS:
        run = run_batsim([path], platform=None, scheduler=scheduler, events=events)
        times = [(r.started // S, r.ended // S) for r in run.records.values()]
        assert times == [(0, 10), (30, 40)], scheduler


def test_the_same_input_gives_the_same_bytes(workload_file):
    path = workload_file(*[(i, i % 7, 1 + i % 3, 9, 1 + i % 5) for i in range(60)])
    texts = {
        outputs.jobs_csv(run_batsim([path], platform=None, scheduler="easy")) for _ in range(2)
    }
    assert len(texts) == 1


def test_the_files_of_version_5_have_its_names_and_its_makespan(workload_file, tmp_path):
    path = workload_file((1, 5, 1, 50, 10), machines=2)
    run = run_batsim([path], platform=None, scheduler="easy")
    names = [p.name for p in outputs.write(run, str(tmp_path / "out-"), dialect=5)]
    assert names == ["out-jobs.csv", "out-machine_states.csv", "out-schedule.json"]
    row = (tmp_path / "out-jobs.csv").read_text().splitlines()[1]
    assert (
        row
        == "1,w0,w0!d10,5.000000,1,50.000000,1,COMPLETED_SUCCESSFULLY,5.000000,10.000000,15.000000,0.000000,10.000000,1.000000,0,-1.000000,"
    )
    schedule = json.loads((tmp_path / "out-schedule.json").read_text())
    assert schedule["makespan"] == 10
    assert list(schedule) == sorted(schedule)
    assert "simulation_time" not in schedule
    assert [p.name for p in outputs.write(run, str(tmp_path / "out"))][-1] == "out_schedule.csv"


POWER = """<platform version="4.1"><zone id="z" routing="None">
<host id="master_host" speed="1Gf"/>
<host id="a" speed="1Gf, 1f, 0.5f, 0.25f"><prop id="wattage_per_state" value="100:200, 10:10, 50:50, 80:80"/>
<prop id="sleep_pstates" value="1:2:3"/></host></zone></platform>
"""


def test_energy_follows_what_a_job_does_and_a_delay_draws_idle_power(tmp_path, workload_file):
    (tmp_path / "p.xml").write_text(POWER)
    path = workload_file(
        ("wait", 0, 1, 50, 10),
        profiles={
            "d10": {"type": "delay", "delay": 10},
            "work": {"type": "parallel", "cpu": [2e10], "com": []},
        },
        jobs=[
            {"id": "wait", "subtime": 0, "res": 1, "walltime": 50, "profile": "d10"},
            {"id": "work", "subtime": 15, "res": 1, "walltime": 50, "profile": "work"},
        ],
    )
    run = run_batsim(
        [path], platform=tmp_path / "p.xml", scheduler="fcfs", options=BatchOptions(energy=True)
    )
    assert [record.joules for record in run.records.values()] == [1000.0, 4000.0]
    assert run.hosts.joules == 10 * 100 + 5 * 100 + 20 * 200
    text = outputs.consumed_energy_csv(run).splitlines()
    assert text == [
        "time,energy,event_type,wattmin,epower",
        "0.000000,0.000000,s,100.000000,NA", "10.000000,1000.000000,e,100.000000,100.000000",
        "15.000000,1500.000000,s,100.000000,100.000000",
        "35.000000,5500.000000,e,100.000000,200.000000",
    ]  # fmt: skip
    names = [p.name for p in outputs.write(run, str(tmp_path / "e"))]
    assert {"e_consumed_energy.csv", "e_pstate_changes.csv"} <= set(names)


def test_a_machine_goes_to_sleep_and_wakes_by_way_of_its_virtual_states(tmp_path):
    (tmp_path / "p.xml").write_text(POWER)
    platform = simgrid_xml.read(tmp_path / "p.xml")
    scheduler = Scripted(
        lambda news: [SwitchPstate(0b1, 1), CallMeLater(10 * S)],
        lambda news: [],  # asleep since 2 s: one flop takes 2 s in the state on the way
        lambda news: [SwitchPstate(0b1, 0)],
        lambda news: [],
    )
    simulation = BatchSimulation(
        platform, [workload((0, 1, 9, 1))], scheduler, options=BatchOptions(energy=True)
    )
    simulation.run()
    switched = [
        (news.now // S, news.switched) for news in scheduler.heard if getattr(news, "switched", ())
    ]
    assert switched == [(2, ((1, 1),)), (14, ((1, 0),))]
    assert simulation.hosts.joules == 2 * 50 + 8 * 10 + 4 * 80
    assert simulation.hosts.booked["switching_off"] == 2 * S
    assert simulation.hosts.booked["sleeping"] == 8 * S
    assert simulation.hosts.booked["switching_on"] == 4 * S
    asleep = Scripted(
        lambda news: [SwitchPstate(0b1, 1)],
        lambda news: [StartJob(simulation.records["w0!0"].job, 0b1)],
    )
    with pytest.raises(DecisionError, match="asleep"):
        BatchSimulation(platform, [workload((0, 1, 9, 1))], asleep).run()
