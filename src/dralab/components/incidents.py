"""Broken clusters to mend, each with what a user reports and how to know that it is mended.

An incident is one file in `data/incidents`:

- `report`: what the user says; `level`: 1 (one cause, named by an event) to 3 (nothing names it).
- `drivers`: the fake drivers of its two nodes.
- `setup`: steps from an empty cluster to the broken one. `solution` mends it; `wrong` looks like a
  repair and is none, which tests hold.
- `hints`: from vague to plain.
- `mended`: expressions that must hold, each of one object (`object`, null if there is none), and
  what to say where one does not. Workloads among these objects must ask for devices as in `setup`,
  or at all where `solution` changes for which: what runs without its devices is not mended.

A step is an object to create, or one of `patch` (a merge patch with the names of its object),
`status` (the same, of the status), `delete`, `evict`, and `wait` (a duration).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
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
    written = [*fields["setup"], *fields["solution"]]
    workloads = {(of["kind"], _title(of)): of for of in (check.of for check in mended)}
    for of in workloads.values():
        mended += _asking(of, _pod_spec(of, fields["setup"]), _pod_spec(of, written))
    return Incident(name=name, **{**fields, "mended": mended})


def _title(of: JsonDict) -> str:
    return f"{of['metadata'].get('namespace', '')}/{of['metadata']['name']}"


def _asking(of: JsonDict, begun: JsonDict, ended: JsonDict) -> Iterator[MendedCheck]:
    """Yield that a workload asks for the devices that it asked for at first."""
    path = "object.spec" if of["kind"] == "Pod" else "object.spec.template.spec"
    claims = begun.get("resourceClaims") or []
    if claims and claims != ended.get("resourceClaims"):
        holds = f"{path}.resourceClaims.size() > 0"
        yield MendedCheck(of, holds, f"{_title(of)} does not ask for a device")
        claims = []
    for claim in claims:
        ((field, source),) = ((key, value) for key, value in claim.items() if key != "name")
        holds = f"{path}.resourceClaims.exists(c, c.{field} == '{source}')"
        yield MendedCheck(of, holds, f"{_title(of)} does not use {source}")
    if any(each.get("resources", {}).get("claims") for each in begun.get("containers") or []):
        holds = f"{path}.containers.exists(c, c.resources.claims.size() > 0)"
        yield MendedCheck(of, holds, f"no container of {_title(of)} gets a device")


def _pod_spec(of: JsonDict, steps: Sequence[Step]) -> JsonDict:
    """Return the fields of a workload's pods that steps write, the last ones."""
    found: JsonDict = {}
    for step in steps:
        what = step if "kind" in step else step.get("patch", {})
        if what.get("kind") == of["kind"] and what["metadata"].items() >= of["metadata"].items():
            spec = what.get("spec", {})
            found |= spec if of["kind"] == "Pod" else spec.get("template", {}).get("spec", {})
    return found


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
