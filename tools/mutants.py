"""Break the product in many small ways, and count how many of them the tests notice.

    python tools/mutants.py --count 20 storage scheduler

Each mutant changes one operator, constant or condition, and the tests that may notice are run,
those that import the changed module first. A mutant that no test notices survives, and its line
is printed: either a test is missing or the code does nothing. The same seed makes the same
mutants.

The tests of a package are collected once, and run once to see which lines each runs (`--lines`
keeps that for later runs). For a mutant inside a function the process forks, the child gives the
function its changed code, and runs the tests that run the changed statement until one fails.
Others (a default, a field of a class, what runs in other processes) get a process of their own,
with a copy of the sources.
`--from` and `--count` choose a portion of all mutants.
"""

import argparse
import ast
import gc
import hashlib
import json
import os
import random
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import warnings
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest
from mutations import HERE, Mutant, lines_of, mutants_of

TIMEOUT = 3600  # seconds of all tests of a mutant; each test has its own limit
PACKAGES = {
    "storage": ("apiserver/storage", ["tests/apiserver"]),
    "resources": ("apiserver/verbs", ["tests/apiserver"]),
    "watching": ("apiserver/storage/watching", ["tests/apiserver"]),
    "allocation": ("allocation", ["tests/allocation", "tests/cli", "tests/scheduler", "tests/web"]),
    "scheduler": ("scheduler", ["tests/scheduler", "tests/components"]),
    "node": ("node", ["tests/node"]),
    "controllers": ("controllers", ["tests/controllers", "tests/components"]),
}


def _sum(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else ""


@dataclass(slots=True)
class Known:
    """What a run of the tests has shown: which tests ran which lines, and how long they took.

    A line is known by its file and text, so that it may move. A test whose file has changed since
    counts as one that runs everything.
    """

    seconds: dict[str, float]  # of a test
    names: list[str]  # of tests, and of files of tests
    runners: dict[str, list[int]]  # of a line: which of the names
    sums: dict[str, str]  # of the files as they were

    def chosen(self, mutant: Mutant, items: list[pytest.Item]) -> list[pytest.Item]:
        """Return the tests that run the statement of a mutant, those of its module first."""
        path = HERE / mutant.path
        text = path.read_text(encoding="utf-8")
        rows = text.splitlines()
        lines = {f"{path} {rows[line - 1].strip()}" for line in lines_of(text, mutant.line)}
        if lines.isdisjoint(self.runners) and _sum(path) != self.sums.get(str(path)):
            lines = {line for line in self.runners if line.startswith(f"{path} ")}  # a new line
        ran = {self.names[each] for line in lines for each in self.runners.get(line, ())}
        changed = {item.path for item in items}
        changed -= {file for file in changed if self.sums.get(str(file)) == _sum(file)}
        found = [
            item for item in items if item.path in changed or {item.nodeid, str(item.path)} & ran
        ]
        spent: dict[Path, float] = {}
        for item in found:
            spent[item.path] = spent.get(item.path, 0) + self.seconds.get(item.nodeid, 0)
        near = set(tests_of(mutant.path, list(spent)))
        return sorted(found, key=lambda item: (item.path not in near, spent[item.path], item.path))

    def elsewhere(self, mutant: Mutant, items: list[pytest.Item]) -> list[pytest.Item]:
        """Return the tests of a module that no test runs in its own process, by its name.

        A program that another module starts is tested by the tests of that module.
        """
        path = HERE / mutant.path
        if any(line.startswith(f"{path} ") for line in self.runners):
            return []  # the module is tested here, but for this statement
        starters = [
            file for file in path.parent.glob("*.py") if path.stem in file.read_text("utf-8")
        ]
        files = list(dict.fromkeys(item.path for item in items))
        near = {test for file in starters for test in tests_of(file, files)}
        return [item for item in items if item.path in near]


class Lines:
    """Which lines of some folders each test runs, and how long it takes.

    What a wider fixture runs counts for all tests of its file: others may have made it before.
    """

    def __init__(self, folders: list[str]) -> None:
        self._folders = tuple(f"{HERE / 'src' / 'dralab' / folder}/" for folder in folders)
        self._current: set[tuple[str, int]] = set()
        self._file = ""
        self.found: dict[str, set[tuple[str, int]]] = {}
        self.seconds: dict[str, float] = {}

    def _called(self, frame: FrameType, _event: str, _argument: object) -> object:
        if not frame.f_code.co_filename.startswith(self._folders):
            return None
        return self._ran(frame, "", None)

    def _ran(self, frame: FrameType, _event: str, _argument: object) -> object:
        self._current.add((frame.f_code.co_filename, frame.f_lineno))
        return self._ran

    @contextmanager
    def _into(self, name: str) -> Iterator[None]:
        before, self._current = self._current, self.found.setdefault(name, set())
        threading.settrace(self._called)  # type: ignore[arg-type]
        sys.settrace(self._called)  # type: ignore[arg-type]
        try:
            yield
        finally:
            self._current = before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Count what a test runs, with its fixtures, in all threads."""
        self._file = str(item.path)
        with self._into(item.nodeid):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: Any) -> Generator[None, object, object]:
        """Count what a wider fixture runs for its file."""
        if fixturedef.scope == "function":
            return (yield)
        with self._into(self._file):
            return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note how long a test took."""
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0) + report.duration

    def known(self) -> Known:
        """Return what was found."""
        sys.settrace(None)
        texts: dict[str, list[str]] = {}
        runners: dict[str, list[int]] = {}
        for number, ran in enumerate(self.found.values()):
            for file in {file for file, _ in ran} - texts.keys():
                texts[file] = Path(file).read_text(encoding="utf-8").splitlines()
            for line in {f"{file} {texts[file][line - 1].strip()}" for file, line in ran}:
                runners.setdefault(line, []).append(number)
        files = {*texts, *(str(HERE / name.partition("::")[0]) for name in self.seconds)}
        sums = {file: _sum(Path(file)) for file in files}
        return Known(self.seconds, list(self.found), runners, sums)


