"""The small changes that `mutants.py` makes: which there are in a file, and where they matter."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent.parent
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
    skipped = {id(part) for node in ast.walk(tree) for part in _unseen(node)}
    skipped |= {
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


def _unseen(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what a node holds that no test could see, or that was chosen from many as good.

    Named constants at the top of a module are skipped for the second reason as well.
    """
    match node:
        # What a dataclass is made of changes its speed, and so does the size of a cache.
        case (
            ast.ClassDef(decorator_list=[_, *_] as decorators)
            | ast.FunctionDef(decorator_list=[_, *_] as decorators)
        ):
            for decorator in decorators:
                yield from ast.walk(decorator)
        # The body of a protocol is not run.
        case ast.ClassDef(bases=[ast.Name(id="Protocol"), *_]):
            yield from ast.walk(node)
        case ast.ClassDef(bases=[ast.Subscript(value=ast.Name(id="Protocol")), *_]):
            yield from ast.walk(node)
        # An assertion, like `strict=True`, says what is always so.
        case ast.Assert():
            yield from ast.walk(node)
        # Threads of a test end with its process; a timeout is one of many.
        case ast.keyword(arg="strict" | "daemon" | "timeout" | "repr", value=ast.Constant()):
            yield from ast.walk(node)
        # People look at these, in a debugger.
        case ast.FunctionDef(name="__repr__"):
            yield from ast.walk(node)
        # 64 * 1024 is a size.
        case ast.BinOp(left=ast.Constant(), right=ast.Constant()):
            yield from ast.walk(node)
        case ast.BinOp(
            left=ast.BinOp(left=ast.Constant(), right=ast.Constant()), right=ast.Constant()
        ):
            yield from ast.walk(node)
        # What goes to the log is for people.
        case ast.Call(func=ast.Attribute(value=ast.Name(id="logger"))):
            yield from ast.walk(node)
        case _:
            pass


def lines_of(text: str, line: int) -> range:
    """Return the lines of the statement at a line; of one that has others inside, of its head.

    A change of a default matters to all of its function, and one outside of functions to the file.
    """
    inner: ast.stmt | None = None
    inside = False
    for node in ast.walk(ast.parse(text)):  # outer ones first
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or 0):
            inside |= isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            inner = node
    if inner is None or not inside:
        return range(1, len(text.splitlines()) + 1)
    body = getattr(inner, "body", None)
    if not body or isinstance(inner, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        return range(inner.lineno, (inner.end_lineno or line) + 1)
    return range(inner.lineno, max(body[0].lineno, inner.lineno + 1))
