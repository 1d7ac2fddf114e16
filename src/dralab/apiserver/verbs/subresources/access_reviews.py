"""Access reviews: whether a user may do something, and everything the requester may do.

Source: k8s.io/kubernetes `pkg/registry/authorization`, `pkg/apis/authorization/validation`.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.authorization.attributes import AlwaysAllow, Attributes, Decision
from dralab.apiserver.access.users import User
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.state.selectors import exact_fields
from dralab.values.json_types import JsonDict

GROUP: Final = "authorization.k8s.io"
RESOURCE, PATH = "resourceAttributes", "nonResourceAttributes"
OPERATORS: Final = ("In", "NotIn", "Exists", "DoesNotExist")
ONE_OF: Final = f"exactly one of {PATH} or {RESOURCE} must be specified"


def subject_access(
    scope: Scope, kind: Kind, value: JsonDict, namespace: str, user: User
) -> JsonDict:
    """Answer whether the user of a spec may do something. ApiError Invalid, BadRequest."""
    del user
    spec, meta = value.get("spec") or {}, value["metadata"]
    if kind.namespaced:
        if meta.get("namespace") not in {None, "", namespace}:
            raise ApiError.bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        meta["namespace"] = namespace
    _check(kind, value, spec, of_subject=True)
    asked = User(
        name=spec.get("user") or "",
        groups=tuple(spec.get("groups") or ()),
        uid=spec.get("uid") or "",
        extra={key: tuple(values) for key, values in (spec.get("extra") or {}).items()},
    )
    return {"spec": spec, "status": _status(scope, spec, asked)}


def self_access(scope: Scope, kind: Kind, value: JsonDict, namespace: str, user: User) -> JsonDict:
    """Answer whether the requester may do something. ApiError Invalid."""
    del namespace
    spec = value.get("spec") or {}
    _check(kind, value, spec, of_subject=False)
    return {"spec": spec, "status": _status(scope, spec, user)}


def self_rules(scope: Scope, kind: Kind, value: JsonDict, namespace: str, user: User) -> JsonDict:
    """Answer what the requester may do in a namespace. ApiError BadRequest."""
    del kind, namespace
    where = (value.get("spec") or {}).get("namespace")
    if not where:
        raise ApiError.bad_request("no namespace on request")
    found = (scope.context.authorizer or AlwaysAllow()).rules_for(user, where)
    status: JsonDict = {
        "resourceRules": list(found.resource_rules),
        "nonResourceRules": list(found.non_resource_rules),
        "incomplete": found.incomplete,
    }
    if found.error:
        status["evaluationError"] = found.error
    return {"spec": {}, "status": status}


def _status(scope: Scope, spec: Mapping[str, Any], user: User) -> JsonDict:
    wanted = _attributes(spec, user)
    authorizer = scope.context.authorizer or AlwaysAllow()
    decision: Decision = authorizer.authorize(wanted)
    status: JsonDict = {"allowed": decision.allowed}
    if decision.verdict == "deny":
        status["denied"] = True
    if decision.reason:
        status["reason"] = decision.reason
    told = [decision.error] if decision.error else []
    told += _ignored(spec.get(RESOURCE) or {})
    if told:
        status["evaluationError"] = "; ".join(told)
    return status


def _ignored(resource: Mapping[str, Any]) -> Iterator[str]:
    """Yield the errors about selectors that cannot be read (BuildEvaluationError)."""
    for part in ("fieldSelector", "labelSelector"):
        selector = resource.get(part) or {}
        requirements = selector.get("requirements") or ()
        unknown = [each for each in requirements if not _is_read(part, each)]
        if unknown:
            partly = "partially " if len(unknown) < len(requirements) else ""
            yield f"spec.{RESOURCE}.{part} {partly}ignored due to parse error"


def _is_read(part: str, requirement: Mapping[str, Any]) -> bool:
    """Return whether authorizers see a requirement: a field requirement must name one value."""
    operator = requirement.get("operator")
    if part == "fieldSelector":
        return operator in {"In", "NotIn"} and len(requirement.get("values") or ()) == 1
    return operator in OPERATORS


def _attributes(spec: Mapping[str, Any], user: User) -> Attributes:
    path = spec.get(PATH)
    if path is not None:
        # An empty path still makes it a question about a path, not about a resource.
        return Attributes(user=user, verb=path.get("verb", ""), path=path.get("path") or "/")
    given = spec[RESOURCE]
    return Attributes(
        user=user,
        verb=given.get("verb", ""),
        group=given.get("group", ""),
        version=given.get("version", ""),
        resource=given.get("resource", ""),
        subresource=given.get("subresource", ""),
        namespace=given.get("namespace", ""),
        name=given.get("name", ""),
        fields=_fields(given.get("fieldSelector") or {}),
    )


def _fields(selector: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the exact requirements of a selector; the others are ignored."""
    found: list[tuple[str, str]] = []
    for each in selector.get("requirements") or ():
        values = each.get("values") or []
        if each.get("operator") == "In" and len(values) == 1:
            found.append((each.get("key", ""), values[0]))
    if raw := selector.get("rawSelector"):
        found += exact_fields(raw)
    return tuple(found)


