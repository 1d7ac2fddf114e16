"""The syntax tree: what the parser makes, the checker annotates and the other passes read.

Macros are already expanded: a comprehension is one loop over a range with an accumulator, as in
the CEL specification. `macro` remembers which macro it was, for those who know a shorter way.
"""

from dataclasses import field
from typing import Any

from dralab.cel.types import DYN, CelType, Overload
from dralab.values.records import dataclass

ACCUMULATOR = "@result"
UNUSED = "#unused"


@dataclass(slots=True, eq=False, kw_only=True)
class Expr:
    """An expression; `offset` is where its operator or first character stands.

    `type` is the static type, set by the checker.
    """

    offset: int = 0
    type: CelType = DYN


@dataclass(slots=True, eq=False)
class Literal(Expr):
    """A constant."""

    value: Any


@dataclass(slots=True, eq=False)
class Ident(Expr):
    """A variable; `constant` is set where the name stands for a type."""

    name: str
    constant: Any = None


@dataclass(slots=True, eq=False)
class Select(Expr):
    """`operand.name`, or `has(operand.name)` where `test` is set."""

    operand: Expr
    name: str
    test: bool = False


@dataclass(slots=True, eq=False)
class Call(Expr):
    """A function or an operator such as `_+_`; `_&&_` and `_||_` take two or more arguments.

    `overloads` are those which the checker could not rule out. `macro` is "optMap" or
    "optFlatMap" where the call is such an expansion.
    """

    function: str
    args: list[Expr]
    target: Expr | None = None
    overloads: tuple[Overload, ...] = ()
    macro: str = ""


@dataclass(slots=True, eq=False)
class ListNode(Expr):
    """A list literal; `optional` holds the indices of elements written `?element`."""

    elements: list[Expr]
    optional: frozenset[int] = frozenset()


@dataclass(slots=True, eq=False)
class MapEntry:
    """One entry of a map literal."""

    key: Expr
    value: Expr
    optional: bool = False


@dataclass(slots=True, eq=False)
class MapNode(Expr):
    """A map literal."""

    entries: list[MapEntry]


@dataclass(slots=True, eq=False)
class Struct(Expr):
    """A message construction: `JSONPatch{op: "add"}`; only admission policies know any."""

    name: str
    fields: list[tuple[str, Expr]] = field(default_factory=list)
    optional: frozenset[str] = frozenset()  # names of fields written `?name: value`


@dataclass(slots=True, eq=False)
class Comprehension(Expr):
    """A loop: `accu = init; for var in range: if not condition: break; accu = step` → `result`.

    `var2` is empty unless the macro has two variables. `cel.bind` is a comprehension without
    a range, whose accumulator is the bound variable.
    """

    macro: str
    range: Expr
    var: str
    var2: str
    accu: str
    init: Expr
    condition: Expr
    step: Expr
    result: Expr
