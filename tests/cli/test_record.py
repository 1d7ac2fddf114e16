"""`dralab record` and `dralab replay` as a user types them; recording real processes takes longer."""

import json
import signal
import subprocess
import sys

import orjson
import pytest
import yaml
from click.testing import CliRunner

from dralab.api.snapshots.recordings import Recording
from dralab.cli.main import main
from dralab.lab.runs import simulate
from dralab.lab.view import open as open_lab
from dralab.runtime.resources import PODS
from dralab.web.run_desk import RunDesk
from processes import Processes
from recordedruns import recorded
from waiting import PATIENCE, until

SMALL = {
    "fleet": {"nodes": [{"name": "n", "count": 2, "cpu": 4}]},
    "workload": {"pods": [{"name": "p", "count": 5, "cpu": 3, "duration": "60s", "every": "10s"}]},
    "stop": {"at": "300s"},
}


def run(*arguments):
    return CliRunner().invoke(main, list(map(str, arguments)))


@pytest.fixture(scope="module")
def week(tmp_path_factory):
    return recorded(tmp_path_factory.mktemp("week"), SMALL)[1]


def test_a_replay_tells_its_fidelity_and_then_what_if(week):
    result = run("replay", week, "--add", "n-0=2", "--scheduler", "firstfit")
    assert result.exit_code == 0, result.output
    assert "5 of 5 pods on the same node (100.0 %)" in result.stdout
    (head,) = [line for line in result.stdout.splitlines() if "what-if" in line]
    assert head.split() == ["recorded", "replayed", "what-if"]
    (waits,) = [line for line in result.stdout.splitlines() if line.startswith("wait_mean")]
    _, there, here, then = waits.split()
    assert float(there) == float(here) > float(then)


def test_a_replay_under_another_release_tells_what_it_drops(tmp_path):
    nodes = [{"name": "n", "cpu": 4, "gpus": 1, "model": "a"}]
    _, week = recorded(tmp_path, SMALL | {"fleet": {"nodes": nodes}})
    result = run("replay", week, "--kubernetes-version", "1.33")
    assert result.exit_code == 0, result.output
    (head,) = [line for line in result.stdout.splitlines() if "what-if" in line]
    assert head.split() == ["recorded", "replayed", "what-if"]
    assert "note: what-if: 1.33 drops ResourceSlice" in result.stderr
    refused = run("replay", week, "--kubernetes-version", "1.9")
    assert "'1.9' is not a known release of Kubernetes" in refused.stderr


def test_a_replay_with_other_gates_tells_what_is_dropped(tmp_path):
    nodes = [{"name": "n", "cpu": 4, "gpus": 1, "model": "a"}]
    _, week = recorded(tmp_path, SMALL | {"fleet": {"nodes": nodes}})
    off = "DRAConsumableCapacity=false"
    result = run("replay", week, "--feature-gates", off)
    assert result.exit_code == 0, result.output
    drops = "drops ResourceSlice spec.devices.*.allowMultipleAllocations: its feature gate is off"
    assert f"note: what-if: 1.36 {drops}" in result.stderr
    on = run("replay", week, "--feature-gates", "DRAConsumableCapacity=true")
    assert "what-if" in on.stdout
    assert drops not in on.stderr
    older = run("replay", week, "--feature-gates", off, "--kubernetes-version", "1.35")
    assert f"note: what-if: 1.35 {drops}" in older.stderr
    unknown = run("replay", week, "--feature-gates", "Nonsense=true")
    assert unknown.exit_code == 2
    assert "unknown feature gate 'Nonsense'" in unknown.stderr


def test_a_replay_as_data_and_as_pages(week, tmp_path):
    out = tmp_path / "out"
    result = run("replay", week, "-o", "json", "--write", out, "--scheduler", "packing")
    assert result.exit_code == 0, result.output
    data = json.loads(result.stdout)
    assert data["fidelity"]["same_node_and_time"] == data["fidelity"]["pods"] == 5
    assert list(data["runs"]) == ["recorded", "replayed", "what-if"]
    assert sorted(path.name for path in out.iterdir()) == [
        "recorded", "recorded-replayed.html", "replayed", "replayed-what-if.html", "what-if",
    ]  # fmt: skip
    assert run("simulate", "compare", out / "recorded", out / "replayed").exit_code == 0
    title = "week, replayed · dralab-fast · seed 0 → week, what-if · packing · seed 0"
    assert title in (out / "replayed-what-if.html").read_text()


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["--add", "nosuch=1"], "nosuch"),
        (["--scheduler", "nobody"], "'nobody' is not one of"),
    ],
)
def test_what_a_replay_cannot_do_is_told(week, arguments, problem):
    result = run("replay", week, *arguments)
    assert result.exit_code == 2
    assert problem in result.stderr


