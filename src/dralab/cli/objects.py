"""Shared by the commands on files and clusters: the inventory, or exit code 2 with all errors."""

import gc
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import Final

import click

from dralab.allocation import v1
from dralab.allocation.problem import Device
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.api.manifests import Manifest, Manifests, field_line
from dralab.api.yaml_documents import YamlError, documents
from dralab.cli._inventory import InventorySource
from dralab.cli._output import refuse
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.cli.generations import stdin
from dralab.explanation.causes import MarkedField
from dralab.explanation.edits import KINDS, repaired
from dralab.explanation.names import templates_of
from dralab.explanation.text import ObjectFields, Spots
from dralab.files.reading import read
from dralab.files.sources import MAX_BYTES
from dralab.kernel.clock import WallClock
from dralab.lab.inventory import checked_manifests, lacking, merged, newer_fields
from dralab.scheduling.backlog import Pending
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict

MOST_EXAMPLES: Final = 2_000
"""Devices of the input for which a corrected expression is tried."""
PLACES: Final = frozenset({"Node", "ResourceSlice"})
MANY: Final = 500_000
"""From so many new objects on, the collector does not look at them later either."""


def snapshot(source: InventorySource) -> Snapshot:
    """Return the objects of files and of a cluster as one; exit with code 2 and every mistake.

    UsageError: there is nothing to read, or neither nodes nor devices in files alone.
    """
    return with_spots(source)[0]


def with_spots(source: InventorySource) -> tuple[Snapshot, Spots]:
    """Return the objects of files and of a cluster, and where those of files are written."""
    with _without_collector():
        found, written = _read(source)
        cluster = Snapshot(found)
        templates = templates_of(cluster)
        return cluster, FileSpots(written, templates) if written else ObjectFields(templates)


