"""Who ran where and when: a box for each stay on a lane.

Where those are too many to tell apart, it is how much of the time the lanes of each node were held.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from dralab.kernel.clock import SECOND
from dralab.simulation.reports.page import Chart
from dralab.simulation.results import metrics
from dralab.simulation.results.result import Result

# More of them are thinner than a line of text, or narrower than a pixel.
MOST_LANES: Final = 100
MOST_RECTS: Final = 5_000
MOST_ROWS: Final = 50
STRETCHES: Final = 200


class Stay(NamedTuple):
    """Which lanes were held from when to when, in seconds."""

    lanes: Sequence[str]
    start: float
    end: float


def is_dense(lanes: int, rects: int) -> bool:
    """Return whether boxes on lanes are too many to tell apart."""
    return lanes > MOST_LANES or rects > MOST_RECTS


def gantt(result: Result) -> Chart:
    """Return who ran where and when; lanes that were never used are left out."""
    ran = [(task, task.held(result.end)) for task in result.tasks if task.started is not None]
    held = {lane for _, stays in ran for stay in stays for lane in stay.lanes}
    used = sorted(held | {o[0] for o in result.outages})
    text = f"{len(held):,} of {len(result.lanes):,} nodes and devices were used."
    end = max([result.end, *(task.ended or 0 for task, _ in ran)], default=0) / SECOND or 1.0
    names = [result.lanes[lane] for lane in used]
    if is_dense(len(used), sum(len(stay.lanes) for _, stays in ran for stay in stays)):
        of_tasks = [
            Stay(
                [result.lanes[lane] for lane in stay.lanes],
                stay.since / SECOND,
                stay.until / SECOND,
            )
            for _, stays in ran
            for stay in stays
        ]
        rows, shares = occupancy(names, of_tasks, end)
        return {
            "kind": "heat",
            "title": "How much was held, where and when",
            "text": f"{text} Of those of a row, the share of the time that tasks held them.",
            "rows": rows,
            "values": [[round(100 * min(share, 1)) for share in row] for row in shares],
            "end": end,
        }
    place = {lane: index for index, lane in enumerate(used)}
    groups: dict[str, int] = {}
    tasks: list[list[Any]] = []
    rects: list[list[float]] = []
    for task, stays in ran:
        group = groups.setdefault(task.user or task.id, len(groups))
        rects += [
            [place[lane], stay.since / SECOND, stay.until / SECOND, len(tasks)]
            for stay in stays
            for lane in stay.lanes
        ]
        tasks.append([task.id, group, metrics.wait(task)])
    if result.outages:
        text += " Hatched: down."
    users = len(groups) < len(tasks)
    return {
        "kind": "gantt",
        "title": "Who ran where" + (" (a colour per user)" if users else ""),
        "text": text,
        "lanes": names,
        "groups": list(groups) if users else [""] * len(groups),
        "tasks": tasks,
        "rects": rects,
        "outages": [
            [place[lane], start / SECOND, until / SECOND] for lane, start, until in result.outages
        ],
        "end": end,
    }


def occupancy(
    lanes: Iterable[str], stays: Iterable[Stay], end: float
) -> tuple[list[str], list[list[float]]]:
    """Return rows of lanes, and for each the share that was held in each stretch of time.

    The lanes of a node are one row; of many nodes several are, in the order of their numbers.
    """
    of_node = Counter(node_of(lane) for lane in lanes)
    nodes = sorted(of_node, key=natural)
    each = -(-len(nodes) // MOST_ROWS)
    chunks = [nodes[at : at + each] for at in range(0, len(nodes), each)] if nodes else []
    row_of: Mapping[str, int] = {node: at for at, chunk in enumerate(chunks) for node in chunk}
    width = end / STRETCHES
    held = [[0.0] * STRETCHES for _ in chunks]
    for stay in stays:
        first = min(int(stay.start / width), STRETCHES - 1)
        last = min(int(stay.end / width), STRETCHES - 1)
        for row, count in Counter(row_of[node_of(lane)] for lane in stay.lanes).items():
            for at in range(first, last + 1):
                both = min(stay.end, (at + 1) * width) - max(stay.start, at * width)
                held[row][at] += count * max(both, 0.0)
    sizes = [sum(of_node[node] for node in chunk) for chunk in chunks]
    labels = [chunk[0] if len(chunk) == 1 else f"{chunk[0]} … {chunk[-1]}" for chunk in chunks]
    return labels, [
        [time / (width * size) for time in row] for row, size in zip(held, sizes, strict=True)
    ]


def node_of(lane: str) -> str:
    """Return the node of a lane such as `node-3/gpu1`."""
    return lane.partition("/")[0]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a key by which `n-2` comes before `n-10`."""
    parts = []
    digits = ""
    for character in [*name, ""]:
        if character.isdecimal():
            digits += character
            continue
        if digits:
            parts.append((0, int(digits), ""))
            digits = ""
        parts.append((1, 0, character))
    return parts
