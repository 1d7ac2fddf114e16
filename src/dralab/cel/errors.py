"""Errors of expressions.

    CompileError      the text is not a valid expression of its environment; lists its problems
    CelError          the value of an expression is an error; not the same as false
      CostExceededError    evaluation was given up because it took too many cost units
      NoSuchOverloadError  an operation does not take values of these types

Class and wording follow what cel-go and the API server report, since clients look for it.
"""

from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class Issue:
    """One reason why an expression does not compile; `offset` counts code points."""

    message: str
    offset: int = 0

    def located(self, expression: str) -> str:
        """Return the message with line, column and the marked line, as cel-go prints it."""
        before = expression[: self.offset]
        line = before.count("\n") + 1
        column = self.offset - (before.rfind("\n") + 1)
        if not expression:
            return f"ERROR: <input>:1:0: {self.message}"
        text = expression.split("\n")[line - 1].replace("\t", " ")
        # Characters of several bytes count as wide ones.
        dots = "".join("." if ord(char) < 0x80 else "\uff0e" for char in text[:column])
        mark = "\uff3e" if column < len(text) and ord(text[column]) >= 0x80 else "^"
        return f"ERROR: <input>:{line}:{column + 1}: {self.message}\n | {text}\n | {dots}{mark}"


class CompileError(ValueError):
    """An expression that does not compile.

    `problems` holds what the parser or the checker found; it is empty if the expression is
    sound in itself but of the wrong type for its purpose, which `detail` then says.
    """

    def __init__(self, expression: str, problems: tuple[Issue, ...] = (), detail: str = "") -> None:
        self.expression = expression
        self.problems = problems
        self.detail = detail or "compilation failed: " + "\n".join(
            problem.located(expression) for problem in problems
        )
        super().__init__(self.detail)


class CelError(Exception):
    """An error as the value of an expression."""

    def __init__(self, message: str) -> None:
        super().__init__(message)
        self.message = message


class NoSuchKeyError(CelError):
    """A map does not have a key; `shown` is how the key is written."""

    def __init__(self, shown: str) -> None:
        super().__init__(f"no such key: {shown}")
        self.shown = shown


class CostExceededError(CelError):
    """The evaluation took more cost units than it was granted."""

    def __init__(self) -> None:
        super().__init__("operation cancelled: actual cost limit exceeded")


class NoSuchOverloadError(CelError):
    """An operation that is not defined for its operands' types."""

    def __init__(self) -> None:
        super().__init__("no such overload")


def no_such_overload() -> CelError:
    """Return the error of an operation that is not defined for its operands' types."""
    return NoSuchOverloadError()
