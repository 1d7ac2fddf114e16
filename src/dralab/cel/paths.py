"""Which parts of its variables an expression reads.

A path such as `("device", "attributes", "gpu.example.com", "model")` is a chain of selections
and indexes with constants, also through `cel.bind`, `has`, `in`, `.?` and `[?]`. A use that is
not constant (iterating a map, a computed index) reads the whole value at that point. Equal
values at all paths give equal results: that is what projections rest on.
"""

from collections.abc import Mapping

from dralab.cel.deep_recursion import Step, run
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

Path = tuple[str, ...]
Aliases = Mapping[str, Path | None]


def paths(tree: Expr) -> tuple[Path, ...]:
    """Return what a checked tree reads, sorted, without paths inside others."""
    tracer = PathTracer()
    tracer.use(run(tracer.trace(tree, {})))
    found: list[Path] = []
    for path in sorted(tracer.used):
        if not found or path[: len(found[-1])] != found[-1]:
            found.append(path)
    return tuple(found)


class PathTracer:
    """One walk over one tree."""

    def __init__(self) -> None:
        self.used: set[Path] = set()
        self.done: dict[int, Path | None] = {}

    def use(self, path: Path | None) -> None:
        """Note that the value at a path is used."""
        if path is not None:
            self.used.add(path)

    def trace(self, node: Expr, aliases: Aliases) -> Step[Path | None]:
        """Return the path of an expression, or None after recording the paths that it uses."""
        if id(node) in self.done:
            return self.done[id(node)]
        found: Path | None = yield self.walk(node, aliases)
        # Only what stands twice in the tree is found here again: the target of optMap.
        self.done[id(node)] = found
        return found

    def walk(self, node: Expr, aliases: Aliases) -> Step[Path | None]:
        """Trace one kind of expression."""
        match node:
            case Ident():
                if node.name in aliases:
                    return aliases[node.name]
                return (node.name,) if node.constant is None else None
            case Select():
                path: Path | None = yield self.trace(node.operand, aliases)
                if path is None:
                    return None
                if node.test:
                    self.use((*path, node.name))
                    return None
                return (*path, node.name)
            case Call():
                found: Path | None = yield self.call(node, aliases)
                return found
            case ListNode():
                for element in node.elements:
                    self.use((yield self.trace(element, aliases)))
            case MapNode():
                for entry in node.entries:
                    self.use((yield self.trace(entry.key, aliases)))
                    self.use((yield self.trace(entry.value, aliases)))
            case Struct():
                for _, value in node.fields:
                    self.use((yield self.trace(value, aliases)))
            case Comprehension():
                found = yield self.comprehension(node, aliases)
                return found
            case _:
                pass
        return None

    def call(self, node: Call, aliases: Aliases) -> Step[Path | None]:
        """Trace a call: indexes extend the path of their operand, `in` reads one key."""
        if node.function in {"_[_]", "_[?_]", "_?._"}:
            path: Path | None = yield self.trace(node.args[0], aliases)
            key = node.args[1]
            if isinstance(key, Literal) and type(key.value) is str:
                return None if path is None else (*path, key.value)
            self.use(path)
            self.use((yield self.trace(key, aliases)))
            return None
        if node.function == "@in" and isinstance(key := node.args[0], Literal):
            path = yield self.trace(node.args[1], aliases)
            if path is not None and type(key.value) is str and node.args[1].type.kind == "map":
                path = (*path, key.value)
            self.use(path)
            return None
        if node.target is not None:
            self.use((yield self.trace(node.target, aliases)))
        for argument in node.args:
            self.use((yield self.trace(argument, aliases)))
        return None

    def comprehension(self, node: Comprehension, aliases: Aliases) -> Step[Path | None]:
        """Trace a loop, or `cel.bind`, whose variable stands for the path of its value."""
        if node.macro == "bind":
            alias: Path | None = yield self.trace(node.init, aliases)
            found: Path | None = yield self.trace(node.result, {**aliases, node.accu: alias})
            return found
        self.use((yield self.trace(node.range, aliases)))
        self.use((yield self.trace(node.init, aliases)))
        inner = {**aliases, node.var: None, node.accu: None}
        if node.var2:
            inner[node.var2] = None
        self.use((yield self.trace(node.condition, inner)))
        self.use((yield self.trace(node.step, inner)))
        self.use((yield self.trace(node.result, inner)))
        return None
