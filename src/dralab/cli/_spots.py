"""Where something in files is written: file, line and column of a field, or of a piece of it."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from dralab.api.manifests import Manifest, field_line
from dralab.api.yaml_documents import YamlError, documents
from dralab.explanation.causes import MarkedField
from dralab.explanation.text import ObjectFields
from dralab.files.reading import read
from dralab.files.sources import MAX_BYTES

KINDS: Final = {"claim": "ResourceClaim", "class": "DeviceClass", "pod": "Pod"}
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
    """Return line and column of the marked piece, both from 1; 0 where it is written otherwise."""
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
