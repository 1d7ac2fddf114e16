"""Schema validation of documents: every kind of every generation has its own schema.

Types, unknown fields, required fields and limits are the schema's; a reader that comes after may
rely on them, and says only what a schema cannot.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, Final

from dralab.api import structural
from dralab.api.fields import FieldError
from dralab.api.manifests import INDEX
from dralab.api.schemas import Schema as TypedSchema
from dralab.api.schemas import part
from dralab.api.standard_checks import shape_errors, standard_check
from dralab.objects.metadata import spec_of
from dralab.objects.nodes import offered
from dralab.objects.requests import base_units, pod_requests
from dralab.prototypes.findings import Finding, NormalizedDocument, invalid
from dralab.prototypes.schema_words import NOT_EMPTY, Schema, anything, struct, text
from dralab.values.json_types import JsonDict
from dralab.values.quantity import QuantityError

NOTHING: Final[Mapping[str, Schema]] = {}
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
    def _typed(self) -> TypedSchema:
        return part(self.raw, whole=self.whole)

    def findings(self, value: Any, path: str = "") -> list[Finding]:
        """Return the errors of a value; nulls of fields count as absent and are dropped."""
        found = shape_errors(self._typed, value, path)
        if not any(error.reason == TYPE for error in found):
            structural.drop_nulls(self.raw, value)
            found += structural.errors(self.raw, value, path)
        return _findings(found)


NAMES: Final[dict[str, Any]] = {"name": text() | NOT_EMPTY, "namespace": text()}
IDENTITY: Final = Shape(
    struct({"apiVersion": text() | NOT_EMPTY, "kind": text() | NOT_EMPTY}, ("apiVersion", "kind"))
)

METADATA: Final = anything() | {"properties": NAMES, "required": ["name"]}
NAMED: Final = Shape(struct({"metadata": METADATA}, ("metadata",)))
POD: Final = Shape(struct({"metadata": METADATA, "spec": anything()}, ("metadata", "spec")))


def standard(item: JsonDict, added: Mapping[str, Schema] = NOTHING) -> list[Finding]:
    """Return the errors of the shape of a kind of Kubernetes; nothing for other kinds.

    `added` are fields that an older API adds to pods, such as `spec.containers[].devices`, with
    their schemas.
    """
    found = standard_check(item)
    errors = found.errors if found is not None else ()
    findings = _findings(error for error in errors if INDEX.sub("[]", error.field) not in added)
    if misshapen(findings) or item.get("kind") != "Pod":
        return findings
    spec: JsonDict = item.get("spec") or {}
    holders = [("spec.", "spec.", spec)]
    for index, container in enumerate(spec.get("containers") or ()):
        holders.append(("spec.containers[].", f"spec.containers[{index}].", container))
    for index, entry in enumerate(spec.get("resourceClaims") or ()):
        holders.append(("spec.resourceClaims[].", f"spec.resourceClaims[{index}].", entry))
    for pattern, path, holder in holders:
        for field, schema in added.items():
            name = field.removeprefix(pattern)
            if not field.startswith(pattern) or name not in holder:
                continue
            if holder[name] is None:
                del holder[name]
            else:
                findings += Shape(schema).findings(holder[name], f"{path}{name}")
    return findings


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
    wrong = IDENTITY.findings({key: item[key] for key in ("apiVersion", "kind") if key in item})
    if wrong:
        return NormalizedDocument(document=dict(item), findings=tuple(wrong))
    # Whatever their case, which is for the reader to judge.
    parts = {str(key).lower(): value for key, value in item.items() if value is not None}
    needed = POD if item["kind"] == "Pod" else NAMED
    wrong = needed.findings({key: parts[key] for key in needed.raw["properties"] if key in parts})
    if wrong:
        return NormalizedDocument(document=dict(item), findings=tuple(wrong))
    report = read(item)
    return report if report.state == "invalid" else _with_amounts(report)


def misshapen(findings: Iterable[Finding]) -> bool:
    """Return whether findings make a document unreadable."""
    return any(finding.blocking for finding in findings)


def _findings(errors: Iterable[FieldError]) -> list[Finding]:
    return [
        Finding(
            "invalid",
            error.field,
            error.body,
            blocking=error.reason in BLOCKING,
            rule=(error.reason, error.detail),
        )
        for error in errors
    ]


def _with_amounts(report: NormalizedDocument) -> NormalizedDocument:
    """Return a report that also has the invalid quantities of a Node or Pod."""
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
