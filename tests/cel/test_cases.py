"""The case file of device selectors, and the command that runs it."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cel.conformance import run_cases
from dralab.cli.main import main

CASES = Path(__file__).parents[2] / ".." / "shared" / "cases" / "cel-cases.json"
needs_cases = pytest.mark.skipif(
    not CASES.exists(), reason=f"the shared case file {CASES.name} is not beside the checkout"
)


@needs_cases
def test_every_case_of_the_file_passes():
    outcomes = list(run_cases(json.loads(CASES.read_text(encoding="utf-8"))))
    assert len(outcomes) > 40
    assert [one for one in outcomes if one.problems] == []


@needs_cases
def test_the_command_ends_with_the_count():
    result = CliRunner().invoke(main, ["conformance", "cel", str(CASES)])
    assert result.exit_code == 0
    assert (
        result.output.splitlines()[-1] == f"{len(json.loads(CASES.read_text()))} passed, 0 failed"
    )


WRONG = {
    "match": {"expectMatch": False},
    "largest cost": {"expectCost": 5},
    "compile error": {"expectCompileErrorSubstring": "undeclared"},
    "run-time error": {"expectMatchErrorSubstring": "no such key"},
    "actual cost": {
        "upstream": [{"listTypeAttributes": False, "maxCost": 4, "actualCost": 3}],
    },
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_case_fails_that_expects_another(tmp_path, change):
    case = {
        "name": "driver",
        "expression": 'device.driver == "dra.example.com"',
        "driver": "dra.example.com",
        "expectMatch": True,
        "expectCost": 4,
    }
    file = tmp_path / "cases.json"
    file.write_text(json.dumps([case, {**case, **change}]))
    result = CliRunner().invoke(main, ["conformance", "cel", str(file)])
    assert result.exit_code == 1
    assert result.output.splitlines()[-1] == "1 passed, 1 failed"


def test_a_file_that_is_no_case_file_is_refused(tmp_path):
    file = tmp_path / "cases.json"
    file.write_text('{"a": 1}')
    result = CliRunner().invoke(main, ["conformance", "cel", str(file)])
    assert result.exit_code == 2
    assert "expected a list of cases" in result.output
