"""Macros: calls that the parser replaces by loops, conditionals and presence tests.

Expansions follow cel-go, node for node, because cost units are counted on them.
"""

from typing import Final

from dralab.cel.syntax import (
    ACCUMULATOR,
    UNUSED,
    Call,
    Comprehension,
    Expr,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Select,
    Struct,
)
from dralab.cel.values import Uint

SORT_INPUT: Final = "@__sortBy_input__"

STANDARD: Final = frozenset({"has", "all", "exists", "exists_one", "existsOne", "map", "filter"})
BINDINGS: Final = frozenset({"bind"})
OPTIONAL: Final = frozenset({"optMap", "optFlatMap"})
TWO_VARIABLES: Final = frozenset({"transformList", "transformMap", "transformMapEntry"})
SORTING: Final = frozenset({"sortBy"})
MATHEMATICS: Final = frozenset({"greatest", "least"})
# The macros with which the specification's tests write what an optimizer would.
BLOCKS: Final = frozenset({"block", "index", "iterVar", "accuVar"})
ALL: Final = STANDARD | BINDINGS | OPTIONAL | TWO_VARIABLES | SORTING


class MacroError(Exception):
    """A macro with arguments that it cannot use."""

    def __init__(self, message: str, offset: int) -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset


def expand(name: str, target: Expr | None, args: list[Expr], offset: int) -> Expr | None:
    """Return the expansion of a call, or None if it is not a macro."""
    if target is None:
        return _has(args, offset) if name == "has" and len(args) == 1 else None
    if name == "bind":
        is_namespace = isinstance(target, Ident) and target.name == "cel"
        return _bind(args, offset) if is_namespace and len(args) == 3 else None
    if name in BLOCKS:
        is_namespace = isinstance(target, Ident) and target.name == "cel"
        return _block(name, args, offset) if is_namespace else None
    if name in MATHEMATICS:
        is_namespace = isinstance(target, Ident) and target.name == "math"
        return _extreme(name, args, offset) if is_namespace else None
    if name in OPTIONAL:
        return _optional(name, target, args, offset) if len(args) == 2 else None
    if name == "sortBy":
        return _sort_by(target, args, offset) if len(args) == 2 else None
    if name in TWO_VARIABLES:
        return _transform(name, target, args, offset) if len(args) in {3, 4} else None
    if name in {"map", "filter"}:
        if len(args) == 2 or (name == "map" and len(args) == 3):
            return _map(name, target, args, offset)
        return None
    return _quantified(name, target, args, offset) if len(args) in {2, 3} else None


def _has(args: list[Expr], offset: int) -> Expr:
    operand = args[0]
    if not isinstance(operand, Select) or operand.test:
        raise MacroError("invalid argument to has() macro", operand.offset)
    return Select(operand.operand, operand.name, test=True, offset=offset)


def _variables(args: list[Expr]) -> tuple[str, str]:
    """Return the names of one or two iteration variables."""
    names: list[str] = []
    for argument in args:
        if not isinstance(argument, Ident) or argument.name.startswith("."):
            raise MacroError("argument must be a simple name", argument.offset)
        if argument.name in {ACCUMULATOR, "__result__"}:
            raise MacroError("iteration variable overwrites accumulator variable", argument.offset)
        if argument.name in names:
            raise MacroError(f"duplicate variable name: {argument.name}", argument.offset)
        names.append(argument.name)
    return names[0], names[1] if len(names) > 1 else ""


def _quantified(name: str, target: Expr, args: list[Expr], offset: int) -> Expr:
    var, var2 = _variables(args[:-1])
    predicate = args[-1]
    accu = Ident(ACCUMULATOR, offset=offset)
    init: Expr
    condition: Expr
    step: Expr
    result: Expr = Ident(ACCUMULATOR, offset=offset)
    match name:
        case "all":
            init = Literal(value=True, offset=offset)
            condition = Call("@not_strictly_false", [accu], offset=offset)
            step = Call("_&&_", [Ident(ACCUMULATOR, offset=offset), predicate], offset=offset)
        case "exists":
            init = Literal(value=False, offset=offset)
            condition = Call(
                "@not_strictly_false", [Call("!_", [accu], offset=offset)], offset=offset
            )
            step = Call("_||_", [Ident(ACCUMULATOR, offset=offset), predicate], offset=offset)
        case _:
            init = Literal(0, offset=offset)
            condition = Literal(value=True, offset=offset)
            more = Call("_+_", [accu, Literal(1, offset=offset)], offset=offset)
            step = _when(predicate, more, offset)
            result = Call("_==_", [result, Literal(1, offset=offset)], offset=offset)
            name = "exists_one"
    return Comprehension(
        name, target, var, var2, ACCUMULATOR, init, condition, step, result, offset=offset
    )


def _when(condition: Expr | None, step: Expr, offset: int) -> Expr:
    """Return a step taken only where a condition holds."""
    if condition is None:
        return step
    return Call("_?_:_", [condition, step, Ident(ACCUMULATOR, offset=offset)], offset=offset)


