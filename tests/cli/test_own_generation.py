"""A device API of one's own: the guide's file works in every command, and its mistakes are shown."""

import json
import re
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner

from dralab.cli import _own_generation
from dralab.cli.main import main

GUIDE = (Path(__file__).parents[2] / "docs/guides/write-a-generation.md").read_text()
[OBJECTS] = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
[SOURCE] = re.findall(r"^```python\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
[TRANSCRIPT] = re.findall(r"^```\n(\$ .*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture(autouse=True)
def files(tmp_path, monkeypatch):
    (tmp_path / "gadgets.yaml").write_text(OBJECTS)
    (tmp_path / "mine.py").write_text(SOURCE)
    monkeypatch.chdir(tmp_path)


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


def own(command, *arguments):
    return run(command, "--api", "mine.py", *arguments)


def changed(old, new):
    assert old in SOURCE
    Path("mine.py").write_text(SOURCE.replace(old, new))


def test_the_guide_shows_what_its_commands_print():
    steps = re.findall(r"^\$ dralab (.*)\n((?:(?!\$ ).*\n)*)", TRANSCRIPT, re.MULTILINE)
    assert len(steps) == 3
    for command, expected in steps:
        assert run(*command.split()).stdout == expected


def test_the_example_of_the_guide_is_short():
    assert len(SOURCE.splitlines()) <= 60


def test_allocate_and_explain_read_it_too():
    found = own("allocate", "-f", "gadgets.yaml", "-o", "json")
    [wish] = json.loads(found.stdout)["items"]
    assert [each["device"] for each in wish["status"]["allocation"]["devices"]] == ["g0", "g1"]
    assert "gadget of claim train: rack-1/g1" in own("explain", "-f", "gadgets.yaml").stdout
    Path("gadgets.yaml").write_text(OBJECTS.replace("60Gi", "90Gi"))
    refused = own("explain", "-f", "gadgets.yaml", "train")
    assert refused.exit_code == 1
    assert "node-1" in refused.stdout


def test_a_design_of_your_own_is_scored_beside_todays():
    result = own("compare", "gadgets.yaml", "--to", "v1", "--score")
    assert result.exit_code == 0, result.output
    head, placed, *rest = (" ".join(line.split()) for line in result.stdout.splitlines())
    assert (head, placed) == ("GADGETS V1", "pods placed 1 of 1 1 of 1")
    # Today's API has no totals: one gadget is given, and the loss is listed.
    assert rest[0] == "capacity left 0.0 of 2 1.0 of 2"
    assert "lost: claim default/train" in result.stderr
    # A claim that no fleet can meet counts as one that was asked for.
    Path("gadgets.yaml").write_text(OBJECTS.replace("wishes: [train]\n  c", "wishes: [gone]\n  c"))
    told = own("compare", "gadgets.yaml", "--score").stdout.splitlines()[1]
    assert " ".join(told.split()) == "pods placed 0 of 1"


def test_the_conversion_to_today_is_valid_and_says_what_is_lost():
    converted = own("convert", "--to", "v1", "gadgets.yaml")
    assert converted.exit_code == 1
    assert (
        "lost: claim default/train: gadgets.example.com/memory: 60Gi: a total" in converted.stderr
    )
    assert "wishes" not in converted.stdout
    Path("v1.yaml").write_text(converted.stdout)
    assert "0 problems" in run("validate", "v1.yaml").stdout
    # And from there into any other generation.
    there = own("convert", "--to", "k8srm", "gadgets.yaml").stdout
    assert {item["kind"] for item in yaml.safe_load_all(there)} >= {"DevicePool", "DeviceClaim"}


def test_objects_of_other_generations_are_written_where_the_author_says_how():
    run_v1 = own("convert", "--to", "v1", "gadgets.yaml").stdout
    Path("v1.yaml").write_text(run_v1)
    refused = own("convert", "--to", "gadgets", "v1.yaml")
    assert refused.exit_code == 2
    assert "gadgets cannot be written: its class does not define write(scene)" in refused.stderr
    changed(
        '        return container.get("wishes", ())\n',
        '        return container.get("wishes", ())\n\n'
        "    def write(self, scene):\n"
        "        yield {'apiVersion': self.api_version, 'kind': 'Rack',\n"
        "               'metadata': {'name': 'all'}, 'spec': {'node': 'n'}}\n",
    )
    written = own("convert", "--to", "gadgets", "v1.yaml")
    assert yaml.safe_load(written.stdout)["metadata"]["name"] == "all"


def test_validate_reports_schema_and_check_with_the_line():
    Path("gadgets.yaml").write_text(OBJECTS.replace(", together: 60Gi", ", height: 1"))
    found = own("validate", "gadgets.yaml")
    assert found.exit_code == 1
    assert "13: invalid: spec.height: Forbidden: unknown field, known here: " in found.stdout
    Path("gadgets.yaml").write_text(OBJECTS.replace(", together: 60Gi", ""))
    found = own("validate", "gadgets.yaml")
    assert "13: invalid: spec.most: more than one gadget needs spec.together" in found.stdout


def test_a_missing_object_is_why_a_pod_waits():
    Path("gadgets.yaml").write_text(OBJECTS.replace("wishes: [train]\n", "wishes: [other]\n"))
    found = own("allocate", "-f", "gadgets.yaml")
    assert found.exit_code == 1
    assert 'Wish "default/other" does not exist' in found.stdout


def test_a_second_pod_does_not_get_what_the_first_one_has():
    again = OBJECTS.partition("kind: Wish")[2].replace("name: train", "name: again")
    again = again.replace("wishes: [train]", "wishes: [again]")
    text = f"{OBJECTS}---\napiVersion: gadgets.example.com/v1\nkind: Wish{again}"
    Path("gadgets.yaml").write_text(text)
    found = own("allocate", "-f", "gadgets.yaml")
    assert re.search(r"default +train .* node-1 ", found.stdout)
    assert "pod default/again: " in found.stdout


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("import OwnGeneration", "import Nothing", "mine.py:3: ImportError"),
        ("    def pools(self, objects):", "    def pools(self, objects:", "mine.py:28: "),
        ("    def pools(", "    def pool_s(", "mine.py: Gadgets does not define pools"),
        ("(OwnGeneration)", "", "expected one class derived from OwnGeneration, found none"),
        ('name = "gadgets"', "name = 1", "Gadgets needs a name, which is a string"),
        ('name = "gadgets"', 'name = "v1"', '"v1" is the name of a built-in generation'),
        ('rack["spec"]["node"]', 'rack["spec"]["nod"]', "mine.py:35: KeyError: 'nod'"),
    ],
)
def test_a_mistake_in_the_file_is_one_line_with_its_place(old, new, message):
    changed(old, new)
    found = own("allocate", "-f", "gadgets.yaml")
    assert found.exit_code == 2
    assert message in found.stderr
    assert "Traceback" not in found.stderr


def test_a_file_that_is_not_there_and_a_package_that_nobody_has_are_said():
    assert "other.py: cannot be read: No such file" in (
        run("allocate", "--api", "other.py", "-f", "gadgets.yaml").stderr
    )
    assert "no installed package offers a generation 'gadgets'; known: " in (
        run("allocate", "--api", "gadgets", "-f", "gadgets.yaml").stderr
    )


def test_a_package_offers_its_generation_by_name(monkeypatch, tmp_path):
    (tmp_path / "gadgets_package.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    point = EntryPoint("gadgets", "gadgets_package:Gadgets", _own_generation.GROUP)
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [point])
    found = run("allocate", "--api", "gadgets", "-f", "gadgets.yaml")
    assert re.search(r"default +train .* node-1 ", found.stdout)


def test_nothing_is_run_that_the_option_does_not_name(tmp_path):
    (tmp_path / "mine.py").write_text("raise SystemExit('it ran')")
    found = run("validate", "--api", "v1", "gadgets.yaml")
    assert "it ran" not in found.output
    assert found.exit_code != 0 or "valid" in found.stdout
