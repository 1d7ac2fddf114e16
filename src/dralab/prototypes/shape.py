"""The shape of documents: every kind of every generation is checked against one schema of its own.

Types, unknown fields, required fields and limits are the schema's; a reader that comes after may
rely on them, and says only what a schema cannot.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from dralab.api import structural
from dralab.api.fields import FieldError
from dralab.api.manifests import INDEX, as_stored
from dralab.api.schemas import Schema, Schemas, part
from dralab.api.standard_checks import shape_errors
from dralab.objects.metadata import spec_of
from dralab.objects.nodes import offered
from dralab.objects.requests import base_units, pod_requests
from dralab.prototypes.findings import Finding, NormalizedDocument, invalid
from dralab.values.json_types import JsonDict
from dralab.values.quantity import QuantityError

TYPE: Final = "FieldValueTypeInvalid"
BLOCKING: Final = frozenset({TYPE, "FieldValueRequired"})


class Shape:
    """What a kind, or a part of one, may hold: a structural schema.

    >>> toy = Shape({"type": "object", "properties": {"size": {"type": "integer"}}})
    >>> [str(finding) for finding in toy.findings({"sizes": 1}, "spec")]
    ['spec.sizes: Forbidden: unknown field, did you mean "size"?']
    """

    def __init__(self, raw: Mapping[str, Any], *, whole: bool = False) -> None:
        self.raw = raw
        self.whole = whole

    @cached_property
    def _typed(self) -> Schema:
        return part(self.raw, whole=self.whole)

    def findings(self, value: Any, path: str = "") -> list[Finding]:
        """Return what is wrong with a value; nulls of fields count as absent and are dropped."""
        found = shape_errors(self._typed, value, path)
        if not any(error.reason == TYPE for error in found):
            structural.drop_nulls(self.raw, value)
            found += structural.errors(self.raw, value, path)
        return _findings(found)


def standard(item: Mapping[str, Any], added: Iterable[str] = ()) -> list[Finding]:
    """Return what is wrong with the shape of a kind of Kubernetes; nothing for other kinds.

    `added` are fields that an older API adds, such as `spec.containers[].devices`.
    """
    schema = Schemas.standard().schema_of(str(item.get("apiVersion")), str(item.get("kind")))
    if schema is None:
        return []
    errors, _ = as_stored(item, shape_errors(schema, item))
    known = frozenset(added)
    return _findings(error for error in errors if INDEX.sub("[]", error.field) not in known)


def checked(
    item: Any, read: Callable[[Mapping[str, Any]], NormalizedDocument]
) -> NormalizedDocument:
    """Return a document as a generation reads it, with what holds for documents of all of them."""
    if isinstance(item, list):
        found = [invalid("", "a YAML list: every object needs a separate document")]
        for index, each in enumerate(item):
            found += [
                replace(finding, field=f"[{index}].{finding.field}")
                for finding in checked(each, read).findings
            ]
        document: JsonDict = {"apiVersion": "v1", "kind": "List", "items": item}
        return NormalizedDocument(document=document, findings=tuple(found))
    if not isinstance(item, Mapping):
        text = "a document must be an object with apiVersion, kind and metadata"
        return NormalizedDocument(document={}, findings=(invalid("", text),))
    report = read(item)
    return report if report.state == "invalid" else _with_amounts(report)


def misshapen(findings: Iterable[Finding]) -> bool:
    """Return whether some findings leave no document to read further."""
    return any(finding.blocking for finding in findings)


def _findings(errors: Iterable[FieldError]) -> list[Finding]:
    return [
        Finding("invalid", error.field, error.body, blocking=error.reason in BLOCKING)
        for error in errors
    ]


def _with_amounts(report: NormalizedDocument) -> NormalizedDocument:
    """Return a report that also says which amounts of a Node or Pod cannot be counted."""
    item = report.document
    kind = item.get("kind")
    if kind not in {"Node", "Pod"}:
        return report
    try:
        if kind == "Node":
            for name, amount in offered(item).items():
                base_units(name, amount)
        else:
            pod_requests(spec_of(item))
    except QuantityError as error:
        field = "status" if kind == "Node" else "spec"
        bad = invalid(field, f"{error.text!r} is not a quantity")
        return replace(report, findings=(*report.findings, bad))
    return report
