"""Where `dralab up` keeps objects."""

from pathlib import Path

from dralab.cli.up import data_of


def test_a_lab_with_directories_of_its_own_keeps_its_objects_there():
    assert data_of(None, Path("/labs/a")) == "/labs/a/.cluster"
    assert data_of(None, None) is None
    assert data_of(Path("fleet.json"), Path("/labs/a")) == ":memory:"
