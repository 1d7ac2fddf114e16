"""The numbers of a run, each with its definition.

Per task: wait = start - submit; run = end - start; turnaround = end - submit; slowdown =
turnaround / run; bounded slowdown = max(1, turnaround / max(run, 10 s)) (Feitelson's bound, which
keeps the shortest tasks from deciding the mean). Only tasks that ended count, unless said.

Of the whole: makespan = last end - first submission; throughput = ended tasks / makespan, an hour;
utilisation = what was in use, integrated over the interval, / (interval * capacity); the interval
is the makespan. Fragmentation is FGD's F. Fairness is Jain's index over users of their mean
bounded slowdown: 1 where all fare alike, 1/n where one has it all.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.simulation.results import Result, Sample, Task

BOUND: Final = 10.0
Value = float | int | str | None

# Student's t, 97.5 %, for 1 to 30 degrees of freedom.
STUDENT: Final = (
    12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
    2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
    2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
)  # fmt: skip


def of(result: Result) -> dict[str, Value]:
    """Return all numbers of a run; times in seconds."""
    ended = [task for task in result.tasks if task.started is not None and task.ended is not None]
    begin = min((task.submitted for task in result.tasks), default=0)
    finish = max((task.ended for task in ended if task.ended is not None), default=begin)
    makespan = (finish - begin) / SECOND
    waits = [wait(task) for task in ended]
    numbers: dict[str, Value] = {
        "tasks": len(result.tasks),
        "ended": len(ended),
        "succeeded": sum(task.state in SUCCESS for task in ended),
        "failed": sum(task.state not in SUCCESS for task in ended),
        "rejected": sum(task.state == "REJECTED" for task in result.tasks),
        "never_started": sum(
            task.started is None and task.state != "REJECTED" for task in result.tasks
        ),
        "evictions": sum(task.evictions for task in result.tasks),
        "makespan": makespan,
        "throughput_per_hour": len(ended) / makespan * 3600 if makespan else 0.0,
    }
    columns: dict[str, Callable[[Task], float]] = {
        "wait": wait,
        "turnaround": turnaround,
        "slowdown": slowdown,
        "bounded_slowdown": bounded_slowdown,
    }
    for name, value in columns.items():
        numbers |= {f"{name}_{key}": v for key, v in spread([value(t) for t in ended]).items()}
    numbers |= utilisation(result, begin, finish)
    numbers["wait_fairness"] = jain(_by_user(ended)) if waits else None
    if result.joules is not None:
        numbers["joules"] = result.joules
    numbers |= {f"refused: {reason}": n for reason, n in sorted(result.refusals.items())}
    return numbers


SUCCESS: Final = frozenset({"COMPLETED_SUCCESSFULLY", "Succeeded"})


def wait(task: Task) -> float:
    """Seconds from submission to start."""
    return (task.started - task.submitted) / SECOND if task.started is not None else math.nan


def turnaround(task: Task) -> float:
    """Seconds from submission to end."""
    return (task.ended - task.submitted) / SECOND if task.ended is not None else math.nan


def run_time(task: Task) -> float:
    """Seconds from start to end."""
    if task.started is None or task.ended is None:
        return math.nan
    return (task.ended - task.started) / SECOND


def slowdown(task: Task) -> float:
    """Turnaround by run time; 1 for a task that took and waited no time."""
    length, total = run_time(task), turnaround(task)
    return total / length if length else math.inf if total else 1.0


def bounded_slowdown(task: Task) -> float:
    """The same, but no run counts as shorter than ten seconds."""
    return max(1.0, turnaround(task) / max(run_time(task), BOUND))


def spread(values: Iterable[float]) -> dict[str, float | None]:
    """Return mean, median, 95 and 99 per cent points (nearest rank), and the maximum."""
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(("mean", "median", "p95", "p99", "max"))
    return {
        "mean": math.fsum(ordered) / len(ordered),
        "median": _rank(ordered, 0.50),
        "p95": _rank(ordered, 0.95),
        "p99": _rank(ordered, 0.99),
        "max": ordered[-1],
    }


def _rank(ordered: Sequence[float], part: float) -> float:
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def utilisation(result: Result, begin: int, finish: int) -> dict[str, Value]:
    """Return the mean use of each resource over an interval, and of the fragmented GPU."""
    numbers: dict[str, Value] = {}
    if finish <= begin:
        return numbers
    for name, capacity in sorted(result.capacity.items()):
        field = {"machines": "cpu"}.get(name, name)
        if capacity:
            area = integral(result.samples, field, begin, finish)
            numbers[f"utilisation_{name}"] = area / (finish - begin) / capacity
    if result.capacity.get("gpu"):
        lost = integral(result.samples, "fragmented", begin, finish) / (finish - begin)
        numbers["fragmentation_of_gpu"] = lost / result.capacity["gpu"]
    for field in ("waiting", "running"):
        numbers[f"mean_{field}"] = integral(result.samples, field, begin, finish) / (finish - begin)
    return numbers


def integral(samples: Sequence[Sample], field: str, begin: int, finish: int) -> float:
    """Return the area under a step function between two times."""
    total = 0.0
    for now, later in pairwise(samples):
        start, end = max(now.when, begin), min(later.when, finish)
        if start < end:
            total += float(getattr(now, field)) * (end - start)
    if samples and samples[-1].when < finish:
        total += float(getattr(samples[-1], field)) * (finish - max(samples[-1].when, begin))
    return total


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of fairness.

    >>> jain([2.0, 2.0]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else 1.0


def _by_user(tasks: Sequence[Task]) -> list[float]:
    values: dict[str, list[float]] = {}
    for task in tasks:
        values.setdefault(task.user, []).append(bounded_slowdown(task))
    return [math.fsum(found) / len(found) for _, found in sorted(values.items())]


def over_seeds(values: Sequence[float]) -> dict[str, float | None]:
    """Return mean, sample standard deviation, and half the 95 % confidence interval of the mean."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return {"mean": mean, "sd": None, "ci95": None}
    sd = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return {"mean": mean, "sd": sd, "ci95": _student(count - 1) * sd / math.sqrt(count)}


def _student(degrees: int) -> float:
    return STUDENT[degrees - 1] if degrees <= len(STUDENT) else 1.96


def difference(a: Sequence[float], b: Sequence[float]) -> Mapping[str, float | None]:
    """Compare two sets of runs by Welch's t; `significant` is 1 where p < 0.05 (two-sided)."""
    first, second = over_seeds(a), over_seeds(b)
    gap = (second["mean"] or 0.0) - (first["mean"] or 0.0)
    if first["sd"] is None or second["sd"] is None:
        return {"difference": gap, "t": None, "significant": None}
    parts = (first["sd"] ** 2 / len(a), second["sd"] ** 2 / len(b))
    total = sum(parts)
    if not total:
        return {"difference": gap, "t": None, "significant": float(gap != 0)}
    degrees = total**2 / (parts[0] ** 2 / (len(a) - 1) + parts[1] ** 2 / (len(b) - 1))
    t = gap / math.sqrt(total)
    return {
        "difference": gap,
        "t": t,
        "significant": float(abs(t) > _student(max(1, int(degrees)))),
    }