class ForkedRuns:
    """Instead of the loop that runs the tests: a child for each mutant runs them until one fails.

    A mutant that is not inside a function gets a process of its own.
    """

    def __init__(self, mutants: list[Mutant], folders: list[str], kept: Path) -> None:
        self.mutants = mutants
        self.noticed: dict[Mutant, bool] = {}
        self._folders = folders
        self._kept = kept
        self._known: Known

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants; without any, the tests have to pass."""
        if self._kept.exists():
            self._known = Known(**json.loads(self._kept.read_text(encoding="utf-8")))
        elif failed := self._look(session):
            raise pytest.UsageError(f"without a mutant there fails {failed}")
        for mutant in self.mutants:
            change = change_of(mutant)
            items = self._known.chosen(mutant, session.items)
            if not items:
                items = self._known.elsewhere(mutant, session.items)
                found = run_apart(mutant, items) if items else ""
            elif change is not None:
                found = self._noticing(items, change)
            else:
                found = run_apart(mutant, items)
            self.noticed[mutant] = bool(found)
            tell(mutant, found, len(items))
        return True

    def _noticing(self, items: list[pytest.Item], change: Callable[[], None]) -> str:
        """Return the test that fails with a change, but not without it; or nothing."""
        while items:
            found = _run(items, self._known.seconds, before=change)
            places = [place for place, item in enumerate(items) if item.nodeid == found]
            if not places:
                return found
            rest = places[0] + 1
            if not _run(items[rest - 1 : rest], self._known.seconds, before=lambda: None):
                return found
            items = items[rest:]  # it fails by itself, on a busy machine
        return ""

    def _look(self, session: pytest.Session) -> str:
        """Run all tests in a child, to see what runs what; return one that fails, or nothing."""
        lines = Lines(self._folders)

        def look() -> None:
            session.config.pluginmanager.register(lines)

        def keep() -> None:
            self._kept.write_text(json.dumps(asdict(lines.known())), encoding="utf-8")

        if failed := _run(session.items, {}, before=look, after=keep):
            return failed
        self._known = Known(**json.loads(self._kept.read_text(encoding="utf-8")))
        return ""


def _run(
    items: list[pytest.Item],
    seconds: dict[str, float],
    *,
    before: Callable[[], None],
    after: Callable[[], None] = lambda: None,
) -> str:
    """Run tests in a child until one fails; return that one, or nothing."""
    told, tell_ = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a fork beside threads
        child = os.fork()
    if not child:
        os.setpgid(0, 0)
        item = items[0]
        try:
            before()
            for item, following in zip(items, [*items[1:], None], strict=True):
                if item.nodeid in seconds:  # a mutant may wait for ever
                    item.add_marker(pytest.mark.timeout(20 + 10 * seconds[item.nodeid]))
                item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
                if item.session.testsfailed:
                    os.write(tell_, item.nodeid.encode())
                    os._exit(1)
            after()
        finally:  # an error here is the mutant's as well
            os._exit(int(sys.exc_info()[0] is not None))
    os.close(tell_)
    status = _ended(child)
    failed = os.read(told, 4096).decode()
    os.close(told)
    return failed or ("a test that does not end" if status else "")


def run_apart(mutant: Mutant, items: list[pytest.Item]) -> str:
    """Run tests with a mutant in a process of their own; return the last words if one fails."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(HERE / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        changed = Path(folder) / mutant.path
        changed.write_text(mutant.applied(changed.read_text(encoding="utf-8")), encoding="utf-8")
        names = Path(folder) / "names"
        names.write_text("\n".join(item.nodeid for item in items), encoding="utf-8")
        command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not conformance", f"@{names}"]
        command += ["-p", "no:cacheprovider", "--timeout", "120"]
        try:
            done = subprocess.run(
                command,
                cwd=HERE,
                env=os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=TIMEOUT,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return "a test that does not end"
    said = [line for line in done.stdout.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return (said or ["an error"])[0] if done.returncode else ""


def tell(mutant: Mutant, noticed: str, tests: int) -> None:
    """Print what became of a mutant, beside the output of the tests."""
    what = f"noticed  {mutant} by {noticed}" if noticed else f"SURVIVED {mutant}"
    print(f"{what} (of {tests} tests)", file=sys.__stderr__, flush=True)


def _ended(child: int) -> int:
    """Return the status of a child; a mutant that never ends is noticed, and ended."""
    end = os.pidfd_open(child)
    try:
        if not select.select([end], [], [], TIMEOUT)[0]:
            os.killpg(child, signal.SIGKILL)
    finally:
        os.close(end)
    return os.waitpid(child, 0)[1]


def change_of(mutant: Mutant) -> Callable[[], None] | None:
    """Return what makes a mutant of this process, or None where only another process can be one.

    What is inside a function (a lambda, a comprehension, a class) is made anew by its code.
    """
    path = str(HERE / mutant.path)
    text = mutant.applied((HERE / mutant.path).read_text(encoding="utf-8"))
    if (head := _head(text, mutant.line)) is not None:
        return partial(_set_defaults, _functions(path, head.lineno, head.name), _defaults(head))
    code = _outermost(compile(text, path, "exec"), mutant.line)
    if code is None:
        return _change_of_class(path, text, mutant.line)
    found = _functions(path, code.co_firstlineno, code.co_name)
    return partial(_set_code, found, code) if found else None


def _functions(path: str, line: int, name: str) -> list[FunctionType]:
    return [
        each
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and each.__code__.co_filename == path
        and each.__code__.co_name == name
        # A function begins with its decorators.
        and each.__code__.co_firstlineno <= line <= _first_line(each.__code__)
    ]


def _first_line(code: CodeType) -> int:
    first = code.co_firstlineno
    return min((line for *_, line in code.co_lines() if line and line > first), default=first)


def _set_code(functions: list[FunctionType], code: CodeType) -> None:
    for each in functions:
        each.__code__ = code


def _change_of_class(path: str, text: str, line: int) -> Callable[[], None] | None:
    """Return what changes the value of a field of a class, if it is a constant."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.ClassDef):
            continue
        for field in node.body:
            if not isinstance(field, ast.AnnAssign | ast.Assign) or field.lineno != line:
                continue
            target = field.target if isinstance(field, ast.AnnAssign) else field.targets[0]
            if isinstance(target, ast.Name) and isinstance(field.value, ast.Constant):
                classes = [
                    each
                    for each in gc.get_objects()
                    if isinstance(each, type)
                    and each.__qualname__ == node.name
                    and getattr(sys.modules.get(each.__module__), "__file__", "") == path
                ]
                return partial(_set_field, classes, target.id, field.value.value)
    return None


def _set_field(classes: list[type], name: str, value: object) -> None:
    for each in classes:
        if "__dataclass_fields__" in vars(each):
            _set_defaults([each.__init__], {name: value})  # type: ignore[misc]
        if not hasattr(vars(each).get(name), "__set__"):  # as a slot has
            setattr(each, name, value)


def _head(text: str, line: int) -> ast.FunctionDef | ast.AsyncFunctionDef | None:
    """Return the function with a head at a line."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() if (
                node.lineno <= line < node.body[0].lineno
            ):
                return node
            case _:
                pass
    return None


def _defaults(head: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, object]:
    """Return the defaults of a function that are constants."""
    its = head.args
    last = [*its.posonlyargs, *its.args][-len(its.defaults) or len(its.args) :]
    both = zip([*last, *its.kwonlyargs], [*its.defaults, *its.kw_defaults], strict=True)
    return {name.arg: value.value for name, value in both if isinstance(value, ast.Constant)}


def _set_defaults(functions: list[FunctionType], defaults: dict[str, object]) -> None:
    for each in functions:
        code, had = each.__code__, each.__defaults__ or ()
        names = code.co_varnames[code.co_argcount - len(had) : code.co_argcount]
        both = zip(names, had, strict=True)
        each.__defaults__ = tuple(defaults.get(name, old) for name, old in both) or None
        for name in (each.__kwdefaults__ or {}).keys() & defaults.keys():
            each.__kwdefaults__[name] = defaults[name]


def _outermost(code: CodeType, line: int) -> CodeType | None:
    """Return the code of the function or method around a line, the outermost one."""
    for each in code.co_consts:
        if isinstance(each, CodeType) and _contains(each, line):
            # Code of a function is optimized (CO_OPTIMIZED), that of a class body is not.
            return each if each.co_flags & 0x1 else _outermost(each, line)
    return None


def _contains(code: CodeType, line: int) -> bool:
    return any(start == line for *_, start in code.co_lines()) or any(
        isinstance(each, CodeType) and _contains(each, line) for each in code.co_consts
    )


def tests_of(path: Path, tests: list[Path]) -> list[Path]:
    """Return the files of tests that import a module, or are named after it."""
    name = path.stem
    imports = (f".{name} import", f"import {name}", f", {name}")
    return [
        file
        for file in tests
        if name in file.stem or any(text in file.read_text("utf-8") for text in imports)
    ]


def main() -> None:
    """Make mutants and say which survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", choices=[*PACKAGES, []], default=[])
    parser.add_argument("--count", type=int, default=30, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one to try")
    parser.add_argument("--at", action="append", help="FILE:LINE; only mutants of these lines")
    parser.add_argument("--tests", action="append", help="a directory instead of the package's")
    parser.add_argument(
        "--lines", type=Path, help="keep in FILE which tests of one package run which lines"
    )
    options = parser.parse_args()
    noticed = total = 0
    place = tempfile.TemporaryDirectory()
    for name in options.packages or PACKAGES:
        folder, tests = PACKAGES[name]
        tests = options.tests or tests
        files = [
            file
            for file in sorted((HERE / "src" / "dralab" / folder).rglob("*.py"))
            if "_generated" not in file.parts
        ]
        every = [one for file in files for one in mutants_of(file.relative_to(HERE))]
        chance = random.Random(options.seed)  # noqa: S311 - a choice of lines
        wanted = min(options.first + options.count, len(every))
        chosen = chance.sample(every, wanted)[options.first :]
        if options.at:
            chosen = [one for one in chosen if f"{one.path.name}:{one.line}" in options.at]
        folders = [each for each, its in PACKAGES.values() if its == PACKAGES[name][1]]
        lines = options.lines or Path(place.name) / f"{'-'.join(tests)}.json".replace("/", "-")
        runs = ForkedRuns(chosen, folders, lines)
        quiet = ["-p", "no:terminal", "-p", "no:cacheprovider", "--timeout", "120"]
        quiet += ["-o", "addopts=--import-mode=importlib", "-m", "not conformance"]
        pytest.main([*quiet, f"--rootdir={HERE}", *(str(HERE / test) for test in tests)], [runs])
        caught = sum(runs.noticed.values())
        print(f"{name}: {caught} of {len(chosen)} noticed", flush=True)
        noticed, total = noticed + caught, total + len(chosen)
    place.cleanup()
    print(f"{noticed} of {total} noticed ({noticed / max(total, 1):.0%})")


if __name__ == "__main__":
    main()
