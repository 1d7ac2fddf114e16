"""Charts that the page and the picture share."""

from collections.abc import Sequence
from typing import Any, Final

from dralab.kernel.clock import SECOND
from dralab.simulation.reports.page import Chart
from dralab.simulation.results import metrics
from dralab.simulation.results.result import Result, StateSample

MOST_RECTS: Final = 20_000
MOST_LANES: Final = 200


def thin(samples: Sequence[StateSample], most: int) -> list[StateSample]:
    """Return at most about `most` samples: of each stretch of time the one with most waiting."""
    if len(samples) <= most:
        return list(samples)
    first, last = samples[0].when, samples[-1].when
    width = max(1, (last - first) // most)
    kept: dict[int, StateSample] = {}
    for sample in samples:
        bucket = (sample.when - first) // width
        if bucket not in kept or sample.waiting > kept[bucket].waiting:
            kept[bucket] = sample
    return [*kept.values(), samples[-1]]


def gantt(result: Result) -> Chart:
    """Return who ran where and when; lanes that were never used are left out."""
    used = sorted(
        {lane for task in result.tasks for lane in task.lanes}
        | {lane for lane, _, _ in result.outages}
    )
    lanes = used[:MOST_LANES]
    place = {lane: index for index, lane in enumerate(lanes)}
    groups: dict[str, int] = {}
    tasks: list[list[Any]] = []
    rects: list[list[float]] = []
    left_out = 0
    for task in result.tasks:
        if task.started is None:
            continue
        end = (result.end if task.ended is None else task.ended) / SECOND
        here = [place[lane] for lane in task.lanes if lane in place]
        if not here or len(rects) + len(here) > MOST_RECTS:
            left_out += 1
            continue
        group = groups.setdefault(task.user or task.id, len(groups))
        start = task.started / SECOND
        rects += [[lane, start, end, len(tasks)] for lane in here]
        tasks.append([task.id, group, metrics.wait(task)])
    ran = {lane for task in result.tasks for lane in task.lanes}
    text = f"{len(ran):,} of {len(result.lanes):,} nodes and devices were used."
    if result.outages:
        text += " Hatched: down."
    if len(lanes) < len(used):
        text += f" The first {len(lanes)} of them are shown."
    if left_out:
        text += f" {left_out:,} tasks are not drawn."
    users = len(groups) < len(tasks)
    return {
        "kind": "gantt",
        "title": "Who ran where" + (" (a colour per user)" if users else ""),
        "text": text,
        "lanes": [result.lanes[lane] for lane in lanes],
        "groups": list(groups) if users else [""] * len(groups),
        "tasks": tasks,
        "rects": rects,
        "outages": [
            [place[lane], start / SECOND, end / SECOND]
            for lane, start, end in result.outages
            if lane in place
        ],
        "end": max([result.end / SECOND, *(rect[2] for rect in rects)], default=1.0),
    }
