"""The top-level `&&` parts of an expression, and the comparisons among them.

For those who say which part of an expression is not met, and where it stands. A part that is not
a comparison of one path with literals has no comparison: it can still be evaluated by itself.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dralab.cel.environment import Environment
from dralab.cel.errors import CompileError
from dralab.cel.lexer import LexicalError, LexicalToken, tokens
from dralab.cel.parser import parse
from dralab.cel.syntax import Call, Expr, Ident, ListNode, Literal, Select
from dralab.values.records import dataclass

Path = tuple[str, ...]
FLIPPED: Final = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "==": "==", "!=": "!="}
OPERATORS: Final = {f"_{sign}_": sign for sign in FLIPPED}
ORDERED: Final = {"isGreaterThan": ">", "isLessThan": "<"}
TEXTUAL: Final = frozenset({"startsWith", "endsWith", "contains", "matches"})
CONSTRUCTORS: Final = frozenset({"quantity", "semver"})
DEVICE_PATH: Final = 3
"""How many steps lead to one value: `attributes`, domain, name."""
OWN_DOMAIN: Final = "@driver"
"""The step of a path for the index `device.driver`: the domain of the device's own driver."""
OPENING: Final = frozenset("([{")
CLOSING: Final = frozenset(")]}")


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of an expression: from code point `start` up to `end`."""

    start: int
    end: int

    def of(self, text: str) -> str:
        """Return the piece."""
        return text[self.start : self.end]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A path compared with literals.

    `operator` is `==`, `!=`, `<`, `<=`, `>`, `>=`, `in` (one of several values), `includes`,
    `has` (the path is there), or `startsWith`, `endsWith`, `contains`, `matches`. `constructor` is
    "quantity" or "semver" where the literals are texts of those, else "". `span` is where the
    values stand; `names` is where each step of the path stands, None where it cannot be told.
    """

    path: Path
    operator: str
    values: tuple[Any, ...] = ()
    constructor: str = ""
    span: Span | None = None
    names: tuple[Span | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Conjunct:
    """One part of an expression that has to be true; `span` is the place of `text`."""

    text: str
    span: Span
    comparison: Comparison | None = None


def conjuncts(expression: str, environment: Environment) -> tuple[Conjunct, ...]:
    r"""Return the parts of an expression; one part if it cannot be split.

    >>> from dralab.cel.device import environment
    >>> text = 'device.driver == "a" && (device.attributes["a"].kind == "x" || false)'
    >>> [part.text for part in conjuncts(text, environment())]
    ['device.driver == "a"', 'device.attributes["a"].kind == "x" || false']
    """
    try:
        found = tokens(expression, [])
    except LexicalError:
        return (Conjunct(text=expression, span=Span(0, len(expression))),)
    pieces = list(_split(expression, found[:-1]))
    return tuple(_conjunct(expression, piece, environment) for piece in pieces)


def _split(text: str, found: Sequence[LexicalToken]) -> Iterator[Sequence[LexicalToken]]:
    """Yield the tokens of each part, brackets around a part taken off."""
    found = _unwrapped(found)
    depth = 0
    cuts: list[int] = []
    for number, token in enumerate(found):
        if token.kind != "sign":
            continue
        if token.text in OPENING:
            depth += 1
        elif token.text in CLOSING:
            depth -= 1
        elif depth == 0 and token.text in {"||", "?"}:
            cuts = []
            break
        elif depth == 0 and token.text == "&&":
            cuts.append(number)
    if not cuts:
        yield found
        return
    start = 0
    for cut in [*cuts, len(found)]:
        yield from _split(text, found[start:cut])
        start = cut + 1


def _unwrapped(found: Sequence[LexicalToken]) -> Sequence[LexicalToken]:
    while len(found) > 2 and found[0].text == "(" and found[0].kind == "sign":
        depth = 0
        for token in found[:-1]:
            if token.kind == "sign":
                depth += (token.text in OPENING) - (token.text in CLOSING)
            if depth == 0:
                return found
        found = found[1:-1]
    return found


def _conjunct(expression: str, piece: Sequence[LexicalToken], environment: Environment) -> Conjunct:
    if not piece:
        return Conjunct(text=expression, span=Span(0, len(expression)))
    span = Span(piece[0].offset, _end(expression, piece[-1]))
    text = span.of(expression)
    try:
        tree = parse(text, macros=environment.macros, quoted_names=environment.quoted_names)
    except CompileError:
        return Conjunct(text=text, span=span)
    comparison = _ConjunctReader(expression, piece, span.start).comparison(tree)
    return Conjunct(text=text, span=span, comparison=comparison)


def _end(expression: str, token: LexicalToken) -> int:
    # A quoted name's text lacks its quotes.
    size = len(token.text) + 2 * (token.kind == "quoted")
    return min(token.offset + size, len(expression))


class _ConjunctReader:
    """Recognises one part; `shift` is where it stands in the expression."""

    def __init__(self, expression: str, piece: Sequence[LexicalToken], shift: int) -> None:
        self.expression = expression
        self.piece = piece
        self.shift = shift

    def comparison(self, tree: Expr) -> Comparison | None:
        """Return the comparison that a part is, None if it is something else."""
        if path := self.path(tree):
            return self.made(path, "has" if _is_test(tree) else "==", (True,), None)
        if not isinstance(tree, Call):
            return None
        if tree.function == "!_" and (path := self.path(tree.args[0])):
            return None if _is_test(tree.args[0]) else self.made(path, "==", (False,), None)
        if tree.function in OPERATORS:
            return self.ordered(OPERATORS[tree.function], *tree.args)
        if tree.function == "@in":
            return self.membership(*tree.args)
        if tree.target is not None and len(tree.args) == 1:
            return self.method(tree.function, tree.target, tree.args[0])
        return None

    def ordered(self, sign: str, left: Expr, right: Expr) -> Comparison | None:
        """Read `path SIGN literal`, the other way round, and `path.compareTo(literal) SIGN 0`."""
        if not self.path(left) and self.path(right):
            left, right, sign = right, left, FLIPPED[sign]
        if (
            isinstance(left, Call)
            and left.function == "compareTo"
            and left.target is not None
            and len(left.args) == 1
            and isinstance(right, Literal)
            and right.value == 0
        ):
            target, (argument,) = left.target, left.args
            path, literal = self.path(target), _constant(argument)
            return self.made(path, sign, literal[1:], literal[0]) if path and literal else None
        path, literal = self.path(left), _constant(right)
        return self.made(path, sign, literal[1:], literal[0]) if path and literal else None

    def membership(self, left: Expr, right: Expr) -> Comparison | None:
        """Read `path in [literals]` and `"name" in map`."""
        if (path := self.path(left)) and isinstance(right, ListNode):
            literals = [_constant(element) for element in right.elements]
            if literals and all(literals):
                values = tuple(each[1] for each in literals if each)
                first, last = right.elements[0], right.elements[-1]
                span = self.between(first, last)
                return Comparison(
                    path=path, operator="in", values=values, span=span, names=self.names(path)
                )
        if (path := self.path(right)) and isinstance(left, Literal) and isinstance(left.value, str):
            if len(path) > DEVICE_PATH - 1:
                return self.made(path, "includes", (left.value,), left)
            return self.made((*path, left.value), "has", (True,), left)
        return None

    def method(self, name: str, target: Expr, argument: Expr) -> Comparison | None:
        """Read `path.isGreaterThan(literal)`, `path.startsWith(literal)` and the like."""
        path, literal = self.path(target), _constant(argument)
        if not path or not literal:
            return None
        if name in ORDERED:
            return self.made(path, ORDERED[name], literal[1:], literal[0])
        if name in TEXTUAL or name == "includes":
            return self.made(path, name, literal[1:], literal[0])
        return None

    def made(
        self, path: Path, operator: str, values: tuple[Any, ...], literal: Expr | None
    ) -> Comparison:
        """Return a comparison with the places of its names and its literal."""
        constructor = ""
        if isinstance(literal, Call):
            constructor = literal.function
        span = self.spanned(literal) if literal is not None else None
        return Comparison(
            path=path, operator=operator, values=values, constructor=constructor, span=span,
            names=self.names(path),
        )  # fmt: skip

    def path(self, tree: Expr) -> Path:
        """Return a tree's chain of selections and constant indexes; empty if it is not one."""
        steps: list[str] = []
        while True:
            match tree:
                case Select():
                    steps.append(tree.name)
                    tree = tree.operand
                case Call(
                    function="_[_]" | "_[?_]" | "_?._", args=[operand, Literal(value=str(key))]
                ):
                    steps.append(key)
                    tree = operand
                case Call(function="_[_]" | "_[?_]", args=[operand, Select(name="driver")]):
                    steps.append(OWN_DOMAIN)
                    tree = operand
                case Call(function="orValue" | "value", target=Call() as operand):
                    tree = operand
                case Ident(name="device" | "attributes") if steps:
                    return tuple(reversed(steps))
                case _:
                    return ()

    def names(self, path: Path) -> tuple[Span | None, ...]:
        """Return the position of each step of a path, searched one after the other."""
        found: list[Span | None] = []
        after = 0
        for step in path:
            places = [number for number, each in enumerate(self.piece) if _is_name(each, step)]
            at = next((number for number in places if number >= after), None)
            at = places[0] if at is None and places else at
            if at is None:
                found.append(None)
                continue
            after = at + 1
            token = self.piece[at]
            found.append(Span(token.offset, _end(self.expression, token)))
        return tuple(found)

    def between(self, first: Expr, last: Expr) -> Span | None:
        """Return the place from one literal to another."""
        start, end = self.spanned(first), self.spanned(last)
        return Span(start.start, end.end) if start and end else None

    def spanned(self, literal: Expr) -> Span | None:
        """Return where a literal stands, with the `quantity(…)` around it."""
        inner: Expr = literal.args[0] if isinstance(literal, Call) else literal
        offset = inner.offset + self.shift
        at = next((n for n, each in enumerate(self.piece) if each.offset == offset), None)
        if at is None:
            return None
        first = last = at
        if self.piece[at].kind == "sign" and self.piece[at].text == "-":
            last = min(at + 1, len(self.piece) - 1)
        elif at and self.piece[at - 1].text == "-" and isinstance(inner.value, int):  # type: ignore[attr-defined]  # a Literal
            first = at - 1
        if isinstance(literal, Call):
            first, last = first - 2, last + 1
            if first < 0 or last >= len(self.piece):
                return None
        return Span(self.piece[first].offset, _end(self.expression, self.piece[last]))


def _is_name(token: LexicalToken, step: str) -> bool:
    if token.kind == "literal":
        return isinstance(token.value, str) and token.value == step
    return token.kind in {"name", "quoted"} and token.text == step


def _is_test(tree: Expr) -> bool:
    return isinstance(tree, Select) and tree.test


def _constant(tree: Expr) -> tuple[Any, ...]:
    """Return a tree's literal and value; empty if it is not a literal."""
    if isinstance(tree, Literal):
        return tree, tree.value
    if (
        isinstance(tree, Call)
        and tree.function in CONSTRUCTORS
        and len(tree.args) >= 1
        and isinstance(tree.args[0], Literal)
    ):
        return tree, tree.args[0].value
    return ()
