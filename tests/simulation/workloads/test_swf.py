import json

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.simulation.engines.batch import outputs
from dralab.simulation.engines.batch import run as runs
from dralab.simulation.workloads import swf


def test_the_trace_with_tabs_gives_39_jobs_or_38_by_requested_time_only(testdata):
    trace = swf.read(testdata("swf", "KIT-10-80.swf"))
    assert (len(trace.entries), trace.processors) == (39, 24048)
    assert len(swf.jobs(trace).jobs) == 39
    assert len(swf.jobs(trace, swf.SwfConversion(requested_only=True)).jobs) == 38


def test_a_trace_written_and_read_again_keeps_its_18_columns(testdata, tmp_path):
    trace = swf.read(testdata("swf", "KIT-10-80.swf"))
    swf.write(tmp_path / "again.swf", trace.entries, trace.header)
    again = swf.read(tmp_path / "again.swf")
    assert again.entries == trace.entries
    assert again.header == trace.header


@pytest.mark.thorough
def test_the_nasa_trace_runs_whole(testdata):
    trace = swf.read(testdata("swf", "NASA-iPSC-1993-3.1-cln.swf"))
    assert (len(trace.entries), trace.processors) == (18_239, 128)
    assert sum(entry.run == 0 for entry in trace.entries) == 173
    run = runs.of_swf(testdata("swf", "NASA-iPSC-1993-3.1-cln.swf"), hosts=128, scheduler="easy")
    run.run()
    result = outputs.summary(run)
    assert result["nb_jobs_success"] == 18_239 - 173
    assert result["time_computing"] == 474_238_015


def test_a_job_gets_twice_its_run_time_and_the_grain_rounds_up(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text("5 100 0 10 2 -1 -1 2 15 -1 1 7 1 1 1 1 -1 -1\n")
    job = swf.jobs(swf.read(path)).jobs[0]
    assert (job.submitted, job.width, job.walltime, job.user) == (0, 2, 20 * 10**9, "7")
    workload = swf.jobs(swf.read(path), swf.SwfConversion(grain=1))
    assert workload.profiles["11"].duration == 11 * 10**9


def test_the_command_prints_one_json_object(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text("1 0 0 10 2 -1 -1 2 15 -1 1 7 1 1 1 1 -1 -1\n")
    result = CliRunner().invoke(main, ["simulate", "run", str(path), "--hosts", "2"])
    assert result.exit_code == 0
    assert '"makespan": 10.0' in result.stdout


STRANGE = (
    "; Computer: some machine\n; MaxNodes: 8\n\n  ; a remark without a key\n"
    "7 9 0 10 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1 \n"
    "8\t5\t0\t10\t-1\t-1\t-1\t3\t20\t-1\t1\t1\t1\t1\t1\t1\t-1\t-1\n"
    "9 7 0 10.5 2 1.5 -1 2 -1 -1 1 1 1 1 1 1 -1 -1\n"
    "10 7 0 0 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1\n"
    "11 7 0 10 0 -1 -1 0 -1 -1 5 1 1 1 1 1 -1 -1\n"
    "12 7 0 -1 2 -1 -1 2 -1 -1 5 1 1 1 1 1 -1 -1\n"
)


def test_a_trace_of_the_archive_may_be_unsorted_and_have_lines_that_are_no_jobs(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(STRANGE)
    done = CliRunner().invoke(main, ["simulate", "run", str(path)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["nb_jobs"], found["nb_computing_machines"], found["nb_entries_dropped"]) == (
        2, 8, 4,
    )  # fmt: skip
    assert "2 with no processors allocated, 2 with no run time" in done.stderr


def test_large_numbers_never_look_alike(tmp_path):
    line = "{} 0 0 {} 1 -1 -1 1 -1 -1 1 1 1 1 1 1 -1 -1\n"
    path = tmp_path / "log.swf"
    path.write_text("".join(line.format(1_000_000 + n, 1_234_560 + n) for n in range(5)))
    jobs = swf.jobs(swf.read(path))
    assert [job.id for job in jobs.jobs] == [str(1_000_000 + n) for n in range(5)]
    lengths = [jobs.profiles[job.profile].duration // 10**9 for job in jobs.jobs]
    assert lengths == [1_234_560 + n for n in range(5)]
