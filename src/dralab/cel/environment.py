"""Environments: the names, functions, macros and rules for compiling an expression.

An environment is a frozen value. `extended` makes a new one with more variables or functions, so
other kinds of devices can have their own; sizes say how large the values of a variable may be,
for the estimate of costs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from functools import cached_property
from typing import Final

from dralab.cel import types
from dralab.cel.types import CelType, Overload, type_of
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class DeclaredSize:
    """How large a declared value may be: characters of a string, entries of a list or map.

    `fields` are those of an object; `key` and `element` describe the entries of a map or list.
    `any_field` says that every field has the size of an element, as in a map of attributes.
    """

    largest: int
    key: "DeclaredSize | None" = None
    element: "DeclaredSize | None" = None
    fields: Mapping[str, "DeclaredSize"] = field(default_factory=dict)
    any_field: bool = False


TYPE_NAMES: Final[Mapping[str, CelType]] = {
    "bool": types.BOOL, "int": types.INT, "uint": types.UINT, "double": types.DOUBLE,
    "string": types.STRING, "bytes": types.BYTES, "list": types.list_of(types.DYN),
    "map": types.map_of(types.DYN, types.DYN), "null_type": types.NULL,
    "type": CelType("type"), "google.protobuf.Timestamp": types.TIMESTAMP,
    "google.protobuf.Duration": types.DURATION,
    "optional_type": types.optional_of(types.DYN),
    "net.IP": types.IP, "net.CIDR": types.CIDR,
    "kubernetes.Quantity": types.QUANTITY, "kubernetes.Semver": types.SEMVER,
    "kubernetes.URL": types.URL, "kubernetes.NamedFormat": types.FORMAT,
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Environment:
    """What an expression may use.

    `variables` and `structs` (type name → field → type) declare the input; `functions` are
    overloads by name; `homogeneous` forbids mixed lists and maps; `checks_literals` reads
    durations, timestamps and patterns at compile time; `container` prefixes unqualified names.
    `root` has the sizes of what lies at a path that begins with no variable: a loop over a list
    that was put together has such a one, and custom resources' rules start from their own schema.
    `messages` are the structs that an expression may construct. `open_message` is one more, which
    has any field, as have the messages in it: `Object`, `Object.spec`.
    """

    functions: Mapping[str, tuple[Overload, ...]]
    macros: frozenset[str]
    variables: Mapping[str, CelType] = field(default_factory=dict)
    structs: Mapping[str, Mapping[str, CelType]] = field(default_factory=dict)
    sizes: Mapping[str, DeclaredSize] = field(default_factory=dict)
    root: DeclaredSize | None = None
    homogeneous: bool = True
    checks_literals: bool = True
    quoted_names: bool = False
    container: str = ""
    result: tuple[CelType, ...] = ()
    result_words: str = "bool"
    messages: frozenset[str] = frozenset()
    open_message: str = ""

    @cached_property
    def type_names(self) -> Mapping[str, CelType]:
        """Names that stand for types, with the type of what they stand for."""
        return {name: type_of(type_) for name, type_ in TYPE_NAMES.items()}

    def candidates(self, name: str) -> Iterator[str]:
        """Yield what a name may mean, the innermost container first."""
        if name.startswith("."):
            yield name[1:]
            return
        container = self.container
        while container:
            yield f"{container}.{name}"
            container = container.rpartition(".")[0]
        yield name

    def without(self, macros: frozenset[str]) -> "Environment":
        """Return an environment that lacks some macros."""
        return replace(self, macros=self.macros - macros)

    def extended(
        self,
        *,
        variables: Mapping[str, CelType] | None = None,
        structs: Mapping[str, Mapping[str, CelType]] | None = None,
        sizes: Mapping[str, DeclaredSize] | None = None,
        root: DeclaredSize | None = None,
        functions: Mapping[str, tuple[Overload, ...]] | None = None,
        result: tuple[CelType, ...] | None = None,
        result_words: str | None = None,
        messages: frozenset[str] | None = None,
        open_message: str | None = None,
    ) -> "Environment":
        """Return an environment with additions; they replace definitions of the same name."""
        return replace(
            self,
            variables={**self.variables, **(variables or {})},
            structs={**self.structs, **(structs or {})},
            sizes={**self.sizes, **(sizes or {})},
            root=self.root if root is None else root,
            functions={**self.functions, **(functions or {})},
            result=self.result if result is None else result,
            result_words=self.result_words if result_words is None else result_words,
            messages=self.messages if messages is None else messages,
            open_message=self.open_message if open_message is None else open_message,
        )
