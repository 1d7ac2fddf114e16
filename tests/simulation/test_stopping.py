"""Ctrl-C leaves what there is so far, and a checkpoint; going on ends as if nothing had been."""

import errno
import json
import os
import signal
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli import _progress
from dralab.cli._runs import keep
from dralab.cli.main import main
from dralab.scenarios.errors import InputError
from dralab.simulation import checkpoints
from dralab.simulation.engines.batch import outputs
from dralab.simulation.engines.batch import run as runs

BATCH = "dralab.simulation.engines.batch"
JOBS = {
    "nb_res": 4,
    "jobs": [
        {"id": n, "subtime": 3 * n, "res": 1 + n % 4, "walltime": 60, "profile": "p"}
        for n in range(40)
    ],
    "profiles": {"p": {"type": "delay", "delay": 20}},
}
SCENARIO = (
    "fleet: {nodes: [{name: n, count: 2, cpu: 2}]}\n"
    "workload: {pods: [{name: p, count: 300, cpu: 1, duration: 20s, every: 2s}]}\n"
)


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "jobs.json").write_text(json.dumps(JOBS))
    line = "{} {} 0 20 {} -1 -1 1 60 -1 1 1 1 1 1 1 -1 -1\n"
    (tmp_path / "log.swf").write_text(
        "; MaxProcs: 4\n" + "".join(line.format(n, 3 * n, 1 + n % 4) for n in range(40))
    )
    (tmp_path / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\n" + "".join(f"n{n},64000,65536,4,A\n" for n in range(9))
    )
    (tmp_path / "pods.csv").write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
        + "".join(f"p{n},1000,1024,1,{100 + 100 * (n % 3)}\n" for n in range(300))
    )
    (tmp_path / "pods.yaml").write_text(SCENARIO + "scheduler: bestfit\n")
    (tmp_path / "cluster.yaml").write_text(SCENARIO + "scheduler: dralab\n")
    (tmp_path / "batch.yaml").write_text(
        "fleet: {hosts: 4}\nworkload: {batsim: jobs.json}\nscheduler: easy\n"
    )
    return tmp_path


def call(*arguments):
    return CliRunner().invoke(main, ["simulate", *arguments])


def written(folder):
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.suffix in {".csv", ".json"} and path.name != "jobs.json"
    }


COMMANDS = {
    "batsim": (["run", "jobs.json", "--export", "{}/r"], "{}/r_checkpoint"),
    "swf": (["run", "log.swf", "--export", "{}/r"], "{}/r_checkpoint"),
    "openb": (
        ["run", "nodes.csv", "pods.csv", "--write", "{}"], "{}/checkpoint",
    ),
    "batch": (["run", "batch.yaml", "--write", "{}"], "{}/checkpoint"),
    "pods": (["run", "pods.yaml", "--write", "{}"], "{}/checkpoint"),
    "cluster": (["run", "cluster.yaml", "--write", "{}"], "{}/checkpoint"),
}  # fmt: skip


def pressing_before(module, name, monkeypatch, number=signal.SIGINT):
    """Press Ctrl-C once, whenever the function is about to be called."""
    original = getattr(module, name)

    def pressed(*arguments, **named):
        signal.raise_signal(number)
        return original(*arguments, **named)

    monkeypatch.setattr(module, name, pressed)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_while_its_files_are_read_leaves_a_checkpoint_of_its_beginning(
    files, monkeypatch, number
):
    whole = call("run", "log.swf", "--export", "whole/r")
    with monkeypatch.context() as patched:
        pressing_before(runs, "of_swf", patched, number)
        stopped = call("run", "log.swf", "--export", "parts/r")
    assert stopped.exit_code == 1
    assert "resume with --resume parts/r_checkpoint" in stopped.stderr
    resumed = call("run", "log.swf", "--export", "parts/r", "--resume", "parts/r_checkpoint")
    assert resumed.stdout == whole.stdout
    assert written(files / "parts") == written(files / "whole")


def test_results_are_written_to_the_end_though_ctrl_c_is_pressed_meanwhile(files, monkeypatch):
    whole = call("run", "log.swf", "--export", "whole/r")
    pressing_before(outputs, "write", monkeypatch)
    pressed = call("run", "log.swf", "--export", "parts/r")
    assert (pressed.exit_code, pressed.stdout) == (0, whole.stdout)
    assert written(files / "parts") == written(files / "whole")


