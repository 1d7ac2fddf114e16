"""Batsim's external events: one JSON object a line, in any order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from dralab.scenarios.errors import InputError, InputProblems, content_of
from dralab.scenarios.fields import is_number
from dralab.simulation.host_sets import parse, render
from dralab.simulation.json_input import nanoseconds


@dataclass(frozen=True, slots=True, kw_only=True)
class ExternalEvent:
    """Something that happens to machines, or that only a scheduler understands."""

    type: str
    when: int
    machines: int = 0
    source: Mapping[str, Any] = field(default_factory=dict)


def read(
    path: Path, *, problems: InputProblems | None = None, machines: int | None = None
) -> list[ExternalEvent]:
    """Return the events of a file. InputError, with the line.

    `machines` is how many there are, where that is known: an event of another one is an error.
    """
    problems = InputProblems() if problems is None else problems
    lines = content_of(path).splitlines()
    events = []
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                event = _event(path, number, line)
            except InputError as error:
                problems.about(error)
                continue
            beyond = event.machines >> machines << machines if machines is not None else 0
            if beyond:
                problem = f"there are {machines} machines, no {render(beyond)}"
                problems.about(InputError(path, problem, line=number, where="resources"))
            else:
                events.append(event)
    return events


def _event(path: Path, number: int, line: bytes) -> ExternalEvent:
    try:
        value = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        raise InputError(path, f"is not JSON: {error.msg}", line=number) from None
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise InputError(path, "must be an object with a type", line=number, where="type")
    when = value.get("timestamp")
    if when is None or not is_number(when) or when < 0:
        raise InputError(
            path, f"must be a number of seconds, not {when!r}", line=number, where="timestamp"
        )
    machines = 0
    if value["type"] in {"machine_available", "machine_unavailable"}:
        try:
            machines = parse(str(value.get("resources", "")))
        except ValueError as error:
            raise InputError(path, str(error), line=number, where="resources") from None
    return ExternalEvent(
        type=value["type"],
        when=nanoseconds(when),
        machines=machines,
        source=value,
    )
