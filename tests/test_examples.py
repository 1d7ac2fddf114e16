"""Every example with a recorded output still prints it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORDED = sorted(ROOT.glob("examples/*/example.out"))


def test_there_are_examples():
    assert RECORDED


# Under the clock it ended early once in some ten runs of the whole suite, and the cause is not known.
UNSURE = "57-random-scheduler"


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param(path, marks=[pytest.mark.conformance] if path.parent.name == UNSURE else [])
        for path in RECORDED
    ],
    ids=[path.parent.name for path in RECORDED],
)
def test_an_example_prints_what_it_printed(recorded):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(
        ["bash", "commands.sh"],
        cwd=recorded.parent,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert found.stdout == recorded.read_text(), found.stderr
