"""Checks of literals: mixed lists and maps, impossible formats.

Kubernetes forbids literals whose elements differ in type, except in arguments of `format`.
Source: cel-go's validators of homogeneous aggregates and of `string.format`.
"""

from collections.abc import Iterable, Iterator

from dralab.cel.errors import CelError, Issue
from dralab.cel.functions.formatting import verbs, wrong
from dralab.cel.syntax import (
    Call,
    Comprehension,
    Expr,
    ListNode,
    Literal,
    MapNode,
    Select,
)
from dralab.cel.types import CelType, is_optional, shown

EXEMPT = "format"
INTEGERS = frozenset({"int", "uint", "dyn", "error", "param"})
TAKES = {
    "d": INTEGERS,
    "o": INTEGERS,
    "b": INTEGERS | {"bool"},
    "x": INTEGERS | {"string", "bytes"},
    "X": INTEGERS | {"string", "bytes"},
    # A double may also come as the text "NaN" or "Infinity".
    "f": INTEGERS | {"double", "string"},
    "e": INTEGERS | {"double", "string"},
    "s": INTEGERS
    | {"string", "bool", "bytes", "double", "map", "list", "type", "duration", "timestamp", "null"},
}


def mixed_literals(nodes: Iterable[Expr]) -> list[Issue]:
    """Return a problem for the first element of each literal that differs from those before."""
    nodes = list(nodes)
    exempt: set[int] = set()
    for call in nodes:
        if isinstance(call, Call) and call.function == EXEMPT:
            _within(call, exempt)
    return [problem for node in nodes if id(node) not in exempt for problem in _mixed(node)]


def impossible_formats(nodes: Iterable[Expr]) -> list[Issue]:
    """Return the errors of calls of `format` on literals."""
    return [
        problem
        for node in nodes
        if isinstance(node, Call) and node.function == "format"
        for problem in _impossible(node)
    ]


def _impossible(call: Call) -> Iterator[Issue]:
    text = call.target
    if not isinstance(text, Literal) or not isinstance(text.value, str):
        return
    try:
        found = verbs(text.value)
    except CelError as error:
        yield Issue(error.message, call.offset)
        return
    arguments = call.args[0]
    if not isinstance(arguments, ListNode) or arguments.optional:
        return
    for position, verb in enumerate(found):
        if position >= len(arguments.elements):
            yield Issue(f"index {position} out of range", call.offset)
            return
        argument = arguments.elements[position]
        if argument.type.kind not in TAKES[verb]:
            yield Issue(wrong(verb, str(argument.type)).message, argument.offset)
            return
    given = len(arguments.elements)
    if given > len(found):
        yield Issue(
            f"too many arguments supplied to string.format (expected {len(found)}, got {given})",
            call.offset,
        )


def _within(node: Expr, found: set[int]) -> None:
    waiting = [node]
    while waiting:
        inner = waiting.pop()
        if id(inner) not in found:
            found.add(id(inner))
            waiting.extend(children(inner))


def children(node: Expr) -> list[Expr]:
    """Return the children of an expression."""
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*node.args, *([node.target] if node.target is not None else [])]
        case ListNode():
            return list(node.elements)
        case MapNode():
            return [part for entry in node.entries for part in (entry.key, entry.value)]
        case Comprehension():
            return [node.range, node.init, node.condition, node.step, node.result]
        case _:
            return []


def _mixed(node: Expr) -> Iterator[Issue]:
    if isinstance(node, ListNode):
        pairs = [
            (element, _inner(element.type) if position in node.optional else element.type)
            for position, element in enumerate(node.elements)
        ]
        yield from _first_mismatch(pairs)
    elif isinstance(node, MapNode):
        yield from _first_mismatch([(entry.key, entry.key.type) for entry in node.entries])
        yield from _first_mismatch(
            [
                (entry.value, _inner(entry.value.type) if entry.optional else entry.value.type)
                for entry in node.entries
            ]
        )


def _inner(type_: CelType) -> CelType:
    return type_.params[0] if is_optional(type_) else type_


def _first_mismatch(pairs: list[tuple[Expr, CelType]]) -> Iterator[Issue]:
    for node, type_ in pairs[1:]:
        if type_ != pairs[0][1]:
            message = f"expected type '{shown(pairs[0][1])}' but found '{shown(type_)}'"
            yield Issue(message, node.offset)
            return
