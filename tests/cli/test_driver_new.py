"""`dralab driver new`: a project whose own test passes."""

import importlib.util
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
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
    result = new("lamps-of-mine.example.com", "--write", str(root))
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
    result = new("lamps.example.com", "--write", str(project))
    assert result.exit_code == 2
    assert "exists: choose another --write" in result.stderr


@pytest.mark.parametrize(
    ("source", "installed", "required"),
    [
        ((), "dralab[grpc]", "dralab[grpc]"),
        (
            ("dralab-1-py3-none-any.whl",),
            "./wheels/dralab-1-py3-none-any.whl[grpc]",
            "dralab[grpc]",
        ),
        (
            ("git+https://git.example.com/dralab@v1",),
            "dralab[grpc] @ git+https://git.example.com/dralab@v1",
            "dralab[grpc] @ git+https://git.example.com/dralab@v1",
        ),
    ],
    ids=["index", "wheel", "url"],
)
def test_its_ci_installs_dralab_from_where_it_is(
    tmp_path, monkeypatch, source, installed, required
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dralab-1-py3-none-any.whl").write_bytes(b"a wheel")
    result = new("lamps.example.com", *(word for each in source for word in ("--dralab", each)))
    assert result.exit_code == 0, result.output
    steps = yaml.safe_load(Path("lamps/.github/workflows/test.yml").read_text())
    commands = [step["run"] for step in steps["jobs"]["test"]["steps"] if "run" in step]
    assert commands[0] == f"pip install pytest '{installed}'"
    project = tomllib.loads(Path("lamps/pyproject.toml").read_text())["project"]
    assert project["dependencies"] == [required]
    if installed.startswith("./"):
        assert (tmp_path / "lamps" / installed.removesuffix("[grpc]")).read_bytes() == b"a wheel"
    assert ("--dralab names another source" in result.stderr) == (not source)


@pytest.mark.parametrize("source", ["nowhere.whl", "x'; rm -rf /"])
def test_a_source_that_is_none_is_refused(tmp_path, monkeypatch, source):
    monkeypatch.chdir(tmp_path)
    result = new("lamps.example.com", "--dralab", source)
    assert result.exit_code == 2
    assert not (tmp_path / "lamps").exists()
