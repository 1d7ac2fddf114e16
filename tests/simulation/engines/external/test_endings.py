"""How runs with external schedulers end: crashes, silence, Ctrl-C, and going on afterwards."""

import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.simulation.engines.external.cases import WATCHING, ScenarioWriter, run, tasks
from tests.waiting import until

from clocked import needs_clock
from dralab.apiserver.http.messages import HttpRequest, HttpResponse
from dralab.cli._progress import ProgressWatcher
from dralab.cli.main import main
from dralab.cluster import Cluster
from dralab.scenarios.errors import DecisionError, InputError
from dralab.simulation.engines.external.driver import Activity
from dralab.simulation.engines.external.schedulers import (
    RealTimeLauncher,
    SchedulerCommand,
    started,
)

KUBE_SCHEDULER = os.environ.get("DRALAB_KUBE_SCHEDULER") or shutil.which("kube-scheduler")

# Forty of 170 s on ten cores: four waves.
WAVES = {"pods": "{name: p, count: 40, duration: 170s, cpu: 1}",
         "nodes": "{name: node, count: 10, cpu: 1}"}  # fmt: skip


@pytest.fixture
def scenario(tmp_path):
    return ScenarioWriter(tmp_path)


@pytest.mark.thorough
def test_a_run_whose_scheduler_crashes_keeps_its_part_and_can_be_gone_on_with(scenario, tmp_path):
    checkpoint = tmp_path / "results" / "checkpoint"
    loaded = scenario(**WAVES, program=WATCHING, arguments=("default-scheduler", "crash=15"))
    result, found = run(loaded, keep=checkpoint)
    assert not result.complete
    # The second wave had begun; what had been bound when it crashed is not lost.
    assert found["succeeded"] == 10
    assert sum(task.state == "Running" for task in result.tasks) == 5
    assert any(
        note.startswith("stopped early at 170 s: default-scheduler ended with exit code 3")
        and note.endswith("out of luck")
        for note in result.notes
    )
    better = scenario(**WAVES, program=WATCHING)
    result, found = run(better, resume=checkpoint)
    assert result.complete
    assert (found["makespan"], found["wait_mean"], found["succeeded"]) == (680, 255, 40)
    assert {"late binds: 0", "resumed from a checkpoint 1 times"} <= set(result.notes)


@pytest.mark.thorough
def test_a_scheduler_that_crashes_is_started_again_where_that_was_asked_for(scenario):
    result, found = run(
        scenario(**WAVES, program=WATCHING, arguments=("default-scheduler", "crash=15"),
                 restarts=5)
    )  # fmt: skip
    assert (result.complete, found["makespan"], found["wait_mean"]) == (True, 680, 255)
    assert "the scheduler exited and was restarted 2 times" in result.notes


def stopped_after(pods_over):
    """Return progress and stop for a run that is interrupted when so many pods are over."""
    seen = [0]

    def progress(_, over, __):
        seen[0] = over

    return {"progress": progress, "stop": lambda: seen[0] >= pods_over}


LIVELY = {
    "pods": "{name: p, count: 12, duration: 100s, cpu: 1, every: 7s}, "
            "{name: high, at: 60s, duration: 50s, cpu: 1, priority: 7}",
    "nodes": "{name: node, count: 4, cpu: 1}",
    "more": "faults: [{node: node-1, at: 50s, for: 100s}]\nlifecycle: {start: 2s, release: 1s}",
}  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("after", [1, 4, 9])
def test_what_was_stopped_and_gone_on_with_ends_as_if_it_had_not_been(scenario, tmp_path, after):
    loaded = scenario(**LIVELY, program=WATCHING, arguments=("default-scheduler", "preempt"))
    whole, _ = run(loaded)
    checkpoint = tmp_path / "checkpoint"
    part, found = run(loaded, keep=checkpoint, **stopped_after(after))
    assert not part.complete
    assert after <= found["succeeded"] < 13
    rest, _ = run(loaded, resume=checkpoint)
    assert rest.complete
    # Equal pods may change places: which of them was evicted. The rest may not change.
    lives = [sorted(life[:4] for life in tasks(one).values()) for one in (rest, whole)]
    assert lives[0] == lives[1]
    evictions = [sum(task.evictions for task in one.tasks) for one in (rest, whole)]
    assert evictions[0] == evictions[1]
    assert [sample[:4] for sample in rest.samples] == [sample[:4] for sample in whole.samples]


