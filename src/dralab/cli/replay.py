"""`dralab replay`: what happened in a cluster, decided again by another scheduler or fleet."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from dralab.cli._components import GATES, RELEASE, features_of, release_of
from dralab.cli._options import EXISTING, FOLDER, arg, opt, options
from dralab.cli._output import echo_json, echo_table, formats
from dralab.cli._runs import bad_input, watched
from dralab.cli._terminal import echo
from dralab.cli.errors import refusing
from dralab.cli.what_if import nodes_to_add

if TYPE_CHECKING:
    from dralab.simulation.fidelity import Fidelity
    from dralab.simulation.results.result import Result

SHOWN: Final = 10
NUMBERS: Final = (
    "tasks", "ended", "never_started", "wait_mean", "wait_max", "evictions", "utilisation_cpu",
    "utilisation_gpu",
)  # fmt: skip


@click.command(
    epilog="""Examples:

\b
  dralab replay week.dralab
  dralab replay week.dralab --scheduler fgd --write out/
  dralab replay week.dralab --add h100=2
  dralab replay week.dralab --kubernetes-version 1.33
  dralab replay week.dralab --feature-gates DRAConsumableCapacity=false
  dralab ui week.dralab
"""
)
@options
def replay(
    *,
    file: Path = arg(EXISTING, metavar="FILE"),
    scheduler: str | None = opt(
        "Also replay with this scheduler, as in `dralab simulate run`: a policy or file.py:Class."
    ),
    add: tuple[str, ...] = opt(
        "Add nodes of a shape (see `dralab generate -h`), or copies of a node of the input.",
        metavar="SHAPE|NODE=COUNT",
    ),
    kubernetes_version: str = RELEASE,
    feature_gates: str = GATES,
    seed: int | None = opt("The seed of random choices, instead of the scenario's."),
    write: Path | None = opt("Write tables, reports and comparisons to this directory.", FOLDER),
    everything: bool = opt(f"List all differences, not {SHOWN}.", flags="--all"),
    output: str = formats("table", "json"),
) -> None:
    """Replay what `dralab record` has recorded, in simulated time.

    First, dralab's scheduler places the same pods on the same nodes. The fidelity says how close
    this comes to what happened; differences are listed, with the cause where it is known. Then,
    with --scheduler, --add, --kubernetes-version or --feature-gates, the same pods arrive again
    under that change. Each pod runs as long as it did in the recording.
    """
    from dralab.capacity.changes import UnknownName
    from dralab.simulation import fidelity
    from dralab.simulation.scenario import scenario as scenarios
    from dralab.simulation.scenario.recorded import history_of

    release = release_of(kubernetes_version)
    features_of(feature_gates, release)
    changed = bool(scheduler or add or release or feature_gates)
    with bad_input():
        history = history_of(file)
        same, own = _own(file, seed)
    runs = {fidelity.RECORDED: fidelity.result_of(history), "replayed": _run(same, "replayed")}
    found = fidelity.fidelity(history, runs["replayed"])
    if changed:
        with bad_input(), refusing(UnknownName, kind=click.UsageError):
            other = scenarios.load(
                file,
                seed=seed,
                scheduler=scheduler or own,
                version=release or None,
                feature_gates=feature_gates or None,
            )
            added = [nodes_to_add(each) for each in add]
            other = replace(other, fleet=fidelity.with_nodes(other.fleet, added))
        runs["what-if"] = _run(other, "what-if")
    if write is not None:
        _write(runs, write)
    if output == "json":
        echo_json(_structured(found, runs))
        return
    _print(found, history.end, everything=everything)
    _print_runs(runs)


def _own(file: Path, seed: int | None) -> tuple[Any, str]:
    """Return the recording with dralab's scheduler, and the engine: the fast one where it can."""
    from dralab.simulation.engines.unsupported import beyond_fast
    from dralab.simulation.scenario import scenario as scenarios
    from dralab.simulation.scenario.schedulers import FAST, OWN

    found = scenarios.load(file, seed=seed, scheduler=FAST)
    beyond = next(beyond_fast(found), None)
    if beyond is None:
        return found, FAST
    echo(f"note: on the whole cluster, which takes longer: {': '.join(beyond)}", err=True)
    return replace(found, scheduler=OWN), OWN


def _run(scenario: Any, title: str) -> "Result":
    from dralab.simulation import dispatch

    with bad_input():
        work = dispatch.begin(replace(scenario, name=f"{scenario.name}, {title}"))
    return dispatch.measured(scenario, watched(title, work))


def _write(runs: Mapping[str, "Result"], folder: Path) -> None:
    """Write a folder for each run, and a page for each two that follow each other."""
    from itertools import pairwise

    from dralab.simulation.reports import difference
    from dralab.simulation.reports import run as reports

    with bad_input():
        for name, result in runs.items():
            reports.write(result, folder / name)
        for first, second in pairwise(runs):
            both = difference.read(folder / first), difference.read(folder / second)
            difference.page(*both).write(folder / f"{first}-{second}.html")
    echo(f"wrote {', '.join(runs)} and their comparisons to {folder}", err=True)


def _structured(found: "Fidelity", runs: Mapping[str, "Result"]) -> dict[str, Any]:
    from dralab.simulation.results import outputs

    return {
        "fidelity": found.structured(),
        "runs": {name: outputs.summary(result) for name, result in runs.items()},
    }


def _print(found: "Fidelity", end: int, *, everything: bool) -> None:
    from dralab.explanation.names import counted
    from dralab.kernel.clock import SECOND
    from dralab.simulation import fidelity

    length = f"{end / SECOND / 3600:.1f} h" if end >= 360 * SECOND else f"{end / SECOND:.0f} s"
    echo(f"{counted(found.pods, 'pod')} in {length}")
    for line in fidelity.lines_of(found):
        echo(line)
    shown = found.differences if everything else found.differences[:SHOWN]
    if shown:
        rows: list[Sequence[str]] = [("POD", "RECORDED", "REPLAYED", "BOUND LATER", "BECAUSE")]
        for each in shown:
            later = "-" if each.later is None else f"{each.later / SECOND:+.1f} s"
            because = f"{each.cause}: {each.detail}" if each.detail else each.cause
            rows.append(
                (each.name, each.recorded_node or "-", each.replayed_node or "-", later, because)
            )
        echo()
        echo_table(rows)
    if len(shown) < len(found.differences):
        echo(f"and {len(found.differences) - len(shown)} more: --all")


def _print_runs(runs: Mapping[str, "Result"]) -> None:
    from dralab.simulation.results import metrics

    numbers = {name: metrics.metrics_of(result) for name, result in runs.items()}
    rows: list[Sequence[str]] = [("", *runs)]
    for number in NUMBERS:
        values = [each.get(number) for each in numbers.values()]
        if any(value is not None for value in values):
            rows.append((number, *("-" if v is None else f"{v:,.2f}" for v in values)))
    echo()
    echo_table(rows, numbers=range(1, len(runs) + 1))
    for name, result in runs.items():
        for note in result.notes:
            echo(f"note: {name}: {note}", err=True)
