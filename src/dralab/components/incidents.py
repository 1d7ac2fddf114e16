"""Broken clusters to mend, each with what a user reports and how to know that it is mended.

An incident is one file in `data/incidents`:

- `report`: what the user says; `level`: 1 (one cause, named by an event) to 3 (nothing names it).
- `drivers`: the fake drivers of its two nodes.
- `setup`: steps from an empty cluster to the broken one. `solution` mends it; `wrong` looks like a
  repair and is none, which tests hold.
- `hints`: from vague to plain.
- `mended`: expressions that must hold, each of one object (`object`, null if there is none), and
  what to say where one does not.

A step is an object to create, or one of `patch` (a merge patch with the names of its object),
`status` (the same, of the status), `delete`, `evict`, and `wait` (a duration).
"""

from collections.abc import Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from dralab import cel
from dralab.api.kinds import Kinds
from dralab.api.yaml_documents import documents
from dralab.cel.json_values import from_json
from dralab.components.example import create
from dralab.kernel.durations import duration
from dralab.runtime.client import Client, find
from dralab.runtime.resources import resource_of
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

NODES: Final = ("node-1", "node-2")
Step = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class MendedCheck:
    """What must hold of an object, and what is wrong where it does not."""

    of: JsonDict
    holds: str
    otherwise: str


@dataclass(frozen=True, slots=True)
class Incident:
    """A broken cluster; the fields are those of its file."""

    name: str
    level: int
    report: str
    drivers: Sequence[str]
    setup: Sequence[Step]
    mended: Sequence[MendedCheck]
    hints: Sequence[str]
    solution: Sequence[Step]
    wrong: Sequence[Step]


def names() -> list[str]:
    """Return the names of all incidents, sorted."""
    found = files("dralab.components").joinpath("data/incidents").iterdir()
    return sorted(each.name.removesuffix(".yaml") for each in found)


def read(name: str) -> Incident:
    """Return an incident. KeyError: there is none of that name."""
    if name not in names():
        raise KeyError(name)
    (document,) = documents(
        files("dralab.components")
        .joinpath(f"data/incidents/{name}.yaml")
        .read_text(encoding="utf-8")
    )
    fields: Any = document.value
    mended = [
        MendedCheck(each["of"], each["holds"], each["otherwise"]) for each in fields["mended"]
    ]
    return Incident(name=name, **{**fields, "mended": mended})


def perform(steps: Sequence[Step], client: Client, wait: Callable[[float], None]) -> None:
    """Do steps; `wait` lets so many seconds pass in the cluster. ApiError."""
    kinds = Kinds.standard()
    for step in steps:
        if "kind" in step:
            create(client, resource_of(kinds, step), dict(step))
            continue
        ((verb, what),) = step.items()
        if verb == "wait":
            wait(duration(what) / 10**9)
            continue
        resource, metadata = resource_of(kinds, what), what["metadata"]
        name, namespace = metadata["name"], metadata.get("namespace", "")
        if verb == "delete":
            client.delete(resource, name, namespace)
        elif verb == "patch":
            client.patch(resource, name, what, namespace)
        else:
            client.patch(resource, name, what, namespace, subresource=verb)


def faults(incident: Incident, client: Client) -> list[str]:
    """Return what is still wrong; nothing if the cluster is mended. ApiError."""
    return [check.otherwise for check in incident.mended if not _holds(check, client)]


def _holds(check: MendedCheck, client: Client) -> bool:
    metadata = check.of["metadata"]
    resource = resource_of(Kinds.standard(), check.of)
    found = find(client, resource, metadata["name"], metadata.get("namespace", ""))
    program = cel.compile_expression(check.holds, cel.of_objects())
    try:
        value, _ = program.value({"object": from_json(found), "oldObject": None})
    except cel.CelError:
        # A field that is not there yet.
        return False
    return value is True
