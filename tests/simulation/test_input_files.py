"""`simulate run` knows by their content what files are for, and which options they have."""

import shutil
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.simulation.input_files import UnknownInputError, classified

EXAMPLES = Path(__file__).parents[2] / "examples"
SWF = "1 0 5 100 4 -1 -1 4 100 -1 1 1 1 1 1 -1 -1 -1\n"
FILES = {
    "scenario.yaml": ("fleet: {hosts: 4}\nworkload: {batsim: jobs.json}\n", "scenario"),
    "scenario.json": ('{"fleet": {"hosts": 4}, "workload": {"batsim": "jobs.json"}}', "scenario"),
    "with-pods.yaml": ("fleet: {}\npods:\n- {kind: Pod}\n", "scenario"),
    "jobs.json": ('{"nb_res": 4, "jobs": [], "profiles": {}}', "workload"),
    "broken.json": ("{", "workload"),
    "cluster.xml": ("<platform/>", "platform"),
    "events.txt": ('{"timestamp": 1, "type": "machine_unavailable", "resources": "0"}\n', "events"),
    "log.swf": ("; Version: 2.2\n", "trace"),
    "log.txt": (SWF, "trace"),
    "nodes.csv": ("sn,cpu_milli,memory_mib,gpu,model\n", "nodes"),
    "pods.csv": ("name,cpu_milli,memory_mib,num_gpu\n", "pods"),
    "config.yaml": ("tick: 5\nstartClock: 2026-03-01T08:00:00Z\n", "config"),
    "pods.yaml": ("apiVersion: v1\nkind: Pod\nmetadata: {labels: {workload: x}}\n", "manifests"),
    "empty.yaml": ("", "scenario"),
}


@pytest.fixture
def files(tmp_path, monkeypatch):
    for name, (text, _) in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize("name", FILES)
def test_a_file_is_known_by_its_content(name):
    role = FILES[name][1]
    others = {
        "platform": ["jobs.json"], "events": ["jobs.json"], "nodes": ["pods.csv"],
        "pods": ["nodes.csv"], "config": ["pods.yaml"], "manifests": ["config.yaml"],
    }.get(role, [])  # fmt: skip
    assert classified(map(Path, [name, *others])).by_role[role] == (Path(name),)


@pytest.mark.usefixtures("files")
def test_the_ending_of_a_configuration_may_be_left_out():
    found = classified([Path("config"), Path("pods.yaml")])
    assert found.format == "k8s-cluster-simulator"


@pytest.mark.usefixtures("files")
@pytest.mark.parametrize(
    ("names", "message"),
    [
        ("jobs.json log.swf", "jobs.json is a Batsim workload, log.swf is an SWF trace: give the"),
        ("nodes.csv", "nodes.csv is nodes of an openb trace: pods of an openb trace is missing"),
        ("cluster.xml", "cluster.xml is a SimGrid platform: a Batsim workload is missing"),
        ("log.swf log.txt", "log.swf is an SWF trace, log.txt is an SWF trace: give one of them"),
    ],
)
def test_files_that_are_not_of_one_run_are_named(names, message):
    with pytest.raises(UnknownInputError, match=message):
        classified(map(Path, names.split()))
    found = CliRunner().invoke(main, ["simulate", "run", *names.split()])
    assert found.exit_code == 2
    assert message in found.stderr


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("jobs.json --grain 2", "--grain is not for input of Batsim"),
        ("log.swf --energy", "--energy is not for input of SWF"),
        ("log.swf --scheduler fgd", "'fgd' is not one of fcfs, easy, easy-counting, easy-sjbf, "),
        ("nodes.csv pods.csv --hosts 3", "--hosts is not for input of openb"),
        ("nodes.csv pods.csv --scheduler easy", "'easy' is not one of random, dotprod"),
        ("config.yaml pods.yaml --seed 3", "--seed is not for input of k8s-cluster-simulator"),
        ("scenario.yaml --export x", "--export is not for input of scenario"),
    ],
)
@pytest.mark.usefixtures("files")
def test_an_option_of_another_format_is_refused(words, message):
    found = CliRunner().invoke(main, ["simulate", "run", *words.split()])
    assert found.exit_code == 2
    assert message in found.stderr


def test_the_old_commands_run_the_same(tmp_path, monkeypatch):
    shutil.copytree(EXAMPLES / "34-swf", tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    new = CliRunner().invoke(main, ["simulate", "run", "log.swf", "--hosts", "8"])
    old = CliRunner().invoke(main, ["simulate", "swf", "--trace=log.swf", "--hosts", "8"])
    assert new.exit_code == old.exit_code == 0
    assert new.stdout == old.stdout
    assert "use: main simulate run log.swf --hosts 8\n" in old.stderr
