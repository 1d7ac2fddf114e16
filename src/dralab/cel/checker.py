"""The static checker: names, types, overloads.

It annotates the tree (types, candidate overloads), turns dotted names into the variables and
functions they mean, and lists every problem. Rules and wording: cel-go's checker.
"""

from collections import ChainMap
from dataclasses import field

from dralab.cel import regex
from dralab.cel.deep_recursion import Step, run
from dralab.cel.environment import Environment
from dralab.cel.errors import CelError, CompileError, Issue
from dralab.cel.functions.times import duration, timestamp
from dralab.cel.literals import impossible_formats, mixed_literals
from dralab.cel.syntax import (
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
from dralab.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    ERROR,
    INT,
    NULL,
    STRING,
    UINT,
    CelType,
    Overload,
    is_optional,
    list_of,
    map_of,
    optional_of,
    shown,
)
from dralab.cel.unification import Bindings, assignable, more_general, substituted
from dralab.cel.values import TypeValue, Uint
from dralab.values.records import dataclass

LITERAL_TYPES = {
    bool: BOOL, int: INT, Uint: UINT, float: DOUBLE, str: STRING, bytes: BYTES,
    type(None): NULL,
}  # fmt: skip
LITERAL_CHECKS = {
    "duration": (duration, "invalid duration argument"),
    "timestamp": (timestamp, "invalid timestamp argument"),
}


def check(tree: Expr, environment: Environment, text: str) -> Expr:
    """Return the checked tree of an expression; raise CompileError with every problem."""
    checker = Checker(environment)
    tree = run(checker.node(tree))
    if not checker.problems:
        checker.finish()
    if checker.problems:
        ordered = sorted(checker.problems, key=lambda problem: problem.offset)
        raise CompileError(text, tuple(dict.fromkeys(ordered)))
    return tree