def test_a_checkpoint_of_something_else_is_refused_with_the_reason(scenario, tmp_path):
    checkpoint = tmp_path / "checkpoint"
    loaded = scenario(**WAVES, program=WATCHING)
    run(loaded, keep=checkpoint, **stopped_after(10))
    other = scenario("{name: p}", program=WATCHING)
    with pytest.raises(InputError, match="belongs to another scenario"):
        run(other, resume=checkpoint)
    for content in ("", "[]", "dralab checkpoint 1\n", json.dumps({"kind": "x"})):
        checkpoint.write_text(content)
        with pytest.raises(InputError, match="is not a checkpoint of a run with an external"):
            run(loaded, resume=checkpoint)
    with pytest.raises(InputError, match="cannot be read"):
        run(loaded, resume=tmp_path / "nothing")


def test_a_scheduler_that_says_nothing_is_not_waited_for_for_ever(scenario):
    result, found = run(
        scenario("{name: p, count: 5, duration: 10s, cpu: 1, every: 5s}", program=WATCHING,
                 arguments=("default-scheduler", "deaf"), answer_timeout=0.1, bind_grace=0.1)
    )  # fmt: skip
    assert (result.complete, found["never_started"]) == (True, 5)
    assert any(note.startswith("5 pods never bound: default/p-0") for note in result.notes)
    assert any(note.startswith("5 pods got no answer in time") for note in result.notes)


LISTS_THRICE = """
import os, threading, urllib.request
for _ in range(3):
    urllib.request.urlopen("http://" + os.environ["SERVER"] + "/api/v1/pods").read()
threading.Event().wait()
"""


def test_one_that_has_stopped_to_poll_is_not_waited_for_for_ever(scenario):
    result, found = run(
        scenario("{name: p, count: 5, duration: 10s, cpu: 1, every: 5s}", program=LISTS_THRICE,
                 answer_timeout=0.1, bind_grace=0.1)
    )  # fmt: skip
    assert (result.complete, found["never_started"]) == (True, 5)
    assert any(note.startswith("5 pods got no answer in time") for note in result.notes)


def test_a_scheduler_that_is_never_silent_is_not_waited_for_for_ever(scenario):
    result, found = run(
        scenario("{name: p, count: 2, duration: 10s, cpu: 1, every: 5s}, "
                 "{name: large, cpu: 2, duration: 1s}", program=WATCHING,
                 arguments=("default-scheduler", "restless"), answer_timeout=0.1)
    )  # fmt: skip
    assert (result.complete, found["succeeded"], found["makespan"]) == (True, 2, 15)


def test_a_scheduler_that_has_gone_silent_for_good_ends_the_run(scenario, monkeypatch):
    monkeypatch.setattr("dralab.simulation.engines.external.pacing.GONE", 4)
    result, _ = run(
        scenario("{name: p, count: 9, duration: 10s, cpu: 1, every: 5s}", program=WATCHING,
                 arguments=("default-scheduler", "deaf"), answer_timeout=0.1, bind_grace=0.1)
    )  # fmt: skip
    assert not result.complete
    assert "stopped early at 15 s: the scheduler is silent" in result.notes


@pytest.mark.thorough
def test_each_of_several_schedulers_places_its_own_pods_and_nobodys_are_told(scenario, tmp_path):
    (tmp_path / "scheduler.py").write_text(WATCHING)
    one, two = (f"[python, scheduler.py, {name}]" for name in ("one", "two"))
    result, found = run(
        scenario("{name: a, count: 20, duration: 100s, cpu: 1, scheduler: one}, "
                 "{name: b, count: 20, at: 5s, duration: 100s, every: 10s, cpu: 1, scheduler: two}, "
                 "{name: c, scheduler: three, cpu: 1}",
                 nodes="{name: node, count: 10, cpu: 4}",
                 schedulers=f"{{one: {one}, two: {two}}}")
    )  # fmt: skip
    assert (found["succeeded"], found["wait_max"], found["makespan"]) == (40, 0, 295)
    assert "1 pods name a scheduler that is not part of the run: default/c" in result.notes
    assert "late binds: 0" in result.notes


