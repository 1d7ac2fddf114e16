"""The table "Where is it decided" of AGENTS.md names things that exist; a name has one meaning."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOP_CLASS = re.compile(r"^class (\w+)", re.MULTILINE)
ROW = re.compile(r"^\| (?P<question>[^|]+?) \| `(?P<file>[^`|]+\.py)` \| `(?P<symbol>[\w.]+)` \|$")


def rows():
    text = (ROOT / "AGENTS.md").read_text(encoding="utf-8")
    _, found, table = text.partition("## Where is it decided")
    assert found, "AGENTS.md has no table “Where is it decided”"
    lines = [line for line in table.split("\n## ")[0].splitlines() if line.startswith("| ")]
    return [(line, ROW.match(line)) for line in lines[1:]]


ROWS = rows()


def defined(body, names):
    """Whether a module or class defines a name, dots leading into classes."""
    name, *inner = names
    for item in body:
        target = item.targets[0] if isinstance(item, ast.Assign) else getattr(item, "target", None)
        if name not in {getattr(item, "name", None), getattr(target, "id", None)}:
            continue
        return not inner or defined(getattr(item, "body", []), inner)
    return False


def test_the_table_answers_25_questions():
    assert len(ROWS) >= 25
    broken = [line for line, row in ROWS if row is None]
    assert not broken, "a row is: | question | `file.py` | `symbol` |"
    questions = [row["question"] for _, row in ROWS]
    assert len(set(questions)) == len(questions)


@pytest.mark.parametrize("row", [row for _, row in ROWS if row], ids=lambda row: row["question"])
def test_the_place_where_it_is_decided_exists(row):
    path = ROOT / "src" / "dralab" / row["file"]
    told = (
        f"AGENTS.md says that “{row['question']}” is decided by {row['symbol']} in {row['file']}. "
        "Whoever moves or renames it updates the table in the same commit."
    )
    assert path.is_file(), told
    there = defined(ast.parse(path.read_text(encoding="utf-8")).body, row["symbol"].split("."))
    assert there, told


def test_a_class_name_has_one_meaning():
    places = defaultdict(list)
    for path in sorted((ROOT / "src" / "dralab").rglob("*.py")):
        if not path.name.endswith("_pb2.py"):
            for name in TOP_CLASS.findall(path.read_text(encoding="utf-8")):
                places[name].append(str(path.relative_to(ROOT)))
    assert len(places) > 1000
    shared = {name: files for name, files in places.items() if len(files) > 1}
    assert not shared, "name a new class after what sets it apart from the one that has the name"


def test_no_file_was_left_half_merged():
    # Spelled apart, or this file would be one.
    marks = tuple(f"\n{sign * 7} " for sign in "<>")
    folders = ("src", "docs", "tests", "changes", "tools", "benchmarks", "examples", "deploy")
    files = [*ROOT.glob("*.md"), *(file for name in folders for file in (ROOT / name).rglob("*.*"))]
    texts = {".md", ".py", ".yaml", ".yml", ".txt", ".toml", ".json", ".sh", ".ts"}
    half = [
        str(file.relative_to(ROOT))
        for file in files
        if file.suffix in texts
        and any(mark in "\n" + file.read_text(encoding="utf-8", errors="replace") for mark in marks)
    ]
    assert not half


def test_the_server_makes_its_lazy_parts_with_a_lock():
    files = sorted((ROOT / "src" / "dralab" / "apiserver").rglob("*.py"))
    assert len(files) > 200
    racy = [
        str(file.relative_to(ROOT))
        for file in files
        if "import cached_property" in file.read_text(encoding="utf-8")
    ]
    assert not racy, "use dralab.apiserver.made_once: requests are answered in several threads"
