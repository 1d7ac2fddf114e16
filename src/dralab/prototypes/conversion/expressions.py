"""Translates CEL from one generation's dialect to another's.

The parts that differ are how an attribute is reached and what a missing one means:

    k8srm       device.model                                 the device is passed over
    evolution   device.stringAttributes['d.example/model']   a default of the map's type
    v1          device.attributes['d.example'].model         the pod's allocation fails

A translation keeps the meaning of the source for missing attributes. Macros are left alone as long
as they do not reach attributes; what cannot be said raises `UntranslatableError`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Final

from dralab.cel import CompileError, kubernetes
from dralab.cel.parser import parse
from dralab.cel.syntax import Call, Expr, Ident, ListNode, Literal, Select
from dralab.prototypes.conversion.neutral import NeutralExpression
from dralab.values.records import dataclass

TYPED: Final[Mapping[str, str]] = {
    "stringAttributes": "string",
    "boolAttributes": "bool",
    "quantityAttributes": "quantity",
    "versionAttributes": "version",
    "attributes": "",
}
MAP_OF: Final = {kind: name for name, kind in TYPED.items() if kind}
DEFAULTS: Final = {
    "string": "''",
    "bool": "false",
    "quantity": "quantity('0')",
    "version": "semver('0.0.0')",
}
BINARY: Final[Mapping[str, tuple[str, int]]] = {
    "_||_": ("||", 2), "_&&_": ("&&", 3),
    "_==_": ("==", 4), "_!=_": ("!=", 4), "_<_": ("<", 4), "_<=_": ("<=", 4),
    "_>_": (">", 4), "_>=_": (">=", 4), "@in": ("in", 4),
    "_+_": ("+", 5), "_-_": ("-", 5), "_*_": ("*", 6), "_/_": ("/", 6), "_%_": ("%", 6),
}  # fmt: skip
ORDER: Final = frozenset({"_<_", "_<=_", "_>_", "_>=_"})
EQUALITY: Final = frozenset({"_==_", "_!=_"})


class UntranslatableError(ValueError):
    """An expression that has no equivalent; the message says which part."""


@dataclass(slots=True)
class ExpressionTranslation:
    """One expression on its way from one dialect to another."""

    source: str
    target: str
    driver: str
    types: Mapping[str, str]
    guards: list[str] = field(default_factory=list)

    def node(self, node: Expr, level: int = 0) -> str:
        """Return a node as text; `level` is the binding strength that its surroundings need."""
        name = attribute_of(node, self.source)
        if name is not None:
            return self.attribute(*name)
        match node:
            case Literal(value=value):
                return literal(value)
            case ListNode(elements=elements):
                return "[" + ", ".join(self.node(item) for item in elements) + "]"
            case Call():
                return self.call(node, level)
            case Select(operand=operand, name=field_name, test=test):
                if is_driver(node, self.source):
                    return driver_word(self.target)
                inner = self.node(operand, 9)
                return f"has({inner}.{field_name})" if test else f"{inner}.{field_name}"
            case Ident(name=ident):
                if ident == "device":
                    raise UntranslatableError("the device as a whole")
                return ident
            case _:
                raise UntranslatableError("a macro")

    def call(self, node: Call, level: int) -> str:
        """Return a call or an operator as text."""
        if node.function in EQUALITY | ORDER and len(node.args) == 2:
            compared = self.comparison(node)
            if compared:
                return compared
        if node.function == "@in" and is_attributes(node.args[1], self.source):
            return self.presence(node.args[0])
        if node.function in BINARY:
            sign, mine = BINARY[node.function]
            text = f" {sign} ".join(self.node(arg, mine + 1) for arg in node.args)
            return f"({text})" if mine < level else text
        if node.function == "_?_:_":
            text = "{} ? {} : {}".format(*(self.node(arg, 2) for arg in node.args))
            return f"({text})" if level else text
        if node.function in {"!_", "-_"}:
            return f"{node.function[0]}{self.node(node.args[0], 8)}"
        if node.function == "_[_]":
            return f"{self.node(node.args[0], 9)}[{self.node(node.args[1])}]"
        if node.function.startswith(("_", "@")):
            raise UntranslatableError(f"the operator {node.function}")
        arguments = ", ".join(self.node(arg) for arg in node.args)
        if node.target is not None:
            return f"{self.node(node.target, 9)}.{node.function}({arguments})"
        return f"{node.function}({arguments})"

    def comparison(self, node: Call) -> str:
        """Return a k8srm comparison of a quantity or version with text; "" for any other."""
        if self.source != "k8srm":
            return ""
        left, right = node.args
        flip = isinstance(left, Literal)
        mine, other = (right, left) if flip else (left, right)
        name = attribute_of(mine, self.source)
        if name is None or not (isinstance(other, Literal) and isinstance(other.value, str)):
            return ""
        kind = self.kind(name[1], "string")
        maker = {"quantity": "quantity", "version": "semver"}.get(kind)
        if maker is None:
            return ""
        sign = BINARY[node.function][0]
        reached = self.attribute(*name)
        made = f"{maker}({literal(other.value)})"
        first, second = (made, reached) if flip else (reached, made)
        return f"{first}.compareTo({second}) {sign} 0"

    def kind(self, identifier: str, default: str) -> str:
        """Return the type of an attribute, from the pools or as used."""
        return self.types.get(identifier) or default

    def attribute(self, domain: str, identifier: str, kind: str) -> str:
        """Return the target's expression of an attribute; records the guard for its presence."""
        domain = domain or self.domain(identifier)
        kind = kind or self.kind(identifier, "string")
        plain = identifier.replace("-", "_")
        if self.target == "k8srm":
            self.guard(f"{literal(identifier)} in device")
            reached = (
                f"device.{identifier}"
                if identifier.isidentifier()
                else f"device[{literal(identifier)}]"
            )
        elif self.target == "evolution":
            name = MAP_OF.get(kind, "stringAttributes")
            qualified = f"{domain}/{plain}" if domain else plain
            self.guard(f"{literal(qualified)} in device.attributes")
            reached = f"device.{name}[{literal(qualified)}]"
        else:
            where = "capacity" if kind == "quantity" else "attributes"
            self.guard(f"{literal(plain)} in device.{where}[{literal(domain)}]")
            reached = f"device.{where}[{literal(domain)}].{plain}"
            if self.source == "evolution" and kind in DEFAULTS:
                return f"device.{where}[{literal(domain)}].?{plain}.orValue({DEFAULTS[kind]})"
        return reached

    def domain(self, identifier: str) -> str:
        """Return the domain of a name without one: its driver's, which the target must know."""
        if not self.driver and self.target != "k8srm":
            raise UntranslatableError(
                f"attribute {identifier} of an unknown driver: convert it together with its "
                "DeviceClass, which names the driver"
            )
        return self.driver

    def guard(self, text: str) -> None:
        """Record a condition under which the source expression does not fail."""
        if text not in self.guards:
            self.guards.append(text)

    def presence(self, key: Expr) -> str:
        """Return `NAME in device…` in the target's words."""
        if not isinstance(key, Literal) or not isinstance(key.value, str):
            raise UntranslatableError("a computed attribute name")
        domain, _, identifier = key.value.rpartition("/")
        domain = domain or self.domain(identifier)
        plain = identifier.replace("-", "_")
        if self.target == "k8srm":
            return f"{literal(identifier)} in device"
        if self.target == "evolution":
            return f"{literal(f'{domain}/{plain}' if domain else plain)} in device.attributes"
        where = "capacity" if self.kind(identifier, "") == "quantity" else "attributes"
        return f"{literal(plain)} in device.{where}[{literal(domain)}]"


