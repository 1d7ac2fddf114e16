"""A user's policy in an engine: whether the engine can heed it, and how it is asked."""

import math
import random
import traceback
from collections.abc import Callable, Iterable, Mapping
from operator import index
from pathlib import Path
from reprlib import Repr
from typing import Any, Final, TypeVar

from dralab.scenarios.code import DECISIONS
from dralab.scenarios.errors import InputError
from dralab.simulation.policies.protocol import (
    PolicyNode,
    PolicyState,
    PolicyTask,
    StateReaders,
)
from dralab.simulation.scenario.scenario import Scenario

# What each engine asks a policy; `decide` is Batsim's own protocol (`engines.batch.messages`).
HEEDED: Final[Mapping[str, frozenset[str]]] = {
    "fast": frozenset({"order", "prefer", "place", "preempt"}),
    "ticks": frozenset({"order", "prefer", "place", "preempt"}),
    "cluster": frozenset({"order", "prefer", "place"}),
    "batch": frozenset({"order", "prefer", "place", "resize", "decide"}),
    "rounds": frozenset({"order", "prefer", "place", "resize"}),
}
# Of two of them the first decides, and the second would never be asked.
INSTEAD: Final = (
    *(("decide", name) for name in DECISIONS if name != "decide"),
    ("place", "prefer"),
)
OURS: Final = str(Path(__file__).parents[2])
Answer = TypeVar("Answer")
SHOWN: Final = Repr()
SHOWN.maxstring = SHOWN.maxother = 200
# Numbers that a user gives are kept as whole numbers of millionths.
SCALE: Final = 1_000_000
MOST: Final = (1 << 51) // SCALE


class UserPolicy:
    """An instance of a user's class; mistakes in it are reported with their line."""

    def __init__(self, scenario: Scenario, engine: str, chance: random.Random) -> None:
        made = scenario.policy_class()
        self.name = scenario.scheduler
        decisions = {name: getattr(made, name) for name in DECISIONS if hasattr(made, name)}
        self.asked = set(decisions)
        if problem := self._problem(decisions, engine):
            raise InputError(scenario.file, problem, where="scheduler")
        self.user = _called(made, "__init__", made)
        if not hasattr(self.user, "rng"):
            _called(made, "__init__", setattr, self.user, "rng", chance)

    def _problem(self, decisions: Mapping[str, Any], engine: str) -> str:
        """Return the problem of a class in an engine; empty if all that it decides is heeded."""
        asked = decisions.keys()
        if not asked:
            return f"{self.name} defines none of {', '.join(DECISIONS)}"
        for name, given in decisions.items():
            if not callable(given):
                return f"{self.name}.{name} must be a method, and is {SHOWN.repr(given)}"
        if beyond := sorted(asked - HEEDED[engine]):
            able = ", ".join(name for name, heeded in HEEDED.items() if heeded >= asked) or "none"
            return (
                f"{self.name}.{beyond[0]} is not heeded by the engine {engine}, which asks for "
                f"{', '.join(sorted(HEEDED[engine]))}; engines for all that it decides: {able}"
            )
        for name, other in INSTEAD:
            if {name, other} <= asked:
                return (
                    f"{self.name}.{other} would never be asked, since {name} decides in its place: "
                    f"leave one out, or rename {other} if {name} calls it"
                )
        return ""

    def see(self, readers: StateReaders) -> None:
        """Show the policy the present state."""
        self.user.state = PolicyState(readers)

    def ask(self, method: str, *given: Any) -> Any:
        """Return what a method answers. InputError: a mistake in it, with its line."""
        return _called(self.user, method, getattr(self.user, method), *given)

    def rank(self, task: Any) -> tuple[float, ...]:
        """Return the place of a task in the queue."""
        wish = self.ask("order", task)
        found = tuple(_number(each) for each in (wish if isinstance(wish, tuple) else (wish,)))
        # What is not a number is neither before nor after another.
        if any(map(math.isnan, found)):
            raise self.wrong("order", "a number or a tuple of numbers", wish)
        return found

    def liking(self, task: Any, node: Any) -> int | None:
        """Return how good a node is for a task, in millionths; None: it must not go there."""
        wish = self.ask("prefer", task, node)
        if wish is None:
            return None
        found = _number(wish)
        if not abs(found) < MOST:
            raise self.wrong("prefer", f"a number between {-MOST} and {MOST}, or None", wish)
        return round(found * SCALE)

    def number(self, method: str, wanted: str, within: tuple[int, int], task: Any) -> int | None:
        """Return the whole number that a method answers, within two; None: as it is."""
        wish = self.ask(method, task)
        if wish is None:
            return None
        least, most = within
        try:
            found = least - 1 if isinstance(wish, bool) else index(wish)
        except TypeError:
            found = least - 1
        if not least <= found <= most:
            raise self.wrong(method, wanted, wish)
        return found

    def names(self, method: str, wanted: str, *given: Any) -> list[str] | None:
        """Return the nodes by name, or the tasks by key, that a method answers; None: it is None.

        One may be answered alone.
        """
        wish = self.ask(method, *given)
        if wish is None:
            return None
        if isinstance(wish, (str, PolicyNode, PolicyTask)):
            wish = [wish]
        if not isinstance(wish, Iterable):
            raise self.wrong(method, wanted, wish)
        return _called(self.user, method, self._named, method, wanted, wish)

    def _named(self, method: str, wanted: str, answers: Iterable[Any]) -> list[str]:
        found: dict[str, None] = {}
        for each in answers:
            name = _name_of(each)
            if name is None:
                raise self.wrong(method, wanted, each)
            if name in found:
                raise self.wrong(method, f"{wanted}, each once", [name, name])
            found[name] = None
        return list(found)

    def wrong(self, method: str, wanted: str, answer: Any) -> InputError:
        """Return the error that a method answered something else than is wanted."""
        file, line = _place_of(getattr(self.user, method))
        where = f"{type(self.user).__name__}.{method}"
        problem = f"must return {wanted}, and returned {SHOWN.repr(answer)}"
        return InputError(file, problem, line=line, where=where)


def _number(wish: Any) -> float:
    """Return a number; NaN for what is not one."""
    try:
        return math.nan if isinstance(wish, (str, bytes, bytearray)) else float(wish)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _name_of(answer: Any) -> str | None:
    if isinstance(answer, PolicyNode):
        return answer.name
    if isinstance(answer, PolicyTask):
        return answer.key
    return answer if isinstance(answer, str) else None


def _called(user: Any, method: str, function: Callable[..., Answer], *given: Any) -> Answer:
    """Return what a user's function answers. InputError: a mistake in it, with its line."""
    try:
        return function(*given)
    except InputError:
        raise
    except (Exception, SystemExit) as error:
        raise mistake(user, method, error) from error


def mistake(user: Any, method: str, error: BaseException) -> InputError:
    """Return the error of a user's method, with file and line."""
    made = user if isinstance(user, type) else type(user)
    frames = [
        each
        for each in traceback.extract_tb(error.__traceback__)
        if not each.filename.startswith(OURS)
    ]
    file, line = _place_of(getattr(made, method, made))
    if frames:
        # What a library raised is the mistake of the line that called it.
        file, line = [(f.filename, f.lineno) for f in frames if f.filename == frames[0].filename][
            -1
        ]
    where = f"{made.__name__}.{method}"
    return InputError(file, f"{type(error).__name__}: {error}", line=line, where=where)


def _place_of(method: Callable[..., Any]) -> tuple[str, int | None]:
    code = getattr(method, "__code__", None)
    return ("policy", None) if code is None else (code.co_filename, code.co_firstlineno)