def _check(kind: Kind, value: JsonDict, spec: Mapping[str, Any], *, of_subject: bool) -> None:
    """Refuse a question that cannot be answered. ApiError Invalid."""
    resource, path = spec.get(RESOURCE), spec.get(PATH)
    errors: list[FieldError] = []
    if resource is not None and path is not None:
        why = f"cannot be specified in combination with {RESOURCE}"
        errors.append(fields.invalid_value(f"spec.{PATH}", _in_go(path), why))
    if resource is None and path is None:
        errors.append(fields.invalid_value(f"spec.{RESOURCE}", None, ONE_OF))
    if of_subject and not spec.get("user") and not spec.get("groups"):
        why = "at least one of user or group must be specified"
        errors.append(fields.invalid_value("spec.user", "", why))
    for part in ("fieldSelector", "labelSelector"):
        selector = (resource or {}).get(part)
        if selector is not None:
            errors += _selector_errors(selector, f"spec.{RESOURCE}.{part}")
    errors += _namespace_errors(kind, value, resource, path)
    if errors:
        # Upstream names no kind here.
        raise fields.invalid("", "", errors, group=GROUP)


def _selector_errors(selector: Mapping[str, Any], path: str) -> list[FieldError]:
    raw, requirements = selector.get("rawSelector"), selector.get("requirements") or ()
    errors = []
    if raw and requirements:
        why = "may not specified at the same time as requirements"
        errors.append(fields.invalid_value(f"{path}.rawSelector", raw, why))
    if not raw and not requirements:
        why = f"when {path} is specified, requirements or rawSelector is required"
        errors.append(fields.required(f"{path}.requirements", why))
    for index, each in enumerate(requirements):
        where, operator = f"{path}.requirements[{index}]", each.get("operator")
        values = each.get("values") or ()
        if not each.get("key") and path.endswith("fieldSelector"):
            errors.append(fields.required(f"{where}.key", "must be specified"))
        if operator in {"In", "NotIn"} and not values:
            why = "must be specified when `operator` is 'In' or 'NotIn'"
            errors.append(fields.required(f"{where}.values", why))
        if operator in {"Exists", "DoesNotExist"} and values:
            why = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
            errors.append(fields.forbidden(f"{where}.values", why))
    return errors


def _namespace_errors(kind: Kind, value: JsonDict, resource: Any, path: Any) -> list[FieldError]:
    errors = []
    metadata = {key: part for key, part in value["metadata"].items() if part}
    metadata.pop("managedFields", None)
    if not kind.namespaced:
        if metadata:
            errors.append(fields.invalid_value("metadata", metadata, "must be empty"))
        return errors
    namespace = metadata.pop("namespace", "")
    if metadata:
        why = "must be empty except for namespace"
        errors.append(fields.invalid_value("metadata", metadata, why))
    if resource is not None and resource.get("namespace", "") != namespace:
        field, given = f"spec.{RESOURCE}.namespace", resource.get("namespace", "")
        errors.append(fields.invalid_value(field, given, "must match metadata.namespace"))
    if path is not None:
        why = "disallowed on this kind of request"
        errors.append(fields.invalid_value(f"spec.{PATH}", _in_go(path), why))
    return errors


def _in_go(path: Mapping[str, Any]) -> dict[str, str]:
    """Return the attributes of a path by the names that they have in Go."""
    return {"Path": path.get("path") or "", "Verb": path.get("verb") or ""}