def test_the_commands_of_a_scenario_are_checked(scenario):
    with pytest.raises(InputError, match=r"external\.schedulers: must map names to commands"):
        run(scenario("{name: p}", schedulers="[a]"))
    with pytest.raises(DecisionError, match=r"'settings' is unknown; known: {config}, {kub"):
        run(scenario("{name: p}", command="[kube-scheduler, '--config={settings}']"))


@pytest.mark.parametrize("clock", ["real", pytest.param("virtual", marks=needs_clock)])
def test_a_program_that_cannot_be_started_is_one_line_and_exit_2(tmp_path, clock):
    write, file = ScenarioWriter(tmp_path, clock=clock), str(tmp_path / "scenario.yaml")
    write("{name: p}")
    answer = CliRunner().invoke(main, ["simulate", "run", file, "--command", "/nowhere/x"])
    assert answer.exit_code == 2, answer.output
    assert answer.stderr.splitlines()[1:] == [
        "Error: default-scheduler: cannot be started: No such file or directory: /nowhere/x"
    ]


@pytest.mark.parametrize("clock", ["real", pytest.param("virtual", marks=needs_clock)])
def test_of_several_the_one_that_cannot_be_started_is_named_and_the_others_end(tmp_path, clock):
    write = ScenarioWriter(tmp_path, clock=clock)
    loaded = write("{name: p}", schedulers="{one: [sleep, '1000'], two: [/nowhere/x]}")
    with pytest.raises(DecisionError, match=r"^two: cannot be started: No such file .* one: none"):
        run(loaded)


@pytest.mark.thorough
def test_ctrl_c_leaves_a_result_and_a_checkpoint_that_the_command_goes_on_from(
    scenario, tmp_path, monkeypatch
):
    scenario(**WAVES, program=WATCHING)
    report = tmp_path / "results"
    words = ["simulate", "run", str(tmp_path / "scenario.yaml"), "--write", str(report)]
    over = []
    with monkeypatch.context() as patch:
        patch.setattr(ProgressWatcher, "show", lambda _, __, done, ___: over.append(done))
        patch.setattr(ProgressWatcher, "stop", lambda _: bool(over) and over[-1] >= 10)
        stopped = CliRunner().invoke(main, words)
    assert stopped.exit_code == 1
    assert f"resume with --resume {report / 'checkpoint'}" in stopped.stderr
    found = json.loads((report / "summary.json").read_text())
    assert (found["complete"], found["metrics"]["succeeded"]) == (False, 10)
    resumed = CliRunner().invoke(main, [*words, "--resume", str(report / "checkpoint")])
    assert resumed.exit_code == 0, resumed.stderr
    assert json.loads(resumed.stdout)["metrics"]["makespan"] == 680


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="there is no /proc")
@pytest.mark.parametrize("wrapped", [False, True])
def test_who_could_run_is_at_work_and_who_sleeps_is_not(tmp_path, wrapped):
    def command(line):
        words = [sys.executable, "-c", line]
        # Behind a shell that waits for it.
        return SchedulerCommand(
            name="x", words=["sh", "-c", f"{shlex.join(words)}; true"] if wrapped else words
        )

    spins = command("while True: pass")
    sleeps = command("import threading; threading.Event().wait(60)")
    with Cluster() as cluster:
        for one, expected in ((spins, True), (sleeps, False)):
            with started([one], tmp_path, cluster, RealTimeLauncher()) as schedulers:
                # A shell and an interpreter start first; what counts is what it comes to.
                seen = []
                while len(seen) < 1000 and seen[-5:] != [expected] * 5:
                    threading.Event().wait(0.02)
                    seen.append(schedulers.at_work())
                assert seen[-5:] == [expected] * 5


