"""Replay files: a failing schedule with what is needed to run it again, and JUnit reports."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as ET

import orjson

from dralab import __version__
from dralab.files import reading
from dralab.scenarios.errors import InputError
from dralab.testing.faults import PlannedFault
from dralab.testing.history import (
    FAULT,
    LIFE,
    STEP,
    VERDICT,
    WITHHELD,
    WRITE,
    HistoryEntry,
    TrialHistory,
    timeline,
)
from dralab.testing.search import ExplainedFailure, SearchResult
from dralab.testing.trial import LATENCIES

KIND: Final = "dralab-dst-replay"
FORMAT: Final = 1
TOLD: Final = frozenset({FAULT, LIFE, STEP, VERDICT, WITHHELD, WRITE})


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialReplay:
    """A schedule to run again: of which scenario, with which seed, and what it showed."""

    scenario: Path
    digest: str
    version: str
    seed: int
    faults: Sequence[PlannedFault]
    violation: str


def as_replay(failure: ExplainedFailure, scenario: Path, digest: str, folder: Path) -> bytes:
    """Return the replay file of a failure, to be written to a folder."""
    shown = failure.result.violations or ("not shown again",)
    try:
        named = scenario.resolve().relative_to(folder.resolve(), walk_up=True)  # type: ignore[call-arg]  # Python 3.12
    except (TypeError, ValueError):
        named = scenario.resolve()
    found = {
        "kind": KIND,
        "format": FORMAT,
        "dralab": __version__,
        "scenario": str(named),
        "digest": digest,
        "seed": failure.summary.planned.seed,
        "violation": str(shown[0]),
        "faults": [fault.as_json() for fault in failure.schedule],
    }
    return orjson.dumps(found, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def read(path: Path) -> TrialReplay:
    """Return the replay of a file. InputError: it is not one, or of a format that is not known."""
    try:
        found = orjson.loads(reading.read(path))
    except OSError as error:
        raise InputError(path, f"cannot be read: {error.strerror}") from None
    except orjson.JSONDecodeError as error:
        raise InputError(path, f"is not JSON: {error.msg}", line=error.lineno) from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise InputError(path, f"is not a replay file: `kind` must be {KIND!r}")
    if found.get("format") != FORMAT:
        problem = f"is format {found.get('format')!r} of another version; this one reads {FORMAT}"
        raise InputError(path, problem, where="format")
    for name, kind in (("scenario", str), ("digest", str), ("seed", int), ("faults", list)):
        if not isinstance(found.get(name), kind):
            raise InputError(path, f"must be of type {kind.__name__}", where=name)
    faults = [_fault(path, number, each) for number, each in enumerate(found["faults"])]
    return TrialReplay(
        scenario=path.parent / found["scenario"],
        digest=found["digest"],
        version=str(found.get("dralab", "")),
        seed=found["seed"],
        faults=faults,
        violation=str(found.get("violation", "")),
    )


def _fault(path: Path, number: int, given: Any) -> PlannedFault:
    where = f"faults[{number}]"
    if not isinstance(given, dict):
        raise InputError(path, "must be a mapping", where=where)
    try:
        return PlannedFault.of(given)
    except (TypeError, ValueError) as error:
        raise InputError(path, str(error), where=where) from None


def as_junit(result: SearchResult) -> str:
    """Return JUnit XML: a test for each different failure, and one for the trials that passed."""
    failures = result.failures
    root = ET.Element("testsuites", name="dralab dst")
    suite = ET.SubElement(
        root,
        "testsuite",
        name=result.scenario.name,
        tests=str(len(failures) + 1),
        failures=str(len(failures)),
    )
    passed, nouns = result.seeds - result.failed, f"{result.noun}s"
    told = f"{passed} of {result.seeds} {nouns} pass"
    ET.SubElement(suite, "testcase", classname="dst", name=told)
    explained = {each.summary.signature: each for each in result.explained}
    for name, summaries in failures.items():
        case = ET.SubElement(suite, "testcase", classname="dst", name=_printable(name))
        numbers = ", ".join(str(each.planned.number) for each in summaries[:20])
        text = f"{nouns} {numbers}"
        if name in explained:
            text += "\n" + "\n".join(failure_lines(explained[name]))
        message = _printable(summaries[0].violations[0])
        ET.SubElement(case, "failure", message=message).text = _printable(text)
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def failure_lines(failure: ExplainedFailure) -> list[str]:
    """Return a failure as text: violations, the shortest schedule, the timeline."""
    shown = list(failure.result.violations)
    lines = [f"{each}" for each in shown] or [f"{v} (not shown again)" for v in
                                              failure.summary.violations]  # fmt: skip
    if failure.usual:
        most = f"{len(failure.seeds)} of {failure.tried} {failure.noun}s"
        lines.append(f"{most} end so: the run without faults may be the one that is wrong")
    lines.append("")
    if failure.schedule:
        lines.append(f"the shortest schedule: {len(failure.schedule)} of {failure.planned} faults")
        lines += [f"  {number}. {fault}" for number, fault in enumerate(failure.schedule, 1)]
    else:
        seed, others = failure.summary.planned.seed, len(LATENCIES) - 1
        lines.append("the shortest schedule: no fault at all")
        lines.append(
            f"it ends so without faults with seed {seed}, and otherwise with seeds 0 to {others}"
        )
    lines += ["", *timeline(explaining_entries(failure.result.history), width=100)]
    return lines


def explaining_entries(history: TrialHistory) -> list[HistoryEntry]:
    """Return the entries that explain a failure: writes, delayed events, faults."""
    return [
        entry
        for entry in history.entries
        if entry.what in TOLD and " events " not in f" {entry.text} "
    ]


def _printable(text: str) -> str:
    return "".join(c if c in "\n\t" or c >= " " else "?" for c in text)