def translated(
    expression: NeutralExpression,
    target: str,
    types: Mapping[str, str],
    drivers: Sequence[str] = (),
) -> str:
    """Return an expression in the target's words; UntranslatableError says what has none.

    `drivers` are those whose devices it is for: k8srm's names have no domain, so each driver's
    devices are asked in its own words.
    """
    if expression.dialect == target:
        return expression.text
    try:
        tree = parse(expression.text, macros=kubernetes().macros)
    except CompileError as error:
        detail = error.detail.splitlines()[0]
        raise UntranslatableError(f"it is not an expression: {detail}") from None
    named = list(drivers or expression.drivers)
    if expression.dialect != "k8srm" or len(named) < 2:
        return _one(tree, expression.dialect, target, named[0] if named else "", types)
    word = driver_word(target)
    parts = [
        f"{word} == {literal(driver)} && {_one(tree, 'k8srm', target, driver, types, 4)}"
        for driver in named
    ]
    return " || ".join(parts)


def _one(  # noqa: PLR0917 - the coordinates of a translation
    tree: Expr, source: str, target: str, driver: str, types: Mapping[str, str], level: int = 0
) -> str:
    work = ExpressionTranslation(source=source, target=target, driver=driver, types=types)
    text = work.node(tree, level)
    # Where the source passes a device over or answers with a default, the target must not fail;
    # a guard says the same, because without the attribute the comparison cannot be true.
    needed = [g for g in work.guards if g not in text] if _must_guard(source, target) else []
    if not needed:
        return text
    text = work.node(tree, 4)
    return " && ".join([*needed, text])


def _must_guard(source: str, target: str) -> bool:
    return target == "v1" and source == "k8srm"


