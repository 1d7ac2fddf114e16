"""Small YAML texts that stand for very large values: every loader refuses them, in one line.

All of them read by `api.yaml_documents`, which counts while it expands; nobody reads YAML by other
means.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.contracts import cdi
from dralab.node import images
from dralab.runtime import kubeconfig
from dralab.scenarios import fields
from dralab.simulation.workloads import phases

BOMBS = {
    "aliases": "a0: &a0 [1, 1, 1, 1]\n"
    + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 20)),
    "merges": "a0: &a0 {k0: 1, l0: 1, m0: 1, n0: 1}\n"
    + "".join(
        f"a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}, *a{i - 1}, *a{i - 1}], k{i}: 1}}\n"
        for i in range(1, 20)
    ),
}

READERS: dict[str, Callable[[Path], object]] = {
    "a kubeconfig": kubeconfig.read,
    "a scenario": fields.load,
    "an image map": lambda path: images.image_map([f"@{path}"]),
    "a CDI spec": lambda path: cdi.read(path.read_text()),
    "phases": lambda path: phases.parse(path.read_text()),
}
COMMANDS = (
    ["validate"],
    ["allocate"],
    ["explain"],
    ["convert", "--to", "v1"],
    ["allocate", "--kubeconfig"],
)


@pytest.fixture(params=BOMBS)
def bomb(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "bomb.yaml"
    path.write_text(BOMBS[request.param])
    return path


@pytest.mark.parametrize("what", READERS)
def test_a_file_that_expands_to_too_much_is_refused(bomb: Path, what: str) -> None:
    with pytest.raises(ValueError, match="expand to more than 200000 values"):
        READERS[what](bomb)


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_commands_say_so_in_one_line(bomb: Path, command: list[str]) -> None:
    given = command if command[-1].startswith("--kube") else [*command, "-f"]
    told = CliRunner().invoke(main, [*given, str(bomb)])
    assert told.exit_code == 2
    assert "expand to more than 200000 values" in told.output
    assert "Traceback" not in told.output


def test_yaml_is_read_in_one_place() -> None:
    source = Path(__file__).parents[1] / "src" / "dralab"
    readers = ("yaml.load", "yaml.safe_load", "yaml.parse", "yaml.full_load", "yaml.compose")
    found = [
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if any(reader in path.read_text(encoding="utf-8") for reader in readers)
    ]
    assert found == ["api/yaml_documents.py"]
