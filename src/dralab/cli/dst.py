"""`dralab dst`: test a program under faults from a seed, and replay what failed."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli._options import ANY_PATH, FILE, arg, opt, options
from dralab.cli._output import echo_json, echo_table, formats, places
from dralab.cli._progress import keeping_results, watching
from dralab.cli._runs import bad_input
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput

if TYPE_CHECKING:
    from dralab.testing.search import ExplainedFailure, SearchResult
    from dralab.testing.trial import ExpectedEnd
    from dralab.testing.trial_scenario import TrialScenario


@click.group()
def dst() -> None:
    """Test programs against the API under faults from a seed.

    A trial runs the programs of a scenario on a simulated clock against a real server in this
    process, with lagging watches, lost answers, conflicts, kills and pauses. It must end as the
    run without faults does.

    Example: `dralab dst run scenario.yaml --seeds 100`
    """


@dst.command()
@options
@keeping_results
def run(
    *,
    scenario: Path = arg(FILE),
    systematic: bool = opt(
        "One fault a trial, at each place of the run without faults, instead of faults from seeds."
    ),
    seeds: int | None = opt(
        "Number of trials; default: 100, or one for each distinct place.", least=1
    ),
    seed: int = opt(
        "The seed of the first trial, or its number with --systematic; each next one has the next.",
        least=0,
        default=0,
    ),
    workers: int = opt("Processes that run trials.", least=1, most=64, default=1),
    fail_fast: bool = opt("Stop at the first failure."),
    write: tuple[Path, ...] = opt(
        "Write replay files and timelines of failures, coverage and corpus to a directory, or a "
        "JUnit report to an .xml file. May be repeated.",
        ANY_PATH,
        metavar="DIR|FILE.xml",
    ),
    coverage: bool = opt("Print which faults happened where."),
    output: str = formats("text", "json"),
) -> None:
    """Run SCENARIO under faults, from many seeds or at each place; explain what fails.

    For each different failure: the shortest schedule that still fails, and a timeline. Exit code
    0: all trials pass; 1: some fail; 2: the scenario cannot be used, or fails without faults.

    Example: `dralab dst run scenario.yaml --seeds 1000 --workers 2 --write report.xml`
    """
    from dralab.testing import replays
    from dralab.testing.search import search, trial_numbers
    from dralab.testing.trial import systematic_schedules

    targets = places(write, "", ".xml")
    loaded, expected = _prepared(scenario)
    out, junit = targets.get(""), targets.get(".xml")
    _check_writable(junit, out)
    schedules = systematic_schedules(loaded, expected) if systematic else None
    numbers = trial_numbers(seed, seeds, schedules)
    if schedules is not None and not numbers:
        last = f"there are {len(schedules.schedules)} trials, {schedules.unlike} of unlike places"
        raise UnusableInput(f"--seed {seed}: no trial is left: {last}")
    with watching(loaded.name) as watcher:
        begun = watcher.clock.now()
        result = search(
            loaded,
            expected,
            numbers,
            systematic=schedules,
            file=scenario,
            jobs=workers,
            fail_fast=fail_fast,
            told=lambda number, _: watcher.show(0, number, len(numbers)),
            stop=watcher.stop,
        )
        seconds = (watcher.clock.now() - begun) / 1e9
    if junit is not None:
        junit.write_text(replays.as_junit(result), encoding="utf-8")
    written = _write(result, scenario, out) if out is not None else {}
    if output == "json":
        echo_json(_summary(result))
    else:
        for number, failure in enumerate(result.explained, 1):
            _echo_failure(number, failure, written.get(failure.summary.signature))
        _echo_totals(result, numbers, seconds)
        if coverage:
            _echo_coverage(result)
    if result.failures:
        raise SystemExit(1)


@dst.command()
@options
def replay(
    *,
    file: Path = arg(FILE),
    scenario: Path | None = opt("The scenario file, if it was moved.", FILE),
    everything: bool = opt("Show every request and event.", flags="--all"),
    html: Path | None = opt("Write the timeline to this HTML file as well.", FILE, flags="--write"),
    width: int = opt("Columns of the timeline.", least=40, default=100),
) -> None:
    """Run the schedule of a replay file again and print its timeline.

    Exit code 1: it fails again; 0: it does not.

    Example: `dralab dst replay out/failure-1.json`
    """
    from dralab import __version__
    from dralab.testing import replays
    from dralab.testing.history import timeline
    from dralab.testing.page import timeline_page
    from dralab.testing.trial import run_trial

    with bad_input():
        found = replays.read(file)
    loaded, expected = _prepared(scenario or found.scenario)
    if loaded.digest != found.digest:
        echo("note: the scenario or its files have changed since the failure", err=True)
    if found.version != __version__:
        echo(f"note: recorded by dralab {found.version}, this is {__version__}", err=True)
    result = run_trial(loaded, expected, found.faults, found.seed)
    history = result.history
    if html is not None:
        title = f"{loaded.name}, seed {found.seed}"
        page = timeline_page(title, result.violations, found.faults, history.entries)
        html.write_text(page, encoding="utf-8")
    shown = history.entries if everything else replays.explaining_entries(history)
    for line in timeline(shown, width=width):
        echo(line)
    if not result.failed:
        echo(f"does not fail: {found.violation}")
        return
    for violation in result.violations:
        echo(str(violation))
    raise SystemExit(1)


@dst.command(epilog="Example: dralab dst faults")
def faults() -> None:
    """List the faults and what each does."""
    from dralab.testing.faults import FAULTS

    echo_table([("FAULT", "WHAT HAPPENS"), *((name, kind.help) for name, kind in FAULTS.items())])


def _prepared(scenario: Path) -> "tuple[TrialScenario, ExpectedEnd]":
    """Load a scenario and run it without faults; exit code 2 where that is not possible."""
    from dralab.api.status import ApiError
    from dralab.testing.history import timeline
    from dralab.testing.replays import explaining_entries
    from dralab.testing.scenario import load
    from dralab.testing.trial import ScenarioFails, expected_end

    with bad_input():
        loaded = load(scenario)
    try:
        return loaded, expected_end(loaded)
    except ScenarioFails as failure:
        echo(f"Error: {scenario}: {failure}", err=True)
        shown = explaining_entries(failure.history)[-LAST_ENTRIES:]
        for line in timeline(shown):
            echo(f"  {line}", err=True)
    except ApiError as error:
        echo(f"Error: {scenario}: manifests: {error.message}", err=True)
    raise SystemExit(2)


def _check_writable(junit: Path | None, out: Path | None) -> None:
    """Make the places of the results, so that no seed is run in vain. UnusableInput."""
    try:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
        if junit is not None:
            junit.touch()
    except OSError as error:
        raise UnusableInput(f"cannot write {error.filename}: {error.strerror}") from None


def _write(result: "SearchResult", scenario: Path, out: Path) -> dict[str, Path]:
    """Write what a run found; return the replay file of each failure."""
    import orjson

    from dralab.testing import replays
    from dralab.testing.page import timeline_page

    written = {}
    for number, failure in enumerate(result.explained, 1):
        path = out / f"failure-{number}.json"
        path.write_bytes(replays.as_replay(failure, scenario, result.scenario.digest, out))
        written[failure.summary.signature] = path
        page = timeline_page(
            f"{result.scenario.name}, {result.noun} {failure.summary.planned.number}",
            failure.result.violations,
            failure.schedule,
            failure.result.history.entries,
        )
        path.with_suffix(".html").write_text(page, encoding="utf-8")
    rows = [dict(zip(COVERAGE, row, strict=True)) for row in result.coverage.rows()]
    (out / "coverage.json").write_bytes(orjson.dumps(rows, option=orjson.OPT_INDENT_2))
    (out / "corpus.json").write_bytes(orjson.dumps(result.corpus))
    return written


# Of a run without faults that fails, what happened last.
LAST_ENTRIES = 40
COVERAGE = ("program", "place", "fault", "count")


def _echo_failure(number: int, failure: "ExplainedFailure", path: Path | None) -> None:
    from dralab.testing import replays

    shown = ", ".join(map(str, failure.seeds[:5])) + (", …" if len(failure.seeds) > 5 else "")
    plural = "" if len(failure.seeds) == 1 else "s"
    echo(f"failure {number}: {len(failure.seeds)} {failure.noun}{plural} ({shown})")
    for line in replays.failure_lines(failure):
        echo(f"  {line}".rstrip())
    if path is not None:
        echo(f"  replay: dralab dst replay {path}")
    echo()


def _echo_totals(result: "SearchResult", numbers: range, seconds: float) -> None:
    pairs = len(result.coverage.counts)
    echo(
        f"{result.seeds} {result.noun}s: {result.seeds - result.failed} pass, {result.failed} fail "
        f"({len(result.failures)} different); {pairs} pairs of place and fault covered"
    )
    if result.systematic is not None:
        ends, all_trials = numbers.start + result.seeds, len(result.systematic.schedules)
        if ends < result.systematic.unlike:
            echo(f"{result.systematic.unlike - ends} places are left: go on with --seed {ends}")
        elif ends < all_trials:
            more = f"--seed {ends} --seeds {all_trials - ends}"
            echo(f"{all_trials - ends} more trials are at places like these: {more}")
    each = seconds / max(result.seeds, 1)
    echo(f"{seconds:.1f}s, {each:.3f}s a trial", err=True)


def _echo_coverage(result: "SearchResult") -> None:
    rows = [tuple(map(str, row)) for row in result.coverage.rows()]
    echo_table([("PROGRAM", "PLACE", "FAULT", "COUNT"), *rows])


def _summary(result: "SearchResult") -> dict[str, object]:
    return {
        "scenario": result.scenario.name,
        f"{result.noun}s": result.seeds,
        "failed": result.failed,
        "failures": [
            {
                "violations": list(failure.summary.violations),
                f"{result.noun}s": list(failure.seeds),
                "schedule": [fault.as_json() for fault in failure.schedule],
            }
            for failure in result.explained
        ],
        "coverage": [dict(zip(COVERAGE, row, strict=True)) for row in result.coverage.rows()],
        "corpus": result.corpus,
    }
