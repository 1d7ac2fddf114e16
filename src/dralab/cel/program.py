"""From text to something that can be evaluated.

`compile_expression` serves every environment; `compile_selector` is the device selector of
resource.k8s.io, with its two modes and its limits.
"""

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from typing import Any

from dralab.cel import device as devices
from dralab.cel.checker import check as check_tree
from dralab.cel.environment import Environment
from dralab.cel.errors import CelError, CompileError
from dralab.cel.estimate import estimate
from dralab.cel.evaluation import evaluate
from dralab.cel.generate import generate
from dralab.cel.parser import parse
from dralab.cel.paths import Path, paths
from dralab.cel.syntax import Expr
from dralab.cel.types import CelType
from dralab.cel.values import Map, type_name
from dralab.values.records import dataclass

PRIMITIVES = frozenset({"int", "uint", "double"})
# What the generated code may raise where it is not sure.
FAILURES = (
    CelError, TypeError, AttributeError, ValueError, ArithmeticError, LookupError, RecursionError,
)  # fmt: skip
RESERVE = 16
DEEPEST = "compilation failed: expression recursion limit exceeded"


@dataclass(frozen=True, kw_only=True)
class Program:
    """A checked expression of an environment."""

    expression: str
    environment: Environment
    tree: Expr

    @property
    def type(self) -> CelType:
        """The static type of the result."""
        return self.tree.type

    @cached_property
    def max_cost(self) -> int:
        """The estimate: no evaluation on a valid input costs more."""
        return estimate(self.tree, self.environment)

    @cached_property
    def fast(self) -> Callable[..., Any] | None:
        """The generated form, which takes the variables in the order of their names.

        None if an evaluation may cost more than is granted, or where Python refuses the code.
        """
        try:
            return generate(self.tree, tuple(sorted(self.environment.variables)))
        except (SyntaxError, RecursionError, MemoryError):  # pragma: no cover - see generate
            return None

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """What the expression reads, each path beginning with a variable."""
        return paths(self.tree)

    def value(self, variables: Mapping[str, Any], limit: int = devices.MAX_COST) -> tuple[Any, int]:
        """Return the value and its cost; raise CelError if the value is an error."""
        value, cost = evaluate(self.tree, variables, limit)
        if isinstance(value, CelError):
            raise value
        return value, cost

    def outcome(
        self, variables: Mapping[str, Any], limit: int = devices.MAX_COST
    ) -> tuple[Any, int]:
        """Return the value, which may be a CelError, and its cost."""
        return evaluate(self.tree, variables, limit)


def compile_expression(expression: str, environment: Environment) -> Program:
    """Return the program of an expression; raise CompileError with every problem."""
    try:
        tree = parse(expression, macros=environment.macros, quoted_names=environment.quoted_names)
        tree = check_tree(tree, environment, expression)
    except RecursionError:
        # Types may nest as deeply as literals do, and are compared recursively.
        raise CompileError(expression, detail=DEEPEST) from None
    if environment.result and tree.type not in environment.result:
        words = environment.result_words
        raise CompileError(expression, detail=f"must evaluate to {words}, not {tree.type}")
    return Program(expression=expression, environment=environment, tree=tree)


@dataclass(frozen=True, kw_only=True)
class CompiledSelector:
    """A device selector: a bool for a device, or an error.

    `paths` says which parts of a device it reads: `("driver",)`, `("attributes", DOMAIN, ID)`,
    `("capacity", DOMAIN, ID)`, `("allowMultipleAllocations",)`, or a shorter path where it reads
    everything below. Devices that are equal there get equal answers.
    """

    program: Program
    limit: int

    @property
    def expression(self) -> str:
        """The text it was compiled from."""
        return self.program.expression

    @property
    def max_cost(self) -> int:
        """The estimated worst-case cost; admission rejects more than 1,000,000."""
        return self.program.max_cost

    @cached_property
    def paths(self) -> tuple[Path, ...]:
        """What the selector reads of a device; `()` alone stands for the whole device."""
        return tuple(path[1:] for path in self.program.paths)

    @cached_property
    def _fast(self) -> Callable[[Map], Any]:
        """The generated form; where it could exceed the limit, one that always gives way.

        Estimates are now and then below the actual cost, upstream as here, most of all for
        named formats, whose patterns they do not know: hence the reserve.
        """
        fast = self.program.fast if self.max_cost <= self.limit // RESERVE else None
        return fast or _give_way

    def evaluate(self, device: Map) -> bool:
        """Return whether the selector accepts a device (see `device_value`); raise CelError."""
        try:
            value = self._fast(device)
        except FAILURES:
            value = None
        if value is True or value is False:
            return value
        # An error, or no bool: the exact evaluation says which, and absorbs what it must.
        value, _ = self.program.value({"device": device}, self.limit)
        return as_bool(value)

    def outcome(self, device: Map) -> tuple[bool | CelError, int]:
        """Return the answer, or the error that takes its place, and the actual cost."""
        value, cost = self.program.outcome({"device": device}, self.limit)
        if not isinstance(value, CelError):
            try:
                return as_bool(value), cost
            except CelError as error:
                return error, cost
        return value, cost


def _give_way(_device: Map) -> Any:
    raise CelError("the exact evaluation decides")


def as_bool(value: Any) -> bool:
    """Return a result that must be a bool."""
    if value is True or value is False:
        return value
    name = type_name(value)
    why = f"type conversion error from {name} to 'bool'"
    if name in PRIMITIVES:
        why = f"unsupported type conversion from '{name}' to bool"
    elif name == "kubernetes.Semver":
        why = "type conversion error from 'Semver' to 'bool'"
    raise CelError(f"CEL result of type {name} could not be converted to bool: {why}")


@lru_cache(maxsize=4096)
def compile_selector(
    expression: str,
    features: devices.CelFeatures = devices.ALL_FEATURES,
    mode: devices.Mode = "stored",
    *,
    limit: int = devices.MAX_COST,
) -> CompiledSelector:
    """Return a device selector; raise CompileError.

    `mode` is "new" for expressions under validation, which may use only what the features allow,
    and "stored" for those that the API server has accepted before. Results are cached by text.
    """
    program = compile_expression(expression, devices.environment(features, mode))
    return CompiledSelector(program=program, limit=limit)


@dataclass(frozen=True, slots=True)
class ExpressionCheck:
    """The result of compiling an expression for validation: problems, or the maximal cost."""

    problems: tuple[str, ...]
    max_cost: int


def check(expression: str, environment: Environment) -> ExpressionCheck:
    """Return whether an expression compiles, and its estimated worst-case cost."""
    try:
        program = compile_expression(expression, environment)
    except CompileError as error:
        return ExpressionCheck((error.detail,), 0)
    return ExpressionCheck((), program.max_cost)