def attribute_of(node: Expr, dialect: str) -> tuple[str, str, str] | None:
    """Return (domain, identifier, type) of an attribute access, None for anything else."""
    match node:
        case Select(operand=operand, name=key, test=False):
            pass
        case Call(function="_[_]", args=[operand, Literal(value=str() as key)]):
            pass
        case _:
            return None
    if dialect == "k8srm":
        return ("", key, "") if _is_device(operand) else None
    if dialect == "evolution":
        if isinstance(operand, Select) and _is_device(operand.operand) and operand.name in TYPED:
            domain, _, identifier = key.rpartition("/")
            return (domain, identifier, TYPED[operand.name])
        return None
    match operand:
        case Call(
            function="_[_]",
            args=[Select(operand=inner, name=where), Literal(value=str() as domain)],
        ):
            if _is_device(inner) and where in {"attributes", "capacity"}:
                return (domain, key, "quantity" if where == "capacity" else "")
        case Select(operand=Select(operand=inner, name=where), name=domain):
            if _is_device(inner) and where in {"attributes", "capacity"}:
                return (domain, key, "quantity" if where == "capacity" else "")
        case _:
            pass
    return None


def is_driver(node: Expr, dialect: str) -> bool:
    """Return whether a node is the driver's name."""
    wanted = {"evolution": "driverName", "v1": "driver"}.get(dialect)
    return isinstance(node, Select) and _is_device(node.operand) and node.name == wanted


def is_attributes(node: Expr, dialect: str) -> bool:
    """Return whether a node is the map in which `in` looks for attributes."""
    if dialect == "k8srm":
        return _is_device(node)
    return (
        dialect == "evolution"
        and isinstance(node, Select)
        and _is_device(node.operand)
        and node.name in TYPED
    )


def driver_word(dialect: str) -> str:
    """Return the name of the driver's name; k8srm has none."""
    if dialect == "k8srm":
        raise UntranslatableError("the driver's name: a class of k8srm names its driver itself")
    return {"evolution": "device.driverName", "v1": "device.driver"}[dialect]


def drivers_in(expression: NeutralExpression) -> tuple[tuple[str, ...], str]:
    """Return the drivers that an expression names as alternatives, and the rest of its text.

    >>> drivers_in(
    ...     NeutralExpression("device.driver == 'a' && device.attributes['a'].x == 1", "v1")
    ... )[0]
    ('a',)
    """
    try:
        tree = parse(expression.text, macros=kubernetes().macros)
    except CompileError:
        return (), expression.text
    conjuncts = _operands(tree, "_&&_")
    for position, part in enumerate(conjuncts):
        named = [_named_driver(item, expression.dialect) for item in _operands(part, "_||_")]
        if named and all(named):
            rest = conjuncts[:position] + conjuncts[position + 1 :]
            work = ExpressionTranslation(expression.dialect, expression.dialect, "", {})
            try:
                text = " && ".join(work.node(item, 4) for item in rest)
            except UntranslatableError:
                return (), expression.text
            return tuple(dict.fromkeys(filter(None, named))), text
    return (), expression.text


def driver_alternatives(expression: NeutralExpression) -> list[tuple[str, str]]:
    """Return (driver, the rest) of an expression that is a choice of drivers, [] for another.

    >>> text = "device.driver == 'a' || device.driver == 'b' && device.attributes['b'].x == 1"
    >>> [driver for driver, _ in driver_alternatives(NeutralExpression(text, "v1"))]
    ['a', 'b']
    """
    try:
        tree = parse(expression.text, macros=kubernetes().macros)
    except CompileError:
        return []
    work = ExpressionTranslation(expression.dialect, expression.dialect, "", {})
    found = []
    for part in _operands(tree, "_||_"):
        conjuncts = _operands(part, "_&&_")
        named = [name for item in conjuncts if (name := _named_driver(item, expression.dialect))]
        if len(named) != 1:
            return []
        rest = [item for item in conjuncts if not _named_driver(item, expression.dialect)]
        try:
            found.append((named[0], " && ".join(work.node(item, 4) for item in rest)))
        except UntranslatableError:
            return []
    return found


def _operands(node: Expr, function: str) -> list[Expr]:
    if isinstance(node, Call) and node.function == function:
        return [inner for arg in node.args for inner in _operands(arg, function)]
    return [node]


def _named_driver(node: Expr, dialect: str) -> str:
    match node:
        case Call(function="_==_", args=[left, Literal(value=str() as name)]):
            return name if is_driver(left, dialect) else ""
        case _:
            return ""


def _is_device(node: Expr) -> bool:
    return isinstance(node, Ident) and node.name == "device"


def literal(value: object) -> str:
    """Return a constant as CEL writes it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
        return f"'{escaped}'"
    if isinstance(value, (int, float)):
        return repr(value)
    raise UntranslatableError(f"the constant {value!r}")
