"""The numbers of a run; `DEFINITIONS` says what each means, as `docs/concepts/metrics.md` does."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.simulation.results.result import NodeSpan, Result, StateSample, Task

BOUND: Final = 10.0
HOUR: Final = 3600 * SECOND
SPREAD: Final = ("mean", "median", "p95", "p99", "max")
Value = float | int | str | None


# What each number says; those of tasks come as mean, median, p95, p99 and max.
DEFINITIONS: Final[Mapping[str, str]] = {
    "tasks": "tasks submitted in the measured interval",
    "ended": "tasks that started and ended",
    "succeeded": "ended tasks that succeeded",
    "failed": "ended tasks that failed, were killed or reached their walltime",
    "rejected": "tasks that the scheduler refused",
    "never_started": "tasks that neither started nor were rejected",
    "success_rate": "succeeded / tasks",
    "evictions": "runs that were lost: preempted, evicted, or on a node that went down",
    "lost_hours": "hours that tasks held nodes without doing work that counts: redone_hours, and "
    "idle_hours",
    "lost_gpu_hours": "redone_gpu_hours and idle_gpu_hours",
    "redone_hours": "run time of runs that failed or were lost, less what checkpoints kept",
    "redone_gpu_hours": "the same, each hour times the GPUs that the task held",
    "idle_hours": "hours that tasks held nodes and did no work: starting, resuming from a "
    "checkpoint, waiting for their gang or for a node that is down, being released",
    "idle_gpu_hours": "the same, each hour times the GPUs that the task held",
    "served_share": "the part of the time that replicas of services were wanted, and served",
    "makespan": "seconds from the first submission to the last end",
    "throughput_per_hour": "ended / makespan, per hour",
    "wait": "seconds from submission to start, of tasks that ended",
    "turnaround": "seconds from submission to end",
    "slowdown": "turnaround / run time; its mean is dominated by short tasks",
    "bounded_slowdown": "turnaround / max(run time, 10 s); at least 1",
    "slowdown_per_processor": "bounded slowdown / processors of the task; at least 1",
    "utilisation": "use / capacity over the interval: machines, cpu, memory, "
    "gpu, and gpu[MODEL] for each model",
    "fragmentation_of_gpu": "idle GPU that the typical pods of the workload cannot use (FGD's "
    "measure F) / all GPU, over the interval",
    "mean_waiting": "mean number of waiting tasks over the interval",
    "mean_waiting_processors": "mean number of machines or CPUs requested by waiting tasks",
    "mean_running": "mean number of tasks that hold resources",
    "wait_fairness": "Jain's index over the users' mean bounded slowdowns: 1 if all are equal, "
    "1/n in the most unequal case",
    "load_variation": "standard deviation / mean, over nodes, of the time they ran tasks",
    "joules": "energy of all machines, where the platform has power data",
    "cost": "price of the nodes of pools, from the moment they were asked for until they were gone",
    "idle_cost": "the part of it for times in which no task was on the node, starting included",
    "node_hours": "hours of all nodes of pools",
    "most_nodes": "nodes of pools at a time, at most",
    "nodes_asked": "nodes of pools that were asked for",
    "nodes_failed": "nodes of pools that never came",
    "nodes_taken_back": "nodes of pools that were taken back",
    "node_start_mean": "seconds from the request for a node until its devices were there",
    "wasted_gpu": "part of the GPU time of pools that was paid for and held by no task",
    "refused": "how often tasks were refused, by reason",
}

SHARES: Final = ("success_rate", "utilisation_", "fragmentation_of_gpu", "served_share")


def definition_of(name: str) -> str:
    """Return the definition of a number. KeyError."""
    if name.startswith("refused: "):
        return DEFINITIONS["refused"]
    if name.startswith("utilisation_"):
        return DEFINITIONS["utilisation"]
    base, _, kind = name.rpartition("_")
    return DEFINITIONS[base if kind in SPREAD and base in COLUMNS else name]


# The units of those that are not plain numbers.
UNITS: Final[Mapping[str, str]] = {
    "joules": "J", "makespan": "s", "throughput_per_hour": "1/h", "turnaround": "s", "wait": "s",
}  # fmt: skip


def titled(name: str) -> str:
    """Return a number's name with its unit.

    >>> titled("wait_p95"), titled("tasks")
    ('wait_p95 (s)', 'tasks')
    """
    unit = unit_of(name)
    return f"{name} ({unit})" if unit else name


def unit_of(name: str) -> str:
    """Return the unit of a number; most have none."""
    base, _, kind = name.rpartition("_")
    return UNITS.get(base if kind in SPREAD else name, "")


def meanings(names: Iterable[str]) -> dict[str, str]:
    """Return what numbers mean, of those that are known."""
    return {name: definition_of(name) for name in names if is_known(name)}


def kind_of(name: str) -> str:
    """Return how a number is written: as a `time` in seconds, a `share` of 1, or a `number`."""
    if unit_of(name) == "s":
        return "time"
    return "share" if name.startswith(SHARES) else "number"


def is_known(name: str) -> bool:
    """Return whether runs have a number of that name."""
    try:
        definition_of(name)
    except KeyError:
        return False
    return name not in COLUMNS


def metrics_of(result: Result) -> dict[str, Value]:
    """Return all numbers of a run; times in seconds."""
    first, last = result.interval or (0, max(result.end, 1))
    tasks = [task for task in result.tasks if result.interval is None or _within(task, first, last)]
    ended = [task for task in tasks if task.started is not None and task.ended is not None]
    begin = min((task.submitted for task in tasks), default=0)
    finish = max((task.ended for task in ended if task.ended is not None), default=begin)
    makespan = (finish - begin) / SECOND
    succeeded = sum(task.state in SUCCESS for task in ended)
    numbers: dict[str, Value] = {
        "tasks": len(tasks),
        "ended": len(ended),
        "succeeded": succeeded,
        "failed": len(ended) - succeeded,
        "rejected": sum(task.state == "REJECTED" for task in tasks),
        "never_started": sum(task.started is None and task.state != "REJECTED" for task in tasks),
        "success_rate": succeeded / len(tasks) if tasks else None,
        "evictions": sum(task.evictions for task in tasks),
        **_lost(tasks),
        "makespan": makespan,
        "throughput_per_hour": len(ended) / makespan * 3600 if makespan else 0.0,
    }
    for name, value in COLUMNS.items():
        numbers |= {f"{name}_{key}": v for key, v in spread([value(t) for t in ended]).items()}
    if result.interval is None:
        first, last = begin, finish
    numbers |= utilisation(result, first, last)
    numbers["wait_fairness"] = jain(_by_user(ended)) if ended else None
    numbers["load_variation"] = variation(loads(result, first, last))
    if result.joules is not None:
        numbers["joules"] = result.joules
    if result.nodes:
        numbers |= of_pools(result)
    numbers |= {f"refused: {reason}": n for reason, n in sorted(result.refusals.items())}
    return numbers | dict(result.own_numbers)


def _lost(tasks: Sequence[Task]) -> dict[str, Value]:
    """Return the time that tasks held nodes and GPUs for nothing."""
    parts: dict[str, Callable[[Task], int]] = {
        "lost": lambda task: task.wasted + task.idle,
        "redone": lambda task: task.wasted,
        "idle": lambda task: task.idle,
    }
    numbers: dict[str, Value] = {}
    for name, of in parts.items():
        numbers[f"{name}_hours"] = sum(map(of, tasks)) / HOUR
        numbers[f"{name}_gpu_hours"] = sum(of(t) * t.gpu_milli for t in tasks) / (1000 * HOUR)
    wanted = sum(task.wanted for task in tasks)
    if wanted:
        numbers["served_share"] = sum(task.served for task in tasks) / wanted
    return numbers


def _within(task: Task, first: int, last: int) -> bool:
    return first <= task.submitted < last


SUCCESS: Final = frozenset({"COMPLETED_SUCCESSFULLY", "Succeeded"})


def wait(task: Task) -> float:
    """Seconds from submission to start."""
    return (task.started - task.submitted) / SECOND if task.started is not None else math.nan


def turnaround(task: Task) -> float:
    """Seconds from submission to end."""
    return (task.ended - task.submitted) / SECOND if task.ended is not None else math.nan


def run_time(task: Task) -> float:
    """Seconds from start to end; in turns with others, those in which it held something."""
    if task.started is None or task.ended is None:
        return math.nan
    return sum(stay.until - stay.since for stay in task.held(task.ended)) / SECOND


def slowdown(task: Task) -> float:
    """Turnaround by run time; 1 for a task that took and waited no time."""
    length, total = run_time(task), turnaround(task)
    return total / length if length else math.inf if total else 1.0


def bounded_slowdown(task: Task) -> float:
    """The same, but no run counts as shorter than ten seconds."""
    return max(1.0, turnaround(task) / max(run_time(task), BOUND))


def slowdown_per_processor(task: Task) -> float:
    """The bounded slowdown, shared by the processors of the task; at least 1."""
    return max(1.0, turnaround(task) / (task.width * max(run_time(task), BOUND)))


COLUMNS: Final[Mapping[str, Callable[[Task], float]]] = {
    "wait": wait,
    "turnaround": turnaround,
    "slowdown": slowdown,
    "bounded_slowdown": bounded_slowdown,
    "slowdown_per_processor": slowdown_per_processor,
}


def spread(values: Iterable[float]) -> dict[str, float | None]:
    """Return mean, median, 95 and 99 per cent points (nearest rank), and the maximum."""
    ordered = sorted(values)
    if not ordered:
        return dict.fromkeys(SPREAD)
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
    for name, capacity in sorted(result.all_capacity().items()):
        if capacity:
            area = integral(result.samples, result.in_use(name), begin, finish)
            numbers[f"utilisation_{name}"] = area / (finish - begin) / capacity
    if result.capacity.get("gpu"):
        lost = integral(result.samples, lambda s: s.fragmented, begin, finish) / (finish - begin)
        numbers["fragmentation_of_gpu"] = lost / result.capacity["gpu"]
    # Machines are counted whole, CPU in milli.
    unit = 1 if "machines" in result.capacity else 1000
    means: Mapping[str, Callable[[StateSample], float]] = {
        "waiting": lambda sample: sample.waiting,
        "waiting_processors": lambda sample: sample.asked / unit,
        "running": lambda sample: sample.running,
    }
    for name, value in means.items():
        area = integral(result.samples, value, begin, finish)
        numbers[f"mean_{name}"] = area / (finish - begin)
    return numbers


def integral(
    samples: Sequence[StateSample], value: Callable[[StateSample], float], begin: int, finish: int
) -> float:
    """Return the area under a step function between two times."""
    total = 0.0
    for now, later in pairwise(samples):
        start, end = max(now.when, begin), min(later.when, finish)
        if start < end:
            total += value(now) * (end - start)
    if samples and samples[-1].when < finish:
        total += value(samples[-1]) * (finish - max(samples[-1].when, begin))
    return total


def of_pools(result: Result) -> dict[str, Value]:
    """Return what the nodes of pools cost, and what of that nobody used.

    A run that was lost with its node counts as time that nobody used.
    """
    nodes = {node.name: node for node in result.nodes}
    used: dict[str, list[tuple[int, int]]] = {name: [] for name in nodes}
    gpu_time = 0.0
    for task in result.tasks:
        names = {result.lanes[lane].partition("/")[0] for lane in task.lanes} & nodes.keys()
        if task.bound is None or not names:
            continue
        end = result.end if task.ended is None else task.ended
        gpu_time += task.gpu_milli * (end - task.bound) / 1000
        for name in names:
            used[name].append((task.bound, end))
    paid_gpus = sum(node.gpus * (node.gone - node.asked) for node in result.nodes)
    starts = [(node.ready - node.asked) / SECOND for node in result.nodes if node.ready is not None]
    steps = [(node.asked, 1) for node in result.nodes] + [(node.gone, -1) for node in result.nodes]
    there = accumulate(step for _, step in sorted(steps))
    return {
        "cost": math.fsum(node.price * node.hours for node in result.nodes),
        "idle_cost": math.fsum(
            node.price * (node.hours - _covered(used[node.name], node) / HOUR)
            for node in result.nodes
        ),
        "node_hours": math.fsum(node.hours for node in result.nodes),
        "most_nodes": max(there),
        "nodes_asked": len(nodes),
        "nodes_failed": sum(node.reason == "never came" for node in result.nodes),
        "nodes_taken_back": sum(node.reason == "taken back" for node in result.nodes),
        "node_start_mean": math.fsum(starts) / len(starts) if starts else None,
        "wasted_gpu": 1 - gpu_time / paid_gpus if paid_gpus else None,
    }


def _covered(spans: Iterable[tuple[int, int]], node: NodeSpan) -> int:
    """Return how long at least one of some spans lasted while a node was there."""
    total, last = 0, node.asked
    for begin, end in sorted(spans):
        total += max(0, min(end, node.gone) - max(begin, last))
        last = max(last, min(end, node.gone))
    return total


def jain(values: Sequence[float]) -> float:
    """Return Jain's index of fairness.

    >>> jain([2.0, 2.0]), jain([1.0, 0.0])
    (1.0, 0.5)
    """
    squares = math.fsum(value * value for value in values)
    return math.fsum(values) ** 2 / (len(values) * squares) if squares else 1.0


def loads(result: Result, begin: int, finish: int) -> list[float]:
    """Return the busy time of each node or machine, in task seconds."""
    found = {lane.partition("/")[0]: 0.0 for lane in result.lanes}
    for task in result.tasks:
        for stay in task.held(result.end):
            start, end = max(stay.since, begin), min(stay.until, finish)
            if start < end:
                nodes = {result.lanes[lane].partition("/")[0] for lane in stay.lanes}
                for node in sorted(nodes):
                    found[node] += (end - start) / SECOND
    return list(found.values())


def variation(values: Sequence[float]) -> float | None:
    """Return the coefficient of variation, standard deviation by mean; None if the mean is 0.

    >>> variation([3.0, 3.0]), variation([0.0, 2.0])
    (0.0, 1.0)
    """
    mean = math.fsum(values) / len(values) if values else 0.0
    if not mean:
        return None
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / len(values)) / mean


def _by_user(tasks: Sequence[Task]) -> list[float]:
    values: dict[str, list[float]] = {}
    for task in tasks:
        values.setdefault(task.user, []).append(bounded_slowdown(task))
    return [math.fsum(found) / len(found) for _, found in sorted(values.items())]
