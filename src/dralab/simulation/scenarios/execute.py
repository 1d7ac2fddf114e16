"""Running a scenario: to the end, or until someone asks to stop; then it can be gone on with.

A checkpoint is the engine itself, pickled, with the digest of the scenario it belongs to. Loading
one runs code from the file, as pickle does: load only your own.
"""

import hashlib
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final

from dralab import __version__
from dralab.simulation.batch.engine import Simulation
from dralab.simulation.errors import InputError
from dralab.simulation.pods.engine import PodSimulation
from dralab.simulation.results import Result
from dralab.simulation.scenarios import collect, ignored
from dralab.simulation.scenarios.scenario import Engine, Scenario

MAGIC: Final = b"dralab checkpoint 1\n"
Progress = Callable[[int, int, int], None]


def digest(scenario: Scenario) -> str:
    """Return what a run depends on, as a short text: the same text, the same result."""
    fleet = scenario.fleet
    # Labels are sets, and the text of a set has another order in another process.
    nodes = [(replace(node, labels=frozenset()), sorted(node.labels)) for node in fleet.nodes]
    described = repr(
        (
            __version__, scenario.seed, scenario.scheduler, scenario.circumstances, nodes,
            fleet.platform, fleet.objects,
        )
    )  # fmt: skip
    work = repr(scenario.work)
    return hashlib.sha256(f"{described}\n{work}".encode()).hexdigest()


class Run:
    """One run of a scenario, step by step."""

    def __init__(self, scenario: Scenario, engine: Engine | None = None) -> None:
        self.scenario = scenario
        self.engine: Engine = scenario.engine() if engine is None else engine
        self.complete = False

    @property
    def tasks(self) -> int:
        """How many tasks there are."""
        engine = self.engine
        return len(engine.records) if isinstance(engine, Simulation) else len(engine.runs)

    def go(
        self, progress: Progress | None = None, stop: Callable[[], bool] | None = None
    ) -> Result:
        """Run on; `progress` gets simulated nanoseconds, tasks over, tasks."""
        engine, total = self.engine, self.tasks

        def tell(now: int, over: int) -> None:
            if progress is not None:
                progress(now, over, total)

        if isinstance(engine, PodSimulation):
            self.complete = engine.run(tell, stop)
        else:
            engine.progress = tell
            self.complete = engine.run(self.scenario.circumstances.until, stop)
            engine.progress = None
        return self.result()

    def result(self) -> Result:
        """Return what there is so far."""
        engine, scenario = self.engine, self.scenario
        if isinstance(engine, PodSimulation):
            notes = ignored.notes(scenario.fleet, scenario.work)
            found = collect.of_pods(engine, name=scenario.name, complete=self.complete)
            return replace(found, notes=[*found.notes, *notes])
        found = collect.of_jobs(
            engine, name=scenario.name, scheduler=scenario.scheduler, seed=scenario.seed
        )
        return found if self.complete else _incomplete(found)

    def save(self, path: Path) -> None:
        """Write a checkpoint."""
        write_checkpoint(path, self.scenario, self.engine)

    @classmethod
    def resumed(cls, scenario: Scenario, path: Path) -> "Run":
        """Return a run that goes on from a checkpoint of the same scenario."""
        engine = read_checkpoint(path, scenario)
        if not isinstance(engine, Engine):
            raise InputError(path, "is no checkpoint of this scheduler")
        return cls(scenario, engine)


def write_checkpoint(path: Path, scenario: Scenario, state: object) -> None:
    """Write the state of a run, with what it belongs to; never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f"{path.name}.part")
    aside.write_bytes(MAGIC + pickle.dumps((digest(scenario), state)))
    aside.replace(path)


def read_checkpoint(path: Path, scenario: Scenario) -> object:
    """Return the state that `write_checkpoint` wrote; InputError where it is of another run."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from None
    if not raw.startswith(MAGIC):
        raise InputError(path, "is no checkpoint of this version")
    try:
        known, state = pickle.loads(raw[len(MAGIC) :])  # noqa: S301 - the user's own file
    except (pickle.UnpicklingError, EOFError, AttributeError, ImportError, ValueError) as error:
        raise InputError(path, f"cannot be read: {error!r}") from None
    if known != digest(scenario):
        raise InputError(path, "belongs to another scenario, seed or scheduler")
    return state


def _incomplete(result: Result) -> Result:
    return replace(result, complete=False)
