"""Findings of a reader of an older generation: how it read each field, and errors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from dralab.objects.nodes import offered
from dralab.objects.requests import base_units, pod_requests
from dralab.values.json_types import JsonDict
from dralab.values.quantity import QuantityError

State = Literal["valid", "legacy", "invalid"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One observation about one field.

    `legacy`: the field was read as something else, said in `message`. `warning`: it is as it
    should be, but may surprise. `invalid`: it breaks a rule.
    """

    level: Literal["legacy", "warning", "invalid"]
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.field}: {self.message}" if self.field else self.message


@dataclass(frozen=True, slots=True, kw_only=True)
class NormalizedDocument:
    """A document as it was read: `document` is its form in the generation's last stage."""

    document: JsonDict
    findings: tuple[Finding, ...] = ()

    @property
    def state(self) -> State:
        """Valid as written, legacy (read with what the findings say), or invalid."""
        levels = {finding.level for finding in self.findings}
        if "invalid" in levels:
            return "invalid"
        return "legacy" if "legacy" in levels else "valid"


def legacy(field: str, message: str) -> Finding:
    """A field that was read as something else."""
    return Finding("legacy", field, message)


def warning(field: str, message: str) -> Finding:
    """A field that may surprise."""
    return Finding("warning", field, message)


def invalid(field: str, message: str) -> Finding:
    """A field that breaks a rule."""
    return Finding("invalid", field, message)


def with_amounts(report: NormalizedDocument) -> NormalizedDocument:
    """Return a report that also says which amounts of a Node or Pod cannot be counted."""
    item = report.document
    kind = item.get("kind") if isinstance(item, dict) else ""
    if report.state == "invalid" or kind not in {"Node", "Pod"}:
        return report
    field = "status" if kind == "Node" else "spec"
    try:
        if kind == "Node":
            for name, amount in offered(item).items():
                base_units(name, amount)
        else:
            pod_requests(item.get("spec") or {})
    except QuantityError as error:
        bad = invalid(field, f"{error.text!r} is not a quantity")
        return replace(report, findings=(*report.findings, bad))
    return report


def identity(item: Mapping[str, Any]) -> tuple[str, str, str, str]:
    """Return apiVersion, kind, namespace and name of an object; absent ones are empty."""
    metadata = item.get("metadata") or {}
    return (
        str(item.get("apiVersion") or ""),
        str(item.get("kind") or ""),
        str(metadata.get("namespace") or ""),
        str(metadata.get("name") or ""),
    )


def copied(value: Any) -> Any:
    """Return a deep copy of plain data."""
    if isinstance(value, dict):
        return {key: copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [copied(item) for item in value]
    return value


def of_level(findings: Iterable[Finding], level: str) -> list[Finding]:
    """Return the findings of one level."""
    return [finding for finding in findings if finding.level == level]
