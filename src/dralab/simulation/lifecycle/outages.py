"""Outages of nodes, past and future.

Outages of one node may overlap; it is up again when the last of them is over.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from dralab.kernel.events import ENDING
from dralab.simulation.lifecycle.agenda import Agenda
from dralab.simulation.lifecycle.model import Fault, RandomFaults, Stream

FOR_EVER: Final = -1


@dataclass(slots=True)
class Outages:
    """Outages so far.

    >>> found = Outages()
    >>> found.begin("n", 1), found.begin("n", 2), found.end("n", 3), found.end("n", 5)
    (True, False, False, True)
    >>> list(found.until(9))
    [('n', 1, 5)]
    """

    over: list[tuple[str, int, int]] = field(default_factory=list)
    depth: dict[str, int] = field(default_factory=dict)
    since: dict[str, int] = field(default_factory=dict)

    def begin(self, name: str, now: int) -> bool:
        """Begin an outage; return whether the node was up."""
        self.depth[name] = self.depth.get(name, 0) + 1
        if self.depth[name] > 1:
            return False
        self.since[name] = now
        return True

    def end(self, name: str, now: int) -> bool:
        """End an outage; return whether the node is up again."""
        self.depth[name] -= 1
        if self.depth[name]:
            return False
        self.over.append((name, self.since.pop(name), now))
        return True

    def until(self, end: int) -> Iterator[tuple[str, int, int]]:
        """Yield all outages; those that last end at `end`."""
        yield from self.over
        yield from ((name, since, end) for name, since in self.since.items())


class NodeFaults:
    """Takes nodes down on an agenda, and brings them back.

    `lose` is called for a node that was up, `strike` at the begin of every outage after that,
    `restore` for a node that is up again.
    """

    def __init__(
        self,
        agenda: Agenda,
        *,
        lose: Callable[[str], None],
        restore: Callable[[str], None],
        strike: Callable[[str], None] = lambda _: None,
        at_random: RandomFaults | None = None,
        stream: Stream,
    ) -> None:
        self.agenda = agenda
        self.outages = Outages()
        # How many outages of the scenario are still to begin or to end.
        self.to_come = 0
        self._lose, self._restore, self._strike = lose, restore, strike
        self._at_random = at_random
        # How often each node fails at random.
        self._rates: dict[str, float] = {}
        self._stream = stream
        agenda.methods |= {"break": self._break, "repair": self._repair}

    def plan(self, faults: Iterable[Fault], begin: int) -> None:
        """Schedule the outages that a scenario names."""
        for fault in faults:
            length = FOR_EVER if fault.duration is None else fault.duration
            self.agenda.schedule(begin + fault.at, ENDING, "break", fault.node, length=length)
            self.to_come += 1

    def plan_random(self, nodes: Mapping[str, int]) -> None:
        """Schedule the first random outage of nodes with so many GPUs; each schedules the next."""
        if self._at_random is not None:
            self._rates |= {name: self._at_random.rate(gpus) for name, gpus in nodes.items()}
            for name in nodes:
                self._plan_random(name, self._at_random)

    def _plan_random(self, name: str, faults: RandomFaults) -> None:
        chance, rate = self._stream("faults"), self._rates[name]
        if not rate:
            return
        after = 0 if math.isinf(rate) else int(chance.expovariate(rate))
        length = int(chance.expovariate(1 / faults.repair)) if faults.repair else 1
        when = self.agenda.now() + after
        self.agenda.schedule(when, ENDING, "break", name, length=length, again=1)

    def _break(self, name: str, length: int, again: int = 0) -> None:
        now = self.agenda.now()
        if self.outages.begin(name, now):
            self._lose(name)
        self._strike(name)
        if length == FOR_EVER:
            self.to_come -= 1
        else:
            self.agenda.schedule(now + length, ENDING, "repair", name, again=again)

    def _repair(self, name: str, again: int) -> None:
        if self.outages.end(name, self.agenda.now()):
            self._restore(name)
        if not again:
            self.to_come -= 1
        elif self._at_random is not None:
            self._plan_random(name, self._at_random)
