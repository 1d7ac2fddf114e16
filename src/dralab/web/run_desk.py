"""Answers the questions of the page about one simulation: curves over time, and tasks on lanes."""

from pathlib import Path
from typing import Any, Final

import orjson

from dralab import __version__
from dralab.simulation.fidelity import result_of
from dralab.simulation.results.metrics import meanings
from dralab.simulation.results.outputs import WrittenRun, as_written, read_run
from dralab.simulation.scenario.recorded import history_of
from dralab.web.fleet_map import NameList

MOST_SAMPLES: Final = 20_000
MOST_TASKS: Final = 200_000
MOST_LANES: Final = 100_000
MOST_PROBLEMS: Final = 20


class RunDesk:
    """The answers about the results in a folder, or about a recording. InputError."""

    def __init__(self, path: Path) -> None:
        self.title = path.name or str(path)
        run = read_run(path) if path.is_dir() else as_written(result_of(history_of(path)))
        self._run = orjson.dumps(run_view(run))

    def about(self) -> bytes:
        """Return what the page shows of the run as a source."""
        return orjson.dumps(
            {"title": self.title, "live": False, "kind": "run", "dralab": __version__}
        )

    def run(self) -> bytes:
        """Return the run (`run_view`)."""
        return self._run


def run_view(run: WrittenRun) -> dict[str, Any]:
    """Return a run in columns: at most MOST_SAMPLES samples, evenly chosen, and the first tasks.

    `of` says how many there are. Lanes and states are listed once; tasks refer to them by their
    place, and to no lane beyond MOST_LANES.
    """
    step = max(1, -(-len(run.samples) // MOST_SAMPLES))
    chosen = run.samples[::step]
    if run.samples and chosen[-1] is not run.samples[-1]:
        chosen = [*chosen, run.samples[-1]]
    lanes, states = NameList(), NameList()
    tasks = run.tasks[:MOST_TASKS]
    for name in sorted({name for task in tasks for name in task.places}):
        lanes.place(name)
    places = [[at for at in map(lanes.place, task.places) if at < MOST_LANES] for task in tasks]
    problems = list(run.problems[:MOST_PROBLEMS])
    if len(run.problems) > MOST_PROBLEMS:
        problems.append(f"and {len(run.problems) - MOST_PROBLEMS} more problems")
    return {
        "summary": dict(run.summary),
        "samples": {
            "columns": {name: [row[at] for row in chosen] for at, name in enumerate(run.columns)},
            "of": len(run.samples),
        },
        "lanes": lanes.texts[:MOST_LANES],
        "tasks": {
            "id": [task.id for task in tasks],
            "state": [states.place(task.state) for task in tasks],
            "submitted": [task.submitted for task in tasks],
            "started": [task.started for task in tasks],
            "ended": [task.ended for task in tasks],
            "places": places,
            "of": len(run.tasks),
        },
        "states": states.texts,
        "meanings": meanings(run.summary.get("metrics") or ()),
        "problems": problems,
    }
