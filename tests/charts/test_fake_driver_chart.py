"""The chart of the classic fake driver, and its pods run by dralab."""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import yaml

from dralab.cluster import Cluster, Options
from dralab.parts.nodes import FAKE_NODE, PROCESS, Nodes, Wanted
from dralab.parts.running import Running
from dralab.runtime.client import Resource
from dralab.runtime.resources import ALLOCATION_STATES, PODS

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/fake-dra-driver"
RENDERED = ROOT / "examples/52-fake-driver-chart/rendered.yaml"
HELM = os.environ.get("DRALAB_HELM") or shutil.which("helm")
IMAGE = "dralab.dev/fake-dra-driver"


def rendered():
    return [obj for obj in yaml.safe_load_all(RENDERED.read_text()) if obj]


def helm(*words):
    return subprocess.run(
        [HELM, "template", "fake-dra-driver", str(CHART), *words],
        capture_output=True, text=True, check=False,
    )  # fmt: skip


@pytest.mark.skipif(not HELM, reason="no helm on the PATH, and DRALAB_HELM names none")
def test_the_rendered_manifest_is_what_helm_makes_of_the_chart():
    done = helm("-n", "fake-system")
    assert done.returncode == 0, done.stderr
    made = [obj for obj in yaml.safe_load_all(done.stdout) if obj]
    first, *rest = rendered()
    assert first["kind"] == "Namespace"
    assert sorted(rest, key=named) == sorted(made, key=named)


def named(obj):
    return obj["kind"], obj["metadata"]["name"]


@pytest.mark.skipif(not HELM, reason="no helm on the PATH, and DRALAB_HELM names none")
def test_the_chart_refuses_the_default_namespace_unless_allowed():
    done = helm("-n", "default")
    assert done.returncode != 0
    assert "allowDefaultNamespace" in done.stderr
    assert helm("-n", "default", "--set", "allowDefaultNamespace=true").returncode == 0


def test_values_and_manifest_name_the_same_image_and_places():
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    containers = [
        container
        for obj in rendered()
        if obj["kind"] in {"Deployment", "DaemonSet"}
        for container in obj["spec"]["template"]["spec"]["containers"]
    ]
    assert len(containers) == 2
    for container in containers:
        assert container["image"] == f"{values['image']['repository']}:{version}"
    env = {item["name"]: item.get("value") for item in containers[0]["env"] + containers[1]["env"]}
    assert env["CDI_ROOT"] == values["cdiRoot"]
    assert env["KUBELET_ROOT"] == values["kubeletRoot"]


@pytest.mark.conformance
def test_its_pods_run_the_driver():
    pytest.importorskip("grpc")
    # Not below pytest's directory: a socket's path has 107 characters at most.
    place = Path(tempfile.mkdtemp(prefix="k"))
    wanted = Wanted(
        named=[FAKE_NODE], classic=True, root=place, runtime=PROCESS,
        images={IMAGE: [sys.executable, "-m", "dralab"]},
    )  # fmt: skip
    options = Options(profiles=("v1", "classic"))
    try:
        with Cluster(options, parts=[Running(classic=True), Nodes(wanted)]) as cluster:
            client = cluster.client
            create(client, rendered())
            pods = until(lambda: client.list(PODS, "fake-system").items, all_ready)
            assert len(pods) == 2
            until(
                lambda: client.list(ALLOCATION_STATES, "fake-system").items,
                lambda items: [item["status"] for item in items] == ["Ready"],
            )
            example = ROOT / "examples/50-fake-driver/fake-test1.yaml"
            create(client, yaml.safe_load_all(example.read_text()))
            until(lambda: client.list(PODS, "test1").items, all_ready)
            for name in ("pod0", "pod1"):
                client.delete(PODS, name, "test1")
            until(
                lambda: client.list(ALLOCATION_STATES, "fake-system").items,
                lambda items: not items[0]["spec"].get("allocatedClaims"),
            )
    finally:
        shutil.rmtree(place, ignore_errors=True)


def create(client, objects):
    for obj in filter(None, objects):
        group, _, version = obj["apiVersion"].rpartition("/")
        kind, namespace = obj["kind"].lower(), obj["metadata"].get("namespace", "")
        plural = kind + ("es" if kind.endswith("s") else "s")
        client.create(Resource(group, version, plural, bool(namespace)), obj, namespace)


def all_ready(pods):
    waiting = [{"ready": False}]
    return pods and all(
        status["ready"]
        for pod in pods
        for status in pod["status"].get("containerStatuses", waiting)
    )


def until(look, good):
    pause = threading.Event()
    for _ in range(400):
        found = look()
        if good(found):
            return found
        pause.wait(0.1)
    raise AssertionError(found)
