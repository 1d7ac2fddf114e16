"""The table "Where is it decided" of AGENTS.md names things that exist; a name has one meaning."""

import ast
import re
from collections import defaultdict
from pathlib import Path

import pytest

from dralab.scheduling import reasons
from dralab.scheduling.reasons import RefusalRule

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


READING = frozenset(
    [
        "startswith",
        "endswith",
        "removeprefix",
        "removesuffix",
        "partition",
        "rpartition",
        "split",
        "rsplit",
        "index",
        "find",
        "replace",
        "match",
        "fullmatch",
        "search",
        "compile",
        "findall",
        "finditer",
        "sub",
    ]
)


def sentences_read(source):
    """Yield the lines of a module that look for a piece of a sentence of a refusal."""
    said = [rule.sentence for rule in vars(reasons).values() if isinstance(rule, RefusalRule)]
    said.append("0/1 nodes are available: ")
    assert len(said) > 30

    def is_ours(text):
        piece = text.strip("^$ ")
        return len(piece) >= 12 and " " in piece and any(piece in each for each in said)

    for node in ast.walk(ast.parse(source)):
        parts = []
        if isinstance(node, ast.Compare):
            parts = [node.left, *node.comparators]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            parts = node.args if node.func.attr in READING else []
        for part in parts:
            for each in ast.walk(part):
                if isinstance(each, ast.Constant) and isinstance(each.value, str):
                    if is_ours(each.value):
                        yield node.lineno


@pytest.mark.parametrize(
    "line",
    [
        'if "cannot allocate all claims" in why: pass',
        'told = why.startswith("node(s) were unschedulable")',
        'found = re.compile("^node(s) were unschedulable$")',
    ],
)
def test_reading_a_sentence_is_noticed(line):
    assert list(sentences_read(line)) == [1]


def test_no_sentence_of_a_refusal_is_read_back():
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for path in sorted((ROOT / "src" / "dralab").rglob("*.py"))
        for line in sentences_read(path.read_text(encoding="utf-8"))
    }
    assert not found, "decide by `Reason.rule` and its fields: a sentence is printed, never read"


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
