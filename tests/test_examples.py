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


@pytest.mark.parametrize("recorded", RECORDED, ids=lambda path: path.parent.name)
def test_an_example_prints_what_it_printed(recorded):
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    found = subprocess.run(
        ["bash", "commands.sh"],
        cwd=recorded.parent,
        env=os.environ | {"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert found.stdout == recorded.read_text(), found.stderr
