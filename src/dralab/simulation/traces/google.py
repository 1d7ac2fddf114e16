"""Google's traces of Borg of 2019: `instance_events` and `machine_events` as lines of JSON.

https://github.com/google/cluster-data, clusterdata_trace_format_v3.proto, as BigQuery exports it:
an object a line, numbers of 64 bits as strings. CPU and memory are parts of the largest machine,
which counts here as 100 cores and 1 TiB. Instances that run in an alloc are part of it, and are
left out; the instances of an alloc set are pods.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import orjson

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError, InputProblems, content_of
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.workloads.openb import GpuNode, PodRequest

INSTANCE: Final = ("time", "type", "collection_id", "instance_index", "resource_request")
MACHINE: Final = ("time", "type", "machine_id", "capacity")
EVENTS: Final = (
    "SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST",
    "UPDATE_PENDING", "UPDATE_RUNNING",
)  # fmt: skip
ENDS: Final = frozenset({"FAIL", "FINISH", "KILL", "LOST"})
MACHINE_EVENTS: Final = ("EVENT_TYPE_UNKNOWN", "ADD", "REMOVE", "UPDATE")
MICROSECOND: Final = SECOND // 1_000_000
LARGEST_CPU: Final = 100_000
LARGEST_MEMORY: Final = 1 << 40
AFTER_THE_END: Final = (1 << 63) - 1


@dataclass(frozen=True, slots=True)
class _Line:
    path: Path
    number: int
    value: Mapping[str, Any]

    def error(self, key: str, problem: str) -> InputError:
        return InputError(self.path, problem, line=self.number, where=key)

    def whole(self, key: str, default: int | None = None) -> int:
        value: Any = self.value.get(key, default)
        try:
            return int(value)
        except (TypeError, ValueError):
            raise self.error(key, f"{value!r} is not a whole number") from None

    def kind(self, known: tuple[str, ...]) -> str:
        value = self.value.get("type")
        if value in known:
            return str(value)
        number = self.whole("type")
        if not 0 <= number < len(known):
            raise self.error("type", f"{number} is not one of 0 to {len(known) - 1}")
        return known[number]

    def amounts(self, key: str) -> tuple[int, int]:
        """Return CPU in milli and memory in bytes."""
        given = self.value.get(key) or {}
        try:
            parts = [float(given.get(name) or 0.0) for name in ("cpus", "memory")]
        except (AttributeError, TypeError, ValueError):
            parts = [-1.0]
        if not all(0 <= part <= 1 for part in parts):
            raise self.error(key, "must have cpus and memory, each from 0 to 1")
        return round(parts[0] * LARGEST_CPU), round(parts[1] * LARGEST_MEMORY)


def _lines(path: Path, problems: InputProblems) -> Iterator[_Line]:
    for number, text in enumerate(content_of(path).split(b"\n"), 1):
        if not text.strip():
            continue
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError as error:
            problems.about(InputError(path, f"is not JSON: {error.msg}", line=number))
            continue
        if not isinstance(value, dict):
            problems.about(InputError(path, "must be an object", line=number))
            continue
        yield _Line(path, number, value)


@dataclass(slots=True)
class _Instance:
    submitted: int
    cpu: int = 0
    memory: int = 0
    priority: int = 0
    started: int | None = None
    ended: int | None = None


def pods(path: Path, problems: InputProblems) -> Iterator[Pod]:
    """Yield the instances that started; those without an end never end."""
    found: dict[str, _Instance] = {}
    for line in _lines(path, problems):
        try:
            _take_in(found, line)
        except InputError as error:
            problems.about(error)
    begin = min((each.submitted for each in found.values()), default=0)
    for name, each in found.items():
        if each.started is None:
            continue
        length = None if each.ended is None else max(1, each.ended - each.started) * MICROSECOND
        yield Pod(
            name=name,
            request=PodRequest(each.cpu, 0, 0, ""),
            memory=each.memory,
            arrives=(each.submitted - begin) * MICROSECOND,
            duration=length,
            priority=each.priority,
        )


def _take_in(found: dict[str, _Instance], line: _Line) -> None:
    if line.whole("alloc_collection_id", 0):
        return
    event, when = line.kind(EVENTS), line.whole("time")
    if when >= AFTER_THE_END:
        return
    name = f"{line.whole('collection_id')}-{line.whole('instance_index')}"
    known = found.setdefault(name, _Instance(when))
    if event in ENDS:
        known.ended = when
    else:
        if event == "SCHEDULE":
            known.started, known.ended = when, None
        cpu, memory = line.amounts("resource_request")
        known.cpu, known.memory = max(known.cpu, cpu), max(known.memory, memory)
        known.priority = line.whole("priority", 0)


def nodes(path: Path, problems: InputProblems) -> Iterator[GpuNode]:
    """Yield the machines with the most that each ever had; removals are not acted out."""
    found: dict[int, tuple[int, int]] = {}
    for line in _lines(path, problems):
        try:
            if line.kind(MACHINE_EVENTS) in {"ADD", "UPDATE"}:
                amounts = line.amounts("capacity")
                name = line.whole("machine_id")
                found[name] = max(found.get(name, (0, 0)), amounts)
        except InputError as error:
            problems.about(error)
    for name, (cpu, memory) in found.items():
        yield GpuNode(str(name), cpu, memory, 0, "")
