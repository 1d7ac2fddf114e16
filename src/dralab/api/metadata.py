"""What every object's metadata must be: names, labels, annotations, owners, finalizers.

Source: k8s.io/apimachinery `api/validation/objectmeta.go`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.internal_forms import OWNER, versioned_form
from dralab.values import names
from dralab.values.remembering import remembered

Metadata = Mapping[str, Any]
COMMON: Final = ("labels", "annotations", "ownerReferences")
IMMUTABLE: Final = (
    "name", "namespace", "uid", "creationTimestamp", "deletionTimestamp",
    "deletionGracePeriodSeconds",
)  # fmt: skip
MAX_ANNOTATIONS: Final = 256 * 1024
# The fields of Go's ObjectMeta that no template may set, in its order, as upstream names them.
NOT_IN_TEMPLATES: Final = {
    "name": "name", "generateName": "generateName", "namespace": "namespace",
    "selfLink": "selfLink", "uid": "uID", "resourceVersion": "resourceVersion",
    "generation": "generation", "creationTimestamp": "creationTimestamp",
    "deletionTimestamp": "deletionTimestamp",
    "deletionGracePeriodSeconds": "deletionGracePeriodSeconds",
    "ownerReferences": "ownerReferences", "finalizers": "finalizers",
    "managedFields": "managedFields",
}  # fmt: skip
STANDARD_FINALIZERS: Final = frozenset({"kubernetes", "orphan", "foregroundDeletion"})


def problems(
    metadata: Metadata,
    *,
    namespaced: bool,
    name_problems: Callable[[str], list[str]],
    prefixed: bool = True,
    checks: str = "",
    owners_by_index: bool = False,
) -> list[FieldError]:
    """Return the errors of the metadata of a new object.

    Where `prefixed` is false, `generateName` is not looked at: the name made of it is. `checks`
    are those of a change (see `change_problems`). With `owners_by_index`, as of 1.37, errors say
    which of the owners is wrong.
    """
    errors: list[FieldError] = []
    prefix = metadata.get("generateName")
    if prefix and prefixed:
        # A trailing dash is fine: the suffix follows.
        trimmed = f"{prefix[:-2]}a" if len(prefix) > 1 and prefix[-1] == "-" else prefix
        errors += [
            fields.invalid_value("metadata.generateName", prefix, why)
            for why in name_problems(trimmed)
        ]
    name = metadata.get("name")
    if not name:
        errors.append(fields.required("metadata.name", "name or generateName is required"))
    else:
        errors += [fields.invalid_value("metadata.name", name, why) for why in name_problems(name)]
    if namespaced:
        if not metadata.get("namespace"):
            errors.append(fields.required("metadata.namespace"))
    elif metadata.get("namespace"):
        errors.append(fields.forbidden("metadata.namespace", "not allowed on this type"))
    generation = metadata.get("generation") or 0
    if generation < 0:
        why = "must be greater than or equal to 0"
        errors.append(fields.invalid_value("metadata.generation", generation, why))
    found = _part_problems(metadata, {})
    if found:
        errors += [error for part in found.values() for error in part]
        if not owners_by_index:
            errors = as_before_1_37(errors)
    if _looks_at_finalizers(checks):
        errors += _names_of_finalizers(metadata, {})
    return errors


def _part_problems(metadata: Metadata, known: Metadata) -> dict[str, list[FieldError]]:
    """Return the errors of the parts that are not as they are in `known`, by part."""
    found = {}
    for part, found_in in _PARTS:
        value = metadata.get(part)
        if value and value != known.get(part) and (errors := found_in(value)):
            found[part] = errors
    return found


def _looks_at_finalizers(checks: str) -> bool:
    """Return whether a kind's own validation looks at metadata, and at names of finalizers in it.

    Budgets and core/v1 Events have none that does, others call that of the machinery alone.
    """
    return any(check.isupper() for check in checks)


def _names_of_finalizers(metadata: Metadata, known: Metadata) -> list[FieldError]:
    """Return what only built-in kinds refuse (`pkg/apis/core/validation`, ValidateObjectMeta)."""
    finalizers = metadata.get("finalizers")
    if not finalizers or finalizers == known.get("finalizers"):
        return []
    path = "metadata.finalizers"
    return [
        error
        for index, name in enumerate(finalizers)
        for error in _standard_errors(name, f"{path}[{index}]")
    ]


def label_problems(labels: Mapping[str, str], path: str) -> list[FieldError]:
    """Return the errors of a map of labels."""
    errors: list[FieldError] = []
    for key, value in labels.items():
        if _is_label(key, value):
            continue
        errors += [fields.invalid_value(path, key, why) for why in names.qualified_problems(key)]
        errors += [
            fields.invalid_value(path, value, why) for why in names.label_value_problems(value)
        ]
        if len(errors) > fields.MAX_ERRORS:
            break
    return errors


@remembered(16384)
def _is_label(key: str, value: str) -> bool:
    """Return whether a label is good: the same few come again and again."""
    return not names.qualified_problems(key) and not names.label_value_problems(value)


@remembered(16384)
def _is_annotation(key: str) -> bool:
    return not names.qualified_problems(key.lower())


def annotation_problems(
    annotations: Mapping[str, str], path: str = "metadata.annotations"
) -> list[FieldError]:
    """Return the errors of a map of annotations."""
    errors = []
    for key in annotations:
        if _is_annotation(key):
            continue
        errors += [
            fields.invalid_value(path, key, why) for why in names.qualified_problems(key.lower())
        ]
        if len(errors) > fields.MAX_ERRORS:
            break
    size = sum(len(key) + len(value) for key, value in annotations.items())
    if size > MAX_ANNOTATIONS:
        errors.append(fields.too_long(path, MAX_ANNOTATIONS))
    return errors


def as_before_1_37(errors: list[FieldError]) -> list[FieldError]:
    """Return errors in the words of servers that do not say which owner is wrong."""
    return [_of_any_owner(error) if _OWNER.match(error.field) else error for error in errors]


def _of_any_owner(error: FieldError) -> FieldError:
    path = _OWNER.sub(r"\1", error.field)
    if path.endswith(".apiVersion"):
        return fields.invalid_value(path, error.value, "version must not be empty")
    if error.reason == "FieldValueRequired":
        return fields.invalid_value(path, "", error.detail)
    return replace(error, field=path)


def template_problems(metadata: Metadata, path: str) -> list[FieldError]:
    """Return the errors of the metadata of claims made from a template.

    Source: `ValidateTemplateObjectMeta` of k8s.io/kubernetes `pkg/apis/core/validation`.
    """
    errors = annotation_problems(metadata.get("annotations") or {}, f"{path}.annotations")
    errors += label_problems(metadata.get("labels") or {}, f"{path}.labels")
    return errors + [
        fields.forbidden(f"{path}.{shown}", "cannot be set")
        for part, shown in NOT_IN_TEMPLATES.items()
        if metadata.get(part) not in (None, "", 0, [])
    ]


def _owner_problems(owners: Any) -> list[FieldError]:
    errors: list[FieldError] = []
    path = "metadata.ownerReferences"
    controller: Metadata | None = None
    twice = False
    for index, owner in enumerate(owners):
        here = f"{path}[{index}]"
        version = owner.get("apiVersion") or ""
        if not version:
            errors.append(fields.required(f"{here}.apiVersion", "must not be empty"))
        elif version.count("/") > 1 or not version.rpartition("/")[2]:
            why = "must be <group>/<version> or <version>"
            errors.append(fields.invalid_value(f"{here}.apiVersion", version, why))
        errors += [
            fields.required(f"{here}.{part}", "must not be empty")
            for part in ("kind", "name", "uid")
            if not owner.get(part)
        ]
        if version == "v1" and owner.get("kind") == "Event":
            why = "/v1, Kind=Event is disallowed from being an owner"
            errors.append(fields.invalid_value(here, versioned_form(OWNER, owner), why))
        if owner.get("controller"):
            if controller is not None and not twice:
                twice = True
                errors.append(
                    fields.invalid_value(
                        path,
                        [versioned_form(OWNER, each) for each in owners],
                        'Only one reference can have Controller set to true. Found "true" in '
                        f"references for {controller.get('kind')}/{controller.get('name')} and "
                        f"{owner.get('kind')}/{owner.get('name')}",
                    )
                )
            controller = owner
    return errors


def _finalizer_problems(finalizers: Any) -> list[FieldError]:
    path = "metadata.finalizers"
    errors = [error for name in finalizers for error in _qualified_errors(name, path)]
    if "orphan" in finalizers and "foregroundDeletion" in finalizers:
        errors.append(
            fields.invalid_value(
                path,
                list(finalizers),
                "finalizer orphan and foregroundDeletion cannot be both set",
            )
        )
    return errors


def finalizer_errors(name: str, path: str) -> list[FieldError]:
    """Return the errors of one finalizer of a built-in kind."""
    return _qualified_errors(name, path) + _standard_errors(name, path)


def finalizer_warnings(new: Metadata, old: Metadata) -> list[str]:
    """Return what a server says of new finalizers of a custom resource that have no slash."""
    had = frozenset(old.get("finalizers") or ())
    return [
        f'metadata.finalizers: "{name}": prefer a domain-qualified finalizer name including a path '
        "(/) to avoid accidental conflicts with other finalizer writers"
        for name in new.get("finalizers") or ()
        if name not in had and _standard_errors(name, "")
    ]


def _qualified_errors(name: str, path: str) -> list[FieldError]:
    if names.is_qualified(name):
        return []
    return [fields.invalid_value(path, name, why) for why in names.qualified_problems(name)]


def _standard_errors(name: str, path: str) -> list[FieldError]:
    if "/" in name or name in STANDARD_FINALIZERS:
        return []
    why = "name is neither a standard finalizer name nor is it fully qualified"
    return [fields.invalid_value(path, name, why)]


def change_problems(
    new: Metadata, old: Metadata, checks: str = "u", *, owners_by_index: bool = False
) -> list[FieldError]:
    """Return the errors of metadata that replaces `old`; what was stored before is good.

    `checks` tells how often upstream looks at it, beyond the two times for all kinds, and so how
    often an error is reported: `C` as at metadata of a new object, `U` as at a changed one, in
    lower case without the names of finalizers.
    """
    found = _part_problems(new, old)
    late = _immutable_problems(new, old)
    standard = _names_of_finalizers(new, old) if _looks_at_finalizers(checks) else []
    if not (found or late or standard):
        return []
    common = [error for part in COMMON for error in found.get(part, ())]
    errors: list[FieldError] = []
    for check in ("c", "u", *checks):
        if check in "cC":
            errors += [*common, *found.get("finalizers", ())]
        else:
            errors += [*late, *common]
        if check.isupper():
            errors += standard
    return errors if owners_by_index else as_before_1_37(errors)


def _immutable_problems(new: Metadata, old: Metadata) -> list[FieldError]:
    errors = []
    if old.get("deletionTimestamp"):
        had = frozenset(old.get("finalizers") or ())
        added = sorted({name for name in new.get("finalizers") or () if name not in had})
        if added:
            shown = ", ".join(f'"{name}"' for name in added)
            errors.append(
                fields.forbidden(
                    "metadata.finalizers",
                    "no new finalizers can be added if the object is being deleted, found new "
                    f"finalizers []string{{{shown}}}",
                )
            )
    return errors + [
        fields.invalid_value(f"metadata.{part}", new.get(part), "field is immutable")
        for part in IMMUTABLE
        if new.get(part) != old.get(part)
    ]


_OWNER: Final = re.compile(r"^(metadata\.ownerReferences)\[\d+\]")
_PARTS: Final[tuple[tuple[str, Callable[[Any], list[FieldError]]], ...]] = (
    ("labels", partial(label_problems, path="metadata.labels")),
    ("annotations", annotation_problems),
    ("ownerReferences", _owner_problems),
    ("finalizers", _finalizer_problems),
)