def test_a_second_ctrl_c_leaves_at_once(files, monkeypatch):
    pressing_before(runs, "of_swf", monkeypatch)
    pressing_before(outputs, "write", monkeypatch)
    left = call("run", "log.swf", "--export", "parts/r")
    assert left.exit_code == 1
    assert not (files / "parts").exists()


@pytest.mark.thorough
@pytest.mark.parametrize("kind", COMMANDS)
def test_a_run_that_is_stopped_leaves_what_there_is_and_goes_on_to_the_same_end(
    files, monkeypatch, kind
):
    command, checkpoint = COMMANDS[kind]
    whole = call(*(part.format("whole") for part in command))
    assert whole.exit_code == 0, whole.output

    with monkeypatch.context() as patch:
        patch.setattr(_progress.ProgressWatcher, "stop", lambda _self: True)
        part = call(*(part.format("part") for part in command))
    assert part.exit_code == 1
    assert "stopped; partial results saved" in part.stderr
    assert f"resume with --resume {checkpoint.format('part')}" in part.stderr
    assert json.loads(part.stdout)
    assert {path.name for path in (files / "part").iterdir()} >= set(written(files / "whole"))
    assert written(files / "part") != written(files / "whole")

    rest = call(*(part.format("rest") for part in command), "--resume", checkpoint.format("part"))
    assert rest.exit_code == 0, rest.output
    assert rest.stdout == whole.stdout
    assert written(files / "rest") == written(files / "whole")


def test_a_checkpoint_of_another_input_is_refused(files, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(_progress.ProgressWatcher, "stop", lambda _self: True)
        call("run", "log.swf", "--export", "r")
    (files / "log.swf").write_text((files / "log.swf").read_text() + "\n")
    again = call("run", "log.swf", "--export", "r", "--resume", "r_checkpoint")
    assert again.exit_code == 2
    assert "r_checkpoint: belongs to another scenario, seed or scheduler" in again.stderr


def document(**fields):
    found = {"kind": checkpoints.KIND, "format": checkpoints.FORMAT, "key": "key", "steps": 7}
    return json.dumps(found | fields).encode()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is not a checkpoint"),
        (b"\x80\x05K\x07.", "is not a checkpoint"),
        (b"[]", "is not a checkpoint"),
        (document(format=2), "is not a checkpoint of this version"),
        (document(key="other"), "belongs to another"),
        (document(steps="text"), "steps must be a whole number from 0, not 'text'"),
        (document(steps=-1), "steps must be a whole number from 0, not -1"),
        (document(steps=True), "steps must be a whole number from 0, not True"),
    ],
)
def test_what_is_no_checkpoint_is_refused(tmp_path, content, problem):
    path = tmp_path / "checkpoint"
    path.write_bytes(content)
    with pytest.raises(InputError, match=problem):
        checkpoints.read(path, "key")
    with pytest.raises(InputError, match="cannot be read"):
        checkpoints.read(tmp_path / "none", "key")


def test_what_a_users_scheduler_keeps_of_its_own_is_in_a_checkpoint(files, monkeypatch):
    (files / "own.py").write_text(
        "from collections import deque\n"
        "class Kept:\n"
        "    def __init__(self): self.order, self.back = deque(maxlen=99), self\n"
        "class Own:\n"
        "    def __init__(self): self.kept = Kept()\n"
        "    def prefer(self, pod, node):\n"
        "        self.kept.back.order.append(pod.cpu)\n"
        "        return (len(self.kept.order) + len(node.name)) % 7\n"
    )
    text = (files / "pods.yaml").read_text().replace("bestfit", "own.py:Own")
    (files / "pods.yaml").write_text(text)
    command, checkpoint = COMMANDS["pods"]
    whole = call(*(part.format("whole") for part in command))
    assert whole.exit_code == 0, whole.output
    with monkeypatch.context() as patch:
        patch.setattr(_progress.ProgressWatcher, "stop", lambda _self: True)
        assert call(*(part.format("part") for part in command)).exit_code == 1
    rest = call(*(part.format("rest") for part in command), "--resume", checkpoint.format("part"))
    assert rest.stdout == whole.stdout


