"""`dralab node` and `dralab driver run`: processes that meet over sockets."""

import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.api.status import ApiError
from dralab.cli.main import main
from dralab.cluster import Cluster
from dralab.runtime.resources import CLAIMS, CLASSES, NODES, PODS, SLICES
from processes import Processes

GUIDE = Path(__file__).parents[2] / "docs/guides/run-a-driver.md"


def gone(client):
    try:
        client.get(PODS, "job", "default")
    except ApiError as error:
        return error.reason == "NotFound"
    return False


@pytest.mark.thorough
def test_a_pod_gets_its_device_from_a_driver_in_another_process():
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    with Processes() as lab:
        lab.node("n1")
        lab.driver("gpu", "n1")
        lab.until(lambda: lab.client.list(SLICES).items, "driver")
        assert lab.client.get(NODES, "n1")["status"]["nodeInfo"]["kubeletVersion"] == "v1.36.2"
        assert [o["metadata"]["name"] for o in lab.client.list(CLASSES).items] == [
            "gpu.example.com"
        ]
        lab.create_pod()
        lab.until(lambda: lab.phase() == "Running")
        (claim,) = lab.client.list(CLAIMS).items
        uid = claim["metadata"]["uid"]
        seen = lab.until(
            lambda: lab.environment().get("KUBERNETES_NODE_NAME") and lab.environment()
        )
        assert seen["GPU_DEVICE_0"] == "gpu-0"
        assert seen["GPU_DEVICE_GPU_0_RESOURCE_CLAIM"] == uid
        assert lab.cdi() == [f"k8s.gpu.example.com-gpu_{uid}.yaml"]
        lab.client.delete(PODS, "job", "default")
        lab.until(lambda: gone(lab.client))
        assert lab.cdi() == []
        lab.until(lambda: not lab.client.list(CLAIMS).items)
        assert "registered with the kubelet" in lab.said("driver")
        # A clean stop takes the sockets away, and leaves the slices to the next process.
        assert lab.stop("driver") == 0
        assert not list((lab.root / "k" / "plugins_registry").iterdir())
        assert len(lab.client.list(SLICES).items) == 1
        assert lab.stop("node") == 0


@pytest.mark.thorough
def test_the_driver_of_the_guide_publishes_its_lamp():
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    (code,) = re.findall(r"^```python\n(.*?)^```", GUIDE.read_text(), re.MULTILINE | re.DOTALL)
    with Processes() as lab:
        (lab.root / "lamps.py").write_text(code)
        lab.node("n1")
        lab.driver("lamps:Lamps", "n1")
        (found,) = lab.until(lambda: lab.client.list(SLICES).items, "driver")
        assert found["spec"]["driver"] == "lamps.example.com"
        assert [device["name"] for device in found["spec"]["devices"]] == ["lamp-0"]
        lab.until(lambda: "registered with the kubelet" in lab.said("driver"))


def config(tmp_path):
    path = tmp_path / "config"
    path.write_text(
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n", encoding="utf-8"
    )
    return str(path)


NAMES = [
    ("lamp", "unknown driver 'lamp'; known: fake, gpu, nic, cpu, or your own"),
    ("nowhere_at_all:Lamps", "No module named 'nowhere_at_all'"),
    ("json:loads", "json:loads is not a subclass of dralab.drivers.driver.Driver"),
    ("json:nothing", "has no attribute 'nothing'"),
]


@pytest.mark.parametrize(("name", "text"), NAMES, ids=[name for name, _ in NAMES])
def test_a_driver_that_is_not_there_is_bad_input(tmp_path, name, text):
    arguments = ["driver", "run", name, "--kubeconfig", config(tmp_path), "--node", "n1"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert text in result.stderr


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("1 / 0\n", "ZeroDivisionError: division by zero ("),
        ("raise RuntimeError\n", "RuntimeError ("),
        ("def (:\n", "SyntaxError: invalid syntax (broken_lamp.py, line 1)\n"),
    ],
)
def test_a_driver_that_cannot_be_imported_is_bad_input(tmp_path, monkeypatch, code, says):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "broken_lamp.py").write_text(code)
    name = "broken_lamp:Lamp"
    arguments = ["driver", "run", name, "--kubeconfig", config(tmp_path), "--node", "n1"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert f"importing broken_lamp failed: {says}" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("where", ["0.0.0.0:0", "[::]:10250", "127.0.0.1", "10250"])
def test_a_node_listens_where_the_server_finds_it(tmp_path, where):
    words = ["node", "--name", "n1", "--kubeconfig", config(tmp_path), "--listen", where]
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert "--listen" in result.stderr


COMMANDS = [["driver", "run", "gpu", "--node", "n1"], ["node", "--name", "n1"]]


def test_a_server_that_is_not_there_is_one_clear_line(tmp_path):
    # A driver waits for its server instead.
    command = ["node", "--name", "n1", "--kubeconfig", config(tmp_path)]
    result = CliRunner().invoke(main, command)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: http://127.0.0.1:9 does not answer")


@pytest.mark.parametrize("command", COMMANDS, ids=["driver", "node"])
def test_without_grpcio_it_is_said_how_to_get_it(tmp_path, monkeypatch, command):
    monkeypatch.setitem(sys.modules, "grpc", None)
    result = CliRunner().invoke(main, [*command, "--kubeconfig", config(tmp_path)])
    assert result.exit_code == 2
    assert "pip install '.[grpc]'" in result.stderr


def test_a_node_that_runs_programs_refuses_a_cluster_without_credentials(tmp_path):
    with Cluster() as cluster:
        arguments = ["node", "--name", "n", "--runtime", "process", "--root", str(tmp_path)]
        result = CliRunner().invoke(main, [*arguments, "--kubeconfig", str(cluster.kubeconfig)])
    assert result.exit_code == 2
    assert "it requires no credential: serve it without --plain" in result.stderr


def test_the_former_name_of_the_simulated_runtime_is_taken_with_a_warning():
    arguments = ["node", "--name", "n", "--server", "http://127.0.0.1:1", "--image-map", "a=b"]
    now, formerly = (
        CliRunner().invoke(main, [*arguments, "--runtime", name])
        for name in ("simulated", "pretend")
    )
    assert "--image-map needs --runtime process" in now.stderr
    assert formerly.stderr == (
        "warning: --runtime pretend is now --runtime simulated\n" + now.stderr
    )
    assert "pretend" not in CliRunner().invoke(main, ["node", "--help"]).output
