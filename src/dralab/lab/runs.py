"""Simulations from Python: `simulate` runs a scenario, `Run` is its result."""

import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from numbers import Integral
from os import PathLike
from pathlib import Path
from types import FrameType, NoneType
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.lab import arguments
from dralab.lab.answers import ColumnTable
from dralab.lab.progress import progress_line
from dralab.scenarios.errors import InputError
from dralab.simulation import dispatch
from dralab.simulation.reports import run as reports
from dralab.simulation.results import metrics, outputs
from dralab.simulation.results.result import Result
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario.scenario import Scenario
from dralab.simulation.traces import formats as traces

# Of a workload that says nothing of machines, the field of a scenario that reads it.
READERS: Final[Mapping[str, str]] = {".swf": "swf", ".json": "batsim", ".csv": "openb"}
Progress = Callable[[float, int, int], None]


def simulate(
    scenario: str | PathLike[str] | Mapping[str, Any] | Scenario,
    *,
    scheduler: str | type | None = None,
    seed: int | None = None,
    fleet: Mapping[str, Any] | None = None,
    engine: str | None = None,
    version: str | None = None,
    feature_gates: str | None = None,
    progress: Progress | None = None,
) -> "Run":
    """Run a scenario to its end and return the result.

    `scenario` is a file, the mapping of one (paths in it count from the current directory), a
    recording of `dralab record`, a snapshot (what waits in it is placed), or a workload alone: a
    log in the Standard Workload Format (`.swf`), Batsim's jobs (`.json`), the pods of openb or
    another public trace (`.csv`), or a pandas.DataFrame with a pod a row, columns named as the
    fields of `workload.pods` (without a `name`, pods are numbered). A workload
    alone needs a `fleet`, the field of that name of a scenario: `{"hosts": 128}`. `scheduler` (a
    name, `file.py:Class`, or a class of a `Policy`), `seed`, `version` (the release of Kubernetes,
    such as "1.34") and `feature_gates` ("A=true,B=false") replace what the scenario says. A class
    of yours runs in an `engine`: "fast" (the default), "ticks", "cluster" (the whole of
    `dralab up`), "batch" (jobs on machines, and the default for them) or "rounds" (trainings, and
    the default where the scenario has a `round`). `progress` gets the
    simulated seconds, the tasks that are over, and all tasks; the last time at the end. Without it,
    a line is shown on terminals and in notebooks after two seconds.

    Ctrl-C ends the run and keeps what is done: `complete` is False then. InputError: what is wrong,
    with its file and field.
    """
    if progress is not None and not callable(progress):
        raise TypeError(f"progress: {progress!r} is not a function")
    found = load(
        scenario,
        fleet=fleet,
        scheduler=scheduler,
        seed=seed,
        engine=engine,
        version=version,
        feature_gates=feature_gates,
    )
    with progress_line(found.name) as line, _asked_to_stop() as stop:

        def tell(now: int, over: int, tasks: int) -> None:
            if progress is not None:
                progress(now / SECOND, over, tasks)
            else:
                line.show(f"{over} of {tasks} tasks over, {now / SECOND / 3600:,.1f} h")

        try:
            result = dispatch.begin(found).go(tell, stop)
        except InputError as error:
            # Where it came up here says nothing to whoever wrote the scenario or the policy.
            raise error.with_traceback(None) from None
        over = sum(task.ended is not None for task in result.tasks)
        tell(result.end, over, len(result.tasks))
    return Run(dispatch.measured(found, result))


@contextmanager
def _asked_to_stop() -> Iterator[Callable[[], bool]]:
    """Yield a function that tells whether Ctrl-C was pressed; a second one stops at once."""
    pressed = threading.Event()

    def ask(_: int, __: FrameType | None) -> None:
        pressed.set()
        signal.signal(signal.SIGINT, before)

    if threading.current_thread() is not threading.main_thread():
        yield pressed.is_set
        return
    before = signal.signal(signal.SIGINT, ask)
    try:
        yield pressed.is_set
    finally:
        signal.signal(signal.SIGINT, before)


