"""The commands that pages of `dralab explain` print, run with the real kubectl: the pod fits then."""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.cluster import Cluster

SCENES = Path(__file__).parents[1] / "cli" / "scenes"
NAMES = sorted(
    path.stem
    for path in SCENES.glob("*.yaml")
    # Older device APIs are not served, and a snapshot keeps neither volumes nor quotas.
    if path.stem not in {"fleet", "k8srm", "k8srm-total", "evolution", "quota"}
    and "volume" not in path.stem
)

# A namespace that has such claims has this label.
ALLOW = "kubectl label namespace default resource.kubernetes.io/admin-access=true"

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
    given = arguments(name)
    files, asked = given[:-1], given[-1]
    snapshot = tmp_path / "scene.snapshot"
    made = CliRunner().invoke(main, ["snapshot", *files, "-o", str(snapshot)])
    assert made.exit_code == 0, made.output
    helps = []
    number = 0
    while not number or number < len(helps):
        with Cluster(snapshot=snapshot) as cluster:
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
                ["bash", "-euo", "pipefail", "-c", f"{ALLOW}; {helps[number]['command']}"],
                env=os.environ | {"KUBECONFIG": str(cluster.kubeconfig)},
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode == 0, (helps[number], done.stderr)
            after = explained(*source)
            assert after["fits"] or not helps[number]["fitsNow"], (helps[number], after)
        number += 1
