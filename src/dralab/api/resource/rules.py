"""The rules of resource.k8s.io in one place: what a server asks before it stores an object.

A write goes through `convert` (to the hub), `default`, `without_disabled`, then `validate_create`
or `validate_update`; errors go back through `errors_in` with the paths of the writer's version.
All of it is pure: time comes in as a text, CEL as a compiler, gates as a set.
"""

from dralab.api.fields import FieldError, invalid_value
from dralab.api.metadata import template_problems
from dralab.api.resource.conversion import convert, errors_in, hub_version
from dralab.api.resource.defaulting import default, default_update
from dralab.api.resource.disabling import without_disabled
from dralab.api.resource.features import DEFAULT_1_36, VALIDATION_TAGS, Features
from dralab.api.resource.structure import go_form, problems
from dralab.api.resource.validation.claim_status import claim_status_errors
from dralab.api.resource.validation.lists import list_errors
from dralab.api.resource.validation.names import is_extended_resource
from dralab.api.resource.validation.pool_status import answer_errors, question_errors
from dralab.api.resource.validation.requests import (
    MAX_CONFIGS,
    Compiled,
    ExpressionCompiler,
    claim_errors,
    config_errors,
    selectors_errors,
)
from dralab.api.resource.validation.slices import slice_errors
from dralab.api.resource.validation.taints import rule_errors, rule_status_errors
from dralab.values.json_types import JsonObject

__all__ = [
    "DEFAULT_1_36", "Compiled", "ExpressionCompiler", "Features", "convert", "default",
    "default_update", "errors_in", "hub_version", "problems", "validate_create",
    "validate_update", "without_disabled",
]  # fmt: skip


def validate_create(
    obj: JsonObject,
    features: Features = DEFAULT_1_36,
    expressions: ExpressionCompiler | None = None,
) -> list[FieldError]:
    """Return the errors of a new object of the hub version, after defaulting.

    The object's own `metadata` is the caller's to check: its rules are the same for every kind.
    Without `expressions` selectors are not compiled.

    >>> slice_ = {"driver": "d", "allNodes": True, "pool": {"name": "p"}}
    >>> [str(e) for e in validate_create({"kind": "ResourceSlice", "spec": slice_})]
    ['spec.pool.resourceSliceCount: Invalid value: 0: must be greater than zero']
    """
    spec: JsonObject = obj.get("spec") or {}
    match obj.get("kind"):
        case "ResourceClaim":
            return claim_errors(spec, "spec", features, expressions)
        case "ResourceClaimTemplate":
            metadata = template_problems(spec.get("metadata") or {}, "spec.metadata")
            inner = spec.get("spec") or {}
            return metadata + claim_errors(inner, "spec.spec", features, expressions)
        case "ResourceSlice":
            return slice_errors(spec, "spec", features)
        case "DeviceClass":
            return _class_errors(spec, "spec", features, expressions)
        case "DeviceTaintRule":
            return rule_errors(spec, "spec")
        case "ResourcePoolStatusRequest":
            return question_errors(spec, "spec")
        case kind:
            raise ValueError(f"resource.k8s.io has no kind {kind!r}")


def validate_update(
    new: JsonObject,
    old: JsonObject,
    subresource: str = "",
    features: Features = DEFAULT_1_36,
    expressions: ExpressionCompiler | None = None,
) -> list[FieldError]:
    """Return the errors of an object that replaces `old`; `subresource` is "" or "status".

    What was stored before stays valid as long as it is not changed.
    """
    if subresource == "status":
        return _status_errors(new, old)
    spec: JsonObject = new.get("spec") or {}
    before: JsonObject = old.get("spec") or {}
    match new.get("kind"):
        case "ResourceClaim":
            return _immutable_spec("ResourceClaimSpec", spec, before)
        case "ResourceClaimTemplate":
            if spec == before:
                return []
            wrong = validate_create(new, features, expressions)
            return wrong + _immutable_spec("ResourceClaimTemplateSpec", spec, before)
        case "ResourcePoolStatusRequest":
            return _immutable_spec("ResourcePoolStatusRequestSpec", spec, before)
        case "ResourceSlice":
            return slice_errors(spec, "spec", features, before)
        case "DeviceClass":
            return _class_errors(spec, "spec", features, expressions, before)
        case "DeviceTaintRule":
            return rule_errors(spec, "spec", before)
        case kind:
            raise ValueError(f"resource.k8s.io has no kind {kind!r}")


def _status_errors(new: JsonObject, old: JsonObject) -> list[FieldError]:
    status: JsonObject = new.get("status") or {}
    match new.get("kind"):
        case "ResourceClaim":
            deleting = bool((new.get("metadata") or {}).get("deletionTimestamp"))
            spec: JsonObject = new.get("spec") or {}
            before: JsonObject = old.get("status") or {}
            return claim_status_errors(status, before, spec, "status", deleting=deleting)
        case "DeviceTaintRule":
            return rule_status_errors(status, "status")
        case "ResourcePoolStatusRequest":
            asked = new.get("spec") or {}
            return answer_errors(new.get("status"), old.get("status"), asked, "status")
        case kind:
            raise ValueError(f"{kind!r} of resource.k8s.io has no status")


def _immutable_spec(struct: str, spec: JsonObject, old: JsonObject) -> list[FieldError]:
    if spec == old:
        return []
    return [invalid_value("spec", go_form(struct, spec), "field is immutable")]


def _class_errors(
    spec: JsonObject,
    path: str,
    features: Features,
    expressions: ExpressionCompiler | None,
    old: JsonObject | None = None,
) -> list[FieldError]:
    # A list that is as it was holds stored expressions; merely another order makes them new.
    same = old is not None and old.get("selectors") == spec.get("selectors")
    found = selectors_errors(
        spec.get("selectors"), f"{path}.selectors", features, None if same else expressions
    )
    stored = old is not None and old.get("config") == spec.get("config")
    found += list_errors(
        spec.get("config"),
        MAX_CONFIGS,
        f"{path}.config",
        lambda item, here: config_errors(item, here, stored=stored),
    )
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended_resource(name):
        text = "must be a valid extended resource name"
        if VALIDATION_TAGS in features and "/" not in name:
            text = "a name must be a domain-prefixed path, such as 'example.com/my-prop'"
        found.append(invalid_value(f"{path}.extendedResourceName", name, text))
    return found