@pytest.mark.thorough
def test_the_digest_of_a_scenario_is_the_same_in_another_process(files):
    import subprocess
    import sys

    (files / "labels.yaml").write_text(
        "fleet: {nodes: [{name: n, cpu: 2, labels: {a: b, c: d, e: f, g: h}}]}\n"
        "workload: {pods: [{name: p, cpu: 1, node_labels: {a: b, e: f}}]}\nscheduler: fgd\n"
    )
    code = (
        "from pathlib import Path; from dralab.simulation.scenario.scenario import digest; from dralab.simulation.scenario import scenario;"
        "print(digest(scenario.load(Path('labels.yaml'))))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True, check=True,
        ).stdout
        for seed in "12"
    }  # fmt: skip
    assert len(found) == 1


def test_a_scenario_says_what_is_written_and_when_to_stop(files):
    text = (files / "pods.yaml").read_text().replace("scheduler:", "policy:")
    (files / "said.yaml").write_text(
        text + "outputs: {report: results, parquet: false}\nstop: {ended: 7}\n"
    )
    done = call("run", "said.yaml")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["scheduler"] == "bestfit"
    assert 7 <= json.loads(done.stdout)["metrics"]["ended"] < 12
    names = {path.name for path in (files / "results").iterdir()}
    assert names == {"summary.json", "tasks.csv", "samples.csv", "report.html"}


@pytest.mark.parametrize(
    ("more", "problem"),
    [
        ("outputs: {report: ../elsewhere}\n", "outputs.report: must be a folder inside"),
        ("outputs: {picture: gif}\n", "outputs.picture: 'gif' is not one of pdf, png, svg"),
        ("stop: {ended: 0}\n", "stop.ended: must be a number, at least 1"),
        ("policy: fgd\n", "policy: is an alias of `scheduler`"),
    ],
)
def test_outputs_that_cannot_be_are_named(files, more, problem):
    (files / "said.yaml").write_text((files / "pods.yaml").read_text() + more)
    done = call("run", "said.yaml")
    assert done.exit_code == 2
    assert "said.yaml:4: " in done.stderr
    assert problem in done.stderr


@pytest.mark.parametrize(
    ("workload", "place"),
    [
        ("{swf: log.swf}", "log.swf:3: procs: "),
        ("{jobs: [{name: a, machines: 1, duration: 5}, {name: b, machines: 9, duration: 5}]}",
         "said.yaml:2: workload.jobs[1].machines: "),
    ],
)  # fmt: skip
def test_a_job_wider_than_the_machines_is_named_with_its_line_and_skipped(files, workload, place):
    (files / "said.yaml").write_text(
        f"fleet: {{hosts: 1}}\nworkload: {workload}\nscheduler: easy\n"
    )
    done = call("run", "said.yaml")
    assert done.exit_code == 2
    assert place in done.stderr
    done = call("run", "said.yaml", "--lenient")
    assert done.exit_code == 0
    assert f"skipped: {files / place}" in done.stderr or f"skipped: {place}" in done.stderr


def test_an_event_of_a_machine_that_there_is_not_is_named_with_its_line(files):
    (files / "events.txt").write_text(
        '{"type": "machine_unavailable", "resources": "1", "timestamp": 1}\n'
        '{"type": "machine_unavailable", "resources": "2-9", "timestamp": 2}\n'
    )
    done = call("run", "jobs.json", "events.txt")
    assert done.exit_code == 2
    assert "events.txt:2: resources: there are 4 machines, no 4-9" in done.stderr
    done = call("run", "jobs.json", "events.txt", "--lenient")
    assert json.loads(done.stdout)["nb_entries_skipped"] == 1


def test_a_checkpoint_that_a_full_disk_has_no_room_for_is_told_and_leaves_nothing(
    tmp_path, monkeypatch, capsys
):
    def full(path, _):
        path.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    checkpoints.write(tmp_path / "checkpoint", "key", 1)
    monkeypatch.setattr(Path, "write_bytes", full)
    keep(lambda path: checkpoints.write(path, "key", 2), tmp_path / "checkpoint")
    said = capsys.readouterr().err
    assert "no checkpoint written: cannot be written: No space left on device" in said
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint"]
    assert checkpoints.read(tmp_path / "checkpoint", "key") == 1
