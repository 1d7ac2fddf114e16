"""What holds for every reproduction, and what `dralab reproduce` does with one."""

from pathlib import Path

import orjson
import pytest
import yaml
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.simulation.reproductions import page, registry
from dralab.simulation.reproductions.registry import Case, ComparedNumber, DataFile, Reproduction

PAGES = Path(__file__).parents[3] / "docs" / "reproductions"


@pytest.mark.parametrize("name", registry.MODULES)
def test_a_reproduction_is_whole(name):
    found = registry.named(name)
    assert found.name == name
    cases = [case.name for case in found.cases]
    assert cases
    assert len(set(cases)) == len(cases)
    files = [each.name for each in found.data]
    assert {each for case in found.cases for each in case.data} == set(files)
    for each in found.data:
        assert each.address.startswith("https://"), each.name
        assert each.licence, each.name
    assert found.time_here > 0
    assert found.address.startswith("https://")


@pytest.mark.parametrize("name", registry.MODULES)
def test_its_page_is_the_one_that_the_command_writes(name):
    found = registry.named(name)
    text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
    assert text.startswith(page.head(found)), f"dralab reproduce {name} --write {name}.md"
    shown = {line.split(" | ")[0].removeprefix("| ") for line in text.splitlines()}
    assert {case.name for case in found.cases} <= shown


def test_every_page_is_of_a_reproduction():
    assert {each.stem for each in PAGES.glob("*.md")} == set(registry.MODULES)


@pytest.mark.parametrize(
    ("published", "ours", "within", "verdict"),
    [
        (95.39, 95.89, 0.5, "agrees"),
        (95.39, 94.89, 0.5, "agrees"),
        (95.39, 95.9, 0.5, "differs"),
        (0.3, 0.1 + 0.2, 0.0, "agrees"),
        (None, 1.0, 0.0, ""),
    ],
)
def test_a_number_agrees_if_it_is_near_enough(published, ours, within, verdict):
    row = ComparedNumber(what="x", published=published, ours=ours, within=within)
    assert row.verdict == verdict


@pytest.fixture
def shown(monkeypatch, tmp_path):
    """A reproduction of two cases: one reads a file, the other none."""

    def of_file(files, seed):
        [path] = files
        yield ComparedNumber(
            what="size", published=5.0, ours=float(len(path.read_bytes())), unit="B"
        )
        yield ComparedNumber(what="seed", published=None, ours=float(seed), why="not in the paper")

    def without(files, seed):
        yield ComparedNumber(what="files", published=0, ours=float(len(files)), within=0.1)

    found = Reproduction(
        name="fgd",
        title="A trial",
        paper="Someone, Something",
        address="https://example.org/paper",
        cases=(
            Case(name="log/all", run=of_file, data=("a.log",)),
            Case(name="made", run=without),
        ),
        data=(
            DataFile(name="a.log", address="https://example.org/a", licence="MIT", sha256="2cf24d"),
        ),
        seed=7,
        time_here=1,
        text="Nothing.",
    )
    monkeypatch.setattr("dralab.cli.reproduce.named", lambda name: found)

    def run(*more):
        return CliRunner().invoke(main, ["reproduce", "fgd", *more])

    return run


def test_numbers_that_agree_end_with_0_and_others_with_1(shown, tmp_path):
    (tmp_path / "a.log").write_text("hello")
    found = shown("--data", str(tmp_path))
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines() == [
        "CASE     NUMBER  UNIT  PUBLISHED   OURS  MAY DIFFER BY  VERDICT",
        "log/all  size    B         5.000  5.000          0.000  agrees",
        "log/all  seed                  -  7.000",
        "made     files             0.000  0.000          0.100  agrees",
        "note: not in the paper",
        "2 of 2 numbers agree",
    ]
    assert "note: " not in found.stderr
    (tmp_path / "a.log").write_text("hello!")
    found = shown("--data", str(tmp_path), "-o", "json")
    assert found.exit_code == 1
    answer = orjson.loads(found.stdout)
    assert (answer["verdict"], answer["compared"], answer["agreeing"]) == ("differs", 2, 1)
    assert answer["rows"][0] == {
        "case": "log/all", "what": "size", "published": 5.0, "ours": 6.0, "unit": "B",
        "within": 0.0, "verdict": "differs", "why": "",
    }  # fmt: skip
    assert f"{tmp_path / 'a.log'} is not the file" in found.stderr


def test_a_missing_file_is_named_with_the_place_to_get_it(shown, tmp_path):
    for more, where in (((), "add --data DIR"), (("--data", str(tmp_path)), f"not in {tmp_path}")):
        found = shown(*more)
        assert found.exit_code == 2
        assert where in found.stderr
        assert "get a.log from https://example.org/a" in found.stderr
        assert "--only made" in found.stderr


def test_a_case_alone_needs_only_its_own_files(shown):
    found = shown("--only", "made", "-o", "yaml", "--seed", "3")
    assert found.exit_code == 0
    answer = yaml.safe_load(found.stdout)
    assert (answer["seed"], [row["case"] for row in answer["rows"]]) == (3, ["made"])


def test_a_pattern_without_a_case_is_refused(shown):
    found = shown("--only", "nothing")
    assert found.exit_code == 2
    assert "'nothing' names no case of fgd; `dralab reproduce -o yaml` lists them" in found.stderr


def test_the_page_has_the_numbers_and_the_places(shown, tmp_path):
    (tmp_path / "a.log").write_text("hello")
    target = tmp_path / "page.md"
    assert shown("--data", str(tmp_path), "--write", str(target)).exit_code == 0
    text = target.read_text(encoding="utf-8")
    assert "| `a.log` | <https://example.org/a> | MIT |" in text
    assert "| log/all | size | B | 5.000 | 5.000 | 0.000 | agrees |" in text
    assert "| log/all | seed |  | - | 7.000 |  | not in the paper |" in text
    assert "Seed 7: 2 of 2 numbers agree." in text


def test_the_list_says_what_each_needs():
    found = CliRunner().invoke(main, ["reproduce"])
    assert found.exit_code == 0
    assert [line.split()[0] for line in found.stdout.splitlines()] == ["NAME", *registry.MODULES]
    answer = orjson.loads(CliRunner().invoke(main, ["reproduce", "-o", "json"]).stdout)
    assert answer["fgd"]["data"][0]["name"] == "openb_node_list_gpu_node.csv"
    assert "default/fgd" in answer["fgd"]["cases"]
