"""Rules of the house: AGENTS.md is right, a name has one meaning, files are read in one way.

Files are read by `dralab.files`, and by nothing else: what a user or a program may have prepared can
be a pipe, a device, a link or endless.
"""

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from dralab.scheduling import reasons
from dralab.scheduling.reasons import RefusalRule
from pages import changed, recipes, steps

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "dralab"
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


RECIPES = recipes()


@pytest.mark.parametrize("title", RECIPES)
def test_the_changes_of_a_recipe_fit_the_sources(title):
    """`tests/test_recipes.py` carries them out, which takes seconds each."""
    assert len(RECIPES) == 5
    changes = [step[1:] for step in steps(RECIPES[title]) if step[0] == "change"]
    assert changes
    for name, diff in changes:
        changed((ROOT / name).read_text(encoding="utf-8"), diff)


def test_every_helper_of_the_tests_is_explained():
    tests = Path(__file__).parent
    helpers = {path.stem for path in tests.glob("*.py")} - {"conftest"}
    helpers = sorted(name for name in helpers if not name.startswith("test_"))
    assert len(helpers) > 40
    table = re.findall(r"^\| (`.+`) \|", (tests / "README.md").read_text(), re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(table))) == helpers, "update tests/README.md"


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
                if isinstance(getattr(each, "value", None), str) and is_ours(each.value):
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
    asking = "scheduling scheduler explanation capacity simulation web cli controllers prototypes"
    found = {
        f"{path.relative_to(ROOT)}:{line}"
        for package in asking.split()
        for path in sorted((ROOT / "src" / "dralab" / package).rglob("*.py"))
        for line in sentences_read(path.read_text(encoding="utf-8"))
    }
    assert not found, "decide by `Reason.rule` and its fields: a sentence is printed, never read"


PRINTERS_OF_REASONS = frozenset(
    f"dralab.explanation.{name}" for name in ("answers", "sentences", "text", "why")
)


def reads_its_own_pages(source):
    """Whether a module that has sentences printed also has regular expressions."""
    if "explanation" not in source:
        return False
    imported = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            imported |= {each.name for each in node.names}
        elif isinstance(node, ast.ImportFrom):
            imported.add(node.module)
    return "re" in imported and bool(imported & PRINTERS_OF_REASONS)


def test_no_page_of_a_reason_is_searched():
    """What a page names is data before it is printed: not even a name is found in it again."""
    printing = "import re\ndef f():\n    from dralab.explanation.text import page"
    assert reads_its_own_pages(printing)
    assert not reads_its_own_pages("import re\nfrom dralab.explanation.causes import Help")
    assert {f"dralab.explanation.{path.stem}" for path in (SOURCE / "explanation").glob("*.py")} > (
        PRINTERS_OF_REASONS
    )
    found = [
        str(path.relative_to(ROOT))
        for path in sorted(SOURCE.rglob("*.py"))
        if reads_its_own_pages(path.read_text(encoding="utf-8"))
    ]
    assert not found, "carry what the page names as data"


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


def test_state_that_is_derived_from_objects_is_kept_in_one_way():
    """What only observes forgets to begin again when writes are taken back."""
    # One begins again by itself, the other keeps nothing; those with `writes` act, and keep nothing.
    known = {
        "verbs/state/context.py",
        "verbs/state/indexes.py",
        "verbs/upkeep/policy_statuses.py",
    }
    server = ROOT / "src" / "dralab" / "apiserver"
    others = {
        str(file.relative_to(server))
        for file in server.rglob("*.py")
        for call in ast.walk(ast.parse(file.read_text(encoding="utf-8")))
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Attribute)
        and call.func.attr in {"observe", "append"}
        and ast.unparse(call.func).endswith(("observe", "reloads.append"))
        and "writes=True" not in ast.unparse(call)
    }
    allowed = {
        *known,
        "http/encodings/encoders.py",
    }  # which keeps what can be made again at any time
    assert others - allowed == set(), "use Context.derive"
    assert known <= others


READERS = {"read_text", "read_bytes"}
OPENERS = {("gzip", "open"), ("io", "open"), ("tarfile", "open"), ("np", "load"), ("click", "File")}
# What lies in the package, and what the kernel tells of processes and of the machine.
OURS = (
    "files(",
    "DATA",
    "here",
    "MANIFEST",
    "os.devnull",
    "Path('/proc",
    "Path(f'/proc",
    "'/proc",
    "f'/proc",
)
# A file or a folder → why what it reads needs no guard, or has its own.
ALLOWED = {
    "files/": "the reader itself",
    "apiserver/http/request_metrics.py": "what the kernel tells of this process",
    "apiserver/storage/files.py": "opened to be synced, after `check_files`",
    "drivercheck/targets.py": "what the kernel tells of a driver's process",
    "node/atomic_files.py": "its own file, which it has just looked at without following a link",
    "node/cgroups.py": "what the kernel tells of a control group",
    "node/listening_ports.py": "what the kernel tells of sockets and processes",
    "node/mount_launcher.py": "a program of its own, which imports nothing; the node wrote the file",
    "node/network/namespaces.py": "a namespace, which is no regular file",
    "node/orphan_guard.py": "a program of its own, which reads what the kernel tells of processes",
    "simulation/engines/external/schedulers.py": "what the kernel tells of the schedulers' threads",
    "virtualtime/": "what the kernel tells of the traced processes, and the files of the host's libc",
}


