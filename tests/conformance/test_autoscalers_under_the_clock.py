"""The unmodified autoscalers under the clock: ten minutes of idleness are seconds of real time.

Server, autoscaler and test run under `dralab simulate program`: the tests that compare an
autoscaler with ours are started once more, with nodes that go after ten minutes.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import stockparts
from clocked import needs_clock

pytestmark = [pytest.mark.conformance, needs_clock]
HERE = Path(__file__).parent
IDLE = 600


@pytest.mark.parametrize(
    "tests",
    [
        pytest.param(tests, marks=stockparts.needs(program))
        for tests, program in (
            ("test_cluster_autoscaler.py", stockparts.AUTOSCALER),
            ("test_karpenter.py", stockparts.KARPENTER),
        )
    ],
)
def test_they_decide_as_ours_and_nodes_go_after_ten_minutes_of_idleness(tests):
    done = subprocess.run(
        [
            sys.executable, "-m", "dralab", "simulate", "program", "--",
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{HERE / tests}",
        ],
        env={**os.environ, stockparts.IDLE: str(IDLE)}, capture_output=True, text=True, check=False,
        timeout=900,
    )  # fmt: skip
    sys.stdout.write(done.stdout[-6000:] + done.stderr[-500:])
    assert done.returncode == 0
    # Not skipped. That the time passed in the simulation is what their own assertions say.
    assert re.search(r"^\d+ passed in", done.stdout, re.MULTILINE)
