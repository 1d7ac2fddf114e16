"""Break the product in many small ways, and count how many of them the tests notice.

    python tools/mutants.py --count 20 storage scheduler

Each mutant changes one operator, constant or condition in a copy of the sources and runs the tests
of its package, those that import the changed module first. A mutant that no test notices survives,
and its line is printed: either a test is missing or the code does nothing. The same seed makes the
same mutants.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent.parent
TIMEOUT = 600  # seconds of tests; a mutant that never ends is noticed
PACKAGES = {
    "storage": ("apiserver/storage", ["tests/apiserver/storage"]),
    "resources": (
        "apiserver/resources",
        ["tests/apiserver/resources", "tests/apiserver/test_verbs.py", "tests/apiserver/http"],
    ),
    "watching": ("apiserver/watching", ["tests/apiserver/watching", "tests/apiserver/http"]),
    "allocation": ("allocation", ["tests/allocation"]),
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
    """Return whether the tests fail with a mutant."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "src"
        shutil.copytree(HERE / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        changed = Path(folder) / mutant.path
        changed.write_text(mutant.applied(changed.read_text(encoding="utf-8")), encoding="utf-8")
        nearest = tests_of(mutant.path, tests)
        return (bool(nearest) and _fail(nearest, source)) or _fail(tests, source)


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
    options = parser.parse_args()
    noticed = total = 0
    for name in options.packages or PACKAGES:
        folder, tests = PACKAGES[name]
        files = [
            file
            for file in sorted((HERE / "src" / "dralab" / folder).rglob("*.py"))
            if "_generated" not in file.parts
        ]
        every = [one for file in files for one in mutants_of(file.relative_to(HERE))]
        chance = random.Random(options.seed)  # noqa: S311 - a choice of lines
        chosen = chance.sample(every, min(options.count, len(every)))
        caught = 0
        for mutant in chosen:
            found = is_noticed(mutant, tests)
            caught += found
            print("noticed " if found else "SURVIVED", mutant, flush=True)
        print(f"{name}: {caught} of {len(chosen)} noticed", flush=True)
        noticed, total = noticed + caught, total + len(chosen)
    print(f"{noticed} of {total} noticed ({noticed / max(total, 1):.0%})")


if __name__ == "__main__":
    main()
