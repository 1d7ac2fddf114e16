"""CEL as k8srm knows it: one variable `device`, a map from attribute name to value.

Quantities and versions compare with text, as the prototype's authors wished: `device.memory >=
'10Gi'`. The comparison is made by the type that the attribute has on the device at hand, so an
expression is compiled once for each combination of types that devices really have.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import field
from functools import lru_cache
from typing import Any, Final

from dralab.allocation.problem import Attribute, Device, DevicePath
from dralab.cel import CelError, CompileError, Environment, Program, kubernetes
from dralab.cel import types as cel_types
from dralab.cel.checker import check as check_tree
from dralab.cel.parser import parse
from dralab.cel.syntax import Call, Comprehension, Expr, Ident, ListNode, Literal, MapNode, Select
from dralab.cel.values import Map, Quantity
from dralab.prototypes.findings import Finding, legacy
from dralab.values.quantity import parse as parse_quantity
from dralab.values.records import dataclass
from dralab.values.version import Version, is_version

READS: Final[frozenset[DevicePath]] = frozenset({("driver",), ("attributes",)})
RELATIONS: Final = frozenset({"_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_"})
MAKERS: Final = {"quantity": "quantity", "version": "semver"}
ORDERS: Final = RELATIONS - {"_==_", "_!=_"}
UNORDERED: Final = "version that is not semantic"
MAX_COST: Final = 1_000_000
ASSIGNMENT: Final = re.compile(r"(?<![=!<>])=(?!=)")


@lru_cache(maxsize=1)
def environment() -> Environment:
    """Return the environment: Kubernetes' own, and `device`."""
    return kubernetes().extended(
        variables={"device": cel_types.map_of(cel_types.STRING, cel_types.DYN)},
        result=(cel_types.BOOL, cel_types.DYN),
        result_words="bool",
    )


@dataclass
class K8srmExpression:
    """One expression; a device for which it fails is skipped."""

    text: str
    failed: Callable[[str, str], object]
    programs: dict[tuple[str, ...], Program | str] = field(default_factory=dict)
    compared: tuple[str, ...] = ()

    @property
    def reads(self) -> frozenset[DevicePath]:
        """The parts of a device that it may read."""
        return READS

    def holds(self, device: Device) -> bool:
        """Return whether it is true for a device; False if it fails, which is recorded."""
        try:
            return self.value(device.attributes)
        except ValueError as error:
            self.failed(self.text, str(error))
            return False

    def value(self, attributes: Mapping[str, Attribute]) -> bool:
        """Return its value for attributes; ValueError if it has none."""
        kinds = tuple(_kind(attributes.get(name)) for name in self.compared)
        program = self.programs.get(kinds)
        if program is None:
            program = self.programs[kinds] = self._compiled(
                dict(zip(self.compared, kinds, strict=True))
            )
        if isinstance(program, str):
            raise ValueError(program)  # noqa: TRY004 - the text of a compile error
        device = Map({name: value_of(item) for name, item in attributes.items()})
        try:
            value, _ = program.value({"device": device}, MAX_COST)
        except CelError as error:
            raise ValueError(error.message) from None
        if not isinstance(value, bool):
            raise ValueError(f"the expression must be bool, not {type(value).__name__}")  # noqa: TRY004
        return value

    def _compiled(self, kinds: Mapping[str, str]) -> Program | str:
        try:
            return compiled(self.text, kinds)
        except CompileError as error:
            return error.detail


class K8srmExpressions:
    """Expressions by text; failures are recorded for explanations."""

    def __init__(self) -> None:
        self.failures: dict[str, str] = {}
        self._found: dict[str, K8srmExpression] = {}

    def get(self, text: str) -> K8srmExpression:
        """Return an expression; one that does not compile fails when it is asked."""
        found = self._found.get(text)
        if found is None:
            found = K8srmExpression(text, self.failures.setdefault, compared=compared_names(text))
            self._found[text] = found
        return found


def findings(text: str, path: str) -> list[Finding]:
    """Return the errors of an expression as text: it is accepted, and matches no device."""
    try:
        compiled(text, {})
    except CompileError as error:
        hint = ""
        if ASSIGNMENT.search(text) and "Syntax error" in error.detail:
            hint = "; did you mean == ?"
        problem = error.detail.splitlines()[0]
        return [
            legacy(path, f'"{text}" is not an expression and matches no device: {problem}{hint}')
        ]
    return []


