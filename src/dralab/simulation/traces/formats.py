"""Public traces of clusters, told by how their files begin: their pods, or their machines.

A format is one entry of `FORMATS`. What a trace does not say stays unsaid: topology, start-up, and
gangs where it does not tell which pods started together.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal, TypeGuard

import orjson

from dralab.files.reading import open_file
from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation.lifecycle.model import Pod
from dralab.simulation.traces import alibaba, google, helios, philly, supercloud
from dralab.simulation.workloads.openb import GpuNode

HEAD: Final = 64 * 1024
INVALID: Final = re.compile(r"[^a-z0-9.-]+")
Holds = Literal["pods", "nodes"]


@dataclass(frozen=True, slots=True)
class TraceFormat:
    """A table of a public trace: a CSV header has these columns, or a JSON object these keys.

    A table without a header is known by the name of its file, which begins with `stem`.
    """

    name: str
    holds: Holds
    columns: tuple[str, ...]
    read: Callable[[Path, InputProblems], Iterator[Pod] | Iterator[GpuNode]]
    stem: str = "\0"


FORMATS: Final = (
    TraceFormat("Philly", "pods", philly.JOB, philly.pods),
    TraceFormat("Philly", "nodes", philly.MACHINE, philly.nodes),
    TraceFormat("Alibaba GPU v2020", "pods", alibaba.TASK, alibaba.pai_pods, "pai_task_table"),
    TraceFormat("Alibaba GPU v2020", "nodes", alibaba.SPEC, alibaba.pai_nodes, "pai_machine_spec"),
    TraceFormat("Alibaba GPU v2025", "pods", alibaba.INSTANCE, alibaba.dlrm_pods),
    TraceFormat("Alibaba spot GPU v2026", "pods", alibaba.SPOT_JOB, alibaba.spot_pods),
    TraceFormat("Alibaba spot GPU v2026", "nodes", alibaba.SPOT_NODE, alibaba.spot_nodes),
    TraceFormat("Google 2019", "pods", google.INSTANCE, google.pods),
    TraceFormat("Google 2019", "nodes", google.MACHINE, google.nodes),
    TraceFormat("MIT Supercloud", "pods", supercloud.JOB, supercloud.pods),
    TraceFormat("Helios", "pods", helios.JOB, helios.pods),
)


def format_of(path: Path, head: bytes | None = None) -> TraceFormat | None:
    """Return the format of a file, which begins with `head`; None: it is no public trace."""
    if head is None:
        try:
            with open_file(path) as file:
                head = file.read(HEAD)
        except OSError as error:
            raise InputError(path, f"cannot be read: {error.strerror}") from None
    keys = _keys(head)
    for each in FORMATS:
        if path.name.startswith(each.stem) or keys.issuperset(each.columns):
            return each
    return None


def _keys(head: bytes) -> frozenset[str]:
    """Return the columns of a table, or the keys of the first object of a file."""
    start = head.removeprefix(b"\xef\xbb\xbf").lstrip()
    if start[:1] == b"[":
        # An array of objects, which may be longer than the head.
        return frozenset(key for key in philly.JOB if f'"{key}"'.encode() in start)
    line = start.partition(b"\n")[0]
    if start[:1] != b"{":
        cells = line.decode(errors="replace").split(",")
        return frozenset(cell.strip().strip('"') for cell in cells)
    try:
        first = orjson.loads(line)
    except orjson.JSONDecodeError:
        return frozenset()
    return frozenset(first) if isinstance(first, dict) else frozenset()


def pods(path: Path, problems: InputProblems) -> tuple[Pod, ...]:
    """Return the pods of a trace, with names as Kubernetes wants them. InputError."""
    found: dict[str, Pod] = {}
    for each in _read(path, "pods", problems):
        if isinstance(each, Pod):
            pod = replace(each, name=_object_name(each.name), gang=_object_name(each.gang))
            if pod.name in found:
                problems.about(InputError(path, f"there are two pods {pod.name!r}"))
            else:
                found[pod.name] = pod
    if not found:
        raise InputError(path, "there are no pods")
    return tuple(found.values())


def nodes(path: Path, problems: InputProblems) -> tuple[GpuNode, ...]:
    """Return the machines of a trace. InputError."""
    read = _read(path, "nodes", problems)
    named = (replace(each, name=_object_name(each.name)) for each in read if _is_node(each))
    found = {each.name: each for each in named}
    if not found:
        raise InputError(path, "there are no machines")
    return tuple(found.values())


def _is_node(value: Pod | GpuNode) -> TypeGuard[GpuNode]:
    return isinstance(value, GpuNode)


def _object_name(name: str) -> str:
    """Return a name of an object, whatever characters the trace has.

    >>> _object_name("application_1506638472019_14199")
    'application-1506638472019-14199'
    """
    return INVALID.sub("-", name.lower()).strip("-.")


def _read(path: Path, holds: Holds, problems: InputProblems) -> Iterator[Pod] | Iterator[GpuNode]:
    found = format_of(path)
    if found is None or found.holds != holds:
        known = ", ".join(dict.fromkeys(each.name for each in FORMATS if each.holds == holds))
        raise InputError(path, f"has no {holds} of a known trace: {known}")
    return found.read(path, problems)