@pytest.mark.conformance
@pytest.mark.skipif(KUBE_SCHEDULER is None, reason="no kube-scheduler: set DRALAB_KUBE_SCHEDULER")
def test_the_stock_scheduler_is_started_again_and_goes_on_from_a_checkpoint(scenario, tmp_path):
    command = f"[{KUBE_SCHEDULER}, '--config={{config}}', --secure-port=0]"
    loaded = scenario(
        "{name: p, count: 200, duration: 170s, cpu: 1}", command=command, answer_timeout=10
    )
    checkpoint = tmp_path / "checkpoint"
    part, _ = run(loaded, keep=checkpoint, **stopped_after(60))
    assert not part.complete
    rest, found = run(loaded, resume=checkpoint)
    assert (found["makespan"], round(found["wait_mean"], 3)) == (2210, 979.2)
    assert "late binds: 0" in rest.notes


def request(method, path, query=""):
    return HttpRequest(method=method, path=path, query=query)


def test_records_and_the_proof_of_leading_are_no_signs_of_work():
    activity = Activity()
    good = HttpResponse(status=201)
    before = activity.last
    for method, path in (
        ("POST", "/api/v1/namespaces/a/events"),
        ("PATCH", "/apis/events.k8s.io/v1/namespaces/a/events/x"),
        ("PUT", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/s"),
        ("GET", "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/s"),
        ("PUT", "/api/v1/namespaces/kube-system/configmaps/kube-batch"),
        ("GET", "/version"),
        ("GET", "/apis"),
    ):
        activity.observe(request(method, path), good)
    assert (activity.last, activity.event_writes, activity.renewals) == (before, 2, 2)
    for method, path in (
        ("GET", "/api/v1/nodes"),
        ("POST", "/api/v1/namespaces/a/pods/p/binding"),
        ("PATCH", "/apis/resource.k8s.io/v1/namespaces/a/resourceclaims/c/status"),
        ("DELETE", "/api/v1/namespaces/a/pods/p"),
    ):
        before = activity.last
        while activity.clock.now() == before:
            pass
        activity.observe(request(method, path), good)
        assert activity.last > before, path


def test_of_who_polls_only_writes_count_and_a_round_begins_after_what_happened():
    activity = Activity(polls=True)
    good = HttpResponse()
    before = activity.last
    activity.observe(request("GET", "/api/v1/pods"), good)
    activity.observe(request("GET", "/api/v1/pods"), good)
    assert (activity.last, activity.quiet_rounds) == (before, 1)
    activity.touch()
    activity.observe(request("GET", "/api/v1/pods"), good)
    assert activity.quiet_rounds == 0, "this round may have begun before"
    activity.observe(request("POST", "/api/v1/namespaces/a/pods/p/binding"), good)
    activity.observe(request("GET", "/api/v1/pods"), good)
    assert activity.quiet_rounds == 0, "it has written something in this round"
    activity.observe(request("GET", "/api/v1/pods"), good)
    assert activity.quiet_rounds == 1


@pytest.mark.conformance  # starts programs and kills them
@pytest.mark.parametrize("clock", ["virtual", "real"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_scheduler_does_not_outlive_its_run(tmp_path, number, clock):
    told = tmp_path / "pid"
    script = tmp_path / "scheduler.py"
    script.write_text(
        "import time\n"
        f"with open({str(told)!r}, 'w') as file: file.write('started')\n"
        "while True: time.sleep(1)\n"
    )
    (tmp_path / "scenario.yaml").write_text(
        "fleet: {nodes: [{name: node, cpu: 1}]}\n"
        "workload: {pods: [{name: job, cpu: 1, duration: 17s}]}\n"
        "scheduler: external\n"
        f"external: {{clock: {clock}, command: [{sys.executable}, {script}], rest: 9000000}}\n"
    )
    run = subprocess.Popen(
        [sys.executable, "-m", "dralab", "simulate", "run", "scenario.yaml"],
        cwd=tmp_path,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: told.exists() and told.read_text())
    assert runs(script)
    os.kill(run.pid, number)
    run.wait(60)
    until(lambda: not runs(script))


def runs(script):
    """Whether a process runs a script; its own number may be one of a namespace."""
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if os.fsencode(script) in line.read_bytes().split(b"\0"):
                return True
    return False
