"""The notebooks of the documentation run, print what is stored in them, and are small."""

import importlib.util
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def tool():
    spec = importlib.util.spec_from_file_location("notebooks", ROOT / "tools" / "notebooks.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_there_are_notebooks_and_they_are_small():
    assert len(NOTEBOOKS) >= 4
    assert [path.name for path in NOTEBOOKS if path.stat().st_size > 60_000] == []


@pytest.mark.conformance
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_and_prints_what_it_shows(path, monkeypatch):
    for needed in ("nbclient", "ipykernel", "pandas", "matplotlib", "gymnasium"):
        pytest.importorskip(needed, reason="the group `notebooks` is not installed")
    import nbformat

    monkeypatch.delenv("OPENB", raising=False)
    notebooks = tool()
    stored = nbformat.read(path, as_version=4)
    assert notebooks.texts(stored)
    assert notebooks.texts(notebooks.executed(path)) == notebooks.texts(stored)
