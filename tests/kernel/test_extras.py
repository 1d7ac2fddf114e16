"""Extras are asked for before work begins, and their lack is one line."""

import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.kernel.extras import EXTRAS, has

ROOT = Path(__file__).parents[2]


def test_the_extras_are_those_of_the_package():
    found = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert sorted(EXTRAS) == sorted(found["optional-dependencies"])


COMMANDS = {
    "up --data :memory: --driver gpu --runtime process --root OUT/n": "grpc",
    "up --data :memory: --nodes 2 --root OUT/n": "grpc",
    "apiserver --data OUT/d --store etcd://127.0.0.1:1": "etcd",
    "node --name n --root OUT/n --server http://127.0.0.1:1": "grpc",
    "driver run gpu --node n --root OUT/n --server http://127.0.0.1:1": "grpc",
    "driver classic plugin --node n --root OUT/n --server http://127.0.0.1:1": "grpc",
    "driver check gpu": "grpc",
    "batsim": "zeromq",
    "allocate --policy optimal -f missing.yaml": "optimal",
    "campaign missing.yaml --engine dask --address a:1 --out OUT/c": "distributed",
    "simulate run SCENARIO --report OUT/r --parquet": "parquet",
    "simulate run SCENARIO --report OUT/r --picture png": "picture",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_without_its_extra_does_nothing(command, tmp_path, monkeypatch):
    extra, out, scenario = COMMANDS[command], tmp_path / "out", tmp_path / "s.yaml"
    scenario.write_text(
        "fleet: {nodes: [{name: n, cpu: 2}]}\n"
        "workload: {pods: [{name: p, cpu: 1, duration: 1s}]}\nscheduler: bestfit\n"
    )
    for module in EXTRAS[extra]:
        monkeypatch.setitem(sys.modules, module, None)
    assert not has(extra)
    words = command.replace("OUT", str(out)).replace("SCENARIO", str(scenario)).split()
    result = CliRunner().invoke(main, words, env={"KUBECONFIG": None})
    assert result.exit_code == 2, result.output
    (line,) = [each for each in result.stderr.splitlines() if each.startswith("Error: ")]
    assert line.endswith(
        f"needs the extra `{extra}`, which is not installed: "
        f"pip install '.[{extra}]' in the checkout"
    )
    assert not out.exists()
