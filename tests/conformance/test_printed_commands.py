"""The commands that pages of `dralab explain` print, run with the real kubectl: the pod fits then."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

import doors
import remedies
from clusters import random_cluster
from dralab.api.resource.features import ALL
from dralab.cli.main import main
from dralab.cluster import Cluster, Options
from ourverdicts import is_tried
from stockverdicts import as_stored

SCENES = Path(__file__).parents[1] / "cli" / "scenes"
NAMES = sorted(
    path.stem
    for path in SCENES.glob("*.yaml")
    # Older device APIs are not served, and a snapshot keeps neither volumes nor quotas. A pod with
    # a node ends there, and here no node runs.
    if path.stem
    not in {"fleet", "k8srm", "k8srm-class", "k8srm-total", "evolution", "quota", "pinned"}
    and "volume" not in path.stem
)

# Gangs of v1beta1 came with it.
NEWEST = Options(version="1.37", features=ALL)

# A namespace with claims for administrators has the label. A snapshot keeps no PriorityClass.
BEFORE = """
kubectl label namespace default resource.kubernetes.io/admin-access=true
kubectl create priorityclass urgent --value=1000
kubectl create priorityclass patient --value=1000 --preemption-policy=Never
"""
# Takes a cordon's taint away, as the node controller does, which does not run here.
AFTER = "kubectl taint nodes --all node.kubernetes.io/unschedulable- >&2 || true"

pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="needs kubectl"),
]


def arguments(name):
    """Return the files of a scene, and what it asks about."""
    first = (SCENES / f"{name}.yaml").read_text().partition("\n")[0]
    given = first.partition("# dralab explain ")[2].split()
    words = given or ["-f", "fleet.yaml", "-f", f"{name}.yaml", "train"]
    return [str(SCENES / word) if word.endswith(".yaml") else word for word in words]


def explained(*words):
    found = CliRunner().invoke(main, ["explain", *words, "-o", "json"])
    assert found.exit_code in {0, 1}, found.output
    return json.loads(found.stdout)[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_commands_of_a_page_do_what_it_says(name, tmp_path):
    scene = (SCENES / f"{name}.yaml").read_text()
    given = arguments(name)
    files, asked = given[:-1], given[-1]
    snapshot = tmp_path / "scene.snapshot"
    made = CliRunner().invoke(main, ["snapshot", *files, str(snapshot)])
    assert made.exit_code == 0, made.output
    helps = []
    number = 0
    while not number or number < len(helps):
        options = NEWEST if "scheduling.k8s.io/v1beta1" in scene else None
        with Cluster(options, snapshot=snapshot) as cluster:
            source = ("--kubeconfig", str(cluster.kubeconfig), asked)
            helps = [
                each
                for each in explained(*source)["helps"]
                # A pod that is deleted ends on its node, and here no node runs.
                if each.get("command") and each["kind"] != "preempt"
            ]
            if not helps:
                return
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", f"{BEFORE}{helps[number]['command']}\n{AFTER}"],
                env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (helps[number], done.stderr)
            after = explained(*source)
            assert after["fits"] or not helps[number]["fitsNow"], (helps[number], after)
        number += 1


@pytest.mark.parametrize("seed", range(0, 80, 2))
def test_the_commands_for_pods_of_random_clusters_do_what_they_say(seed, tmp_path):
    """Those that end pods are left out: no node runs here that would end them."""
    # A pod that is made anew has no claims of templates: nothing here makes them.
    made = random_cluster(seed, without=frozenset({"group", "template", "volume"}))
    for pod in filter(is_tried, made.waiting()):
        name = pod["metadata"]["name"]
        # Others have the name of a PriorityClass.
        pod["spec"] |= {"priority": 0, "preemptionPolicy": "PreemptLowerPriority"}
        objects = [as_stored(item) for item in made.alone(name)]
        if remedies.explained(objects, name) is None:
            continue
        helps = []
        number = 0
        while not number or number < len(helps):
            with doors.serving(tmp_path), doors.stored(tmp_path, objects) as cluster:
                source = ("--kubeconfig", str(cluster.kubeconfig), name)
                if (told := explained(*source))["fits"]:
                    break
                helps = [
                    each
                    for each in told["helps"]
                    if each.get("command") and each["fitsNow"]
                    if each["kind"] not in {"preempt", "move"}
                ]
                if not helps:
                    break
                done = subprocess.run(
                    ["bash", "-euo", "pipefail", "-c", helps[number]["command"]],
                    env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
                    capture_output=True,
                    text=True,
                    check=False,
                )
                assert done.returncode == 0, (helps[number], done.stderr)
                assert explained(*source)["fits"], (name, helps[number])
            number += 1
