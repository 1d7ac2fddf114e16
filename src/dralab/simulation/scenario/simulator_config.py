"""The configuration file of k8s-cluster-simulator: ticks, clock, metrics, nodes."""

from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from pathlib import Path
from typing import Final

from dralab.scenarios.fields import Fields, load
from dralab.scenarios.tables import Table, choice, field, label, rows, whole
from dralab.values.json_types import JsonDict
from dralab.values.quantity import QuantityError, parse_any

START: Final = 1_546_300_800  # 2019-01-01T00:00:00Z
ENDINGS: Final = ("", ".yaml", ".yml")
FORMATTERS: Final = ("JSON", "humanReadable", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsLogger:
    """An output of metrics: `stdout`, `stderr` or a file beside the configuration."""

    dest: str
    formatter: str
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TickConfig:
    """The configuration; times in seconds, `start` since the epoch. `nodes` are objects."""

    file: Path
    tick: int
    metrics_tick: int
    start: int
    zone: tzinfo
    loggers: tuple[MetricsLogger, ...]
    nodes: tuple[JsonDict, ...]


def read(path: Path) -> TickConfig:
    """Return the configuration of a file; as in the original, the extension may be omitted."""
    for ending in ENDINGS:
        candidate = path.with_name(path.name + ending)
        if candidate.is_file():
            path = candidate
            break
    given = CONFIG.read(load(path))
    start, zone = given.startClock
    return TickConfig(
        file=path,
        tick=given.tick,
        metrics_tick=given.metricsTick or given.tick,
        start=start,
        zone=zone,
        loggers=tuple(
            MetricsLogger(dest=each.dest, formatter=each.formatter, folder=path.parent)
            for each in given.metricsLogger
        ),
        nodes=given.cluster,
    )


def _start(fields: Fields, key: str) -> tuple[int, tzinfo]:
    text = fields.text(key)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise fields.error(key, f"{text!r} is not an RFC 3339 time") from None
    if moment.tzinfo is None:
        raise fields.error(key, f"{text!r} has no time zone")
    return int(moment.timestamp()), moment.tzinfo


def _nodes(fields: Fields, key: str) -> tuple[JsonDict, ...]:
    nodes: dict[str, JsonDict] = {}
    for entry in fields.mappings(key):
        metadata = entry.mapping("metadata")
        name = metadata.text("name")
        if name in nodes:
            raise metadata.error("name", f"there are two nodes {name!r}")
        allocatable = entry.mapping("status").mapping("allocatable")
        for amount in allocatable.value:
            _check_amount(allocatable, amount)
        metadata.mapping("labels")
        nodes[name] = {"apiVersion": "v1", "kind": "Node", **entry.value}
    return tuple(nodes.values())


def _check_amount(fields: Fields, key: str) -> None:
    try:
        parse_any(fields.raw(key))
    except QuantityError:
        raise fields.error(key, f"{fields.raw(key)!r} is not a quantity") from None


LOGGER: Final = Table(
    {
        "dest": field(
            {}, lambda given, key: given.text(key) if given.has(key) else "", always=True
        ).checked(lambda dest: "" if dest else "must be stdout, stderr or a path"),
        "formatter": choice(FORMATTERS, required=True),
    }
)
CONFIG: Final = Table(
    {
        "logLevel": label(),
        "tick": whole(least=1, default=10),
        "metricsTick": whole(least=1),
        # The original takes the present; here the same file gives the same output.
        "startClock": field({}, _start, default=(START, UTC)),
        "metricsLogger": rows(LOGGER),
        "cluster": field({}, _nodes, default=()),
    }
)
