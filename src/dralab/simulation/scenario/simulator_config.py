"""The configuration file of k8s-cluster-simulator: ticks, clock, where metrics go, the nodes."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Final

from dralab.simulation.scenario.fields import Fields, load
from dralab.values.json_types import JsonDict
from dralab.values.quantity import QuantityError, parse_any

DEFAULT_START: Final = "2019-01-01T00:00:00Z"
ENDINGS: Final = ("", ".yaml", ".yml")
FORMATTERS: Final = ("JSON", "humanReadable", "table")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsLogger:
    """Where metrics go: `stdout`, `stderr` or a file beside the configuration."""

    dest: str
    formatter: str
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TickConfig:
    """What the file says; times in seconds, `start` since the epoch. `nodes` are objects."""

    file: Path
    tick: int
    metrics_tick: int
    start: int
    zone: tzinfo
    loggers: tuple[MetricsLogger, ...]
    nodes: tuple[JsonDict, ...]


def read(path: Path) -> TickConfig:
    """Return the configuration of a file; as the original, the ending may be left out."""
    for ending in ENDINGS:
        candidate = path.with_name(path.name + ending)
        if candidate.is_file():
            path = candidate
            break
    fields = load(path)
    fields.text("logLevel", "info")
    tick = fields.whole("tick", 10, least=1)
    start, zone = _start(fields)
    loggers = []
    for entry in fields.mappings("metricsLogger"):
        dest = entry.text("dest", "")
        if not dest:
            raise entry.error("dest", "must be stdout, stderr or a path")
        formatter = entry.choice("formatter", dict.fromkeys(FORMATTERS))
        entry.done()
        loggers.append(MetricsLogger(dest=dest, formatter=formatter, folder=fields.folder))
    config = TickConfig(
        file=path,
        tick=tick,
        metrics_tick=fields.whole("metricsTick", tick, least=1),
        start=start,
        zone=zone,
        loggers=tuple(loggers),
        nodes=tuple(_nodes(fields)),
    )
    fields.done()
    return config


def _start(fields: Fields) -> tuple[int, tzinfo]:
    # The original takes the present; here the same file gives the same output.
    text = fields.text("startClock", DEFAULT_START)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise fields.error("startClock", f"{text!r} is not an RFC 3339 time") from None
    if moment.tzinfo is None:
        raise fields.error("startClock", f"{text!r} has no time zone")
    return int(moment.timestamp()), moment.tzinfo


def _nodes(fields: Fields) -> Iterator[JsonDict]:
    seen: set[str] = set()
    for entry in fields.mappings("cluster"):
        metadata = entry.mapping("metadata")
        name = metadata.text("name")
        if name in seen:
            raise metadata.error("name", f"there are two nodes {name!r}")
        seen.add(name)
        allocatable = entry.mapping("status").mapping("allocatable")
        for key in allocatable.value:
            _check_amount(allocatable, key)
        metadata.mapping("labels")
        yield {"apiVersion": "v1", "kind": "Node", **entry.value}


def _check_amount(fields: Fields, key: str) -> None:
    try:
        parse_any(fields.raw(key))
    except QuantityError:
        raise fields.error(key, f"{fields.raw(key)!r} is not a quantity") from None
