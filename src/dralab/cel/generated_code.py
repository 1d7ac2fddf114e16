"""Pieces of generated code, and the names in it."""

from collections.abc import Iterator
from dataclasses import field
from typing import Any, Final

from dralab.values.records import dataclass

PLAIN: Final = frozenset({bool, int, str, bytes, type(None)})


@dataclass(frozen=True, slots=True)
class Code:
    """Lines to run, and an expression for the value after them.

    `brackets` bounds how deep the expression nests, `blocks` how deep the lines do.
    """

    value: str
    lines: list[str] = field(default_factory=list)
    brackets: int = 0
    blocks: int = 0

    @classmethod
    def expression(cls, value: str, *parts: "Code") -> "Code":
        """Return code for an expression made of the values of parts."""
        return cls(
            value,
            [line for part in parts for line in part.lines],
            1 + max((part.brackets for part in parts), default=0),
            max((part.blocks for part in parts), default=0),
        )

    def indented(self) -> Iterator[str]:
        """Yield the lines, one step to the right."""
        return ("    " + line for line in self.lines)


@dataclass
class GeneratedNames:
    """Names that are in use, and the constants behind some of them."""

    constants: dict[str, Any] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    count: int = 0

    def function(self, name: str, value: Any) -> str:
        """Return the name under which a function is called."""
        if name not in self.functions:
            self.functions[name] = self.new("c")
            self.constants[self.functions[name]] = value
        return self.functions[name]

    def new(self, prefix: str) -> str:
        """Return a name that is not in use."""
        self.count += 1
        return f"{prefix}{self.count}"

    def constant(self, value: Any) -> Code:
        """Return code for a constant: written out if it is plain, else a global name."""
        if type(value) in PLAIN and len(repr(value)) < 200:
            # A minus sign binds weaker than a following selection would.
            return Code(f"({value!r})" if type(value) is int and value < 0 else repr(value))
        name = self.new("k")
        self.constants[name] = value
        return Code(name)