def is_writing(call, at):
    """Whether a call opens a file for writing only: `at` is where its mode stands."""
    mode = next((word.value for word in call.keywords if word.arg == "mode"), None)
    mode = mode or (call.args[at] if len(call.args) > at else None)
    return isinstance(mode, ast.Constant) and str(mode.value)[:1] in {"w", "a", "x"}


def reads(call):
    """Return what a call reads, as it is written, or None."""
    function = call.func
    if isinstance(function, ast.Name):
        if function.id == "open" and call.args and not is_writing(call, 1):
            return ast.unparse(call.args[0])
        return None
    if not isinstance(function, ast.Attribute):
        return None
    owner = ast.unparse(function.value)
    if (owner, function.attr) in OPENERS or (owner, function.attr) == ("os", "open"):
        flags = ast.unparse(call.args[1]) if len(call.args) > 1 else ""
        is_other = any(flag in flags for flag in ("O_WRONLY", "O_DIRECTORY", "O_CREAT"))
        return None if is_other or not call.args else ast.unparse(call.args[0])
    if function.attr in READERS:
        return owner
    mode = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    if function.attr == "open" and isinstance(mode, str) and mode in {"r", "rb", "rt"}:
        return owner
    # As `path.open(encoding="utf-8")`: to read is the default.
    options = {word.arg for word in call.keywords}
    if function.attr == "open" and not call.args and options & {"encoding", "errors", "newline"}:
        return None if "mode" in options else owner
    return None


@cache
def places():
    """Return where files are read, and what: of a program's text only what can do so is parsed."""
    found = []
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if any(word in text for word in ("open(", "read_text", "read_bytes", "np.load", ".File")):
            name = str(path.relative_to(SOURCE))
            calls = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call))
            found += [
                (name, call.lineno, what) for call in calls if (what := reads(call)) is not None
            ]
    return found


def test_files_are_read_in_one_way():
    found = list(places())
    assert len(found) > 30
    others = [
        f"{name}:{line}: {what}"
        for name, line, what in found
        if not what.startswith(OURS) and not name.startswith(tuple(ALLOWED))
    ]
    assert not others, "read files with dralab.files.reading, or say in ALLOWED why not"


def test_no_file_is_read_as_code():
    """Pickles and their like run what their author wants."""
    formats = "pickle|cPickle|marshal|shelve|dill|cloudpickle|joblib"
    imports = re.compile(rf"^\s*(?:import|from) (?:{formats})\b", re.MULTILINE)
    assert imports.search("    import pickle\n")
    assert not [
        path.name
        for path in SOURCE.rglob("*.py")
        # A campaign sends a class to its own workers; nothing of that comes from a file.
        if path.name != "shipping.py" and imports.search(path.read_text(encoding="utf-8"))
    ]


def test_what_is_allowed_is_needed():
    read = {name for name, _, what in places() if not what.startswith(OURS)}
    assert not [each for each in ALLOWED if not any(name.startswith(each) for name in read)]


PRINTERS = {
    "_terminal.py": "the printer itself",
    "_etcd_of_envtest.py": "a program of its own, which imports nothing",
}


def printers(tree):
    for found in ast.walk(tree):
        if isinstance(found, ast.Call):
            name = ast.unparse(found.func)
            if name in {
                "click.echo",
                "click.secho",
                "print",
                "Console().print",
                "console.print",
            } or (name.startswith(("sys.stdout.", "sys.stderr.")) and name.endswith(".write")):
                yield found.lineno, name


def test_every_command_prints_with_one_printer():
    """It escapes control characters: expressions, messages and file names are others' texts."""
    others, count = [], 0
    for path in sorted((SOURCE / "cli").glob("*.py")):
        for line, name in printers(ast.parse(path.read_text(encoding="utf-8"))):
            count += 1
            if path.name not in PRINTERS:
                others.append(f"{path.name}:{line}: {name}")
    assert count >= 4
    assert not others, "print with dralab.cli._terminal"


def test_no_file_was_made_by_a_slip_of_a_shell():
    folders = ("src", "docs", "tests", "changes", "tools", "benchmarks", "examples", "deploy")
    odd = [
        str(file.relative_to(ROOT))
        for name in folders
        for file in (ROOT / name).rglob("*")
        if " " in file.name
    ]
    assert not odd, "a name with a space is none that the project gives"
