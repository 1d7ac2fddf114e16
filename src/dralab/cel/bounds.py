"""An upper bound of what an evaluation costs on one input, from the size of that input.

`estimate` bounds the costs for every input, which for an untyped object is as good as nothing. Here
the object is known: a loop has no more rounds than the input has parts. Where the bound is low
enough, generated code, which counts no costs, may be run. Expressions that could build values
larger than their input have no bound here.
"""

from typing import Final

from dralab.cel.syntax import Call, Comprehension, Expr, ListNode, Literal, MapNode, Select, Struct
from dralab.values.records import dataclass

# Functions that build nothing larger than their arguments, and look at each part of them once.
PLAIN: Final = frozenset(
    {
        "_&&_", "_||_", "!_", "_?_:_", "_==_", "_!=_", "_<_", "_<=_", "_>_", "_>=_", "_-_", "_*_",
        "_/_", "_%_", "-_", "@in", "@not_strictly_false", "_[_]", "_[?_]", "_?._", "size",
        "startsWith", "endsWith", "contains", "matches", "or", "orValue", "hasValue", "value",
        "optional.of", "optional.none", "optional.ofNonZeroValue", "int", "uint", "double", "bool",
        "string", "dyn", "type", "quantity", "isQuantity", "isGreaterThan", "isLessThan",
        "compareTo", "asInteger", "asApproximateFloat", "sign", "isInteger", "lowerAscii",
        "upperAscii", "trim",
    }
)  # fmt: skip
NUMBERS: Final = frozenset({"int", "uint", "double"})
WALKING: Final = frozenset({"_==_", "_!=_", "@in", "matches"})


@dataclass(frozen=True, slots=True)
class CostBound:
    """How the cost grows: `nodes` of the expression, at most `loops` within one another."""

    nodes: int
    loops: int

    def of(self, parts: int, longest: int) -> int:
        """Return a bound for an input of so many parts, its longest text of so many characters."""
        each: int = self.nodes * (8 + longest) * (parts + 2) ** self.loops
        return each


def bound(tree: Expr) -> CostBound | None:
    """Return the bound of a checked expression; None if it may build larger values."""
    nodes, most = 0, 0
    waiting = [(tree, 0)]
    while waiting:
        node, loops = waiting.pop()
        nodes += 1
        most = max(most, loops)
        if isinstance(node, Select):
            waiting.append((node.operand, loops))
        elif isinstance(node, Call):
            grows = node.function == "_+_" and node.type.kind not in NUMBERS
            if grows or node.macro or (node.function not in PLAIN and node.function != "_+_"):
                return None
            nodes += _written(node)
            if node.function in WALKING and not _is_written(node):
                loops += 1  # a whole list or pattern may be walked through for each part
                most = max(most, loops)
            waiting += [(each, loops) for each in node.args]
            if node.target is not None:
                waiting.append((node.target, loops))
        elif isinstance(node, ListNode):
            waiting += [(each, loops) for each in node.elements]
        elif isinstance(node, (MapNode, Struct)):
            return None
        elif isinstance(node, Comprehension):
            if node.macro == "bind" or not _ends_in_bool(node):
                return None
            waiting.append((node.range, loops))
            waiting += [
                (each, loops + 1) for each in (node.init, node.condition, node.step, node.result)
            ]
    return CostBound(nodes, most)


def _is_written(node: Call) -> bool:
    """Whether one side of a comparison is a literal of the expression, which bounds its size."""
    return any(isinstance(each, (Literal, ListNode)) for each in node.args)


def _written(node: Call) -> int:
    """Return the cost that the size of a literal pattern adds."""
    return sum(
        len(each.value) // 2
        for each in node.args
        if isinstance(each, Literal) and type(each.value) is str
    )


def _ends_in_bool(node: Comprehension) -> bool:
    """Whether a loop gathers nothing but a bool: `all`, `exists`, not `map` or `filter`."""
    return node.type.kind == "bool"