def _loop(  # noqa: PLR0917 - the parts of a loop, in the order of the text
    name: str, target: Expr, names: tuple[str, str], init: Expr, step: Expr, offset: int
) -> Expr:
    """Return a loop over the whole range whose accumulator is the result."""
    return Comprehension(
        name, target, *names, ACCUMULATOR, init, Literal(value=True, offset=offset), step,
        Ident(ACCUMULATOR, offset=offset), offset=offset,
    )  # fmt: skip


def _map(name: str, target: Expr, args: list[Expr], offset: int) -> Expr:
    if not isinstance(args[0], Ident):
        raise MacroError("argument is not an identifier", args[0].offset)
    names = _variables(args[:1])
    condition: Expr | None
    element: Expr
    if name == "filter":
        condition, element = args[1], args[0]
    else:
        condition, element = (args[1], args[2]) if len(args) == 3 else (None, args[1])
    appended = _append(element, offset)
    step = _when(condition, appended, offset)
    return _loop(name, target, names, ListNode([], offset=offset), step, offset)


def _append(element: Expr, offset: int) -> Expr:
    accu = Ident(ACCUMULATOR, offset=offset)
    return Call("_+_", [accu, ListNode([element], offset=offset)], offset=offset)


def _transform(name: str, target: Expr, args: list[Expr], offset: int) -> Expr:
    names = _variables(args[:2])
    condition = args[2] if len(args) == 4 else None
    element = args[-1]
    accu = Ident(ACCUMULATOR, offset=offset)
    init: Expr
    if name == "transformList":
        init, step = ListNode([], offset=offset), _append(element, offset)
    else:
        init = MapNode([], offset=offset)
        entry = [element]
        if name == "transformMap":
            entry.insert(0, Ident(names[0], offset=offset))
        step = Call("cel.@mapInsert", [accu, *entry], offset=offset)
    return _loop(name, target, names, init, _when(condition, step, offset), offset)


def _bind(args: list[Expr], offset: int) -> Expr:
    if not isinstance(args[0], Ident) or args[0].name.startswith("."):
        raise MacroError("cel.bind() variable names must be simple identifiers", args[0].offset)
    return bound(args[0].name, args[1], args[2], offset)


def bound(name: str, init: Expr, body: Expr, offset: int) -> Comprehension:
    """Return `body` with a variable bound to `init`."""
    return Comprehension(
        "bind", ListNode([], offset=offset), UNUSED, "", name, init,
        Literal(value=False, offset=offset), Ident(name, offset=offset), body, offset=offset,
    )  # fmt: skip


def _block(name: str, args: list[Expr], offset: int) -> Expr | None:
    if name == "block" and len(args) == 2 and isinstance(args[0], ListNode):
        body = args[1]
        for number, element in reversed(list(enumerate(args[0].elements))):
            body = bound(f"@index{number}", element, body, offset)
        return body
    numbers = [str(argument.value) for argument in args if isinstance(argument, Literal)]
    prefix = {"index": "@index", "iterVar": "@it:", "accuVar": "@ac:"}.get(name)
    return Ident(prefix + ":".join(numbers), offset=offset) if prefix and numbers else None


def _extreme(name: str, args: list[Expr], offset: int) -> Expr:
    if not args:
        raise MacroError(f"math.{name}() requires at least one argument", offset)
    for argument in args:
        is_number = (
            type(argument.value) in {int, float, Uint}
            if (isinstance(argument, Literal))
            else not isinstance(argument, (MapNode, Struct))
        )
        if not is_number or (len(args) > 1 and isinstance(argument, ListNode)):
            raise MacroError(f"math.{name}() invalid argument", argument.offset)
    if len(args) > 2:
        args = [ListNode(args, offset=offset)]
    return Call(f"math.@{'max' if name == 'greatest' else 'min'}", args, offset=offset)


def _optional(name: str, target: Expr, args: list[Expr], offset: int) -> Expr:
    if not isinstance(args[0], Ident) or args[0].name.startswith("."):
        raise MacroError(f"{name}() variable name must be a simple identifier", args[0].offset)
    # The target stands twice in the tree, as in cel-go; every pass knows to visit it once.
    value = Call("value", [], target, offset=offset)
    inner: Expr = bound(args[0].name, value, args[1], offset)
    if name == "optMap":
        inner = Call("optional.of", [inner], offset=offset)
    return Call(
        "_?_:_",
        [Call("hasValue", [], target, offset=offset), inner, Call("optional.none", [])],
        offset=offset,
        macro=name,
    )


def _sort_by(target: Expr, args: list[Expr], offset: int) -> Expr:
    var, _ = _variables(args[:1])
    keys = _map("map", Ident(SORT_INPUT, offset=offset), [Ident(var), args[1]], offset)
    body = Call("@sortByAssociatedKeys", [keys], Ident(SORT_INPUT, offset=offset), offset=offset)
    return bound(SORT_INPUT, target, body, offset)