def test_a_file_that_is_no_recording_is_refused(tmp_path):
    other = tmp_path / "x"
    other.write_text("{}\n")
    result = run("replay", other)
    assert result.exit_code == 2
    assert f"{other}: is not a recording: make one with dralab record" in result.stderr


def test_a_recording_is_a_scenario_and_a_cluster(week):
    result = run("simulate", "run", week, "--scheduler", "dralab")
    assert json.loads(result.stdout)["metrics"]["tasks"] == 5
    assert simulate(week, scheduler="fgd").summary["tasks"] == 5
    assert open_lab(week).nodes == ["n-0", "n-1"]


def test_the_page_shows_a_recording_over_time(week):
    view = orjson.loads(RunDesk(week).run())
    assert view["summary"]["scheduler"] == "recorded"
    assert view["lanes"] == ["n-0", "n-1"]
    assert view["tasks"]["id"] == ["p-0", "p-1", "p-2", "p-3", "p-4"]
    assert view["samples"]["columns"]["running"][-1] == 0
    assert max(view["samples"]["columns"]["waiting"]) > 0


def test_the_role_is_printed():
    (role,) = yaml.safe_load_all(run("record", "--role").stdout)
    assert role["kind"] == "ClusterRole"


def test_a_key_that_is_missing_or_open_is_refused(tmp_path):
    from dralab.cli.errors import UnusableInput
    from dralab.cli.record import opened

    path = tmp_path / "week.dralab"
    file = opened(path, "https://a.example", anonymize=True)
    file.close()
    key = tmp_path / "week.dralab.key"
    assert key.stat().st_mode & 0o777 == 0o600
    assert b"a.example" not in path.read_bytes()
    key.unlink()
    with pytest.raises(UnusableInput, match="the key of the recording's names is missing"):
        opened(path, "https://a.example", anonymize=True)


@pytest.mark.thorough
def test_a_killed_recorder_of_real_processes_is_continued_and_its_week_replayed(tmp_path):
    lab = Processes("--nodes", "3")
    week = tmp_path / "week.dralab"
    command = [sys.executable, "-m", "dralab", "record", "--kubeconfig", lab.kubeconfig]
    try:

        def record():
            made = subprocess.Popen([*map(str, command), "--write", str(week)])
            until(lambda: week.exists() and (names(week, "Node") or None))
            return made

        first = record()
        for number in range(4):
            lab.client.create(PODS, sleeper(f"early-{number}", number), "default")
        until(lambda: phases(lab) == {"Running"} or None)
        until(lambda: names(week, "Pod", "Running") == 4 or None)
        first.send_signal(signal.SIGKILL)
        first.wait()
        lab.client.create(PODS, sleeper("between", 2), "default")
        until(lambda: phases(lab) == {"Running"} or None)
        second = record()
        for number in range(3):
            lab.client.create(PODS, sleeper(f"late-{number}", number), "default")
        until(lambda: phases(lab) == {"Running"} or None)
        until(lambda: names(week, "Pod", "Running") == 8 or None)
        lab.client.delete(PODS, "early-0", "default", options={"gracePeriodSeconds": 0})
        until(lambda: names(week, "Pod") == 7 or None)
        second.send_signal(signal.SIGINT)
        assert second.wait(PATIENCE) == 0
    finally:
        lab.kill("up")
        lab.place.cleanup()
    result = run("replay", week, "-o", "json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["fidelity"]
    assert found["pods"] == found["placed_in_both"] == found["same_node"] == 8, found
    assert {each["pod"] for each in found["differences"]} <= {"between"}, found


def sleeper(name, number):
    resources = {"requests": {"cpu": f"{1 + number}"}}
    container = {"name": "c", "image": "x", "command": ["sleep", "1000"], "resources": resources}
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def phases(lab):
    return {each["status"]["phase"] for each in lab.client.list(PODS).items}


def names(week, kind, phase=""):
    recording = Recording.open(week)
    list(recording)
    return sum(
        of.kind == kind and (not phase or each["status"]["phase"] == phase)
        for of, each in recording.state.objects.items()
    )
