"""Match conditions: expressions that decide whether a webhook or policy is called.

Source: k8s.io/apiserver `admission/plugin/webhook/matchconditions`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from dralab import cel
from dralab.apiserver.access.admission.expressions import PER_MATCHER, Expression, Variables
from dralab.cel.environment import Environment
from dralab.values.go_text import aggregate


class ConditionError(Exception):
    """A condition could not be evaluated; `str` says why."""


class MatchConditions:
    """The conditions of one webhook or policy, compiled once.

    A text that does not compile is an error when it is asked.
    """

    def __init__(self, conditions: Sequence[Mapping[str, Any]], within: Environment) -> None:
        self._conditions: list[tuple[str, Expression | cel.CompileError]] = []
        for each in conditions:
            name = str(each.get("name") or "")
            try:
                self._conditions.append((name, Expression(str(each.get("expression")), within)))
            except cel.CompileError as error:
                self._conditions.append((name, error))

    def __bool__(self) -> bool:
        return bool(self._conditions)

    def match(self, variables: Variables, *, ignore_errors: bool) -> bool:
        """Return whether all conditions are true. ConditionError.

        One that is false decides, whatever is wrong with the others; with `ignore_errors`, what
        has no answer does not match.
        """
        wrong, left = list[str](), PER_MATCHER
        for name, expression in self._conditions:
            if isinstance(expression, cel.CompileError):
                wrong.append(f"{expression}")
                continue
            found, cost = expression.value(variables, left)
            left -= cost
            if isinstance(found, cel.CostExceededError) or left < 0:
                wrong.append(
                    "validation failed due to running out of cost budget, no further validation "
                    "rules will be run"
                )
                break
            if isinstance(found, cel.CelError):
                wrong.append(f"expression '{expression.text}' resulted in error: {found}")
            elif found is False:
                return False
            elif found is not True:
                wrong.append(f"match condition {name} must evaluate to bool")
        if wrong and not ignore_errors:
            raise ConditionError(aggregate(wrong))
        return not wrong
