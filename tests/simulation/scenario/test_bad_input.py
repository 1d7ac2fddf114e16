"""Every error names the file, and where it can the line and the field."""

import json

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation.platforms import simgrid_xml
from dralab.simulation.workloads import batsim, swf

GOOD = {"id": "1", "subtime": 0, "res": 1, "walltime": 10, "profile": "p"}
PROFILE = {"type": "delay", "delay": 5}


def write(tmp_path, jobs, profiles=None):
    path = tmp_path / "jobs.json"
    lines = ",\n".join(json.dumps(job) for job in jobs)
    text = json.dumps({"p": PROFILE} if profiles is None else profiles)
    path.write_text(f'{{"nb_res": 4,\n"jobs": [\n{lines}\n],\n"profiles": {text}}}')
    return path


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"subtime": -1}, "subtime", "not negative"),
        ({"subtime": "soon"}, "subtime", "number of seconds"),
        ({"res": 0}, "res", "at least 1"),
        ({"res": 1.5}, "res", "at least 1"),
        ({"res": True}, "res", "at least 1"),
        ({"walltime": -7}, "walltime", "above 0, or -1"),
        ({"profile": "nowhere"}, "profile", "there is no profile 'nowhere'"),
        ({"id": "1"}, "id", "there are two jobs '1'"),
        ({"id": None}, "id", "a string or a whole number"),
    ],
)
def test_a_broken_job_is_named_with_its_line_and_field(tmp_path, change, field, problem):
    path = write(tmp_path, [GOOD, GOOD | {"id": "2"} | change])
    with pytest.raises(InputError) as caught:
        batsim.read(path)
    error = caught.value
    assert (error.line, error.where) == (4, f"jobs[1].{field}")
    assert problem in str(error)
    problems = InputProblems(lenient=True)
    assert len(batsim.read(path, problems=problems).jobs) == 1
    assert len(problems.skipped) == 1


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ({"type": "magic"}, "'magic' is not one of"),
        ({"type": "delay", "delay": -3}, "not negative"),
        ({"type": "parallel", "cpu": [1, 2], "com": [0]}, "must hold 4 numbers"),
        ({"type": "composed", "seq": ["p"]}, "contains itself: p > p"),
        ({"type": "composed", "seq": ["q"]}, "there is no profile 'q'"),
        ({"type": "composed", "seq": []}, "array of names"),
        ({"type": "smpi", "trace": "../secret"}, "outside the folder"),
        ({"type": "smpi", "trace": "/etc/passwd"}, "outside the folder"),
        ({"type": "usage_trace", "trace": "none"}, "there is no file 'none'"),
        ({"type": "ParallelTaskHomogeneousProfile", "generation_strategy": "?"}, "is not one of"),
    ],
)
def test_a_broken_profile_is_named(tmp_path, profile, problem):
    with pytest.raises(InputError, match="profiles") as caught:
        batsim.read(write(tmp_path, [GOOD], {"p": profile}))
    assert problem in str(caught.value)


@pytest.mark.parametrize("text", ["{", "[]", '{"jobs": 3}', '{"jobs": [], "profiles": []}', "\xff"])
def test_a_file_that_is_no_workload_is_refused(tmp_path, text):
    path = tmp_path / "jobs.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"jobs\.json"):
        batsim.read(path)


def test_a_file_that_is_not_there_is_one_line_and_exit_code_2(tmp_path):
    result = CliRunner().invoke(main, ["simulate", "run", str(tmp_path / "none.json")])
    assert result.exit_code == 2
    assert "none.json: cannot be read" in result.output
    assert result.stdout == ""


BOMB = """<?xml version="1.0"?>
<!DOCTYPE platform [ <!ENTITY a "aaaaaaaaaa"> <!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;"> ]>
<platform version="4.1"><zone id="&b;" routing="Full"/></platform>
"""
FETCH = """<!DOCTYPE platform [ <!ENTITY a SYSTEM "file:///etc/passwd"> ]>
<platform version="4.1"><zone id="&a;" routing="Full"/></platform>
"""
HOST = '<host id="master_host" speed="1Gf"/><host id="a" speed="1Gf"/>'


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        (BOMB, 2, "entities are not read"),
        (FETCH, 1, "entities are not read"),
        ("<platform>\n<zone id='z' routing='Floyd'/></platform>", 2, "'Floyd' is not supported"),
        ("<platform>\n<zone id='z'><disk id='d'/></zone></platform>", 2, "<disk> is not supported"),
        ("<platform>\n<zone id='z'><host id='a'/></zone></platform>", 2, "speed must be given"),
        ("<platform>\n<zone id='z'><host id='a' speed='1x'/></zone></platform>", 2, "not a speed"),
        ("<platform><zone id='z'>\n", 2, "is not XML"),
        (f"<platform><zone id='z'>{HOST * 2}</zone></platform>", 1, "two hosts"),
        ("<platform><zone id='z'>" + HOST.replace("master_host", "b") + "</zone></platform>",
         None, "exactly one host"),
        ("<platform><zone id='z'><cluster id='c' speed='1Gf' bw='1Bps' radical='0-999999999'/>"
         "</zone></platform>", 1, "not a range"),
    ],
)  # fmt: skip
def test_a_platform_that_is_hostile_or_not_understood_is_refused(tmp_path, text, line, problem):
    path = tmp_path / "platform.xml"
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        simgrid_xml.read(path)
    assert problem in str(caught.value)
    assert caught.value.line == line


LINE = "1 0 0 10 2 -1 -1 2 -1 -1 1 1 1 1 1 1 -1 -1"


@pytest.mark.parametrize(
    ("line", "where", "problem"),
    [
        ("2 0 0 10 2", "", "must have 18 columns and has 5"),
        (LINE.replace("1 0 0 10", "2 x 0 10"), "submit", "'x' is not a number"),
        (LINE.replace("1 0 0 10", "2 -5 0 10"), "submit", "must not be negative"),
        (LINE.replace("1 0 0 10", "2 -1 0 10"), "submit", "is missing"),
        (LINE.replace("1 0 0 10", "2 nan 0 10"), "submit", "is not a number"),
        (LINE, "job", "there are two jobs 1"),
    ],
)
def test_a_broken_line_of_a_trace_is_named(tmp_path, line, where, problem):
    path = tmp_path / "log.swf"
    path.write_text(f"; MaxProcs: 4\n{LINE}\n{line}\n")
    with pytest.raises(InputError) as caught:
        swf.read(path)
    assert (caught.value.line, caught.value.where) == (3, where)
    assert problem in str(caught.value)
    problems = InputProblems(lenient=True)
    assert len(swf.read(path, problems=problems).entries) == 1
    assert len(problems.skipped) == 1


def test_a_job_wider_than_the_hosts_is_named(tmp_path):
    path = tmp_path / "log.swf"
    path.write_text(LINE + "\n")
    with pytest.raises(InputError, match=r"log\.swf:1: procs: job 1 took 2 processors"):
        swf.jobs(swf.read(path), hosts=1)
