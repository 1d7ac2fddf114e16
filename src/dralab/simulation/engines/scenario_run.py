"""The interface of all engines: a run that can proceed, stop, be saved, and return a result."""

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from dralab.simulation.results.result import Result

# Gets simulated nanoseconds, tasks over, and tasks.
Progress = Callable[[int, int, int], None]
Stop = Callable[[], bool]


class ScenarioRun(Protocol):
    """A run of a scenario."""

    def go(self, progress: Progress | None = None, stop: Stop | None = None) -> Result:
        """Run to the end, or until `stop` returns True: then the result is incomplete."""
        ...

    def save(self, path: Path) -> None:
        """Write a checkpoint of a stopped run."""
        ...