def load(
    scenario: str | PathLike[str] | Mapping[str, Any] | Scenario,
    *,
    fleet: Mapping[str, Any] | None = None,
    scheduler: str | type | None = None,
    seed: int | None = None,
    **how: Any,
) -> Scenario:
    """Return the scenario of `simulate`."""
    _check(scenario, scheduler, seed)
    for name, value in how.items():
        if value is not None:
            arguments.text(name, value)
    how |= {"scheduler": scheduler, "seed": seed}
    if isinstance(scenario, Scenario):
        if any(each is not None for each in (fleet, *how.values())):
            raise ValueError("a Scenario is whole: give these to what it was loaded from")
        return scenario
    here = Path("scenario")
    if isinstance(scheduler, type):
        how |= {"scheduler": scheduler.__name__, "policy": scheduler}
    is_alone = hasattr(scenario, "to_dict") or (
        not isinstance(scenario, Mapping) and Path(scenario).suffix in READERS
    )
    if fleet is not None and not is_alone:
        known = ", ".join(READERS)
        raise ValueError(f"fleet: is for a workload alone: a DataFrame, or a file of {known}")
    if isinstance(scenario, Mapping):
        return scenarios.load(here, content=dict(scenario), **how)
    if hasattr(scenario, "to_dict"):
        pods = [
            {"name": f"pod-{number}"} | {key: value for key, value in row.items() if value == value}  # noqa: PLR0124 - not NaN
            for number, row in enumerate(scenario.to_dict("records"))
        ]
        alone: dict[str, Any] = {"fleet": fleet, "workload": {"pods": pods}}
        return scenarios.load(here, content=alone, **how)
    path = Path(scenario)
    reader = READERS.get(path.suffix)
    if reader is None:
        return scenarios.load(path, **how)
    if reader != "swf" and traces.format_of(path) is not None:
        reader = "trace"
    content: dict[str, Any] = {"name": path.stem, "fleet": fleet, "workload": {reader: path.name}}
    return scenarios.load(path.resolve(), content=content, **how)


def _check(scenario: object, scheduler: object, seed: object) -> None:
    """Raise TypeError for what no scenario can be made of."""
    if not isinstance(scheduler, (str, type, NoneType)):
        raise TypeError(f"scheduler: {scheduler!r} is not a name or a class: give the class itself")
    if not isinstance(seed, (Integral, NoneType)):
        raise TypeError(f"seed: {seed!r} is not a whole number")
    is_frame = hasattr(scenario, "to_dict")
    if not (is_frame or isinstance(scenario, (str, PathLike, Mapping, Scenario))):
        raise TypeError(f"scenario: {scenario!r} is not a file, a mapping, or a DataFrame of pods")


class Run:
    """The result of a simulation. Times in seconds of simulated time from its beginning."""

    def __init__(self, result: Result) -> None:
        self.result = result

    @property
    def complete(self) -> bool:
        """Whether it ran to its end."""
        return self.result.complete

    @property
    def notes(self) -> list[str]:
        """What the engine left out, and other remarks."""
        return list(self.result.notes)

    @property
    def summary(self) -> Mapping[str, Any]:
        """All numbers of the run by name, such as `wait_mean`; `meaning` says what each is."""
        found: Mapping[str, Any] = outputs.summary(self.result)["metrics"]
        return found

    @staticmethod
    def meaning(name: str) -> str:
        """Return what a number of `summary` says. KeyError: it does not exist."""
        if not metrics.is_known(arguments.text("name", name)):
            raise KeyError(
                f"{name!r} is not a number of a run; known: {', '.join(metrics.DEFINITIONS)}"
            )
        return metrics.definition_of(name)

    @property
    def tasks(self) -> ColumnTable:
        """A row for each pod or job: times, state, where it ran, why it waited."""
        return ColumnTable(outputs.TASK_COLUMNS, outputs.task_rows(self.result))

    @property
    def stays(self) -> ColumnTable:
        """In rounds, a row for each time that a task had GPUs: from when to when, and which."""
        return ColumnTable(outputs.STAY_COLUMNS, outputs.stay_rows(self.result))

    @property
    def samples(self) -> ColumnTable:
        """The state after each change: waiting, running, use in milli, memory in bytes."""
        return ColumnTable(outputs.sample_columns(self.result), outputs.sample_rows(self.result))

    @property
    def nodes(self) -> list[str]:
        """The names of the nodes or machines."""
        return [lane for lane in self.result.lanes if "/" not in lane]

    @property
    def capacity(self) -> Mapping[str, int]:
        """What all nodes have together: CPU and GPU in milli, memory in bytes; or machines."""
        return dict(self.result.capacity)

    def report(self, folder: str | PathLike[str]) -> list[Path]:
        """Write tables and the page of the run into a folder; return the files. InputError."""
        return reports.write(self.result, Path(arguments.folder("folder", folder)))

    def plot(self, file: str | PathLike[str] = "") -> Any:
        """Draw use, queue, Gantt and waits; needs the extra `picture`.

        With a `file` (png, svg, pdf) it is written; returns the matplotlib figure.
        MissingExtraError.
        """
        outputs.check(picture="picture")
        from dralab.simulation.reports import picture

        return picture.draw(self.result, Path(file) if file else None)

    def __repr__(self) -> str:
        numbers = self.summary
        over = f"{numbers['ended']} of {numbers['tasks']} tasks ended"
        return f"<Run {self.result.name}: {self.result.scheduler}, {over}>"

    def _repr_html_(self) -> str:
        rows = [(name, value, metrics.definition_of(name)) for name, value in self.summary.items()]
        return ColumnTable(("number", "value", "meaning"), rows)._repr_html_()
