"""The Standard Workload Format: 18 columns a job, after header lines that begin with `;`.

As Batsim's converter has it: a job takes `procs allocated` machines; its walltime is the larger of
twice its run time and the time it requested; jobs that took no machine or no time are dropped;
submit times are moved so that the first is 0. The run time is that of the trace (`grain` rounds it
up: the converter's default of 1 adds a second to each).
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError, InputProblems, content_of
from dralab.simulation.json_input import nanoseconds
from dralab.simulation.workloads.jobs import Delay, Job, Workload

COLUMNS = 18


@dataclass(frozen=True, slots=True)
class SwfJob:
    """One job; -1 is unknown. Times in seconds."""

    job: float
    submit: float
    wait: float
    run: float
    procs: float
    cpu_time: float
    memory: float
    procs_requested: float
    time_requested: float
    memory_requested: float
    status: float
    user: float
    group: float
    executable: float
    queue: float
    partition: float
    preceding: float
    think_time: float


NAMES = tuple(item.name for item in fields(SwfJob))


@dataclass(frozen=True, slots=True)
class SwfTrace:
    """The lines of a trace; `lines` says where in the file each stood."""

    path: Path
    header: Mapping[str, tuple[str, ...]]
    entries: tuple[SwfJob, ...]
    lines: tuple[int, ...]
    skipped: int = 0

    @property
    def processors(self) -> int:
        """MaxProcs of the header, or MaxNodes; 0 if it says neither."""
        for key in ("MaxProcs", "MaxNodes"):
            for value in self.header.get(key, ()):
                if value.split()[:1] and value.split()[0].isdecimal():
                    return int(value.split()[0])
        return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class SwfConversion:
    """How lines become jobs. `grain` 0 keeps run times as they are.

    `full` also keeps jobs that use their whole walltime, which Batsim's converter drops.
    """

    walltime_factor: float = 2.0
    requested_only: bool = False
    grain: int = 0
    full: bool = False


@dataclass(slots=True)
class _Header:
    values: dict[str, list[str]] = field(default_factory=dict)

    def add_line(self, line: str) -> None:
        key, colon, value = line.lstrip("; \t").partition(":")
        if colon:
            self.values.setdefault(key.strip(), []).append(value.strip())


def read(path: Path, *, problems: InputProblems | None = None) -> SwfTrace:
    """Return the trace of a file. InputError, with line and column."""
    problems = InputProblems() if problems is None else problems
    before = len(problems.skipped)
    text = content_of(path).decode(errors="replace")
    header, entries, lines = _Header(), [], []
    seen: set[float] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(";"):
            header.add_line(line)
        elif line.strip():
            try:
                entry = _entry(path, number, line)
                _check_new(entry, seen, path, number)
            except InputError as error:
                problems.about(error)
                continue
            entries.append(entry)
            lines.append(number)
    found = {key: tuple(values) for key, values in header.values.items()}
    skipped = len(problems.skipped) - before
    return SwfTrace(path, found, tuple(entries), tuple(lines), skipped)


def _check_new(entry: SwfJob, seen: set[float], path: Path, number: int) -> None:
    if entry.job in seen:
        raise InputError(path, f"there are two jobs {_text(entry.job)}", line=number, where="job")
    seen.add(entry.job)


def _entry(path: Path, number: int, line: str) -> SwfJob:
    words = line.split()
    if len(words) != COLUMNS:
        raise InputError(path, f"must have {COLUMNS} columns and has {len(words)}", line=number)
    values = []
    for name, word in zip(NAMES, words, strict=True):
        try:
            value = float(word)
        except ValueError:
            value = float("nan")
        if not abs(value) < 1e15:
            raise InputError(path, f"{word!r} is not a number", line=number, where=name)
        if value < 0 and value != -1:
            raise InputError(path, f"{word} must not be negative", line=number, where=name)
        values.append(value)
    if values[1] < 0:
        raise InputError(path, "the submit time is missing", line=number, where="submit")
    return SwfJob(*values)


def jobs(
    trace: SwfTrace,
    conversion: SwfConversion | None = None,
    *,
    hosts: int | None = None,
    problems: InputProblems | None = None,
) -> Workload:
    """Return the jobs of a trace that Batsim's converter keeps, as delays."""
    how = SwfConversion() if conversion is None else conversion
    problems = InputProblems() if problems is None else problems
    first = min((entry.submit for entry in trace.entries), default=0.0)
    found: list[Job] = []
    profiles: dict[str, Delay] = {}
    dropped: Counter[str] = Counter()
    for entry, line in zip(trace.entries, trace.lines, strict=True):
        limit = how.walltime_factor * entry.run
        walltime = entry.time_requested if how.requested_only else max(limit, entry.time_requested)
        why = _dropped(entry, walltime, full=how.full)
        if why:
            dropped[why] += 1
            continue
        if hosts is not None and entry.procs > hosts:
            took = f"job {_text(entry.job)} took {_text(entry.procs)} processors"
            problem = f"{took}; there are {hosts} hosts"
            problems.about(InputError(trace.path, problem, line=line, where="procs"))
            continue
        run = entry.run if not how.grain else (entry.run // how.grain + 1) * how.grain
        profiles[_text(run)] = Delay(duration=nanoseconds(run))
        found.append(
            Job(
                id=_text(entry.job),
                submitted=nanoseconds(entry.submit - first),
                width=int(entry.procs),
                walltime=nanoseconds(walltime),
                profile=_text(run),
                user=_text(entry.user),
                source={"id": _text(entry.job)},
            )
        )
    return Workload(
        jobs=tuple(found),
        profiles=profiles,
        machines=max((job.width for job in found), default=0),
        source=str(trace.path),
        skipped=trace.skipped,
        dropped=dict(dropped),
        profile_sources={
            name: {"type": "delay", "delay": profile.duration / SECOND}
            for name, profile in profiles.items()
        },
    )


def _dropped(entry: SwfJob, walltime: float, *, full: bool) -> str:
    """Return the reason that Batsim's converter drops a line; empty if it keeps it."""
    if entry.procs <= 0:
        return "no processors allocated"
    if entry.run <= 0:
        return "no run time"
    enough = walltime > entry.run or (full and walltime == entry.run)
    return "" if enough else "a walltime not longer than the run time"


def _text(value: float) -> str:
    """Return a unique text of a number, for names."""
    return f"{value:.15g}"


def write(path: Path, entries: Iterable[SwfJob], header: Mapping[str, Iterable[str]]) -> None:
    """Write a trace: the header, then a line per entry."""
    lines = [f"; {key}: {value}" for key, values in header.items() for value in values]
    lines += [" ".join(_text(getattr(entry, name)) for name in NAMES) for entry in entries]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
