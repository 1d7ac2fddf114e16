"""Evaluation by walking the tree: exact in values, errors and cost units.

This is the plain form. It is what decides when generated code meets an error, and the reference for
that code in the tests. Errors are values here: `err || true` is true, in either order, and the
arguments of a call are all evaluated even if one of them is an error, because they are charged.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dralab.cel.deep_recursion import Step, run
from dralab.cel.errors import CelError, CostExceededError, no_such_overload
from dralab.cel.library import FUNCTIONS
from dralab.cel.runtime_costs import LIST_BASE, MAP_BASE, STRUCT_BASE, charge
from dralab.cel.syntax import (
    Call,
    Comprehension,
    Expr,
    Ident,
    ListNode,
    Literal,
    MapEntry,
    MapNode,
    Select,
    Struct,
)
from dralab.cel.values import (
    MAPS,
    NOTHING,
    Message,
    Optional,
    field,
    has_field,
    items,
    key_of,
    keys,
    new_map,
    not_iterable,
    shown_key,
)

# Conversions of a constant are done once, when the program is made, and cost nothing.
FOLDED: Final = frozenset(
    {"bool", "bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"}
)
PRIMITIVES: Final = frozenset({"bool", "bytes", "double", "int", "string", "uint"})
NO_LIMIT: Final = 2**64
# Not a value: what has to be found by its own step.
LATER: Final = object()


class LazyBinding:
    """A variable of `cel.bind`: evaluated, or at least charged, when it is first used."""

    __slots__ = ("node", "price", "scope", "value")

    def __init__(
        self, node: Expr | None, scope: "Scope", value: Any = None, price: int = 0
    ) -> None:
        self.node = node
        self.scope = scope
        self.value = value
        self.price = price


Scope = Mapping[str, Any]


def is_constant(node: Expr) -> bool:
    """Return whether the API server folds a value to a constant."""
    if isinstance(node, Literal):
        return True
    if isinstance(node, ListNode):
        return not node.optional and all(map(is_constant, node.elements))
    if isinstance(node, MapNode):
        return all(
            is_constant(entry.key) and is_constant(entry.value) and not entry.optional
            for entry in node.entries
        )
    if isinstance(node, Call):
        return (
            node.function in FOLDED
            and node.target is None
            and len(node.args) == 1
            and is_constant(node.args[0])
        )
    return False


def evaluate(tree: Expr, variables: Scope, limit: int = NO_LIMIT) -> tuple[Any, int]:
    """Return the value of a checked tree, a CelError if it is an error, and the cost units.

    Beyond the limit the value is CostExceededError and the cost one more than the limit.
    """
    evaluation = Evaluation(limit)
    try:
        value = run(evaluation.node(tree, variables))
    except CostExceededError as error:
        return error, limit + 1
    return value, evaluation.cost


class Evaluation:
    """One evaluation, with what it has cost so far."""

    __slots__ = ("constants", "cost", "limit", "lists")

    def __init__(self, limit: int) -> None:
        self.cost = 0
        self.limit = limit
        self.constants: dict[int, bool] = {}
        self.lists: dict[int, list[Any]] = {}

    def spend(self, units: int) -> None:
        """Count cost units; raise CostExceededError beyond the limit."""
        self.cost += units
        if self.cost > self.limit:
            raise CostExceededError

    def constant(self, node: Expr) -> bool:
        """Return whether a literal or conversion is known beforehand; remembered per node."""
        known = self.constants.get(id(node))
        if known is None:
            known = self.constants[id(node)] = is_constant(node)
        return known

    def node(self, node: Expr, scope: Scope) -> Step[Any]:
        """Return the step that evaluates an expression."""
        kind = type(node)
        if isinstance(node, Call):
            handler: Callable[..., Step[Any]] = SPECIAL.get(node.function, Evaluation.call)
            if node.macro:
                handler = Evaluation.optional_map
            return handler(self, node, scope)
        return STEPS[kind](self, node, scope)

    def at_once(self, node: Expr, scope: Scope) -> Any:
        """Return the value of a literal or a plain name, or LATER: most leaves need no step."""
        kind = type(node)
        if kind is Literal:
            return node.value  # type: ignore[attr-defined]  # a literal, by its type
        if kind is Ident and node.constant is None:  # type: ignore[attr-defined]  # likewise
            value = scope.get(node.name, LATER)  # type: ignore[attr-defined]  # likewise
            if value is not LATER and type(value) is not LazyBinding:
                self.spend(1)
                return value
        return LATER

    def literal(self, node: Literal, _scope: Scope) -> Step[Any]:
        """Return a constant."""
        yield from ()
        return node.value

    def ident(self, node: Ident, scope: Scope) -> Step[Any]:
        """Return the value of a variable."""
        if node.constant is not None:
            return node.constant
        self.spend(1)
        if node.name not in scope:
            # Only where the checker's findings were set aside.
            return CelError(f"no such attribute(s): {node.name}")
        value = scope[node.name]
        if type(value) is LazyBinding:
            if value.node is not None:
                found = yield self.node(value.node, value.scope)
                value.node, value.value = None, found
            price, value.price = value.price, 0
            self.spend(price)
            return value.value
        return value

    def not_strictly_false(self, node: Call, scope: Scope) -> Step[Any]:
        """Return whether a macro continues: only false ends it, not an error."""
        value = self.at_once(node.args[0], scope)
        if value is LATER:
            value = yield self.node(node.args[0], scope)
        self.spend(1)
        return value is not False

    def select(self, node: Select, scope: Scope) -> Step[Any]:
        """Return `operand.name`, or whether it exists."""
        chain = [node]
        operand = node.operand
        # A chain of selections is one step: long ones cost no depth and little time.
        while isinstance(operand, Select) and not operand.test:
            chain.append(operand)
            operand = operand.operand
        if node.test and is_attribute(operand):
            # The name at the root of a presence test is free.
            self.cost -= 1
        value = yield self.node(operand, scope)
        if not is_attribute(operand) and not node.test:
            self.spend(1)
        for link in reversed(chain):
            if isinstance(value, CelError):
                return value
            self.spend(1)
            try:
                value = (has_field if link.test else field)(value, link.name)
            except CelError as error:
                value = error
        return value

    def index(self, node: Call, scope: Scope) -> Step[Any]:
        """Return `operand[key]`, `operand[?key]` or `operand.?name`."""
        operand = yield self.node(node.args[0], scope)
        if not is_attribute(node.args[0]):
            self.spend(1)
        if isinstance(operand, CelError):
            return operand
        key = yield self.nested(node.args[1], scope)
        if isinstance(key, CelError):
            self.spend(1)
            return key
        try:
            value = FUNCTIONS[node.function](operand, key)
        except CelError as error:
            value = error
        # What is optional and absent costs nothing.
        if node.function == "_[_]" or value is not NOTHING:
            self.spend(1)
        return value

    def nested(self, node: Expr, scope: Scope) -> Step[Any]:
        """Return the value of a branch or of a computed index.

        cel-go makes a name at the root of such an expression part of the surrounding attribute,
        which is free.
        """
        if is_attribute(node) and not is_conditional(root(node)):
            self.cost -= 1
        return (yield self.node(node, scope))

    def logical(self, node: Call, scope: Scope) -> Step[Any]:
        """Return `a && b && …` or `a || b || …`: one operand that decides beats every error."""
        deciding = node.function == "_||_"
        failed: CelError | None = None
        for argument in node.args:
            value = self.at_once(argument, scope)
            if value is LATER:
                value = yield self.node(argument, scope)
            if value is deciding:
                return value
            if value is not (not deciding) and failed is None:
                failed = value if isinstance(value, CelError) else no_such_overload()
        return not deciding if failed is None else failed

    def conditional(self, node: Call, scope: Scope) -> Step[Any]:
        """Return `condition ? first : second`."""
        condition = yield self.node(node.args[0], scope)
        if isinstance(condition, CelError):
            return condition
        if condition is True:
            return (yield self.nested(node.args[1], scope))
        if condition is False:
            return (yield self.nested(node.args[2], scope))
        return no_such_overload()

    def optional_map(self, node: Call, scope: Scope) -> Step[Any]:
        """Return `target.optMap(x, …)` or `optFlatMap`.

        Its target stands twice in the tree. It is paid twice, as upstream, but evaluated once,
        or a chain of them would take exponential time.
        """
        test, inner, none = node.args
        bind = inner.args[0] if isinstance(inner, Call) else inner
        target = test.target if isinstance(test, Call) else None
        if target is None or not isinstance(bind, Comprehension):
            raise AssertionError(node)
        before = self.cost
        value = yield self.node(target, scope)
        price = self.cost - before
        self.spend(1)
        if isinstance(value, CelError):
            return value
        if type(value) is not Optional:
            return no_such_overload()
        if not value.present:
            return (yield self.node(none, scope))
        variable = LazyBinding(None, scope, value.value, price + 1)
        result = yield self.node(bind.result, {**scope, bind.accu: variable})
        if node.macro == "optFlatMap":
            return result
        self.spend(1)
        return applied("optional.of", [result])

    def alternative(self, node: Call, scope: Scope) -> Step[Any]:
        """Return `optional.or(other)` or `optional.orValue(value)`."""
        value = yield self.node(node.target or node, scope)
        if isinstance(value, CelError):
            return value
        if type(value) is not Optional:
            return no_such_overload()
        if value.present:
            return value if node.function == "or" else value.value
        return (yield self.node(node.args[0], scope))

    def message(self, node: Struct, scope: Scope) -> Step[Any]:
        """Return the message that an expression constructs."""
        found: dict[str, Any] = {}
        failed: CelError | None = None
        for name, part in node.fields:
            value = yield self.node(part, scope)
            if isinstance(value, CelError):
                failed = failed or value
            if name in node.optional:
                if type(value) is not Optional:
                    failed = failed or no_such_overload()
                    continue
                if not value.present:
                    continue
                value = value.value
            found[name] = value
        self.spend(STRUCT_BASE)
        return failed or Message(node.name.removeprefix("."), found)

    def call(self, node: Call, scope: Scope) -> Step[Any]:
        """Return the value of a function or operator."""
        arguments: list[Any] = []
        nodes = node.args if node.target is None else [node.target, *node.args]
        for argument in nodes:
            value = self.at_once(argument, scope)
            if value is LATER:
                value = yield self.node(argument, scope)
            arguments.append(value)
        if self.constant(node):
            return applied(node.function, arguments)
        result = applied(node.function, arguments)
        if node.function == "@in" and self.is_set(node.args[1]):
            return result
        self.spend(charge(node.function, node.overloads, arguments, result))
        return result

    def is_set(self, node: Expr) -> bool:
        """Return whether `in` looks into a list of primitive literals of one type."""
        if not isinstance(node, ListNode) or not node.elements or not self.constant(node):
            return False
        kinds = {element.type.kind for element in node.elements}
        return len(kinds) == 1 and kinds <= PRIMITIVES

    def list_(self, node: ListNode, scope: Scope) -> Step[Any]:
        """Return a list."""
        if self.constant(node):
            known = self.lists.get(id(node))
            if known is not None:
                return known
        values: list[Any] = []
        failed: CelError | None = None
        for position, element in enumerate(node.elements):
            value = yield self.node(element, scope)
            if isinstance(value, CelError):
                failed = failed or value
                break
            if position in node.optional:
                if type(value) is not Optional:
                    failed = no_such_overload()
                    break
                if value.present:
                    values.append(value.value)
            else:
                values.append(value)
        if not self.constant(node):
            self.spend(LIST_BASE)
        elif failed is None:
            self.lists[id(node)] = values
        return values if failed is None else failed

    def map_(self, node: MapNode, scope: Scope) -> Step[Any]:
        """Return a map."""
        entries: dict[Any, Any] = {}
        failed: CelError | None = None
        for entry in node.entries:
            key = yield self.node(entry.key, scope)
            value = key if isinstance(key, CelError) else (yield self.node(entry.value, scope))
            if isinstance(value, CelError):
                failed = value
                break
            try:
                _enter(entries, entry, key, value)
            except CelError as error:
                failed = error
                break
        if not self.constant(node):
            self.spend(MAP_BASE)
        return failed or new_map(entries)

    def loop(self, node: Comprehension, scope: Scope) -> Step[Any]:
        """Return the result of a macro over a range, or the body of `cel.bind`."""
        if node.macro == "bind":
            bound = {**scope, node.accu: LazyBinding(node.init, scope)}
            return (yield self.node(node.result, bound))
        range_ = yield self.node(node.range, scope)
        if isinstance(range_, CelError):
            return range_
        try:
            rounds = elements(range_, two=bool(node.var2))
        except CelError as error:
            return error
        accu = yield self.node(node.init, scope)
        inner = {**scope, node.accu: accu}
        for values in rounds:
            inner[node.var] = values[0]
            if node.var2:
                inner[node.var2] = values[1]
            inner[node.accu] = accu
            going = self.at_once(node.condition, inner)
            if going is LATER:
                going = yield self.node(node.condition, inner)
            if going is not True:
                break
            # An error does not end the loop: it is one more value of the accumulator.
            accu = yield self.node(node.step, inner)
        return (yield self.node(node.result, {**scope, node.accu: accu}))


STEPS: Final[Mapping[type[Expr], Callable[..., Step[Any]]]] = {
    Literal: Evaluation.literal,
    Ident: Evaluation.ident,
    Select: Evaluation.select,
    ListNode: Evaluation.list_,
    MapNode: Evaluation.map_,
    Comprehension: Evaluation.loop,
    Struct: Evaluation.message,
}
SPECIAL: Final[Mapping[str, Callable[..., Step[Any]]]] = {
    "_&&_": Evaluation.logical,
    "_||_": Evaluation.logical,
    "_?_:_": Evaluation.conditional,
    "_[_]": Evaluation.index,
    "_[?_]": Evaluation.index,
    "_?._": Evaluation.index,
    "or": Evaluation.alternative,
    "orValue": Evaluation.alternative,
    "@not_strictly_false": Evaluation.not_strictly_false,
}


def _enter(entries: dict[Any, Any], entry: MapEntry, key: Any, value: Any) -> None:
    place = key_of(key)
    if place in entries:
        raise CelError(f"Failed with repeated key: {shown_key(key)}")
    if entry.optional:
        if type(value) is not Optional:
            raise no_such_overload()
        if not value.present:
            return
        value = value.value
    entries[place] = value


def root(node: Expr) -> Expr:
    """Return what a chain of selections and indexes starts from."""
    while True:
        if isinstance(node, Select) and not node.test:
            node = node.operand
        elif isinstance(node, Call) and node.function in {"_[_]", "_[?_]", "_?._"}:
            node = node.args[0]
        else:
            return node


def is_conditional(node: Expr) -> bool:
    """Return whether a node is a conditional, which costs nothing itself."""
    return isinstance(node, Call) and node.function == "_?_:_"


def is_attribute(node: Expr) -> bool:
    """Return whether cel-go resolves a node as part of one attribute: a name and what follows."""
    if isinstance(node, Ident):
        return node.constant is None
    if isinstance(node, Select):
        return not node.test
    return isinstance(node, Call) and node.function in {"_[_]", "_[?_]", "_?._", "_?_:_"}


def elements(range_: Any, *, two: bool) -> Sequence[tuple[Any, ...]]:
    """Return what the variables of a macro take: elements or keys, or those with their place."""
    kind = type(range_)
    if kind is list:
        return list(enumerate(range_)) if two else [(item,) for item in range_]
    if kind in MAPS:
        return list(items(range_)) if two else [(key,) for key in keys(range_)]
    raise not_iterable(range_)


def applied(function: str, arguments: Sequence[Any]) -> Any:
    """Return a function's value, or the first error among its arguments."""
    for argument in arguments:
        if isinstance(argument, CelError):
            return argument
    implementation = FUNCTIONS.get(function)
    if implementation is None:
        return no_such_overload()
    try:
        return implementation(*arguments)
    except CelError as error:
        return error
    except TypeError:
        # A dynamic call with a number of arguments that no overload for this type has.
        return no_such_overload()
