"""What `simulate run` is given: a scenario, or the files of another simulator, told by content."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import orjson

from dralab.api.snapshots.recordings import is_recording
from dralab.files.reading import open_file
from dralab.simulation.scenario.simulator_config import ENDINGS
from dralab.simulation.traces import formats as traces
from dralab.simulation.workloads import azure

SCENARIO: Final = "scenario"
BATSIM: Final = "Batsim"
SWF: Final = "SWF"
OPENB: Final = "openb"
TICKS: Final = "k8s-cluster-simulator"
TRACE: Final = "a public trace"
# Roles of files → their formats, and how a message calls them.
ROLES: Final[Mapping[str, tuple[str, str]]] = {
    "scenario": (SCENARIO, "a scenario"),
    "workload": (BATSIM, "a Batsim workload"),
    "platform": (BATSIM, "a SimGrid platform"),
    "events": (BATSIM, "Batsim's external events"),
    "trace": (SWF, "an SWF trace"),
    "nodes": (OPENB, "nodes of an openb trace"),
    "pods": (OPENB, "pods of an openb trace"),
    "trace-pods": (TRACE, "the jobs of a public trace"),
    "trace-nodes": (TRACE, "the machines of a public trace"),
    "config": (TICKS, "a configuration of k8s-cluster-simulator"),
    "manifests": (TICKS, "manifests of pods"),
}
# The roles that a run of a format needs.
NEEDED: Final[Mapping[str, tuple[str, ...]]] = {
    SCENARIO: ("scenario",),
    BATSIM: ("workload",),
    SWF: ("trace",),
    OPENB: ("nodes", "pods"),
    TICKS: ("config", "manifests"),
    TRACE: ("trace-pods", "trace-nodes"),
}
REQUESTS: Final = "requests"
HEAD: Final = 64 * 1024
OF_SCENARIO: Final = re.compile(rb'^(?:fleet|workload)\s*:|"(?:fleet|workload)"\s*:', re.MULTILINE)
OF_CONFIG: Final = re.compile(
    rb"^(?:startClock|metricsTick|metricsLogger|cluster)\s*:", re.MULTILINE
)
OF_MANIFESTS: Final = re.compile(rb"^\W*kind\s*:\s*\w", re.MULTILINE)


class UnknownInputError(ValueError):
    """Files that are not the input of one run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputFiles:
    """The files of a run, by what each is for."""

    format: str
    by_role: Mapping[str, tuple[Path, ...]]

    def one(self, role: str) -> Path | None:
        """Return the file of a role; None for none."""
        return next(iter(self.by_role.get(role, ())), None)


def classified(paths: Iterable[Path]) -> InputFiles:
    """Return which file is which. UnknownInputError."""
    by_role: dict[str, tuple[Path, ...]] = {}
    for path in paths:
        role = _role(path)
        if role == REQUESTS:
            told = "name it in a scenario, as `azure` of a service in `workload.serving`"
            raise UnknownInputError(f"{path} has requests of a service: {told}")
        by_role[role] = (*by_role.get(role, ()), path)
    formats = {ROLES[role][0] for role in by_role}
    if len(formats) > 1:
        raise UnknownInputError(f"{_listed(by_role)}: give the files of one run")
    (format_,) = formats
    for role in NEEDED[format_]:
        if role not in by_role:
            raise UnknownInputError(f"{_listed(by_role)}: {ROLES[role][1]} is missing")
    for role, files in by_role.items():
        if len(files) > 1 and role != "workload":
            raise UnknownInputError(f"{_listed({role: files})}: give one of them")
    return InputFiles(format=format_, by_role=by_role)


def _listed(by_role: Mapping[str, Iterable[Path]]) -> str:
    return ", ".join(
        f"{path} is {ROLES[role][1]}" for role, files in by_role.items() for path in files
    )


def _role(path: Path) -> str:
    """Return what a file is for; a file that nothing is known of is taken for a scenario."""
    if path.suffix == ".xml":
        return "platform"
    head = _head(path)
    found = traces.format_of(path, head)
    if found is not None:
        return f"trace-{found.holds}"
    if head.startswith(",".join(azure.COLUMNS).encode()):
        return REQUESTS
    if path.suffix == ".swf" or head.startswith(b";") or _is_job_of_swf(head):
        return "trace"
    if path.suffix == ".csv":
        names = head.partition(b"\n")[0].split(b",")
        return "nodes" if b"sn" in names or b"model" in names else "pods"
    if is_recording(head):
        return "scenario"
    if head.lstrip()[:1] in {b"{", b"["} or path.suffix == ".json":
        return _role_of_json(head)
    if OF_SCENARIO.search(head):
        return "scenario"
    if OF_CONFIG.search(head):
        return "config"
    return "manifests" if OF_MANIFESTS.search(head) else "scenario"


def _role_of_json(head: bytes) -> str:
    try:
        first = orjson.loads(head.lstrip().partition(b"\n")[0])
    except orjson.JSONDecodeError:
        first = None
    if isinstance(first, dict) and {"timestamp", "type"} <= first.keys():
        return "events"
    return "scenario" if OF_SCENARIO.search(head) else "workload"


def _is_job_of_swf(head: bytes) -> bool:
    fields = head.lstrip().partition(b"\n")[0].split()
    return len(fields) == 18 and all(re.fullmatch(rb"-?[\d.]+", each) for each in fields)


def _head(path: Path) -> bytes:
    """Return how a file begins; nothing where it cannot be read, which its reader will report."""
    for ending in ENDINGS:
        try:
            with open_file(path.with_name(path.name + ending)) as file:
                return file.read(HEAD)
        except OSError:
            continue
    return b""
