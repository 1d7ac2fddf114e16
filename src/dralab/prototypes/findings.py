"""Findings of a reader of an older generation: how it read each field, and errors."""

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass

State = Literal["valid", "legacy", "invalid"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about one field.

    `legacy`: the field was read as something else, said in `message`. `warning`: it is as it
    should be, but may surprise. `invalid`: it breaks a rule. `blocking`: what is below the field
    cannot be read at all. `rule` is the reason and detail of the field's error, without its value.
    """

    level: Literal["legacy", "warning", "invalid"]
    field: str
    message: str
    blocking: bool = False
    rule: tuple[str, str] | None = None

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizedDocument:
    """A document as it was read; `document` is its form in the generation's last stage."""

    document: JsonDict
    findings: tuple[Finding, ...] = ()

    @property
    def state(self) -> State:
        """Valid as written, legacy (read with what the findings say), or invalid."""
        levels = {finding.level for finding in self.findings}
        if "invalid" in levels:
            return "invalid"
        return "legacy" if "legacy" in levels else "valid"

    @property
    def problem(self) -> str:
        """The first error, with its field; empty if there is none."""
        return next((str(each) for each in self.findings if each.level == "invalid"), "")

    def has_readable(self, field: str) -> bool:
        """Return whether a field of the document and the fields below it have no errors."""
        below = (f"{field}.", f"{field}[")
        return not any(
            each.level == "invalid" and (each.field in {"", field} or each.field.startswith(below))
            for each in self.findings
        )


def legacy(field: str, message: str) -> Finding:
    """A field that was reinterpreted."""
    return Finding("legacy", field, message)


def warning(field: str, message: str) -> Finding:
    """A field that may surprise."""
    return Finding("warning", field, message)


def invalid(field: str, message: str) -> Finding:
    """A field that breaks a rule."""
    return Finding("invalid", field, message)


def identity(item: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return apiVersion, kind, namespace and name of an object; absent ones are empty."""
    metadata = item.get("metadata")
    if not isinstance(metadata, Mapping):
        metadata = {}
    return (
        str(item.get("apiVersion") or ""),
        str(item.get("kind") or ""),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
    )


def of_level(findings: Iterable[Finding], level: str) -> list[Finding]:
    """Return the findings of one level."""
    return [finding for finding in findings if finding.level == level]
