"""The tools say what they do before they do it."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[1] / "tools"
PROGRAMS = [
    path for path in sorted(TOOLS.glob("*.py")) if '__name__ == "__main__"' in path.read_text()
]


def test_there_are_tools():
    assert len(PROGRAMS) > 12


@pytest.mark.thorough
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_help_says_what_a_tool_does_and_does_nothing(path, tmp_path):
    found = subprocess.run(
        [sys.executable, str(path), "--help"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={"PATH": ""},  # no program to build with
    )
    assert found.returncode == 0, found.stderr
    (first, *_) = ast.get_docstring(ast.parse(path.read_text())).splitlines()
    assert first.split()[0] in found.stdout
    assert list(tmp_path.iterdir()) == []
