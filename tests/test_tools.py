"""The tools say what they do before they do it."""

import ast
import runpy
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


@pytest.fixture
def _alone(monkeypatch):
    """Start with a tool's own imports, and forget them."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(TOOLS))
    monkeypatch.setenv("PATH", "")  # no program to build with
    yield
    for name in {path.stem for path in TOOLS.glob("*.py")} - before:
        sys.modules.pop(name, None)


@pytest.mark.usefixtures("_alone")
@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_help_says_what_a_tool_does_and_does_nothing(path, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [str(path), "--help"])
    with pytest.raises(SystemExit) as end:
        runpy.run_path(str(path), run_name="__main__")
    assert end.value.code in (None, 0)
    (first, *_) = ast.get_docstring(ast.parse(path.read_text())).splitlines()
    assert first.split()[0] in capsys.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_a_tool_finds_its_modules_from_anywhere(tmp_path):
    tool = [sys.executable, str(TOOLS / "docs.py"), "--help"]
    found = subprocess.run(tool, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
