"""Generated code of calls and selections: shorter where static types allow it.

Static types are trusted where the checker is sure; a value that is not what it should be raises,
and the exact evaluation decides.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dralab.cel import regex
from dralab.cel.errors import CelError, no_such_overload
from dralab.cel.evaluation import elements as rounds
from dralab.cel.functions.arithmetic import checked_int, logical_not
from dralab.cel.generated_code import Code, GeneratedNames
from dralab.cel.library import FUNCTIONS
from dralab.cel.syntax import Call, Expr, ListNode, Literal, Select
from dralab.cel.types import BOOL, INT, NUMBERS, QUANTITY, SEMVER, STRING
from dralab.cel.values import (
    MAPS,
    NOTHING,
    DefaultMap,
    Map,
    Optional,
    contains,
    field,
    has_field,
    key_of,
    keys,
    new_map,
    not_iterable,
    optional_field,
)

# What the generated code calls, besides FUNCTIONS.
RUNTIME: Final[dict[str, Any]] = {}


def runtime(function: Callable[..., Any]) -> Callable[..., Any]:
    """Make a function known to generated code under its own name."""
    RUNTIME[function.__name__] = function
    return function


@runtime
def boolean(value: Any) -> bool:
    """Return a value that must be a bool."""
    if value is True or value is False:
        return value
    raise no_such_overload()


@runtime
def holder(value: Any) -> Optional:
    """Return a value that must be optional."""
    if type(value) is not Optional:
        raise no_such_overload()
    return value


@runtime
def present(value: Any) -> tuple[Any, ...]:
    """Return the value inside an optional one, or nothing."""
    return (value.value,) if holder(value).present else ()


@runtime
def field_or(operand: Any, name: str, otherwise: Any) -> Any:
    """Return `operand.?name.orValue(otherwise)`."""
    if type(operand) is Map:
        return operand.get(name, otherwise)
    found = optional_field(operand, name)
    return found.value if found.present else otherwise


@runtime
def elements(value: Any) -> Any:
    """Return what a loop over a value goes through."""
    if type(value) is list:
        return value
    if type(value) in MAPS:
        return keys(value)
    raise not_iterable(value)


@runtime
def pairs(value: Any) -> Any:
    """Return what a loop with two variables goes through."""
    return rounds(value, two=True)


@runtime
def enter(entries: dict[Any, Any], key: Any, *value: Any) -> None:
    """Add one entry to a map under construction, or those of a map."""
    added: Any = [(key, value[0])] if value else FUNCTIONS["cel.@mapInsert"](Map(), key).items()
    for name, element in added:
        place = key_of(name) if value else name
        if place in entries:
            raise CelError("insert failed: the key already exists")
        entries[place] = element


@runtime
def built_map(given: tuple[tuple[Any, Any, bool], ...]) -> Map:
    """Return a map literal: key, value, and whether the value is optional."""
    entries: dict[Any, Any] = {}
    for key, value, optional in given:
        place = key_of(key)
        if place in entries:
            raise CelError("Failed with repeated key")
        if optional:
            if holder(value).present:
                entries[place] = value.value
        else:
            entries[place] = value
    return new_map(entries)


@runtime
def item(values: list[Any], position: int) -> Any:
    """Return an element of a list at an int."""
    if 0 <= position < len(values):
        return values[position]
    raise CelError(f"index out of bounds: {position}")


for _function in (checked_int, logical_not, field, has_field, new_map, contains):
    runtime(_function)
RUNTIME["Optional"] = Optional
RUNTIME["NOTHING"] = NOTHING
RUNTIME["DefaultMap"] = DefaultMap
RUNTIME["type"] = type
RUNTIME["len"] = len

COMPARISONS: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
ARITHMETIC: Final = {"_+_": "+", "_-_": "-", "_*_": "*"}
# Types whose values Python compares as CEL does, whatever the other side is.
ORDERED: Final = NUMBERS | {"string", "bytes"}
COMPARABLE: Final = frozenset({"string", "bytes", "null"})
FIXED_STRUCTS: Final = frozenset({QUANTITY, SEMVER})


class SpecialisedCode:
    """The code of selections and calls."""

    @staticmethod
    def select(node: Select, operand: Code, names: GeneratedNames) -> Code:
        """Return the code of `operand.name` or of `has(operand.name)`."""
        kind = node.operand.type.kind
        name = repr(node.name)
        if node.test:
            if kind == "map":
                held = names.new("t")
                return Code.expression(
                    f"({name} in ({held} := {operand.value}) or type({held}) is DefaultMap)",
                    operand,
                )
            return Code.expression(f"has_field({operand.value}, {name})", operand)
        if kind in {"map", "struct"}:
            return Code.expression(f"{operand.value}[{name}]", operand)
        return Code.expression(f"field({operand.value}, {name})", operand)

    @staticmethod
    def optional_key(node: Call) -> tuple[Expr, str] | None:
        """Return the operand and the name of `operand.?name.orValue(…)`."""
        target = node.target
        if node.function != "orValue" or not isinstance(target, Call):
            return None
        if target.function not in {"_?._", "_[?_]"} or target.args[0].type.kind != "map":
            return None
        key = target.args[1]
        if isinstance(key, Literal) and type(key.value) is str:
            return target.args[0], key.value
        return None

    @staticmethod
    def quantities(node: Call) -> tuple[Expr, Expr, str] | None:
        """Return both sides and the sign of `quantity.compareTo(other) >= 0`."""
        if node.function not in COMPARISONS:
            return None
        left, right = node.args
        if (
            isinstance(left, Call)
            and left.function == "compareTo"
            and left.target is not None
            and left.target.type == left.args[0].type == QUANTITY
            and isinstance(right, Literal)
            and type(right.value) is int
            and right.value == 0
        ):
            return left.target, left.args[0], COMPARISONS[node.function]
        return None

    @staticmethod
    def call(node: Call, operands: Sequence[Code], names: GeneratedNames) -> Code:
        """Return the code of a call, the receiver being the first operand."""
        nodes = node.args if node.target is None else [node.target, *node.args]
        rule = RULES.get(node.function)
        value = rule(nodes, [operand.value for operand in operands], names) if rule else None
        if value is None:
            value = _plain(node.function, [operand.value for operand in operands], names)
        return Code.expression(value, *operands)


def _plain(function: str, values: Sequence[str], names: GeneratedNames) -> str:
    return f"{names.function(function, FUNCTIONS[function])}({', '.join(values)})"


Rule = Callable[[Sequence[Expr], Sequence[str], GeneratedNames], str | None]


def _equality(sign: str) -> Rule:
    def rule(nodes: Sequence[Expr], values: Sequence[str], _names: GeneratedNames) -> str | None:
        left, right = nodes[0].type, nodes[1].type
        direct = (
            left.kind in COMPARABLE
            or right.kind in COMPARABLE
            or (left.kind in NUMBERS and left == right)
            or (left == right and (left == BOOL or left in FIXED_STRUCTS))
        )
        return f"({values[0]} {sign} {values[1]})" if direct else None

    return rule


def _comparison(function: str) -> Rule:
    sign = COMPARISONS[function]

    def rule(nodes: Sequence[Expr], values: Sequence[str], names: GeneratedNames) -> str | None:
        left, right = nodes
        if left.type == right.type and left.type.kind in ORDERED:
            return f"({values[0]} {sign} {values[1]})"
        if isinstance(right, Literal) and right.type == INT and left.type.kind == "dyn":
            # The literal is written twice; anything longer could double at every level.
            held = names.new("t")
            plain = _plain(function, (held, values[1]), names)
            return (
                f"(({held} {sign} {values[1]}) if type({held} := {values[0]}) is int else {plain})"
            )
        return None

    return rule


def _compare_to(nodes: Sequence[Expr], values: Sequence[str], _names: GeneratedNames) -> str | None:
    if nodes[0].type == nodes[1].type == QUANTITY:
        return f"compared({values[0]}.number, {values[1]}.number)"
    return None


@runtime
def compared(left: Any, right: Any) -> int:
    """Return -1, 0 or 1."""
    return int(left > right) - int(left < right)


def _quantity_order(sign: str) -> Rule:
    def rule(nodes: Sequence[Expr], values: Sequence[str], _names: GeneratedNames) -> str | None:
        if nodes[0].type == nodes[1].type == QUANTITY:
            return f"({values[0]}.number {sign} {values[1]}.number)"
        return None

    return rule


def _arithmetic(sign: str) -> Rule:
    def rule(nodes: Sequence[Expr], values: Sequence[str], _names: GeneratedNames) -> str | None:
        if nodes[0].type == nodes[1].type == INT:
            return f"checked_int({values[0]} {sign} {values[1]})"
        return None

    return rule


def _not(nodes: Sequence[Expr], values: Sequence[str], _names: GeneratedNames) -> str | None:
    return f"(not {values[0]})" if nodes[0].type == BOOL else None


def _size(nodes: Sequence[Expr], values: Sequence[str], _names: GeneratedNames) -> str | None:
    return f"len({values[0]})" if nodes[0].type.kind in {"string", "list", "map"} else None


def _index(nodes: Sequence[Expr], values: Sequence[str], _names: GeneratedNames) -> str | None:
    operand, key = nodes
    if operand.type.kind == "map" and key.type == STRING:
        return f"{values[0]}[{values[1]}]"
    if operand.type.kind == "list" and key.type == INT:
        return f"item({values[0]}, {values[1]})"
    return None


def _in(nodes: Sequence[Expr], values: Sequence[str], names: GeneratedNames) -> str | None:
    element, collection = nodes
    if isinstance(collection, ListNode) and not collection.optional:
        texts = [
            inner.value
            for inner in collection.elements
            if isinstance(inner, Literal) and type(inner.value) is str
        ]
        if len(texts) == len(collection.elements) and texts:
            return f"({values[0]} in {names.constant(frozenset(texts)).value})"
    if collection.type.kind == "map" and element.type == STRING:
        return f"({values[0]} in {values[1]})"
    return None


def _matches(nodes: Sequence[Expr], values: Sequence[str], names: GeneratedNames) -> str | None:
    pattern = nodes[1]
    if not isinstance(pattern, Literal) or not isinstance(pattern.value, str):
        return None
    try:
        compiled = regex.compiled(pattern.value)
    except CelError:
        return None
    return f"{names.constant(compiled.occurs).value}({values[0]})"


def _affix(method: str) -> Rule:
    def rule(nodes: Sequence[Expr], values: Sequence[str], _names: GeneratedNames) -> str | None:
        if nodes[0].type == nodes[1].type == STRING:
            return f"{values[0]}.{method}({values[1]})"
        return None

    return rule


def _contains(nodes: Sequence[Expr], values: Sequence[str], _names: GeneratedNames) -> str | None:
    if nodes[0].type == nodes[1].type == STRING:
        return f"({values[1]} in {values[0]})"
    return None


RULES: Final[Mapping[str, Rule]] = {
    "_==_": _equality("=="),
    "_!=_": _equality("!="),
    **{function: _comparison(function) for function in COMPARISONS},
    **{function: _arithmetic(sign) for function, sign in ARITHMETIC.items()},
    "compareTo": _compare_to,
    "isGreaterThan": _quantity_order(">"),
    "isLessThan": _quantity_order("<"),
    "!_": _not,
    "size": _size,
    "_[_]": _index,
    "@in": _in,
    "matches": _matches,
    "startsWith": _affix("startswith"),
    "endsWith": _affix("endswith"),
    "contains": _contains,
}