@contextmanager
def _without_collector() -> Iterator[None]:
    """Disable the garbage collector: a large fleet has millions of objects that stay."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MANY:
            gc.freeze()
        if was_on:
            gc.enable()


def inventory(source: InventorySource) -> list[JsonDict]:
    """Return the objects that `snapshot` makes a cluster of, checked and defaulted."""
    return _read(source)[0]


def _read(source: InventorySource) -> tuple[list[JsonDict], Sequence[Manifest]]:
    """Return all objects, and those of files with their places."""
    if not source:
        raise click.UsageError(
            "nothing to read: give files with -f (- is standard input), or a cluster with "
            "--kubeconfig"
        )
    found = source.of_cluster()
    _tell_newer(newer_fields(found))
    written: Sequence[Manifest] = ()
    if source.files:
        read = manifests(source.files)
        refuse(read.problems, _repairs(read))
        _tell(read)
        written = read.objects
        found = merged(found, [item.object for item in written])
    if why := lacking(found):
        raise UnusableInput(why)
    if not source.connection and not any(item.get("kind") in PLACES for item in found):
        raise click.UsageError(
            "the input has no Node and no ResourceSlice: there is nowhere to place anything"
        )
    return found, written


def _repairs(read: Manifests) -> Iterator[str]:
    """Yield probable corrections of expressions that do not compile."""
    wires = (
        device
        for item in read.objects
        if item.kind == "ResourceSlice"
        for device in _devices_of(item.object)
    )
    devices = list(islice(wires, MOST_EXAMPLES))
    for problem in read.problems:
        error = problem.error
        if (
            error is not None
            and error.reason == "FieldValueInvalid"
            and error.field.endswith(".cel.expression")
        ):
            text = repaired(error.value, devices)
            if text:
                yield f"help: did you mean `{' '.join(text.split())}`?"


def _devices_of(item: JsonDict) -> Sequence[Device]:
    return v1.V1Reader(CelSelectorCompiler()).slice(item).devices


def _tell(read: Manifests) -> None:
    """Report on stderr which parts of the input are ignored."""
    _tell_newer(read.newer)
    if read.skipped:
        files = f"{len(read.skipped)} files" if len(read.skipped) > 1 else "1 file"
        echo(f"skipped {files} without objects that matter for devices", err=True)


def _tell_newer(fields: Counter[tuple[str, str]]) -> None:
    for (kind, path), count in sorted(fields.items()):
        times = f"{count} times" if count > 1 else "once"
        echo(
            f"{kind}: unknown field {path} ({times}) is ignored: a newer Kubernetes wrote it",
            err=True,
        )


def manifests(files: Sequence[str]) -> Manifests:
    """Return the objects of files, checked by the rules of their kinds."""
    return checked_manifests(files, WallClock(), stdin)


def named(pending: Sequence[Pending], name: str) -> list[Pending]:
    """Return the pending pod or claim of a name: `POD`, `CLAIM` or `NAMESPACE/NAME`."""
    namespace, slash, short = name.rpartition("/")
    found = [
        each
        for each in pending
        if (not slash or each.namespace == namespace)
        and (each.name == short or _has_claim(each, short))
    ]
    if not found:
        known = ", ".join(f"{each.namespace}/{each.name}" for each in pending) or "none"
        raise click.UsageError(f"no pod or claim {name!r} waits; those that do: {known}")
    return found


def _has_claim(each: Pending, name: str) -> bool:
    return any(claim["metadata"]["name"] == name for claim in (*each.claims, *each.allocated))


def check_node(cluster: Snapshot, node: str) -> None:
    """Raise UsageError if the named node is not in the input; "" names none."""
    known = list(cluster.nodes)
    if node and node not in known:
        raise click.UsageError(f"no node {node!r}; known nodes: {', '.join(known) or 'none'}")


FURTHEST: Final = 40
"""Lines after that of a field on which a block of text may still go on."""


@dataclass(slots=True)
class _File:
    lines: list[str] = field(default_factory=list)
    positions: dict[int, Mapping[str, int]] = field(default_factory=dict)


class FileSpots:
    """Finds places in the files that objects were read from; others by object and field.

    `templates` names the ResourceClaimTemplate of claims that were made from one.
    """

    def __init__(self, read: Iterable[Manifest], templates: Mapping[str, str]) -> None:
        self._read = read
        self._templates = templates
        self._fields = ObjectFields(templates)
        self._files: dict[str, _File] = {}

    @cached_property
    def _by_name(self) -> dict[tuple[str, str], Manifest]:
        return {
            (item.kind, f"{item.namespace or 'default'}/{item.name}"): item for item in self._read
        }

    def spot(self, mark: MarkedField) -> str:
        """Return `file:line:column`, or the object and field of what is in no file."""
        owner, name = mark.owner
        kind, path = KINDS[owner], mark.field
        if owner == "claim" and name in self._templates:
            kind, name, path = "ResourceClaimTemplate", self._templates[name], f"spec.{path}"
        full = name if "/" in name else f"default/{name}"
        found = self._by_name.get((kind, full))
        if found is None or not found.origin.line:  # a snapshot has objects, and no lines
            return self._fields.spot(mark)
        origin = found.origin
        file = self._file(origin.file)
        line = field_line(file.positions.get(origin.document, {}), origin, path)
        at, column = _column(file.lines, line, mark)
        return f"{origin.file}:{at}:{column}" if column else f"{origin.file}:{line}"

    def _file(self, name: str) -> _File:
        known = self._files.get(name)
        if known is None:
            known = self._files[name] = _File()
            # Standard input cannot be read again: the line of the document has to do.
            with suppress(OSError, YamlError, UnicodeDecodeError):
                content = read(name, MAX_BYTES)
                known.lines = content.decode().splitlines()
                known.positions = {
                    item.number: item.positions for item in documents(content, positions=True)
                }
        return known


def _column(lines: list[str], line: int, mark: MarkedField) -> tuple[int, int]:
    """Return line and column of the marked text, both from 1; 0 if it is written differently."""
    start = mark.span.start if mark.span is not None else 0
    begin = mark.text.rfind("\n", 0, start) + 1
    whole = mark.text[begin:].split("\n", 1)[0]
    if not whole.strip():
        return line, 0
    for number in range(line, min(line + FURTHEST, len(lines) + 1)):
        at = lines[number - 1].find(whole)
        if at >= 0:
            return number, at + (start - begin) + 1
    return line, 0
