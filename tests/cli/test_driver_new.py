"""`dralab driver new`: a project whose own test passes."""

import importlib.util
import sys

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.drivers.driver import (
    AllocatedClaim,
    AllocatedDevice,
    ClaimRef,
    OpaqueConfig,
    PrepareError,
)


def new(*arguments):
    return CliRunner().invoke(main, ["driver", "new", *arguments])


@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "lamps"
    result = new("lamps-of-mine.example.com", "--directory", str(root))
    assert result.exit_code == 0, result.output
    monkeypatch.setattr(sys, "path", [str(root), *sys.path])
    yield root
    sys.modules.pop("lamps_of_mine", None)


def test_the_project_has_what_a_driver_needs(project):
    files = {str(path.relative_to(project)) for path in project.rglob("*") if path.is_file()}
    assert files == {
        "lamps_of_mine.py",
        "tests/test_lamps_of_mine.py",
        "manifests/demo.yaml",
        ".github/workflows/test.yml",
        "pyproject.toml",
        "README.md",
    }
    assert "{" not in (project / "README.md").read_text()


def test_its_own_test_passes(project):
    path = project / "tests/test_lamps_of_mine.py"
    spec = importlib.util.spec_from_file_location("of_the_project", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.test_a_pod_runs_with_a_device()


def test_it_refuses_parameters_that_it_does_not_know(project):
    driver = importlib.import_module("lamps_of_mine").LampsOfMine("n1")
    ref = ClaimRef("default", "c", "uid")
    device = AllocatedDevice(request="r", driver=driver.name, pool="n1", device="device-0-whole")
    plain = AllocatedClaim(ref=ref, results=(device,), configs=())
    assert driver.prepare(plain)[device].env
    config = OpaqueConfig(source="FromClaim", requests=(), parameters={"kind": "Colour"})
    with pytest.raises(PrepareError, match="unknown parameters: kind"):
        driver.prepare(AllocatedClaim(ref=ref, results=(device,), configs=(config,)))


@pytest.mark.parametrize(
    ("name", "says"),
    [("Lamps", "lower case"), ("../x", "lower case"), ("a" * 64, "no more than 63 characters")],
)
def test_a_name_that_no_driver_can_have_is_refused(name, says):
    result = new(name)
    assert result.exit_code == 2
    assert says in result.stderr


def test_a_folder_that_exists_is_left_alone(project):
    result = new("lamps.example.com", "--directory", str(project))
    assert result.exit_code == 2
    assert "exists: choose another --directory" in result.stderr
