"""Drivers as the DaemonSet of a chart."""

import os
import socket
import subprocess
import sys

import pytest
import yaml

from dralab.drivercheck.chart_target import ChartTarget, _pod, _variables, driver_of, paths_of
from dralab.drivercheck.check_node import CheckNode, NoContainers
from dralab.drivercheck.node_view import offered
from dralab.drivercheck.rules import CheckNeed
from dralab.drivercheck.targets import Places, TargetError
from dralab.drivercheck.transcript import Transcript
from dralab.kernel.clock import WallClock

CHART = """
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {level: "4"}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: monitor}
spec:
  template:
    spec:
      containers: [{name: monitor, image: monitor}]
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: gpu-plugin}
spec:
  template:
    spec:
      containers:
      - {name: sidecar, image: sidecar}
      - name: plugin
        image: registry.example.com/gpu:v1
        args: [gpu, "--node=$(NODE_NAME)", --root=/var/lib/kubelet, --cdi-root=/var/run/cdi,
               "--pod-uid=$(POD_UID)", --repair-after=1]
        env:
        - {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: POD_UID, valueFrom: {fieldRef: {fieldPath: metadata.uid}}}
        volumeMounts:
        - {name: kubelet, mountPath: /var/lib/kubelet}
        - {name: cdi, mountPath: /var/run/cdi}
        - {name: settings, mountPath: /etc/settings}
      volumes:
      - {name: kubelet, hostPath: {path: /var/lib/kubelet}}
      - {name: cdi, hostPath: {path: /var/run/cdi}}
      - {name: settings, configMap: {name: settings}}
"""
DOCUMENTS = list(yaml.safe_load_all(CHART))


def test_the_driver_is_the_container_that_mounts_the_registration_directory():
    daemon_set, container = driver_of(DOCUMENTS)
    assert (daemon_set["metadata"]["name"], container["name"]) == ("gpu-plugin", "plugin")
    target = ChartTarget(DOCUMENTS, {})
    assert target.name == "DaemonSet gpu-plugin, container plugin"
    assert CheckNeed.INSTANCES in target.offers
    # Its CDI directory is a mount: it stays where the bench takes the directory away.
    assert CheckNeed.CDI_PLACE not in target.offers


@pytest.mark.parametrize(
    ("count", "text"), [(1, "it has no DaemonSet"), (2, "the DaemonSets monitor don't mount it")]
)
def test_a_chart_without_a_driver_is_refused(count, text):
    with pytest.raises(TargetError, match=text):
        driver_of(DOCUMENTS[:count])


@pytest.mark.skipif(CheckNeed.BOOT_ID not in offered(), reason="no mount namespaces here")
def test_an_image_without_a_program_is_refused(tmp_path):
    places = Places(node="n", root=tmp_path, kubeconfig=tmp_path / "k", cdi=tmp_path / "cdi")
    with pytest.raises(TargetError, match=r"--image-map registry[.]example[.]com/gpu:v1=COMMAND"):
        ChartTarget(DOCUMENTS, {}).start(places)


def test_variables_are_the_charts_the_pods_and_the_given_ones(tmp_path):
    places = Places(node="n", root=tmp_path, kubeconfig=tmp_path / "k", cdi=tmp_path / "cdi")
    daemon_set, container = driver_of(DOCUMENTS)
    pod = _pod(daemon_set, places, "uid-1")
    level = {"configMapKeyRef": {"name": "settings", "key": "level"}}
    secret = {"secretKeyRef": {"name": "s", "key": "token"}}
    more = [
        {"name": "LEVEL", "valueFrom": level},
        {"name": "ARG", "value": "v$(LEVEL)-$(TOKEN)"},
        {"name": "TOKEN", "valueFrom": secret},
    ]
    container = {**container, "env": [*container["env"], *more]}
    assert _variables(pod, container, DOCUMENTS, {"TOKEN": "t"}) == {
        "NODE_NAME": "n", "POD_UID": "uid-1", "LEVEL": "4", "ARG": "v4-t", "TOKEN": "t",
    }  # fmt: skip
    with pytest.raises(TargetError, match=r"variable TOKEN has secretKeyRef, .* --env TOKEN=VALUE"):
        _variables(pod, container, DOCUMENTS, {})
    with pytest.raises(TargetError, match="container plugin has envFrom"):
        _variables(pod, {**container, "envFrom": [{}]}, DOCUMENTS, {})


@pytest.mark.conformance
@pytest.mark.skipif(CheckNeed.BOOT_ID not in offered(), reason="no mount namespaces here")
@pytest.mark.parametrize(
    ("chart_place", "option"),
    [("/var/run/cdi", "/var/run/cdi"), ("/etc/cdi", "/etc/cdi"), ("/var/run/cdi", "$(CDI_PLACE)")],
)
def test_the_driver_of_a_chart_is_checked_at_the_paths_of_the_chart(tmp_path, chart_place, option):
    pytest.importorskip("grpc", reason="the extra dralab[grpc] is not installed")
    chart = tmp_path / "chart.yaml"
    moved = CHART.replace("--cdi-root=/var/run/cdi", f"--cdi-root={option}")
    chart.write_text(moved.replace("ath: /var/run/cdi", f"ath: {chart_place}"))
    image = f"registry.example.com/gpu={sys.executable} -m dralab driver run"
    only = ["registration", "prepare.cdi-resolved", "crash.prepared", "crash.update"]
    words = ["--chart", str(chart), "--image-map", image, "--env", "CDI_PLACE={cdi}"]
    done = subprocess.run(
        [sys.executable, "-m", "dralab", "driver", "check", *words,
         *(word for name in only for word in ("--only", name))],
        env=os.environ, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "gpu.example.com: conformant: 16 of 16 MUST, 8 of 8 SHOULD, 0 skipped" in done.stdout


def test_a_driver_finds_an_nri_socket_without_pods():
    with CheckNode(None, Transcript(WallClock()), 0) as node:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(node.places.nri))
        paths = paths_of(node.places)
        assert paths.here("/var/run/nri/nri.sock") == str(node.places.nri)
    assert not node.places.nri.exists()
    assert NoContainers().state() == ([], [])
    assert NoContainers().update("00-x", [1]) == [1]
