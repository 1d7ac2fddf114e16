"""The worst case: the compile-time half of the cost model.

An expression's cost is bounded from its tree, the static types and the declared sizes of the
variables. Source of the numbers: cel-go's estimator and the API server's one for its libraries.
Which calls have which price is in `estimated_costs`; here is the walk that brings sizes to them.
"""

from dataclasses import field

from dralab.cel.deep_recursion import Step, run
from dralab.cel.environment import Environment
from dralab.cel.estimated_costs import PricedArgument, price
from dralab.cel.ranges import NOTHING, ONE, UNKNOWN, CostRange, fixed
from dralab.cel.runtime_costs import LIST_BASE, MAP_BASE
from dralab.cel.syntax import (
    ACCUMULATOR,
    Call,
    Comprehension,
    Expr,
    Ident,
    ListNode,
    Literal,
    MapNode,
    Select,
)
from dralab.cel.types import SCALARS, CelType, is_optional
from dralab.values.records import dataclass

Path = tuple[str, ...]

STRUCT_BASE = 40


@dataclass(frozen=True, slots=True)
class EntrySizes:
    """The sizes of what a list or map holds."""

    kind: str
    key: CostRange
    value: CostRange

    def joined(self, other: "EntrySizes | None") -> "EntrySizes | None":
        """Return sizes that cover both."""
        if other is None:
            return None
        return EntrySizes(self.kind, self.key.joined(other.key), self.value.joined(other.value))


@dataclass(frozen=True, slots=True)
class MacroVariable:
    """What the estimate knows about a variable of a macro."""

    path: Path
    size: CostRange | None
    entries: EntrySizes | None


def estimate(tree: Expr, environment: Environment) -> int:
    """Return the largest cost that an evaluation of a checked tree can have."""
    return run(Estimator(environment).cost(tree)).high


