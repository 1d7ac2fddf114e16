"""`dralab help schema`: what it prints, and that examples name it; the schemas' own tests are beside their readers."""

import json
import re
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dralab.allocation.check.conformance import readable
from dralab.cli.help_schema import SCHEMAS, schema_of
from dralab.cli.main import main
from jsonschemas import problems

EXAMPLES = Path(__file__).parents[2] / "examples"
MODELINE = re.compile(r"^# yaml-language-server: \$schema=(\S+)$", re.MULTILINE)
CASE = {"name": "c", "claims": [], "classes": [], "slices": [], "node": {}, "expectFeasible": True}


@pytest.mark.parametrize("kind", SCHEMAS)
def test_a_schema_is_printed_as_a_document_of_its_draft(kind):
    done = CliRunner().invoke(main, ["help", "schema", kind])
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    assert printed["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert {"title", "description"} <= printed.keys()
    named = set(re.findall(r'"#/\$defs/(\w+)"', done.stdout))
    assert named == set(printed.get("$defs", {}))


def test_an_unknown_kind_is_refused_with_those_there_are():
    done = CliRunner().invoke(main, ["help", "schema", "pod"])
    assert done.exit_code == 2
    assert "'scenario', 'campaign', 'dst'" in done.stderr


def test_every_scenario_and_campaign_of_the_examples_names_its_schema():
    for path in sorted(EXAMPLES.glob("*/*.yaml")):
        text = path.read_text()
        value = next(iter(yaml.safe_load_all(text)))
        kinds = {
            "fleet": "scenario",
            "pools": "scenario",
            "schedulers": "campaign",
            "programs": "dst",
        }
        kind = next((kind for key, kind in kinds.items() if key in value), None)
        named = MODELINE.findall(text)
        if kind is None:
            assert named == [], path
            continue
        assert [Path(each).name for each in named] == [f"{kind}.schema.json"], path
        assert (path.parent / named[0]).is_file(), path


@pytest.mark.parametrize("gone", [None, *CASE])
def test_a_case_of_allocation_fits_where_it_is_readable(gone):
    case = {key: value for key, value in CASE.items() if key != gone}
    assert readable(case) == (problems(schema_of("allocator-cases"), [case]) == [])
    assert readable(case) == (gone is None)


def test_the_cases_of_the_example_fit():
    cases = json.loads((EXAMPLES / "15-selectors/cases.json").read_text())
    assert problems(schema_of("cel-cases"), cases) == []
    del cases[0]["expression"]
    assert problems(schema_of("cel-cases"), cases) == ["[0].expression: is required"]
