"""`dralab reproduce`: run a published experiment again, and compare its numbers with ours."""

import gc
from collections.abc import Sequence
from pathlib import Path

import click

from dralab.cli._options import FILE, FOLDER, arg, opt, options
from dralab.cli._output import echo_table, echo_values, formats, places
from dralab.cli._progress import keeping_results, watching
from dralab.cli._runs import bad_input
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput, refusing
from dralab.simulation.reproductions import page as pages
from dralab.simulation.reproductions.registry import (
    MODULES,
    Case,
    ComparedNumber,
    DataFile,
    Reproduction,
    ReproductionResult,
    named,
    reproductions,
)


@click.command(
    epilog="""Examples:

\b
  dralab reproduce
  dralab reproduce fgd --data openb/
  dralab reproduce fgd --data openb/ --only default -o json
"""
)
@options
@keeping_results
def reproduce(
    *,
    name: str | None = arg(list(MODULES), metavar="[NAME]"),
    data: Path | None = opt("The directory with the files that the experiment reads.", FOLDER),
    only: tuple[str, ...] = opt(
        "Run only this case, group or pattern (default/*). May be repeated.", metavar="CASE"
    ),
    seed: int | None = opt("The seed of random choices; default: the experiment's own.", least=0),
    write: tuple[Path, ...] = opt("Write the page to this .md file.", FILE, metavar="FILE.md"),
    output: str = formats("table", "json", "yaml"),
) -> None:
    """Run a published experiment again and compare its numbers with ours.

    Without NAME, list the experiments, the files they need and how long they take. You provide the
    files; for a missing one, the address to get it from is printed. Lucid is not among them: the
    trace that its simulator reads (cluster_full_log.csv of Venus) is not in its repository.

    Exit code 0: all numbers agree; 1: some differ; 2: a file is missing.
    """
    if name is None:
        _list(output)
        return
    found = named(name)
    with refusing(ValueError, kind=click.UsageError):
        cases = found.selected(only)
    target = places(write, ".md").get(".md")
    folder = _checked(found, cases, data)
    outcome, complete = _run(found, cases, folder, found.seed if seed is None else seed)
    if target is not None:
        target.write_text(pages.page(outcome), encoding="utf-8")
    if output == "table":
        _print(outcome)
    else:
        echo_values(outcome.as_json(), output)
    if not complete:
        echo(f"stopped; {len(outcome.rows)} numbers up to here", err=True)
    if not complete or not outcome.agrees:
        raise SystemExit(1)


def _list(output: str) -> None:
    found = reproductions()
    if output == "table":
        heads = ("NAME", "EXPERIMENT", "FILES", "CASES", "TIME")
        echo_table([heads, *(_listed(each) for each in found)], numbers=(2, 3))
        return
    echo_values(
        {
            each.name: {
                "title": each.title,
                "paper": each.paper,
                "address": each.address,
                "data": [{"name": f.name, "address": f.address} for f in each.data],
                "cases": [case.name for case in each.cases],
                "seconds": each.time_here,
            }
            for each in found
        },
        output,
    )


def _listed(each: Reproduction) -> tuple[str, ...]:
    return (
        each.name,
        each.title,
        str(len(each.data)),
        str(len(each.cases)),
        pages.seconds(each.time_here),
    )


def _checked(found: Reproduction, cases: Sequence[Case], data: Path | None) -> Path:
    """Return the directory with the files of the cases. UnusableInput: one is missing."""
    folder = Path() if data is None else data
    missing = [each for each in found.files_of(cases) if not each.is_in(folder)]
    if missing:
        lacking = {each.name for each in missing}
        groups = {case.name.partition("/")[0]: True for case in cases}
        groups |= {c.name.partition("/")[0]: False for c in cases if lacking.intersection(c.data)}
        ready = " ".join(f"--only {group}" for group, is_ready in groups.items() if is_ready)
        hint = f"\nor run the cases whose files are there: {ready}" if ready else ""
        where = "not found: add --data DIR" if data is None else f"not in {data}"
        raise UnusableInput(f"{found.name} reads files that are {where}\n{_places(missing)}{hint}")
    with bad_input():
        for each in found.files_of(cases):
            if each.differs(folder):
                told = f"{folder / each.name} is not the file whose results the page has"
                echo(f"note: {told} ({each.sha256}…)", err=True)
    return folder


def _places(missing: Sequence[DataFile]) -> str:
    """Return where to get files, one line an address."""
    by_address: dict[str, list[str]] = {}
    for each in missing:
        by_address.setdefault(each.address, []).append(each.name)
    return "\n".join(f"get {', '.join(names)} from {url}" for url, names in by_address.items())


def _run(
    found: Reproduction, cases: Sequence[Case], folder: Path, seed: int
) -> tuple[ReproductionResult, bool]:
    """Return the numbers, and whether no case was left out because of Ctrl-C."""
    rows: list[tuple[str, ComparedNumber]] = []
    with bad_input(), watching(found.name) as watcher:
        begun = watcher.clock.now()
        complete = True
        for number, case in enumerate(cases):
            watcher.show(0, number, len(cases))
            if watcher.stop():
                complete = False
                break
            paths = [folder / each for each in case.data]
            rows += [(case.name, row) for row in case.run(paths, seed)]
            gc.collect()  # what a simulation leaves behind has cycles
        took = (watcher.clock.now() - begun) / 1e9
    echo(f"took {pages.seconds(took)}; there: {found.time_there}", err=True)
    return ReproductionResult(reproduction=found, seed=seed, rows=rows), complete


def _print(outcome: ReproductionResult) -> None:
    heads = ("CASE", "NUMBER", "UNIT", "PUBLISHED", "OURS", "MAY DIFFER BY", "VERDICT")
    rows = [
        (
            case,
            row.what,
            row.unit,
            pages.number(row.published),
            pages.number(row.ours),
            pages.number(row.within) if row.verdict else "",
            row.verdict,
        )
        for case, row in outcome.rows
    ]
    echo_table([heads, *rows], numbers=(3, 4, 5))
    reasons = {row.why: None for _, row in outcome.rows if row.why}
    for reason in reasons:
        echo(f"note: {reason}")
    echo(f"{outcome.agreeing} of {outcome.compared} numbers agree")
