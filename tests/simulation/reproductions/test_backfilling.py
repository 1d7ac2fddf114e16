"""The logs of the archive through the schedulers that only count processors."""

import pytest

from dralab.kernel.clock import SECOND
from dralab.simulation.engines.batch.engine import BatchSimulation
from dralab.simulation.engines.batch.schedulers import SCHEDULERS
from dralab.simulation.platforms.platform import plain
from dralab.simulation.reproductions import backfilling
from dralab.simulation.reproductions.backfilling import EventByEvent, measured
from dralab.simulation.workloads.jobs import Delay, Job, Workload


def line(number, submit, run, procs, requested, procs_requested=-1):
    return f"{number} {submit} -1 {run} {procs} -1 -1 {procs_requested} {requested} -1 1 1 1 -1 -1 -1 -1 -1"


@pytest.fixture
def log(tmp_path):
    path = tmp_path / "log.swf"
    lines = [
        line(1, 100, 100, 2, 100),  # uses its whole walltime
        line(2, 110, 200, 2, 50),  # ended at 50
        line(3, 120, 10, 1, 40, 2),  # requested more than it got
        line(4, 120, 10, 3, 40),  # wider than the machine
        line(5, 120, 0, 1, 40),  # did not run
    ]
    path.write_text("; MaxProcs: 2\n" + "\n".join(lines) + "\n")
    return path


def test_the_metrics_are_those_that_one_computes_by_hand(log):
    # Starts at 100, 200 and 250: responses 100, 140 and 140; run times 100, 50 and 10.
    mean, longest, slowdown, largest, square = measured(log, "fcfs", "requested")
    assert (mean, longest) == (pytest.approx(380 / 3), 140)
    assert (slowdown, largest) == (pytest.approx((1 + 2.8 + 14) / 3), 14)
    assert square == pytest.approx(((1 + 2.8**2 + 14**2) / 3) ** 0.5)


@pytest.mark.parametrize(("estimate", "walltimes"), [("actual", [100, 50, 10]), ("doubled", [200, 100, 80])])  # fmt: skip
def test_estimates_are_walltimes(log, estimate, walltimes):
    jobs = backfilling._jobs(log, estimate).jobs
    assert [job.walltime / SECOND for job in jobs] == walltimes


def test_a_log_without_requested_times_has_its_run_times(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text("; MaxProcs: 2\n" + line(1, 0, 30, 1, -1) + "\n")
    assert [job.walltime / SECOND for job in backfilling._jobs(path, "actual").jobs] == [30]
    assert not backfilling._jobs(path, "requested").jobs


def test_event_by_event_a_submission_comes_before_the_ends_of_its_instant():
    # At 5 the first job ends early, and the fourth arrives. All at once: the second, which is the
    # head, starts. One after the other: the fourth fills the gap beside the first before that.
    jobs = [(0, 3, 10, 5), (1, 4, 10, 10), (5, 1, 5, 5)]
    made = tuple(
        Job(id=str(i), submitted=at * SECOND, width=w, walltime=limit * SECOND, profile=f"d{run}")
        for i, (at, w, limit, run) in enumerate(jobs)
    )
    profiles = {f"d{run}": Delay(duration=run * SECOND) for *_, run in jobs}
    found = {}
    for name in ("at once", "one by one"):
        policy = SCHEDULERS["easy-counting"]()
        policy = EventByEvent(policy) if name == "one by one" else policy
        workload = Workload(jobs=made, profiles=profiles, machines=4)
        simulation = BatchSimulation(plain(4), [workload], policy)
        simulation.run()
        found[name] = [r.started // SECOND for r in simulation.records.values()]
    assert found == {"at once": [0, 5, 15], "one by one": [0, 10, 5]}


def of_the_ipsc_log():
    """Yield the cases of that log; some seconds each, so all but EASY are for `make conformance`."""
    for case in backfilling.REPRODUCTION.cases:
        if "nasa" in case.name:
            marks = pytest.mark.thorough if "easy" in case.name else pytest.mark.conformance
            yield pytest.param(case, id=case.name, marks=marks)


@pytest.mark.parametrize("case", [*of_the_ipsc_log()])
def test_the_ipsc_log_gives_what_pyss_gives(testdata, case):
    rows = list(case.run([testdata("swf", case.data[0])], 0))
    assert [row.verdict for row in rows] == ["agrees"] * 5
