"""Break the product in many small ways, and count how many of them the tests notice.

    python tools/mutants.py --count 20 storage scheduler

Each mutant changes one operator, constant or condition, and the tests of its package are run, those
that import the changed module first. A mutant that no test notices survives, and its line is
printed: either a test is missing or the code does nothing. The same seed makes the same mutants.

The tests of a package are collected once, and run once to see which functions each calls. For a
mutant inside a function the process forks, the child gives the function its changed code, and runs
the tests that call it until one fails. Others (a default, a field of a class) get a process of
their own, with a copy of the sources. `--from` and `--count` choose a portion of all mutants.
"""

import argparse
import ast
import gc
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
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType

import pytest

HERE = Path(__file__).parent.parent
TIMEOUT = 600  # seconds of tests; a mutant that never ends is noticed
PACKAGES = {
    "storage": ("apiserver/storage", ["tests/apiserver/storage"]),
    "resources": ("apiserver/resources", ["tests/apiserver"]),
    "watching": ("apiserver/watching", ["tests/apiserver/watching", "tests/apiserver/http"]),
    "allocation": ("allocation", ["tests/allocation", "tests/cli", "tests/scheduler", "tests/web"]),
    "scheduler": ("scheduler", ["tests/scheduler"]),
    "node": ("node", ["tests/node"]),
    "controllers": ("controllers", ["tests/controllers"]),
}
COMPARED: dict[type[ast.cmpop], str] = {
    ast.Eq: "!=", ast.NotEq: "==", ast.Lt: "<=", ast.LtE: "<", ast.Gt: ">=", ast.GtE: ">",
    ast.In: "not in", ast.NotIn: "in", ast.Is: "is not", ast.IsNot: "is",
}  # fmt: skip
WRITTEN: dict[type[ast.cmpop], str] = {
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change: a text of a line, at a column, becomes another."""

    path: Path
    line: int
    column: int
    old: str
    new: str

    def applied(self, text: str) -> str:
        """Return the source with the change."""
        lines = text.splitlines(keepends=True)
        row = lines[self.line - 1]
        end = self.column + len(self.old)
        lines[self.line - 1] = row[: self.column] + self.new + row[end:]
        return "".join(lines)

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.old} -> {self.new}"


def mutants_of(path: Path) -> Iterator[Mutant]:
    """Yield all mutants of a file."""
    text = (HERE / path).read_text(encoding="utf-8")
    lines = text.splitlines()

    def between(before: ast.expr, after: ast.expr, old: str, new: str) -> Iterator[Mutant]:
        # An operator on one line, which is nearly all of them.
        if before.end_lineno == after.lineno and before.end_col_offset is not None:
            row = lines[after.lineno - 1]
            at = row.find(f" {old} ", before.end_col_offset, after.col_offset)
            if at >= 0 and row.isascii():
                yield Mutant(path, after.lineno, at + 1, old, new)

    tree = ast.parse(text)
    # What a dataclass is made of changes speed and nothing that a test could see; named constants
    # are sizes and times that were chosen, and one more of them is as good.
    skipped = {
        id(part)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for decorator in node.decorator_list
        for part in ast.walk(decorator)
    } | {
        id(part)
        for node in tree.body
        if isinstance(node, (ast.Assign, ast.AnnAssign))
        for part in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in skipped:
            continue
        match node:
            case ast.Compare(left=left, ops=[op], comparators=[right]):
                yield from between(left, right, WRITTEN[type(op)], COMPARED[type(op)])
            case ast.BoolOp(op=op, values=[first, second, *_]):
                words = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                yield from between(first, second, *words)
            case ast.UnaryOp(op=ast.Not(), lineno=line, col_offset=column):
                yield Mutant(path, line, column, "not ", "")
            case ast.Constant(value=bool(value), lineno=line, col_offset=column):
                yield Mutant(path, line, column, str(value), str(not value))
            case ast.Constant(value=int(value), lineno=line, col_offset=column):
                if lines[line - 1][column:].startswith(str(value)):
                    yield Mutant(path, line, column, str(value), str(value + 1))
            case _:
                pass


def is_noticed(mutant: Mutant, tests: list[str]) -> bool:
    """Return whether the tests fail with a mutant, in a process of their own."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(HERE / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        changed = Path(folder) / mutant.path
        changed.write_text(mutant.applied(changed.read_text(encoding="utf-8")), encoding="utf-8")
        nearest = tests_of(mutant.path, tests)
        return (bool(nearest) and _fail(nearest, source)) or _fail(tests, source)


class Calls:
    """Which functions of the product each test calls, by file and first line.

    What a fixture calls counts for all tests of its file: others may have made it before.
    """

    def __init__(self) -> None:
        self._codes: dict[int, CodeType] = {}
        self._current: set[int] = set()
        self.found: dict[str, set[int]] = {}

    def _called(self, frame: FrameType, _event: str, _argument: object) -> None:
        # By identity: the hash of a code is that of all it holds.
        code = frame.f_code
        if id(code) not in self._current:
            self._codes[id(code)] = code
            self._current.add(id(code))

    @contextmanager
    def _into(self, name: str) -> Iterator[None]:
        before, self._current = self._current, self.found.setdefault(name, set())
        try:
            yield
        finally:
            self._current = before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        """Count what fixtures call for the file of a test."""
        with self._into(str(item.path)):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Count what a test calls, in all its threads."""
        threading.settrace(self._called)
        sys.settrace(self._called)
        with self._into(item.nodeid):
            return (yield)

    def start(self) -> None:
        """Begin to look."""
        threading.settrace(self._called)
        sys.settrace(self._called)

    def names(self) -> dict[str, list[tuple[str, int]]]:
        """Return the functions by test and by file of tests."""
        sys.settrace(None)
        source = str(HERE / "src")
        return {
            name: [
                (self._codes[each].co_filename, self._codes[each].co_firstlineno)
                for each in called
                if self._codes[each].co_filename.startswith(source)
            ]
            for name, called in self.found.items()
        }


class ForkedRuns:
    """Instead of the loop that runs the tests: a child for each mutant runs them until one fails.

    `noticed` has the mutants that were tried here; others are not inside a function.
    """

    def __init__(self, mutants: list[Mutant], tests: list[str]) -> None:
        self.mutants = mutants
        self.tests = tests
        self.noticed: dict[Mutant, bool] = {}
        self._callers: dict[tuple[str, int], set[str]] = {}  # tests and files of tests, by function

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        """Try all mutants; without any, the tests have to pass."""
        if failed := self._failed(session, None, []):
            raise pytest.UsageError(f"without a mutant there fails {failed}")
        for mutant in self.mutants:
            functions = changed_functions(mutant)
            if functions:
                found = self._failed(session, mutant, functions)
                self.noticed[mutant] = bool(found)
                tell(mutant, found or None)
        return True

    def _failed(
        self,
        session: pytest.Session,
        mutant: Mutant | None,
        functions: list[tuple[FunctionType, CodeType]],
    ) -> str:
        """Run tests in a child, the nearest first; return the first that fails, or nothing."""
        near = {HERE / name for name in tests_of(mutant.path, self.tests)} if mutant else set()
        items = sorted(session.items, key=lambda item: item.path not in near)
        if functions:
            code = functions[0][0].__code__
            callers = self._callers.get((code.co_filename, code.co_firstlineno), set())
            items = [each for each in items if {each.nodeid, str(each.path)} & callers]
            if not items:
                return ""
        calls = Calls()
        report = Path(tempfile.gettempdir()) / f"calls-{os.getpid()}.json"
        told, tell_ = os.pipe()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a fork beside threads
            child = os.fork()
        if not child:
            os.setpgid(0, 0)
            try:
                for function, changed in functions:
                    function.__code__ = changed
                if mutant is None:
                    session.config.pluginmanager.register(calls)
                    calls.start()
                for item, after in zip(items, [*items[1:], None], strict=True):
                    item.config.hook.pytest_runtest_protocol(item=item, nextitem=after)
                    if session.testsfailed:
                        os.write(tell_, item.nodeid.encode())
                        os._exit(1)
                if mutant is None:
                    report.write_text(json.dumps(calls.names()))
            finally:  # an error here is the mutant's as well
                os._exit(int(sys.exc_info()[0] is not None))
        os.close(tell_)
        status = _ended(child)
        failed = os.read(told, 4096).decode()
        os.close(told)
        if mutant is None and not failed and not status:
            for name, called in json.loads(report.read_text()).items():
                for file, line in called:
                    self._callers.setdefault((file, line), set()).add(name)
            report.unlink()
        return failed or ("a test that does not end" if status else "")


def tell(mutant: Mutant, noticed: str | None) -> None:
    """Print what became of a mutant, beside the output of the tests."""
    by = f" by {noticed}" if noticed else ""
    line = f"noticed  {mutant}{by}" if noticed is not None else f"SURVIVED {mutant}"
    print(line, file=sys.__stderr__, flush=True)


def _ended(child: int) -> int:
    """Return the status of a child; a mutant that never ends is noticed, and ended."""
    end = os.pidfd_open(child)
    try:
        if not select.select([end], [], [], TIMEOUT)[0]:
            os.killpg(child, signal.SIGKILL)
    finally:
        os.close(end)
    return os.waitpid(child, 0)[1]


def changed_functions(mutant: Mutant) -> list[tuple[FunctionType, CodeType]]:
    """Return the functions that a mutant changes, with their new code; none if it is elsewhere.

    What is inside a function (a lambda, a comprehension, a class) is made anew by its code.
    """
    path = str(HERE / mutant.path)
    text = mutant.applied((HERE / mutant.path).read_text(encoding="utf-8"))
    wanted = _outermost(compile(text, path, "exec"), mutant.line)
    if wanted is None:
        return []
    found = [
        (each, wanted)
        for each in gc.get_objects()
        if isinstance(each, FunctionType)
        and each.__code__.co_filename == path
        and each.__code__.co_firstlineno == wanted.co_firstlineno
        and each.__code__.co_qualname == wanted.co_qualname
    ]
    return [] if any(each.__code__ == code for each, code in found) else found


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


def tests_of(path: Path, tests: list[str]) -> list[str]:
    """Return the test files that import a module, or are named after it."""
    name = path.stem
    imports = (f".{name} import", f"import {name}", f", {name}")
    found = []
    for each in map(Path, tests):
        files = (
            sorted((HERE / each).rglob("test_*.py")) if (HERE / each).is_dir() else [HERE / each]
        )
        found += [
            str(file.relative_to(HERE))
            for file in files
            if name in file.stem or any(text in file.read_text("utf-8") for text in imports)
        ]
    return found


def _fail(tests: list[str], source: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-m", "not conformance", *tests]
    command += ["-p", "no:cacheprovider", "--timeout", "120"]
    try:
        done = subprocess.run(
            command,
            cwd=HERE,
            env=os.environ | {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=TIMEOUT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return True
    return done.returncode != 0


def main() -> None:
    """Make mutants and say which survive."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("packages", nargs="*", choices=[*PACKAGES, []], default=[])
    parser.add_argument("--count", type=int, default=30, help="mutants of each package")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first one to try")
    parser.add_argument("--at", action="append", help="FILE:LINE; only mutants of these lines")
    parser.add_argument("--tests", action="append", help="a directory instead of the package's")
    options = parser.parse_args()
    noticed = total = 0
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
        runs = ForkedRuns(chosen, tests)
        quiet = ["-p", "no:terminal", "-p", "no:cacheprovider", "--timeout", "120"]
        quiet += ["-o", "addopts=--import-mode=importlib", "-m", "not conformance"]
        pytest.main([*quiet, f"--rootdir={HERE}", *(str(HERE / test) for test in tests)], [runs])
        for mutant in chosen:
            if mutant not in runs.noticed:
                runs.noticed[mutant] = is_noticed(mutant, tests)
                tell(mutant, "" if runs.noticed[mutant] else None)
        caught = sum(runs.noticed.values())
        print(f"{name}: {caught} of {len(chosen)} noticed", flush=True)
        noticed, total = noticed + caught, total + len(chosen)
    print(f"{noticed} of {total} noticed ({noticed / max(total, 1):.0%})")


if __name__ == "__main__":
    main()
