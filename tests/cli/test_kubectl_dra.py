"""`kubectl dra …`: the questions of dralab about the cluster that kubectl talks to."""

import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from builders import claim, device, device_class, pod, pool, request, worker
from dralab.api.snapshots.files import written
from dralab.cli.kubectl_dra import QUESTIONS, main
from dralab.cli.main import COMMANDS
from dralab.cluster import Cluster
from realdump import stored

ROOT = Path(__file__).parents[2]


def objects():
    result = {"request": "r0", "driver": "gpu.example.com", "pool": "gpus", "device": "d0"}
    status = {"allocation": {"devices": {"results": [result]}}}
    runs = pod("runs", claims={"gpu": "held"}, namespace="ml", nodeName="node-1")
    found = [
        worker("node-1"),
        *pool("gpus", device("d0"), device("d1"), node="node-1"),
        device_class("gpu"),
        claim("held", request("r0", "gpu"), namespace="ml", status=status),
        claim("two", request("r0", "gpu", count=2), namespace="ml"),
        claim("two", request("r0", "gpu", count=1), namespace="web"),
        runs | {"status": {"phase": "Running"}},
        pod("waits", claims={"gpu": "two"}, namespace="ml"),
        pod("waits", claims={"gpu": "two"}, namespace="web"),
    ]
    return [stored(item, number) for number, item in enumerate(found)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    file = tmp_path_factory.mktemp("dra") / "a.snapshot"
    file.write_bytes(written(objects()))
    with Cluster(snapshot=file) as cluster:
        yield cluster


def run(cluster, *arguments):
    environment = {"KUBECONFIG": str(cluster.kubeconfig) if cluster else None, "HOME": "/nowhere"}
    return CliRunner().invoke(main, list(arguments), env=environment)


def test_the_program_is_installed_under_the_name_that_kubectl_looks_for():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts["kubectl-dra"] == "dralab.cli.kubectl_dra:main"


def test_why_explains_the_pod_of_a_namespace(cluster):
    result = run(cluster, "why", "waits", "-n", "ml")
    assert result.exit_code == 1, result.output
    assert "waits" in result.stdout
    assert run(cluster, "why", "waits", "-n", "web").exit_code == 0


def test_why_says_what_a_running_pod_has(cluster):
    result = run(cluster, "why", "runs", "-n", "ml")
    assert result.exit_code == 0, result.output
    assert result.stdout == "pod ml/runs runs on node-1:\n  request r0: gpu.example.com/gpus/d0\n"


def test_top_lists_devices_and_their_holders(cluster):
    result = run(cluster, "top", "--devices")
    assert [line.split()[3:5] for line in result.stdout.splitlines()[1:]] == [
        ["d0", "used"],
        ["d1", "free"],
    ]


def test_every_question_of_dralab_is_offered(cluster):
    listed = run(cluster, "--help").stdout
    for name, command in QUESTIONS.items():
        assert (f"  {name} " in listed) == (command in COMMANDS)
    assert {"why", "top", "what-if", "snapshot"} <= set(QUESTIONS)
    assert QUESTIONS["what-if"] in COMMANDS


def test_another_source_takes_the_place_of_kubectls_cluster(cluster, tmp_path):
    file = tmp_path / "a.snapshot"
    file.write_bytes(written(objects()))
    for words in (["-f", str(file)], [f"-f{file}"], [f"--filename={file}"]):
        assert run(None, "why", "waits", "-n", "ml", *words).exit_code == 1
    result = run(None, "top")
    assert result.exit_code == 2
    assert "there is no $KUBECONFIG and no ~/.kube/config" in result.stderr
    assert run(None, "top", "--help").exit_code == 0


def test_a_mistyped_question_gets_a_suggestion(cluster):
    assert "did you mean 'why'?" in run(cluster, "whyy").stderr
