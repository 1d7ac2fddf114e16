"""The unmodified autoscalers under the clock: ten minutes of idleness are seconds of real time.

Server, autoscaler and test run under `dralab simulate program`: the test that compares the
autoscaler with ours is started once more, with nodes that go after ten minutes.
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
    "test",
    [
        pytest.param(
            f"test_{name}.py::{function}[empty nodes go]", id=name, marks=stockparts.needs(program)
        )
        for name, function, program in (
            ("cluster_autoscaler", "test_the_groups_grow_and_shrink_alike", stockparts.AUTOSCALER),
            ("karpenter", "test_nodes_of_the_same_shapes_come_and_go", stockparts.KARPENTER),
        )
    ],
)
def test_empty_nodes_go_after_ten_minutes_of_idleness(test):
    done = subprocess.run(
        [
            sys.executable, "-m", "dralab", "simulate", "program", "--",
            sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"{HERE}/{test}",
        ],
        env={**os.environ, stockparts.IDLE: str(IDLE)}, capture_output=True, text=True, check=False,
        timeout=600,
    )  # fmt: skip
    sys.stdout.write(done.stdout[-6000:] + done.stderr[-500:])
    assert done.returncode == 0
    # That time passed in the simulation is what its own assertion says.
    assert re.search(r"^1 passed", done.stdout, re.MULTILINE)
