"""The directories of a node: sockets of drivers, and the places where CDI files are read."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli import node
from dralab.cli.main import main
from dralab.components.nodes import make_directories
from dralab.contracts.cdi_cache import CdiCache, ContainerConfig, FileDirectory

SPEC = """\
cdiVersion: 0.6.0
kind: vendor.com/gpu
devices: [{name: %s, containerEdits: {env: ["FROM=%s"]}}]
"""


@pytest.fixture
def roots(tmp_path, monkeypatch):
    """Both default directories and two others, by their last names."""
    found = [tmp_path / name for name in ("etc", "run", "one", "two")]
    for path in found:
        path.mkdir()
    monkeypatch.setattr(node, "CDI_ROOTS", tuple(found[:2]))
    return {path.name: path for path in found}


def source_of(device, directories):
    """The directory whose file describes a device, as a container sees it."""
    config = ContainerConfig()
    cache = CdiCache([FileDirectory(path) for path in directories])
    cache.inject(config, [f"vendor.com/gpu={device}"])
    return config.env["FROM"]


def test_a_node_reads_the_default_directories_besides_all_that_it_is_given(roots):
    for name, path in roots.items():
        (path / f"{name}.yaml").write_text(SPEC % (name, name))
    directories = node.cdi_directories([roots["one"], roots["two"]])
    assert [source_of(name, directories) for name in roots] == list(roots)


def test_the_last_directory_wins(roots):
    for name, path in roots.items():
        (path / "gpu.yaml").write_text(SPEC % ("gpu", name))
    one, two = roots["one"], roots["two"]
    assert source_of("gpu", node.cdi_directories([])) == "run"
    assert source_of("gpu", node.cdi_directories([one, two])) == "two"
    assert source_of("gpu", node.cdi_directories([two, one])) == "one"
    assert source_of("gpu", node.cdi_directories([one, roots["etc"]])) == "etc"


def test_the_command_takes_several_directories():
    words = ["--name", "n1", "--cdi-root", "/one", "--cdi-root", "/two"]
    found = node.node.make_context("node", words).params["cdi_roots"]
    assert found == (Path("/one"), Path("/two"))
    shown = CliRunner().invoke(main, ["node", "--help"]).output
    assert "/etc/cdi and /var/run/cdi" in " ".join(shown.split())


def test_drivers_find_the_directories_of_their_sockets(tmp_path):
    root = tmp_path / "not" / "there"
    make_directories(root)
    make_directories(root)  # as at a second start
    assert sorted(path.name for path in root.iterdir()) == ["plugins", "plugins_registry"]