@dataclass
class Estimator:
    """One walk over one tree."""

    environment: Environment
    paths: dict[int, Path] = field(default_factory=dict)
    sizes: dict[int, CostRange] = field(default_factory=dict)
    entries: dict[int, EntrySizes] = field(default_factory=dict)
    locals: dict[str, list[MacroVariable]] = field(default_factory=dict)
    # optMap has its target twice in the tree; it costs twice, but is walked once.
    done: dict[int, CostRange] = field(default_factory=dict)

    def cost(self, node: Expr) -> Step[CostRange]:
        """Return the cost of an expression."""
        known = self.done.get(id(node))
        if known is not None:
            return known
        cost: CostRange
        match node:
            case Literal():
                cost = NOTHING
            case Ident():
                cost = self.ident(node)
            case Select():
                cost = yield self.select(node)
            case Call():
                cost = yield self.call(node)
            case ListNode():
                cost = yield self.list_(node)
            case MapNode():
                cost = yield self.map_(node)
            case Comprehension():
                cost = yield self.comprehension(node)
            case _:
                cost = fixed(STRUCT_BASE)
        self.done[id(node)] = cost
        return cost

    # --- variables and paths ---

    def local(self, name: str) -> MacroVariable | None:
        """Return a macro's variable of a name, the innermost one."""
        stack = self.locals.get(name)
        return stack[-1] if stack else None

    def push(self, name: str, local: MacroVariable) -> None:
        """Enter a scope with a variable."""
        self.locals.setdefault(name, []).append(local)

    def path(self, node: Expr) -> Path:
        """Return the path from a variable to a value, if it is on one."""
        if isinstance(node, Ident) and (found := self.local(node.name)):
            return found.path
        return self.paths.get(id(node), ())

    def ident(self, node: Ident) -> CostRange:
        """Return the cost of a name."""
        found = self.local(node.name)
        self.paths[id(node)] = found.path if found else (node.name,)
        return ONE

    def select(self, node: Select) -> Step[CostRange]:
        """Return the cost of a selection; a presence test is free."""
        cost: CostRange = yield self.cost(node.operand)
        if node.test:
            return cost
        if node.operand.type.kind in {"map", "struct", "param"}:
            cost = cost + ONE
        self.paths[id(node)] = (*self.path(node.operand), node.name)
        return cost

    # --- sizes ---

    def size(self, node: Expr) -> CostRange | None:
        """Return how large a value can be, if anything is known about it."""
        known = self.sizes.get(id(node))
        if known is not None:
            return known
        known = _literal_size(node)
        if known is not None:
            return known
        declared = self.declared(self.path(node))
        if declared is not None:
            self.sizes[id(node)] = declared
            return declared
        if _is_scalar(node.type):
            return ONE
        if isinstance(node, Ident) and (found := self.local(node.name)):
            return found.size
        return None

    def size_or_unknown(self, node: Expr) -> CostRange:
        """Return how large a value can be."""
        return self.size(node) or UNKNOWN

    def declared(self, path: Path) -> CostRange | None:
        """Return the declared size of what lies at a path, 0 if it has none."""
        current = self.environment.sizes.get(path[0], self.environment.root) if path else None
        if current is None:
            return None
        for name in path[1:]:
            if name in {"@items", "@values"}:
                current = current.element
            elif name == "@keys":
                current = current.key
            elif name in current.fields:
                current = current.fields[name]
            else:
                current = current.element if current.any_field else None
            if current is None:
                return None
        return CostRange(0, current.largest)

    def entries_of(self, node: Expr) -> EntrySizes | None:
        """Return the sizes of what a value holds, if known."""
        known = self.entries.get(id(node))
        if known is None and isinstance(node, Ident) and (found := self.local(node.name)):
            known = found.entries
        return known

    def argument(self, node: Expr) -> PricedArgument:
        """Return the properties of an argument that a price may depend on."""
        path = self.path(node)
        if path and path[0] == ACCUMULATOR:
            path = ()
        element = None
        if node.type.params:
            # The elements of a list; of a map, its keys, as the API server has it too.
            inner = node.type.params[0]
            size = self.declared((*path, "@items")) if path else None
            element = PricedArgument(inner, size or UNKNOWN, None, None, known=size is not None)
        size = self.size(node)
        constant = node.value if isinstance(node, Literal) else None
        return PricedArgument(node.type, size or UNKNOWN, element, constant, known=size is not None)

    # --- expressions ---

    def call(self, node: Call) -> Step[CostRange]:
        """Return the cost of a call: the widest over the overloads it may turn out to be."""
        if node.function in {"_&&_", "_||_"}:
            total = NOTHING
            for position, argument in enumerate(node.args):
                cost: CostRange = yield self.cost(argument)
                total = CostRange(total.low if position else cost.low, (total + cost).high)
            return total
        costs: list[CostRange] = []
        for argument in node.args:
            costs.append((yield self.cost(argument)))  # noqa: PERF401 - a step is yielded
        if node.function == "dyn":
            self.copy(node, node.args[0])
            return ONE + costs[0]
        if node.function == "_?_:_":
            return self.conditional(node, costs)
        total = sum(costs, NOTHING)
        target = None
        if node.target is not None:
            total = total + (yield self.cost(node.target))
            target = self.argument(node.target)
        arguments = [self.argument(argument) for argument in node.args]
        cheapest: CostRange | None = None
        result: CostRange | None = None
        for overload in node.overloads:
            cost, size = price(node.function, overload.id, target, arguments)
            cheapest = cost if cheapest is None else cheapest.joined(cost)
            if size is not None:
                result = size if result is None else result.joined(size)
            result = self.indexed(node, overload.id, result)
            if result is None:
                result = self.size(node)
        if node.function == "_+_":
            self.concatenated(node)
        if result is not None:
            self.sizes[id(node)] = result
        return total + (cheapest or NOTHING)

    def indexed(self, node: Call, overload: str, result: CostRange | None) -> CostRange | None:
        """Return the size of `operand[key]`, noting its path."""
        steps = {"index_list": "@items", "index_map": "@values"}
        if overload not in steps:
            return result
        self.paths[id(node)] = (*self.path(node.args[0]), steps[overload])
        inner = self.entries_of(node.args[0])
        return inner.value if inner else None

    def conditional(self, node: Call, costs: list[CostRange]) -> CostRange:
        """Return the cost of `condition ? first : second`."""
        first, second = self.entries_of(node.args[1]), self.entries_of(node.args[2])
        joined = first.joined(second) if first else None
        if joined is not None:
            self.entries[id(node)] = joined
        sizes = [self.size_or_unknown(argument) for argument in node.args[1:]]
        self.sizes[id(node)] = sizes[0].joined(sizes[1])
        return costs[0] + costs[1].joined(costs[2])

    def concatenated(self, node: Call) -> None:
        """Note the sizes of what the result of `+` holds."""
        first, second = (self.entries_of(argument) for argument in node.args)
        joined = first.joined(second) if first else None
        if joined is not None:
            self.entries[id(node)] = joined

    def copy(self, node: Expr, source: Expr) -> None:
        """Give an expression the sizes of another."""
        size, entries = self.size(source), self.entries_of(source)
        if size is not None:
            self.sizes[id(node)] = size
        if entries is not None:
            self.entries[id(node)] = entries

    def list_(self, node: ListNode) -> Step[CostRange]:
        """Return the cost of a list literal."""
        cost = fixed(LIST_BASE)
        inner: CostRange | None = None
        for element in node.elements:
            cost = cost + (yield self.cost(element))
            size = self.size_or_unknown(element)
            inner = size if inner is None else inner.joined(size)
        self.entries[id(node)] = EntrySizes("list", ONE, inner or NOTHING)
        return cost

    def map_(self, node: MapNode) -> Step[CostRange]:
        """Return the cost of a map literal."""
        cost = fixed(MAP_BASE)
        keys: CostRange | None = None
        values: CostRange | None = None
        for entry in node.entries:
            cost = cost + (yield self.cost(entry.key))
            cost = cost + (yield self.cost(entry.value))
            key, value = self.size_or_unknown(entry.key), self.size_or_unknown(entry.value)
            keys = key if keys is None else keys.joined(key)
            values = value if values is None else values.joined(value)
        self.entries[id(node)] = EntrySizes("map", keys or NOTHING, values or NOTHING)
        return cost

    def comprehension(self, node: Comprehension) -> Step[CostRange]:
        """Return the cost of a loop, or of `cel.bind`."""
        cost: CostRange = yield self.cost(node.range)
        cost = cost + (yield self.cost(node.init))
        accu = MacroVariable(self.path(node.init), self.size(node.init), self.entries_of(node.init))
        self.push(node.accu, accu)
        if node.macro == "bind":
            cost = cost + (yield self.cost(node.result))
            # Read while the variable is still in scope, as the result may be the variable.
            self.locals[node.accu].pop()
            self.copy(node, node.result)
            return cost
        for name, local in self.iterated(node):
            self.push(name, local)
        step: CostRange = yield self.cost(node.condition)
        step = step + (yield self.cost(node.step))
        self.locals[node.var].pop()
        if node.var2:
            self.locals[node.var2].pop()
        cost = cost + (yield self.cost(node.result))
        self.locals[node.accu].pop()
        count = self.size_or_unknown(node.range)
        if isinstance(node.init, Literal):
            size = self.size(node.init)
            if size is not None:
                self.sizes[id(node)] = size
        elif isinstance(node.init, (ListNode, MapNode)):
            self.sizes[id(node)] = count
            inner = self.entries_of(node.step)
            if inner is not None:
                self.entries[id(node)] = inner
        return cost + count * step

    def iterated(self, node: Comprehension) -> list[tuple[str, MacroVariable]]:
        """Return the variables of a loop with what is known of them."""
        inner = self.entries_of(node.range)
        kind = inner.kind if inner else node.range.type.kind
        path = self.path(node.range)
        key, value = (inner.key, inner.value) if inner else (None, None)
        of_list = kind == "list"
        first = MacroVariable((*path, "@indices" if of_list else "@keys"), key, None)
        second = MacroVariable((*path, "@items" if of_list else "@values"), value, None)
        if node.var2:
            return [(node.var, first), (node.var2, second)]
        return [(node.var, second if of_list else first)]


def _is_scalar(type_: CelType) -> bool:
    if is_optional(type_):
        return _is_scalar(type_.params[0])
    return type_.kind in SCALARS


def _literal_size(node: Expr) -> CostRange | None:
    if isinstance(node, Literal):
        if isinstance(node.value, (str, bytes)):
            return fixed(len(node.value))
        if isinstance(node.value, (bool, int, float, type(None))):
            return ONE
    if isinstance(node, ListNode):
        return fixed(len(node.elements))
    if isinstance(node, MapNode):
        return fixed(len(node.entries))
    return None
