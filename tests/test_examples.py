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
UNSURE = {"57-random-scheduler"}
# They take half a minute of CPU time each.
LONGEST = {"59-autoscaling", "63-lost-gpu-hours"}
# They take one to twelve seconds each.
LONG = {
    *("34-swf", "35-gpu-trace", "36-own-scheduler", "37-phases", "38-manifests", "39-campaign"),
    *("42-generations-compared", "44-cluster-with-faults", "50-fake-driver", "58-capacity"),
    *("60-find-the-bug", "61-replay", "62-reproduce", "65-trainings-in-rounds"),
}


def marks(example):
    if example in UNSURE | LONGEST:
        return [pytest.mark.conformance]
    return [pytest.mark.thorough] if example in LONG else []


@pytest.mark.parametrize(
    "recorded",
    [pytest.param(path, marks=marks(path.parent.name)) for path in RECORDED],
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
