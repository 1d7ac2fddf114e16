"""Grids of simulations from Python: every scenario under every scheduler with every seed."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from numbers import Integral
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import yaml

from dralab.kernel.extras import require
from dralab.lab import arguments
from dralab.lab.answers import ColumnTable
from dralab.lab.progress import progress_line
from dralab.simulation.campaigns import comparison, executors
from dralab.simulation.campaigns.grid import Campaign, CampaignCase, Numbers
from dralab.simulation.policies.shipping import shipped
from dralab.simulation.results import metrics, outputs

COMPARED: Final = ("makespan", "wait_mean", "bounded_slowdown_mean")
Scenarios = str | PathLike[str] | Mapping[str, Any]
Progress = Callable[[int, int, int], None]


def campaign(
    scenarios: Scenarios | Iterable[Scenarios],
    schedulers: str | type | Iterable[str | type],
    *,
    seeds: int | Iterable[int] = range(10),
    folder: str | PathLike[str] | None = None,
    engine: str = "processes",
    workers: int | None = None,
    address: str = "",
    progress: Progress | None = None,
) -> "Grid":
    """Run every combination and return the numbers of all runs.

    `scenarios` are files or mappings of scenarios, `schedulers` names, `file.py:Class` in the
    folder of the scenario, or classes such as a `Policy` (extra: workers). With a `folder` finished
    runs are kept there and never repeated, so that a grid that was stopped goes on. `engine` is
    "processes" (`workers` of them; default: one per core) or "dask" with the `address` of its
    scheduler. `progress` gets how many runs are done, how many of them were kept, and all; without
    it a line is shown after two seconds. Ctrl-C keeps what is done: `complete` is False then.
    InputError: runs failed, or a scenario is wrong. MissingExtraError.
    """
    found = _several("scenarios", scenarios, (str, PathLike, Mapping))
    asked = _several("schedulers", schedulers, (str, type))
    given = arguments.several("seeds", [seeds] if isinstance(seeds, int) else seeds)
    _check(given, workers)
    names, numbers = list(dict.fromkeys(asked)), list(dict.fromkeys(given))
    if not (found and names and numbers):
        raise ValueError("a campaign needs at least one scenario, one scheduler and one seed")
    if folder is not None:
        arguments.folder("folder", folder)
    chosen_by = {_name(each): shipped(each) if isinstance(each, type) else None for each in names}
    if len(chosen_by) < len(names):
        raise ValueError("schedulers: two classes have one name")
    if engine == "dask":
        if not address or workers is not None:
            raise ValueError('engine="dask" needs the address of its scheduler, and no workers')
        require("distributed", 'engine="dask"')
    elif engine != "processes":
        raise ValueError(f"engine: {engine!r} is not one of processes, dask")
    chosen: executors.Executor = (
        executors.DaskExecutor(address) if engine == "dask" else executors.ProcessExecutor(workers)
    )
    with _kept(folder) as place:
        files = [_file(each, at, place) for at, each in enumerate(found)]
        if len({file.stem for file in files}) < len(files):
            raise ValueError("scenarios: two have one name")
        cases = [
            CampaignCase(file, name, seed, policy=policy)
            for file in files
            for name, policy in chosen_by.items()
            for seed in numbers
        ]
        with progress_line("campaign") as line:

            def tell(done: int, kept: int, runs: int) -> None:
                line.show(f"{done} of {runs} runs ({kept} kept)")

            done = executors.run(
                cases, place, chosen, progress=progress or tell, interruptible=True
            )
        return Grid(done, next(iter(chosen_by)), complete=len(done) == len(cases))


def _several(argument: str, value: Any, kinds: tuple[type, ...]) -> list[Any]:
    """Return several of some kinds; one may come alone. TypeError."""
    given = [value] if isinstance(value, kinds) else arguments.several(argument, value)
    for each in given:
        if not isinstance(each, kinds):
            wanted = " or ".join(kind.__name__ for kind in kinds)
            raise TypeError(f"{argument}: {each!r} is not a {wanted}")
    return given


def _check(seeds: Iterable[object], workers: object) -> None:
    """Raise TypeError or ValueError for what is not a number of its kind."""
    if odd := [each for each in seeds if not isinstance(each, Integral)]:
        raise TypeError(f"seeds: {odd[0]!r} is not a whole number")
    if workers is not None:
        arguments.whole("workers", workers, 1)


def _name(scheduler: str | type) -> str:
    return scheduler.__name__ if isinstance(scheduler, type) else scheduler


@contextmanager
def _kept(folder: str | PathLike[str] | None) -> Iterator[Path]:
    if folder is not None:
        yield Path(folder)
        return
    with TemporaryDirectory(prefix="dralab-") as made:
        yield Path(made)


def _file(scenario: Scenarios, number: int, folder: Path) -> Path:
    """Return the file of a scenario; that of a mapping is written beside the runs."""
    if not isinstance(scenario, Mapping):
        return Path(scenario).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    name = str(scenario.get("name", f"scenario-{number}"))
    if Path(name).name != name:
        raise ValueError(f"scenarios[{number}]: name: {name!r} cannot be the name of a file")
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(dict(scenario), sort_keys=False), encoding="utf-8")
    return path.resolve()


class Grid:
    """The numbers of all runs of a campaign, by scenario, scheduler and seed.

    `complete` is False where Ctrl-C left runs out. Times are in seconds.
    """

    def __init__(
        self, found: Mapping[CampaignCase, Numbers], first: str, *, complete: bool = True
    ) -> None:
        self._found = found
        self.complete = complete
        self._first = first

    @property
    def runs(self) -> ColumnTable:
        """A row for each run with all its numbers."""
        names = list(dict.fromkeys(name for numbers in self._found.values() for name in numbers))
        rows = [
            (case.name, case.scheduler, case.seed, *(numbers.get(name) for name in names))
            for case, numbers in self._found.items()
        ]
        return ColumnTable((*comparison.RUN_COLUMNS, *names), rows)

    def mean_ci(self, metric: str) -> ColumnTable:
        """Return mean, standard deviation and half of the 95 % interval over the seeds."""
        return _columns(self._rows([metric], self._first), comparison.COLUMNS[:7])

    def compare(self, metric: str, *, baseline: str = "") -> ColumnTable:
        """Return how schedulers differ from one, the first by default, in runs of the same seed.

        `difference` is the mean over the seeds with half of its 95 % interval; it is significant
        where that leaves out zero.
        """
        names = {case.scheduler for case in self._found}
        chosen = baseline or self._first
        if chosen not in names:
            raise KeyError(f"{chosen!r} is not one of {', '.join(sorted(names))}")
        rows = [each for each in self._rows([metric], chosen) if each["scheduler"] != chosen]
        wanted = ("scenario", "scheduler", "runs", *comparison.COLUMNS[7:])
        return _columns(rows, wanted)

    def plot(self, metric: str, file: str | PathLike[str] = "") -> Any:
        """Draw the means of a number with their 95 % intervals; needs the extra `picture`.

        With a `file` (png, svg, pdf) it is written; returns the matplotlib figure.
        MissingExtraError.
        """
        outputs.check(picture="picture")
        from dralab.simulation.reports import picture

        rows = self._rows([metric], self._first)
        return picture.draw_means(metric, rows, Path(file) if file else None)

    def report(self, folder: str | PathLike[str], metrics: Sequence[str] = COMPARED) -> None:
        """Write `campaign.csv`, `runs.csv` and `report.html`, as `dralab simulate campaign`."""
        Path(arguments.folder("folder", folder)).mkdir(parents=True, exist_ok=True)
        comparison.write(self._campaign(metrics, self._first), self._found, Path(folder))

    def _rows(self, wanted: Sequence[str], baseline: str) -> list[dict[str, Any]]:
        for metric in wanted:
            if not metrics.is_known(arguments.text("metric", metric)):
                known = ", ".join(metrics.DEFINITIONS)
                raise KeyError(f"{metric!r} is not a number of a run; known: {known}")
        return comparison.rows(self._campaign(wanted, baseline), self._found)

    def _campaign(self, wanted: Sequence[str], baseline: str) -> Campaign:
        return Campaign(
            name="campaign",
            file=Path("campaign"),
            cases=tuple(self._found),
            compared=tuple(wanted),
            baseline=baseline,
        )

    def __repr__(self) -> str:
        more = "" if self.complete else ", stopped early"
        return f"<Grid of {len(self._found)} runs{more}>"

    def _repr_html_(self) -> str:
        return _columns(self._rows(COMPARED, self._first), comparison.COLUMNS)._repr_html_()


def _columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> ColumnTable:
    return ColumnTable(columns, [tuple(row[name] for name in columns) for row in rows])
