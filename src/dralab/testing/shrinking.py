"""The shortest schedule that still fails: delta debugging over faults (Zeller 2002)."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Final

from dralab.testing.faults import DURATIONS, PlannedFault

DEFAULT_BUDGET: Final = 150
Fails = Callable[[Sequence[PlannedFault]], bool]


class Shrinker:
    """Makes a failing schedule shorter, with at most `budget` trials."""

    def __init__(self, fails: Fails, budget: int = DEFAULT_BUDGET) -> None:
        self._fails = fails
        self.left = budget

    def shortest(self, faults: Sequence[PlannedFault]) -> list[PlannedFault]:
        """Return a part of a schedule that still fails, of which nothing can be left out.

        Then durations become as short as they can be. With the budget spent it is the shortest so
        far.
        """
        found = list(faults)
        parts = 2
        while len(found) >= 2 and self.left > 0:
            size = max(1, len(found) // parts)
            chunks = [found[at : at + size] for at in range(0, len(found), size)]
            for number in range(len(chunks)):
                rest = [each for k, chunk in enumerate(chunks) if k != number for each in chunk]
                if rest and self._try(rest):
                    found, parts = rest, max(parts - 1, 2)
                    break
            else:
                if size == 1:
                    break
                parts = min(len(found), parts * 2)
        if len(found) == 1 and self._try([]):
            found = []
        return self._simplest(found)

    def _simplest(self, faults: list[PlannedFault]) -> list[PlannedFault]:
        for number, fault in enumerate(faults):
            for duration in DURATIONS:
                if duration >= fault.duration:
                    break
                simpler = [*faults]
                simpler[number] = replace(fault, duration=duration)
                if self._try(simpler):
                    faults = simpler
                    break
        return faults

    def _try(self, faults: Sequence[PlannedFault]) -> bool:
        if self.left <= 0:
            return False
        self.left -= 1
        return self._fails(faults)
