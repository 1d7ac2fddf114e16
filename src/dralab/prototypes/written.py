"""A part of a document whose fields may be renamed; findings use the original names."""

from collections.abc import Iterable

from dralab.prototypes.findings import Finding, invalid, legacy, warning
from dralab.values.json_types import JsonDict


def unique(parts: "Iterable[Written]", field: str) -> None:
    """Report a duplicate value."""
    seen: set[str] = set()
    for part in parts:
        value = part.fields.get(field)
        if value in seen:
            part.invalid(field, f'"{value}" appears twice')
        elif value is not None:
            seen.add(value)


class Written:
    """The fields of one part, and the original place of each.

    >>> found = []
    >>> part = Written({"deviceClass": "gpu"}, "spec.claims[0]", found)
    >>> part.rename("deviceClass", "class")
    >>> part.fields, part.at("class"), str(found[0])
    ({'class': 'gpu'}, 'spec.claims[0].deviceClass', 'spec.claims[0].deviceClass: read as class')
    """

    def __init__(self, fields: JsonDict, path: str, found: list[Finding]) -> None:
        self.fields = fields
        self.path = path
        self.found = found
        self._places: dict[str, str] = {}

    def at(self, field: str) -> str:
        """Return the path of a field as it was written."""
        return self._places.get(field) or (f"{self.path}.{field}" if self.path else field)

    def name(self, field: str) -> str:
        """Return the original name of a field."""
        return self.at(field).removeprefix(self.path).removeprefix(".")

    def below(self, field: str) -> "Written":
        """Return a field that has fields itself; an empty part if it is absent."""
        return Written(self.fields.get(field) or {}, self.at(field), self.found)

    def each(self, field: str) -> "list[Written]":
        """Return the elements of a list."""
        items = self.fields.get(field) or ()
        return [
            Written(item, f"{self.at(field)}[{index}]", self.found)
            for index, item in enumerate(items)
        ]

    def rename(self, old: str, new: str) -> None:
        """Read a field as another one."""
        if old in self.fields:
            self.take(new, self, old, f"read as {new}")

    def take(self, field: str, source: "Written", old: str, note: str) -> None:
        """Move a field of another part here; it may not be set in both places."""
        if field in self.fields:
            same = f"means the same as {self.at(field)}: set one of them"
            source.invalid(old, same)
            return
        self.fields[field] = source.fields.pop(old)
        self._places[field] = source.at(old)
        source.legacy(old, note)

    def invalid(self, field: str, message: str) -> None:
        """Report an invalid field; without a field, the whole part."""
        self.found.append(invalid(self.at(field) if field else self.path, message))

    def legacy(self, field: str, message: str) -> None:
        """Report how a field is interpreted; without a field, the whole part."""
        self.found.append(legacy(self.at(field) if field else self.path, message))

    def warn(self, field: str, message: str) -> None:
        """Report a warning about a field; without a field, the whole part."""
        self.found.append(warning(self.at(field) if field else self.path, message))
