"""What a policy's expressions can read: the write, the parameter, the policy's variables."""

from collections.abc import Callable
from typing import Any, Final

from dralab import cel
from dralab.apiserver.access.admission.expressions import (
    PER_CALL,
    BriefBudget,
    Expression,
    ReviewValues,
    SpecKey,
    Variables,
    measured,
)
from dralab.apiserver.access.admission.policies.definitions import AdmissionPolicy, Compiled
from dralab.cel.values import LazyMap

OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


class OutOfBudget(Exception):  # noqa: N818 - a fact, which messages tell
    """The expressions of a policy have used up their cost budget."""

    def __init__(self) -> None:
        super().__init__(OUT_OF_BUDGET)


class PolicyVariables:
    """The variables of one policy for one write and one parameter.

    A variable of the policy is evaluated when it is first used; `left` falls by all that was
    spent.
    """

    __slots__ = ("_own", "_params", "_policy", "_size", "_values", "_visible", "left")

    def __init__(
        self, policy: AdmissionPolicy, values: ReviewValues, params: Any, budget: int
    ) -> None:
        self._policy = policy
        self._values = values
        self._params = params
        self._own: LazyMap | None = None
        self._size: tuple[int, int] | None = None
        # Most policies have nothing of their own.
        plain = not policy.variables and policy.param_kind is None
        self._visible: Variables = values if plain else self
        self.left = budget

    @property
    def size(self) -> tuple[int, int]:
        """The number of parts, and the length of the longest text."""
        if self._size is None:
            parts, longest = self._values.size
            more, longer = measured(self._params)
            self._size = parts + more, max(longest, longer)
        return self._size

    @property
    def budget(self) -> BriefBudget:
        """What the expressions about the write may cost before they are long work."""
        return self._values.budget

    @property
    def spec_key(self) -> SpecKey | None:
        """What is equal for objects with equal specs; None where that is not known."""
        return self._values.spec_key

    def named(self, name: str, *, whole: bool = True) -> Any:
        """Return a variable by its name in expressions; see `ReviewValues.named`."""
        if name == "params":
            return self._params
        if name != "variables":
            return self._values.named(name, whole=whole)
        if self._own is None:
            makers = self._policy.variables.items()
            self._own = LazyMap({own: self._maker(own, each) for own, each in makers})
        return self._own

    def value(self, expression: Compiled) -> Any:
        """Return the value of an expression; CelError, CompileError as values. OutOfBudget."""
        if not isinstance(expression, Expression):
            return expression
        left = self.left
        found, cost = expression.value(self._visible, min(PER_CALL, left))
        self.left -= cost  # beside what its variables have spent
        if self.left < 0:
            raise OutOfBudget
        return found

    def _maker(self, name: str, expression: Compiled) -> Callable[[], Any]:
        def made() -> Any:
            found = self.value(expression)
            if isinstance(found, (cel.CelError, cel.CompileError)):
                why = failure(expression, found) if isinstance(found, cel.CompileError) else found
                return cel.CelError(f'composited variable "{name}" fails to evaluate: {why}')
            return found

        return made


def failure(expression: Compiled, error: Exception) -> str:
    """Return the message for an expression that has no value."""
    if isinstance(expression, cel.CompileError):
        return f"compilation error: {expression}"
    return f"expression '{expression.program.expression}' resulted in error: {error}"
