"""The configuration file: ticks, clock, where metrics go, and the nodes."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from pathlib import Path
from typing import Any, Final

from dralab.api.manifests import load as load_manifests
from dralab.simulation.engines.ticks.metrics import FORMATS, Metrics
from dralab.simulation.engines.ticks.model import Submit, Terminate, TickNode, TickPod
from dralab.simulation.errors import InputError
from dralab.simulation.scenario.fields import Fields, load
from dralab.simulation.scenario.manifests import ARRIVES
from dralab.simulation.workloads import phases
from dralab.values.quantity import Number, QuantityError, parse_any

DEFAULT_START: Final = "2019-01-01T00:00:00Z"
ENDINGS: Final = ("", ".yaml", ".yml")


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsLogger:
    """Where metrics go: `stdout`, `stderr` or a file beside the configuration."""

    dest: str
    formatter: str
    folder: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class TickConfig:
    """What the file says; times in seconds, `start` since the epoch."""

    tick: int
    metrics_tick: int
    start: int
    zone: tzinfo
    loggers: tuple[MetricsLogger, ...]
    nodes: tuple[TickNode, ...]


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
        formatter = entry.choice("formatter", FORMATS)
        entry.done()
        loggers.append(MetricsLogger(dest=dest, formatter=formatter, folder=fields.folder))
    config = TickConfig(
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
        raise fields.error("startClock", f"{text!r} is no RFC 3339 time") from None
    if moment.tzinfo is None:
        raise fields.error("startClock", f"{text!r} has no time zone")
    return int(moment.timestamp()), moment.tzinfo


def _nodes(fields: Fields) -> Iterator[TickNode]:
    seen: set[str] = set()
    for entry in fields.mappings("cluster"):
        metadata = entry.mapping("metadata")
        name = metadata.text("name")
        if name in seen:
            raise metadata.error("name", f"there are two nodes {name!r}")
        seen.add(name)
        allocatable = entry.mapping("status").mapping("allocatable")
        amounts = {key: _amount(allocatable, key) for key in allocatable.value}
        labels = {str(k): str(v) for k, v in metadata.mapping("labels").value.items()}
        yield TickNode(name, amounts, labels)


def _amount(fields: Fields, key: str) -> Number:
    try:
        return parse_any(fields.raw(key))
    except QuantityError:
        raise fields.error(key, f"{fields.raw(key)!r} is no quantity") from None


class ManifestSubmitter:
    """Submits the pods of a manifest file at the time their annotation says (else at once)."""

    def __init__(self, path: Path, start: int) -> None:
        self.waiting = sorted(
            ((start + arrives, index, pod) for index, (arrives, pod) in enumerate(_pods(path))),
            key=lambda item: item[:2],
        )

    def submit(
        self, clock: int, nodes: Sequence[TickNode], metrics: Metrics
    ) -> Sequence[Submit | Terminate]:
        """Return the pods whose time has come."""
        del nodes, metrics
        now = [pod for when, _, pod in self.waiting if when <= clock]
        self.waiting = [item for item in self.waiting if item[0] > clock]
        events: list[Submit | Terminate] = [Submit(pod) for pod in now]
        return events if self.waiting else [*events, Terminate()]


def _pods(path: Path) -> Iterator[tuple[int, TickPod]]:
    from dralab.kernel.clock import SECOND
    from dralab.simulation.scenario.fields import duration

    loaded = load_manifests([str(path)])
    for problem in loaded.problems:
        raise InputError(path, problem.message, line=problem.origin.line)
    for manifest in loaded.of_kind("Pod"):
        metadata, spec = manifest.object.get("metadata") or {}, manifest.object.get("spec") or {}
        annotations = metadata.get("annotations") or {}
        try:
            # Without the annotation this is no list of phases, and says so.
            found = phases.parse(str(annotations.get(phases.ANNOTATION, "")))
            arrives = duration(annotations.get(ARRIVES, 0)) // SECOND
            requests, limits = (_total(spec, part) for part in ("requests", "limits"))
        except (AttributeError, TypeError, ValueError) as error:
            raise InputError(
                path, str(error), line=manifest.origin.line, where=manifest.title
            ) from None
        yield (
            arrives,
            TickPod(
                name=manifest.name,
                namespace=manifest.namespace or "default",
                requests=requests,
                limits=limits,
                phases=found,
                priority=int(spec.get("priority") or 0),
                grace=int(spec.get("terminationGracePeriodSeconds") or 30),
            ),
        )


def _total(spec: Mapping[str, Any], part: str) -> dict[str, Number]:
    found: dict[str, Number] = {}
    for container in spec.get("containers") or []:
        for key, value in ((container.get("resources") or {}).get(part) or {}).items():
            found[key] = found.get(key, 0) + parse_any(value)
    return found


class MetricsWriter:
    """Writes metrics to the loggers; close it to close their files."""

    def __init__(self, config: TickConfig) -> None:
        self.config = config
        self._files: dict[str, Any] = {"stdout": sys.stdout, "stderr": sys.stderr}
        for logger in config.loggers:
            if logger.dest not in self._files:
                path = (logger.folder / logger.dest).resolve()
                if not path.is_relative_to(logger.folder.resolve()):
                    raise InputError(path, "is outside the folder of the configuration")
                self._files[logger.dest] = path.open("w", encoding="utf-8")

    def __call__(self, metrics: Metrics) -> None:
        """Write one set of metrics in every format that is wanted."""
        for logger in self.config.loggers:
            self._files[logger.dest].write(FORMATS[logger.formatter](metrics, self.config.zone))

    def close(self) -> None:
        """Close the files."""
        for name, file in self._files.items():
            if name not in {"stdout", "stderr"}:
                file.close()
