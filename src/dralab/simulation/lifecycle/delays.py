"""How long the stages of a life last, and which runs fail: drawn from named random streams."""

import random
from collections.abc import Callable
from dataclasses import dataclass

from dralab.simulation.lifecycle.model import LifeCycle, Stage

Stream = Callable[[str], random.Random]


@dataclass(frozen=True, slots=True)
class Delays:
    """Draws for one run; `stream` returns the random stream of a name."""

    life: LifeCycle
    stream: Stream

    def length_of(self, stage: Stage) -> int:
        """Return how long a stage lasts, in nanoseconds."""
        if not stage.jitter:
            return stage.delay
        return stage.delay + int(self.stream(stage.name).random() * stage.jitter)

    def run(self, duration: int) -> tuple[int, bool]:
        """Return how long a run of a duration lasts, and whether it fails: then it is cut short."""
        if not self.life.failure:
            return duration, False
        chance = self.stream("failure")
        fails = chance.random() < self.life.failure
        return int(duration * chance.random()) if fails else duration, fails
