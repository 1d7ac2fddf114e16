"""What an unmodified kube-scheduler decided, recorded and replayed by dralab's."""

import json
import signal
import subprocess
import sys

import pytest
from click.testing import CliRunner

import stockparts
from dralab.api.snapshots.recordings import Recording
from dralab.cli.main import main
from dralab.runtime.resources import NODES, PODS
from processes import Processes
from waiting import until

pytestmark = [pytest.mark.conformance, stockparts.needs(stockparts.SCHEDULER)]


def test_kube_schedulers_week_is_replayed_on_the_same_nodes(tmp_path):
    lab = Processes("--nodes", "4", "--without", "scheduler")
    week = tmp_path / "week.dralab"
    command = [sys.executable, "-m", "dralab", "record", "--kubeconfig", lab.kubeconfig]
    try:
        with stockparts.scheduler(lab.kubeconfig, tmp_path):
            recorder = subprocess.Popen([*map(str, command), "--write", str(week)])
            until(lambda: (week.exists() and placed(week) is not None) or None)
            names = sorted(each["metadata"]["name"] for each in lab.client.list(NODES).items)
            # It draws lots between equal nodes: so they are made unequal first.
            for number, name in enumerate(names):
                create(lab, f"first-{number}", f"{1000 + 1700 * number}m", name)
            until(lambda: placed(week) == 4 or None)
            for number in range(16):
                create(lab, f"pod-{number}", f"{100 + 37 * number}m")
                until(lambda number=number: placed(week) == 5 + number or None)
            recorder.send_signal(signal.SIGINT)
            assert recorder.wait(30) == 0
    finally:
        lab.kill("up")
        lab.place.cleanup()
    result = CliRunner().invoke(main, ["replay", str(week), "-o", "json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["fidelity"]
    assert (found["pods"], found["same_node"]) == (20, 20), found
    # The real one takes its time: dralab's decides at once.
    assert abs(found["bound_later_median"]) < 5


def create(lab, name, cpu, node=""):
    container = {"name": "c", "image": "x", "command": ["sleep", "1000"],
                 "resources": {"requests": {"cpu": cpu, "memory": "1Mi"}}}  # fmt: skip
    spec = {"containers": [container]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    lab.client.create(PODS, {"metadata": {"name": name}, "spec": spec}, "default")


def placed(week):
    """How many pods have a node in a recording; None before it has nodes."""
    recording = Recording.open(week)
    list(recording)
    objects = recording.state.objects.items()
    if not any(of.kind == "Node" for of, _ in objects):
        return None
    return sum(of.kind == "Pod" and bool(each["spec"].get("nodeName")) for of, each in objects)
