"""A user's policy in an engine: whether the engine can heed it, and how it is asked."""

import random
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from dralab.scenarios.code import DECISIONS
from dralab.scenarios.errors import InputError
from dralab.simulation.policies.protocol import PolicyState, StateReaders
from dralab.simulation.scenario.scenario import Scenario

# What each engine asks a policy; `decide` is Batsim's own protocol (`engines.batch.messages`).
HEEDED: Final[Mapping[str, frozenset[str]]] = {
    "fast": frozenset({"order", "prefer", "place", "preempt"}),
    "ticks": frozenset({"order", "prefer", "place", "preempt"}),
    "cluster": frozenset({"order", "prefer", "place"}),
    "batch": frozenset({"order", "prefer", "place", "resize", "decide"}),
    "rounds": frozenset({"order", "prefer", "place", "resize"}),
}
OURS: Final = str(Path(__file__).parents[2])
# Numbers that a user gives are kept as whole numbers of millionths.
SCALE: Final = 1_000_000
MOST: Final = (1 << 51) // SCALE


class UserPolicy:
    """An instance of a user's class; mistakes in it are reported with their line."""

    def __init__(self, scenario: Scenario, engine: str, chance: random.Random) -> None:
        made = scenario.policy_class()
        self.name = scenario.scheduler
        asked = {name for name in DECISIONS if callable(getattr(made, name, None))}
        if beyond := sorted(asked - HEEDED[engine]):
            able = ", ".join(name for name, heeded in HEEDED.items() if heeded >= asked) or "none"
            problem = (
                f"{self.name}.{beyond[0]} is not heeded by the engine {engine}, which asks for "
                f"{', '.join(sorted(HEEDED[engine]))}; engines for all that it decides: {able}"
            )
            raise InputError(scenario.file, problem, where="scheduler")
        if not asked:
            problem = f"{self.name} defines none of {', '.join(DECISIONS)}"
            raise InputError(scenario.file, problem, where="scheduler")
        self.asked = asked
        try:
            self.user = made()
        except Exception as error:
            raise mistake(made, "__init__", error) from error
        if not hasattr(self.user, "rng"):
            self.user.rng = chance

    def see(self, readers: StateReaders) -> None:
        """Show the policy the present state."""
        self.user.state = PolicyState(readers)

    def ask(self, method: str, *given: Any) -> Any:
        """Return what a method answers. InputError: a mistake in it, with its line."""
        try:
            return getattr(self.user, method)(*given)
        except InputError:
            raise
        except Exception as error:
            raise mistake(self.user, method, error) from error

    def rank(self, task: Any) -> tuple[float, ...]:
        """Return the place of a task in the queue."""
        wish = self.ask("order", task)
        found = wish if isinstance(wish, tuple) else (wish,)
        try:
            return tuple(map(float, found))
        except (TypeError, ValueError):
            raise self.wrong("order", "a number or a tuple of numbers", wish) from None

    def liking(self, task: Any, node: Any) -> int | None:
        """Return how good a node is for a task, in millionths; None: it must not go there."""
        wish = self.ask("prefer", task, node)
        if wish is None:
            return None
        try:
            scaled = round(float(wish) * SCALE)
        except (TypeError, ValueError, OverflowError):
            scaled = MOST * SCALE
        if abs(scaled) >= MOST * SCALE:
            raise self.wrong("prefer", f"a number between {-MOST} and {MOST}, or None", wish)
        return scaled

    def wrong(self, method: str, wanted: str, answer: Any) -> InputError:
        """Return the error that a method answered something else than is wanted."""
        file, line = _place_of(getattr(self.user, method))
        where = f"{type(self.user).__name__}.{method}"
        problem = f"must return {wanted}, and returned {answer!r}"
        return InputError(file, problem, line=line, where=where)


def mistake(user: Any, method: str, error: Exception) -> InputError:
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
