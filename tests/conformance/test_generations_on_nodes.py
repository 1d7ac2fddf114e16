"""`dralab up` with a node, a pod of each generation, `dralab allocate`, and stock kubectl."""

import os
import re
import subprocess
import sys

import pytest

from generationpods import CLASSIC, EVOLUTION, K8SRM, TODAY
from processes import Processes
from transcripts import kubectls

KUBECTLS = kubectls()[:1]
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.skipif(
        not KUBECTLS, reason="no kubectl on the PATH, and DRALAB_KUBECTL names none"
    ),
]
# generation and profiles → options of `up`, the objects, whether `dralab allocate` places pods.
CASES = {
    "k8srm": ([], K8SRM, True),
    "k8srm alone": (["--api", "k8srm"], K8SRM, True),
    "evolution": (["--api", "evolution"], EVOLUTION, True),
    "classic": (["--api", "v1,classic", "--driver", "fake"], CLASSIC, False),
    "v1": (["--driver", "gpu"], TODAY, False),
}


@pytest.mark.parametrize("case", CASES)
def test_a_pod_runs_and_its_log_can_be_read(case):
    options, text, schedules = CASES[case]
    with Processes("--node", "node-0", *options) as lab:

        def ask(*command, stdin=None):
            return subprocess.run(
                [str(word) for word in command],
                input=stdin,
                env={"HOME": str(lab.root), "PATH": os.environ.get("PATH", "")},
                capture_output=True,
                text=True,
                check=False,
                timeout=60,
            )

        def kubectl(*arguments, stdin=None):
            return ask(KUBECTLS[0], "--kubeconfig", lab.kubeconfig, *arguments, stdin=stdin)

        # A namespace that is new gets its service account a moment later.
        applied = lab.until(
            lambda: (r := kubectl("apply", "-f", "-", stdin=text)).returncode == 0 and r
        )
        assert applied.stderr == ""
        if schedules:
            command = [
                sys.executable,
                "-m",
                "dralab",
                "allocate",
                "--apply",
                "--kubeconfig",
                lab.kubeconfig,
            ]
            scheduled = ask(*command)
            assert scheduled.returncode == 0, scheduled.stderr
            assert re.search(r"default +p .* node-0 ", scheduled.stdout)
        lab.until(lambda: kubectl("get", "pod", "p").stdout.count(" Running "), "up")
        assert "ready" in kubectl("logs", "p").stdout.splitlines()
        gone = kubectl("delete", "pod", "p", "--timeout=50s")
        assert gone.returncode == 0, gone.stderr