@dataclass
class Checker:
    """One walk over one tree."""

    environment: Environment
    problems: list[Issue] = field(default_factory=list)
    bindings: Bindings = field(default_factory=dict)
    scope: ChainMap[str, CelType] = field(default_factory=ChainMap)
    done: dict[int, Expr] = field(default_factory=dict)
    seen: list[Expr] = field(default_factory=list)
    fresh: int = 0

    def report(self, message: str, node: Expr) -> CelType:
        """Note a problem; its expression has the type "error", which fits everywhere."""
        self.problems.append(Issue(message, node.offset))
        return ERROR

    def new_parameter(self) -> CelType:
        """Return a type parameter that is not in use."""
        self.fresh += 1
        return CelType("param", f"_var{self.fresh}")

    def fits(self, given: CelType, wanted: CelType) -> bool:
        """Return whether one type may be assigned to another, and bind what that says."""
        found = assignable(self.bindings, [given], [wanted])
        if found is not None:
            self.bindings = found
        return found is not None

    def finish(self) -> None:
        """Replace type parameters by what they turned out to be."""
        known: dict[int, tuple[CelType, CelType]] = {}
        for node in self.seen:
            node.type = substituted(self.bindings, node.type, free=False, known=known)
        if self.environment.homogeneous:
            self.problems += mixed_literals(self.seen)
        if self.environment.checks_literals:
            self.problems += impossible_formats(self.seen)

    def node(self, node: Expr) -> Step[Expr]:
        """Check an expression and return it, or what it is resolved to."""
        # optMap puts its target into the tree twice.
        if id(node) in self.done:
            return self.done[id(node)]
        found: Expr
        match node:
            case Literal():
                node.type = LITERAL_TYPES[type(node.value)]
                found = node
            case Ident():
                found = self.ident(node)
            case Select():
                found = yield self.select(node)
            case Call():
                found = yield self.call(node)
            case ListNode():
                found = yield self.list_(node)
            case MapNode():
                found = yield self.map_(node)
            case Comprehension():
                found = yield self.comprehension(node)
            case Struct():
                for position, (name, value) in enumerate(node.fields):
                    node.fields[position] = (name, (yield self.node(value)))
                node.type = self.message(node)
                found = node
            case _:
                raise AssertionError(node)
        self.done[id(node)] = found
        self.seen.append(found)
        return found

    def message(self, node: Struct) -> CelType:
        """Check the construction of a message whose fields are checked already."""
        name, environment = node.name.removeprefix("."), self.environment
        if environment.open_message and f"{name}.".startswith(f"{environment.open_message}."):
            return CelType("struct", name)
        if name not in environment.messages:
            return self.undeclared(node.name, node)
        fields = environment.structs[name]
        for field_name, value in node.fields:
            declared = fields.get(field_name)
            if declared is not None and field_name in node.optional:
                declared = optional_of(declared)
            if declared is None:
                self.report(f"undefined field '{field_name}'", value)
            elif not self.fits(value.type, declared):
                self.report(
                    f"expected type of field '{field_name}' is '{shown(declared)}' but provided "
                    f"type is '{shown(value.type)}'",
                    value,
                )
        return CelType("struct", name)

    def undeclared(self, name: str, node: Expr) -> CelType:
        """Report a name that nothing declares."""
        container = self.environment.container
        return self.report(
            f"undeclared reference to '{name.removeprefix('.')}' (in container '{container}')", node
        )

    def variable(self, name: str, offset: int) -> Ident | None:
        """Return the variable or type that a possibly dotted name means."""
        if name in self.scope:
            return Ident(name, offset=offset, type=self.scope[name])
        for candidate in self.environment.candidates(name):
            declared = self.environment.variables.get(candidate)
            if declared is not None:
                return Ident(candidate, offset=offset, type=declared)
            constant = self.environment.type_names.get(candidate)
            if constant is not None:
                return Ident(candidate, TypeValue(candidate), offset=offset, type=constant)
        return None

    def ident(self, node: Ident) -> Expr:
        """Check a name."""
        found = self.variable(node.name, node.offset)
        if found is None:
            node.type = self.undeclared(node.name, node)
            return node
        return found

    def select(self, node: Select) -> Step[Expr]:
        """Check a selection, which may turn out to be a dotted name."""
        if not node.test and (name := self.dotted(node)):
            found = self.variable(name, node.offset)
            if found is not None:
                return found
        node.operand = yield self.node(node.operand)
        node.type = BOOL if node.test else self.field(node, node.operand, node.name)
        if node.test:
            self.field(node, node.operand, node.name)
        return node

    def dotted(self, node: Expr) -> str:
        """Return the dotted name of a chain of selections that does not begin in a local scope."""
        parts = []
        while isinstance(node, Select) and not node.test:
            parts.append(node.name)
            node = node.operand
        if not isinstance(node, Ident) or node.name in self.scope:
            return ""
        return ".".join([node.name, *reversed(parts)])

    def field(self, node: Expr, operand: Expr, name: str) -> CelType:
        """Return the type of a field of an operand."""
        given = substituted(self.bindings, operand.type)
        inner = given.params[0] if is_optional(given) else given
        result = DYN
        if inner.kind == "map":
            result = inner.params[1]
        elif inner.kind == "struct":
            fields = self.environment.structs.get(inner.name, {})
            found = fields.get(name)
            result = found or self.report(f"undefined field '{name}'", node)
        elif inner.kind == "param":
            self.fits(DYN, inner)
        elif inner.kind not in {"dyn", "any", "error"}:
            result = self.report(f"type '{shown(inner)}' does not support field selection", node)
        return optional_of(result) if is_optional(given) else result

    def call(self, node: Call) -> Step[Expr]:
        """Check a call: its arguments, then its overloads."""
        if node.function == "_?._":
            node.args[0] = yield self.node(node.args[0])
            node.args[1] = yield self.node(node.args[1])
            name = node.args[1]
            field = name.value if isinstance(name, Literal) else ""
            result = self.field(node, node.args[0], field)
            node.type = result if is_optional(result) else optional_of(result)
            node.overloads = self.environment.functions["_?._"]
            return node
        if node.target is not None and (name_of := self.dotted(node.target)):
            # What looks like a method may be a function with a dotted name.
            for candidate in self.environment.candidates(f"{name_of}.{node.function}"):
                if candidate in self.environment.functions:
                    node.function, node.target = candidate, None
                    break
        elif node.target is None:
            for candidate in self.environment.candidates(node.function):
                if candidate in self.environment.functions:
                    node.function = candidate
                    break
        if node.target is not None:
            node.target = yield self.node(node.target)
        for position, argument in enumerate(node.args):
            node.args[position] = yield self.node(argument)
        overloads = self.environment.functions.get(node.function)
        if overloads is None:
            node.type = self.undeclared(node.function, node)
        elif node.function in {"_&&_", "_||_"}:
            node.overloads = overloads
            node.type = self.logical(node)
        else:
            node.type = self.resolve(node, overloads)
            self.literal_arguments(node)
        return node

    def logical(self, node: Call) -> CelType:
        """Check the operands of `&&` or `||`."""
        for argument in node.args:
            if not self.fits(argument.type, BOOL):
                found = substituted(self.bindings, argument.type, free=False)
                self.report(f"expected type 'bool' but found '{shown(found)}'", argument)
        return BOOL

    def resolve(self, node: Call, overloads: tuple[Overload, ...]) -> CelType:
        """Return the result type over all overloads that the arguments fit."""
        member = node.target is not None
        given = [argument.type for argument in node.args]
        if node.target is not None:
            given.insert(0, node.target.type)
        result: CelType | None = None
        fitting = []
        for overload in overloads:
            if overload.member != member or len(overload.args) != len(given):
                continue
            wanted, returned = self.instance(overload)
            found = assignable(self.bindings, given, wanted)
            if found is None:
                continue
            self.bindings = found
            fitting.append(overload)
            returned = substituted(self.bindings, returned)
            if result is None:
                result = returned
            elif result.kind not in {"dyn", "any"} and returned != result:
                result = DYN
        node.overloads = tuple(fitting)
        if result is not None:
            return result
        names = [shown(substituted(self.bindings, type_, free=False)) for type_ in given]
        signature = f"{names[0]}.({', '.join(names[1:])})" if member else f"({', '.join(names)})"
        return self.report(
            f"found no matching overload for '{node.function}' applied to '{signature}'", node
        )

    def instance(self, overload: Overload) -> tuple[list[CelType], CelType]:
        """Return an overload's types with new parameters."""
        fresh: Bindings = {}

        def renamed(type_: CelType) -> CelType:
            if type_.kind == "param":
                if type_ not in fresh:
                    fresh[type_] = self.new_parameter()
                return fresh[type_]
            if not type_.params:
                return type_
            return type_._replace(params=tuple(map(renamed, type_.params)))

        return [renamed(type_) for type_ in overload.args], renamed(overload.result)

    def literal_arguments(self, node: Call) -> None:
        """Check literals that have a format of their own: times and regular expressions."""
        if not self.environment.checks_literals or not node.args:
            return
        last = node.args[-1]
        if not isinstance(last, Literal) or not isinstance(last.value, str):
            return
        if node.function == "matches":
            try:
                regex.compiled(last.value)
            except CelError:
                self.report("invalid matches argument", last)
        elif node.function in LITERAL_CHECKS:
            convert, message = LITERAL_CHECKS[node.function]
            try:
                convert(last.value)
            except CelError:
                self.report(message, last)

    def joined(self, previous: CelType | None, current: CelType) -> CelType:
        """Return the type of an aggregate's elements after one more of them."""
        if previous is None:
            return current
        if self.fits(previous, current):
            return more_general(previous, current)
        return DYN

    def list_(self, node: ListNode) -> Step[Expr]:
        """Check a list literal."""
        element: CelType | None = None
        for position, item in enumerate(node.elements):
            node.elements[position] = checked = yield self.node(item)
            current = checked.type
            if position in node.optional:
                current = self.unwrapped(checked)
            element = self.joined(element, current)
        node.type = list_of(element or self.new_parameter())
        return node

    def unwrapped(self, node: Expr) -> CelType:
        """Return the type inside an element written with `?`."""
        given = substituted(self.bindings, node.type)
        if is_optional(given):
            return given.params[0]
        if given.kind not in {"dyn", "any", "error"}:
            self.report(f"expected type 'optional_type({given})' but found '{given}'", node)
        return given

    def map_(self, node: MapNode) -> Step[Expr]:
        """Check a map literal."""
        key: CelType | None = None
        value: CelType | None = None
        for entry in node.entries:
            entry.key = yield self.node(entry.key)
            key = self.joined(key, entry.key.type)
            entry.value = yield self.node(entry.value)
            current = self.unwrapped(entry.value) if entry.optional else entry.value.type
            value = self.joined(value, current)
        node.type = map_of(key or self.new_parameter(), value or self.new_parameter())
        return node

    def comprehension(self, node: Comprehension) -> Step[Expr]:
        """Check a loop in the scope of its variables."""
        node.range = yield self.node(node.range)
        node.init = yield self.node(node.init)
        ranged = substituted(self.bindings, node.range.type)
        first, second = self.iterated(node, ranged)
        outer = self.scope
        accu_scope = outer.new_child({node.accu: node.init.type})
        inner = {node.var: first}
        if node.var2:
            inner[node.var2] = second
        self.scope = accu_scope.new_child(inner)
        node.condition = yield self.node(node.condition)
        node.step = yield self.node(node.step)
        if not self.fits(node.condition.type, BOOL):
            self.report(f"expected type 'bool' but found '{node.condition.type}'", node.condition)
        if not self.fits(node.step.type, node.init.type):
            wanted = substituted(self.bindings, node.init.type, free=False)
            found = substituted(self.bindings, node.step.type, free=False)
            self.report(f"expected type '{wanted}' but found '{found}'", node.step)
        self.scope = accu_scope
        node.result = yield self.node(node.result)
        self.scope = outer
        node.type = substituted(self.bindings, node.result.type)
        return node

    def iterated(self, node: Comprehension, ranged: CelType) -> tuple[CelType, CelType]:
        """Return the types of a range's one or two variables."""
        if ranged.kind == "list":
            element = ranged.params[0]
            return (INT, element) if node.var2 else (element, DYN)
        if ranged.kind == "map":
            return ranged.params[0], ranged.params[1]
        if ranged.kind in {"dyn", "error", "param"}:
            self.fits(DYN, ranged)
            return DYN, DYN
        error = self.report(
            f"expression of type '{shown(ranged)}' cannot be range of a comprehension "
            "(must be list, map, or dynamic)",
            node.range,
        )
        return error, error