def compiled(text: str, kinds: Mapping[str, str]) -> Program:
    """Return an expression compiled for attributes of these types. CompileError."""
    tree = parse(text, macros=environment().macros)
    tree = check_tree(_typed(tree, kinds), environment(), text)
    if tree.type not in environment().result:
        raise CompileError(text, detail=f"must evaluate to bool, not {tree.type}")
    return Program(expression=text, environment=environment(), tree=tree)


def compared_names(text: str) -> tuple[str, ...]:
    """Return the attributes that an expression compares with text, sorted."""
    try:
        tree = parse(text, macros=environment().macros)
    except CompileError:
        return ()
    found = set()
    for node in _nodes(tree):
        if isinstance(node, Call) and (node.function in RELATIONS or node.function == "@in"):
            found |= {name for arg in node.args if (name := attribute_name(arg))}
    return tuple(sorted(found))


def attribute_name(node: Expr) -> str:
    """Return NAME of `device.NAME` or `device['NAME']`, "" for anything else."""
    match node:
        case Select(operand=Ident(name="device"), name=name, test=False):
            return name
        case Call(function="_[_]", args=[Ident(name="device"), Literal(value=str() as name)]):
            return name
        case _:
            return ""


def value_of(item: Attribute) -> Any:
    """Return the value of an attribute as expressions see it."""
    [value] = item.values
    if item.type == "quantity":
        return Quantity(parse_quantity(str(value)))
    return Version.parse(str(value)) if _kind(item) == "version" else value


def _kind(item: Attribute | None) -> str:
    """Return how an attribute is compared; empty if it is absent."""
    if item is None:
        return ""
    if item.type == "version" and not is_version(str(item.values[0])):
        return UNORDERED
    return item.type


def _children(node: Expr) -> list[Expr]:
    match node:
        case Call(target=target, args=args):
            return [*args, target] if target is not None else list(args)
        case Select(operand=operand):
            return [operand]
        case ListNode(elements=elements):
            return list(elements)
        case MapNode(entries=entries):
            return [part for entry in entries for part in (entry.key, entry.value)]
        case Comprehension():
            return [node.range, node.init, node.condition, node.step, node.result]
        case _:
            return []


def _nodes(tree: Expr) -> list[Expr]:
    """Return all nodes of a tree, without recursion."""
    found, waiting = [], [tree]
    while waiting:
        node = waiting.pop()
        found.append(node)
        waiting += _children(node)
    return found


def _typed(tree: Expr, kinds: Mapping[str, str]) -> Expr:
    """Make comparisons of quantities and versions with text comparisons of their kind."""
    for node in _nodes(tree):
        if not isinstance(node, Call) or len(node.args) != 2:
            continue
        left, right = node.args
        if node.function == "@in" and isinstance(right, ListNode):
            maker = MAKERS.get(kinds.get(attribute_name(left), ""))
            if maker:
                right.elements[:] = [_made(maker, item) for item in right.elements]
        elif node.function in RELATIONS:
            _compare(node, left, right, kinds)
    return tree


def _compare(node: Call, left: Expr, right: Expr, kinds: Mapping[str, str]) -> None:
    for mine, other in ((left, right), (right, left)):
        name = attribute_name(mine)
        kind = kinds.get(name, "")
        if kind == UNORDERED and node.function in ORDERS:
            text = f'attribute "{name}" is not a semantic version: compare it with == or !='
            raise CompileError(name, detail=text)
        maker = MAKERS.get(kind)
        if maker is None or not _is_text(other):
            continue
        first, second = (left, _made(maker, right)) if mine is left else (_made(maker, left), right)
        if node.function in {"_==_", "_!=_"}:
            node.args[:] = [first, second]
        else:
            order = Call(function="compareTo", args=[second], target=first, offset=node.offset)
            node.args[:] = [order, Literal(value=0, offset=node.offset)]
        return


def _is_text(node: Expr) -> bool:
    return isinstance(node, Literal) and type(node.value) is str


def _made(maker: str, node: Expr) -> Expr:
    if not _is_text(node):
        return node
    return Call(function=maker, args=[node], offset=node.offset)
