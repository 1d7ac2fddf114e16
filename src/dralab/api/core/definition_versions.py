"""The versions of a CustomResourceDefinition.

What is the same in all versions is judged once, above the versions, as upstream keeps it: its
paths are `spec.validation`, `spec.subresources` and so on.
Source: k8s.io/apiextensions-apiserver `pkg/apis/apiextensions/validation`.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.schema_rules import schema_errors
from dralab.api.fields import OMITTED, FieldError
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

COLUMN_TYPES: Final = "boolean,date,integer,number,string"
COLUMN_FORMATS: Final = "byte,date,date-time,double,float,int32,int64,password"
MOST_SELECTABLE: Final = 8
LONGEST_WARNING: Final = 256
ONE_STORED: Final = "must have exactly one version marked as storage version"
# Parts of a version, and how they are called above the versions.
SHARED: Final[Mapping[str, str]] = {
    "schema": "validation",
    "subresources": "subresources",
    "additionalPrinterColumns": "additionalPrinterColumns",
    "selectableFields": "selectableFields",
}
# What the root of a schema may have beside a status that is written apart, by Go's names.
ROOT_FIELDS: Final = (
    "Description", "Type", "Format", "Title", "Maximum", "ExclusiveMaximum", "Minimum",
    "ExclusiveMinimum", "MaxLength", "MinLength", "Pattern", "MaxItems", "MinItems",
    "UniqueItems", "MultipleOf", "Required", "Items", "Properties", "ExternalDocs", "Example",
    "XPreserveUnknownFields", "XValidations",
)  # fmt: skip
AT_ROOT: Final = frozenset(
    {name[0].lower() + name[1:] for name in ROOT_FIELDS[:-2]}
    | {"x-kubernetes-preserve-unknown-fields", "x-kubernetes-validations"}
)
STEP: Final = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


NO_VERSIONS: Final[Sequence[JsonObject]] = ()  # of a definition that has no list of them


def version_errors(versions: Sequence[JsonObject]) -> Iterator[FieldError]:
    """Yield the errors of the versions of a definition."""
    above = _shared(versions)
    for index, version in enumerate(versions):
        if (version.get("schema") or {}).get("openAPIV3Schema") is None:
            yield fields.required(f"spec.versions[{index}].schema.openAPIV3Schema")
    for index, version in enumerate(versions):
        path, name = f"spec.versions[{index}]", version.get("name") or ""
        if problems := names.label_1035_problems(name):
            yield fields.invalid_value(f"{path}.name", name, ",".join(problems))
        yield from _deprecation_errors(version, f"{path}.deprecationWarning")
        own = {part: item for part, item in version.items() if part not in above}
        yield from _parts_errors(own, version, path, {part: part for part in SHARED})
    if len({version.get("name") for version in versions}) < len(versions):
        why = "must contain unique version names"
        yield fields.invalid_value("spec.versions", _in_go(versions, above), why)
    if sum(bool(version.get("storage")) for version in versions) != 1:
        yield fields.invalid_value("spec.versions", _in_go(versions, above), ONE_STORED)
    first = versions[0].get("name") if versions else None
    if first and (problems := names.label_1035_problems(first)):
        yield fields.invalid_value("spec.version", first, ",".join(problems))


def shared_errors(versions: Sequence[JsonObject]) -> Iterator[FieldError]:
    """Yield the errors of what all versions have in common."""
    above = _shared(versions)
    yield from _parts_errors(above, above, "spec", SHARED)


def _shared(versions: Sequence[JsonObject]) -> JsonDict:
    """Return the parts that are the same in all versions."""
    if not versions:
        return {}
    first = versions[0]
    return {
        part: first.get(part)
        for part in SHARED
        if all(version.get(part) == first.get(part) for version in versions)
    }


def _parts_errors(
    parts: JsonObject, whole: JsonObject, path: str, called: Mapping[str, str]
) -> Iterator[FieldError]:
    schema = (parts.get("schema") or {}).get("openAPIV3Schema")
    subresources = whole.get("subresources") or {}
    if isinstance(schema, Mapping):
        at = f"{path}.{called['schema']}.openAPIV3Schema"
        root = [] if subresources.get("status") is None else list(_root_errors(schema, at))
        yield from root
        yield from schema_errors(schema, at, sound=not root)
    scale = (parts.get("subresources") or {}).get("scale")
    if scale is not None:
        yield from _scale_errors(scale, f"{path}.subresources.scale")
    for index, column in enumerate(parts.get("additionalPrinterColumns") or ()):
        yield from _column_errors(column, f"{path}.additionalPrinterColumns[{index}]")
    if selectable := parts.get("selectableFields"):
        at = f"{path}.selectableFields"
        schema = (whole.get("schema") or {}).get("openAPIV3Schema")
        if schema is None:
            why = (
                "may only be set when validations.schema is included"
                if path == "spec"
                else "may only be set when `version.schema.openAPIV3Schema` is not included"
            )
            yield fields.invalid_value(at, "", why)
        else:
            yield from _selectable_errors(selectable, schema, at)


def _root_errors(schema: JsonObject, path: str) -> Iterator[FieldError]:
    """Yield what the root of a schema may not have if the status is a subresource."""
    kind = schema.get("type") or ""
    if kind and kind != "object":
        why = (
            'only "object" is allowed as the type at the root of the schema if the status '
            "subresource is enabled"
        )
        yield fields.invalid_value(f"{path}.type", kind, why)
        return
    if any(item not in (None, "", False) for part, item in schema.items() if part not in AT_ROOT):
        why = (
            f"only [{' '.join(ROOT_FIELDS)}] fields are allowed at the root of the schema if the "
            "status subresource is enabled"
        )
        yield FieldError("FieldValueInvalid", path, OMITTED, why)


def _deprecation_errors(version: JsonObject, path: str) -> Iterator[FieldError]:
    text = version.get("deprecationWarning")
    if text is None:
        return
    if not version.get("deprecated"):
        yield fields.invalid_value(path, text, "can only be set for deprecated versions")
        return
    if len(text.encode()) > LONGEST_WARNING:
        yield fields.invalid_value(path, text, f"must be <= {LONGEST_WARNING} characters long")
    if not text:
        yield fields.invalid_value(path, text, "must not be an empty string")
    for index, char in enumerate(text):
        if not char.isprintable():
            why = (
                "must only contain printable UTF-8 characters; non-printable character found at "
                f"index {len(text[:index].encode())}"
            )
            yield fields.invalid_value(path, text, why)
            break


def _path_errors(text: str, path: str) -> list[FieldError]:
    if text.startswith("."):
        return []
    return [fields.invalid_value(path, text, "must be a simple json path starting with .")]


def _scale_errors(scale: JsonObject, path: str) -> Iterator[FieldError]:
    for part, below in (
        ("specReplicasPath", (".spec.",)),
        ("statusReplicasPath", (".status.",)),
        ("labelSelectorPath", (".spec.", ".status.")),
    ):
        text, at = scale.get(part) or "", f"{path}.{part}"
        if not text:
            if part != "labelSelectorPath":
                yield fields.required(at)
        elif errors := _path_errors(text, at):
            yield from errors
        elif not text.startswith(below):
            where = "either .spec or .status" if len(below) > 1 else below[0][:-1]
            yield fields.invalid_value(at, text, f"should be a json path under {where}")


def _column_errors(column: JsonObject, path: str) -> Iterator[FieldError]:
    if not column.get("name"):
        yield fields.required(f"{path}.name")
    kind, form = column.get("type") or "", column.get("format") or ""
    why = f"must be one of {COLUMN_TYPES}"
    if not kind:
        yield fields.required(f"{path}.type", why)
    elif kind not in COLUMN_TYPES.split(","):
        yield fields.invalid_value(f"{path}.type", kind, why)
    if form and form not in COLUMN_FORMATS.split(","):
        yield fields.invalid_value(f"{path}.format", form, f"must be one of {COLUMN_FORMATS}")
    if not (text := column.get("jsonPath") or ""):
        yield fields.required(f"{path}.JSONPath")
    yield from _path_errors(text, f"{path}.JSONPath") if text else ()


def _selectable_errors(
    selectable: Sequence[JsonObject], schema: JsonObject, path: str
) -> Iterator[FieldError]:
    seen: set[str] = set()
    for index, item in enumerate(selectable):
        text, at = item.get("jsonPath") or "", f"{path}[{index}].jsonPath"
        if not text:
            yield fields.required(at)
            continue
        steps = STEP.findall(text)
        if "".join(f".{step}" for step in steps) != text:
            found = re.split(r"[.\[]", text, maxsplit=1)[0] or text
            why = f"is an invalid path: expected [ or . but got: {found}"
            yield fields.invalid_value(at, text, why)
            continue
        part: Any = schema
        for step in steps:
            part = ((part or {}).get("properties") or {}).get(step)
            if part is None:
                why = "is an invalid path: does not refer to a valid field"
                yield fields.invalid_value(at, text, why)
                break
        if part is None:
            continue
        if steps[0] == "metadata":
            yield fields.invalid_value(at, text, "must not point to fields in metadata")
        if part.get("type") not in {"string", "boolean", "integer"}:
            why = (
                "must point to a field of type string, boolean or integer. Enum string fields and "
                "strings with formats are allowed."
            )
            yield fields.invalid_value(at, text, why)
        if text in seen:
            yield fields.duplicate(at, text)
        seen.add(text)
    if len(seen) > MOST_SELECTABLE:
        yield fields.too_many(path, len(seen), MOST_SELECTABLE)


def _in_go(versions: Sequence[JsonObject], above: JsonObject) -> list[JsonDict] | None:
    """Return versions by Go's names, without the details of each."""
    return [
        {
            "Name": version.get("name") or "",
            "Served": bool(version.get("served")),
            "Storage": bool(version.get("storage")),
            "Deprecated": bool(version.get("deprecated")),
            "DeprecationWarning": version.get("deprecationWarning"),
        }
        | {
            part[0].upper() + part[1:]: None if part in above else version.get(part)
            for part in SHARED
        }
        for version in versions
    ] or (None if versions is NO_VERSIONS else [])
