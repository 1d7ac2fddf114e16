"""Programs that are processes under the virtual clock, with faults where requests arrive."""

import sys
from pathlib import Path

import pytest

from dralab.simulation.errors import InputError
from dralab.testing.faults import PlannedFault
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import ScenarioFails, expected_end, run_trial
from dralab.virtualtime import unavailable

SCENARIO = """
programs:
  - command: [{words}]
script:
  - apply: wish.yaml
cluster: {{controllers: [], scheduler: false}}
"""
WISH = """
apiVersion: v1
kind: ConfigMap
metadata: {name: wish, namespace: default}
data: {copy: "yes"}
"""
POLLING = Path(__file__).parent / "polling.py"
clocked = pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))


def scenario(folder, *words):
    (folder / "wish.yaml").write_text(WISH)
    file = folder / "scenario.yaml"
    file.write_text(SCENARIO.format(words=", ".join(f'"{word}"' for word in words)))
    return load(file)


def fault(name, verb, **given):
    return PlannedFault(fault=name, program="program", verb=verb, resource="configmaps", **given)


@clocked
@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ("command: []", "programs[0].command: must have at least one word"),
        ("command: [a]\n    replicas: 2", "programs[0].replicas: must be 1"),
        ("command: [a]\n  - scheduler: true", "programs: a command must be the only program"),
    ],
)
def test_a_command_that_cannot_be_used_is_told(tmp_path, changed, told):
    file = tmp_path / "scenario.yaml"
    file.write_text(f"programs:\n  - {changed}\n")
    with pytest.raises(InputError) as error:
        load(file)
    assert told in str(error.value)


@clocked
@pytest.mark.conformance
def test_a_program_that_looks_first_passes_and_a_careless_one_does_not(tmp_path):
    careful = scenario(tmp_path, sys.executable, str(POLLING))
    assert search(careful, expected_end(careful), range(10)).failures == {}
    careless = scenario(tmp_path, sys.executable, str(POLLING), "--careless")
    expected = expected_end(careless)
    kill = fault("kill", "create", nth=1, moment="after", duration=10**9)
    result = run_trial(careless, expected, [kill], 0)
    assert "configmaps default/wish-*: 2 at the end, 1 without faults" in str(result.violations[0])
    again = run_trial(careless, expected, [kill], 0)
    assert again.history.entries == result.history.entries


@clocked
@pytest.mark.conformance
def test_a_program_that_ends_by_itself_is_told_with_its_last_output(tmp_path):
    ends = scenario(tmp_path, "sh", "-c", "echo no kubeconfig; exit 3")
    with pytest.raises(ScenarioFails, match="ends with exit code 3; last output: no kubeconfig"):
        expected_end(ends)
