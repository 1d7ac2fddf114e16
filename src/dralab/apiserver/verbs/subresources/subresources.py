"""Subresources other than status: scale, binding, eviction, token, approval, finalize."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dralab.api import fields
from dralab.api.decoding import decoder_of
from dralab.api.kinds import Kind
from dralab.api.scalar_decoding import DecodingError
from dralab.api.status import ApiError
from dralab.apiserver.verbs import admission, patching, writing
from dralab.apiserver.verbs.admission import review_of
from dralab.apiserver.verbs.patching import PatchType
from dralab.apiserver.verbs.state import typed_objects
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.subresources import eviction, scaling, token_requests
from dralab.objects.conditions import with_condition
from dralab.objects.metadata import is_deleting, metadata_of
from dralab.values.json_types import JsonDict, JsonObject

SUCCESS: Final[Mapping[str, Any]] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
# (scope, kind, name, namespace, body) → what the server answers.
Handler = Callable[[Scope, Kind, str, str, JsonDict], JsonDict]
# Subresources that are the object itself, and the part of it that they may change.
PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "approval": ("status", "conditions"),
    "ephemeralcontainers": ("spec", "ephemeralContainers"),
    "finalize": ("spec", "finalizers"),
    "resize": ("spec", "containers"),
}
# Those of them that also change the object's metadata, as their strategies upstream let through.
WITH_METADATA: Final = frozenset({"approval", "finalize"})
RESIZED: Final = ("initContainers", "containers")


def call(
    scope: Scope,
    verb: str,
    kind: Kind,
    name: str,
    subresource: str,
    *,
    body: Any,
    namespace: str,
    type: PatchType,
) -> JsonDict:
    """Do one verb on one subresource; ApiError."""
    if subresource == "scale":
        match verb:
            case "get":
                return scaling.get(scope, kind, name, namespace)
            case "update":
                return scaling.put(scope, kind, name, namespace, _object(body))
            case _:
                return scaling.patch(scope, kind, name, namespace, body, type=type)
    if path := PARTS.get(subresource):
        if verb == "get":
            return scope.rules.from_hub(kind, scope.live(kind, namespace, name).value, scope)
        return _part(
            scope,
            kind,
            name,
            subresource,
            path,
            body=body,
            namespace=namespace,
            type=type if verb == "patch" else None,
        )
    handler = HANDLERS.get((verb, subresource))
    if handler is None:
        raise ApiError(
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            details={},
        )
    value = _object(body)
    if scope.context.connecting or scope.context.dynamic.active:
        if subresource == "binding":
            check_binding(value, name)
        _admit(scope, kind, name, subresource, value, namespace=namespace)
    return handler(scope, kind, name, namespace, value)


def _admit(
    scope: Scope, kind: Kind, name: str, subresource: str, value: JsonDict, *, namespace: str
) -> None:
    """Pass a created subresource, such as an eviction, through admission."""
    shown = kind.subresources[subresource]
    value.setdefault("kind", shown.kind)
    value.setdefault(
        "apiVersion",
        "/".join(filter(None, (shown.group or kind.group, shown.version or kind.version))),
    )
    review = review_of(
        scope,
        kind,
        "CREATE",
        namespace=namespace,
        name=name,
        subresource=subresource,
        value=value,
        old=None,
        form=(shown.group or kind.group, shown.version or kind.version, shown.kind),
    )
    admission.connect(scope, review)


def _object(body: Any) -> JsonDict:
    if not isinstance(body, dict):
        raise ApiError.bad_request("the body of the request must be an object")
    for part in ("metadata", "spec"):
        if body.get(part) is None:
            body.pop(part, None)
        elif not isinstance(body[part], dict):
            raise ApiError.bad_request(f"{part}: expected an object")
    return body


def _typed(body: Any, api_version: str, kind: str) -> JsonDict:
    """Return the body of a request in its typed form; fields that are unknown are dropped."""
    value = _object(body)
    decoder = decoder_of(api_version, kind)
    if decoder is None:
        return value
    try:
        found: JsonDict = decoder.decode(value)[0]
    except DecodingError as error:
        version = api_version.rpartition("/")[2]
        raise ApiError.bad_request(
            f'{kind} in version "{version}" cannot be handled as a {kind}: {error}'
        ) from error
    return found


def _part(
    scope: Scope,
    kind: Kind,
    name: str,
    subresource: str,
    path: tuple[str, ...],
    *,
    body: Any,
    namespace: str,
    type: PatchType | None,
) -> JsonDict:
    """Change the part of an object that a subresource stands for."""

    def edit(current: JsonDict) -> JsonDict:
        if type is None:
            # In its typed form: what a client sends as `status` may be anything.
            changed = typed_objects.decoded(scope, kind, _object(body))
            writing.check_name((changed.get("metadata") or {}).get("name") or "", name)
            given = (changed.get("metadata") or {}).get("resourceVersion")
            if given:
                current["metadata"]["resourceVersion"] = given
        else:
            copy = patching.merged_copy(current)
            changed = patching.edited(scope, kind, copy, body, "merge" if type == "apply" else type)
        holder, part = path
        wanted = (changed.get(holder) or {}).get(part)
        target = current.setdefault(holder, {})
        if subresource in WITH_METADATA:
            current["metadata"] = changed.get("metadata") or {}
        if subresource == "resize":
            for each in RESIZED:
                _resize(target, each, (changed.get(holder) or {}).get(each) or [])
        elif wanted:
            target[part] = wanted
        else:
            target.pop(part, None)
        return current

    stored = writing.change(scope, kind, name, namespace, edit, subresource=subresource)
    return scope.rules.from_hub(kind, stored.value, scope)


def _resize(spec: JsonDict, part: str, wanted: list[JsonDict]) -> None:
    """Keep only resources and policies of known containers; others are refused."""
    held = spec.get(part) or []
    if [each.get("name") for each in held] != [each.get("name") for each in wanted]:
        spec[part] = wanted
        return
    for container, new in zip(held, wanted, strict=True):
        for name in ("resources", "resizePolicy"):
            if name in new:
                container[name] = new[name]
            else:
                container.pop(name, None)


def check_binding(body: JsonDict, name: str) -> None:
    """Refuse a binding of another pod than that of the path. ApiError."""
    if metadata_of(body).get("name") != name:
        raise ApiError.bad_request("name in URL does not match name in Binding object")


def _bind(scope: Scope, kind: Kind, name: str, namespace: str, body: JsonDict) -> JsonDict:
    """Give a pod its node, once."""
    body = _typed(body, "v1", "Binding")
    check_binding(body, name)
    target = body["target"]
    node = target.get("name") or ""
    errors = []
    if target.get("kind") not in {None, "", "Node"}:
        known = ["Node", "<empty>"]
        errors.append(fields.not_supported("target.kind", target["kind"], known, ordered=True))
    if not node:
        errors.append(fields.required("target.name"))
    if errors:  # which upstream answers as any other error
        shown = ", ".join(map(str, errors))
        raise ApiError.failed(f"[{shown}]" if len(errors) > 1 else shown)
    now = scope.context.now()

    def edit(pod: JsonDict) -> JsonDict:
        _check_bound_pod(metadata_of(body), pod, namespace, name)
        if is_deleting(pod):
            raise _bind_conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
        spec = pod["spec"]
        if spec.get("nodeName"):
            raise _bind_conflict(
                name, f'pod {name} is already assigned to node "{spec["nodeName"]}"'
            )
        if spec.get("schedulingGates"):
            raise _bind_conflict(name, f"pod {name} has non-empty .spec.schedulingGates")
        spec["nodeName"] = node
        for part in ("annotations", "labels"):  # PodTopologyLabelsAdmission
            if added := metadata_of(body).get(part):
                pod["metadata"][part] = {**(pod["metadata"].get(part) or {}), **added}
        status = pod.setdefault("status", {})
        # The nominated node is cleared (ClearingNominatedNodeNameAfterBinding).
        status.pop("nominatedNodeName", None)
        status["conditions"] = with_condition(
            status.get("conditions") or [],
            {"type": "PodScheduled", "status": "True", "lastProbeTime": None},
            now=now,
        )
        return pod

    writing.change(scope, kind, name, namespace, edit, subresource="binding", typed=True)
    return dict(SUCCESS)


def _check_bound_pod(wanted: JsonObject, pod: JsonDict, namespace: str, name: str) -> None:
    """Check that a binding is for this pod, in this version, where it says so. ApiError Conflict.

    Source: setPodHostAndAnnotations; words of kube-apiserver 1.36.
    """
    for field, called in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
        given, found = wanted.get(field), pod["metadata"].get(field)
        if given and given != found:
            raise ApiError.conflict(
                "pods",
                name,
                f"StorageError: invalid object, Code: 4, Key: /registry/pods/{namespace}/{name}, "
                f"ResourceVersion: 0, AdditionalErrorMsg: Precondition failed: {called} in "
                f"precondition: {given}, {called} in object meta: {found}",
            )


def _bind_conflict(name: str, why: str) -> ApiError:
    return ApiError.conflict("pods/binding", name, why)


def _evict(scope: Scope, kind: Kind, name: str, namespace: str, body: JsonDict) -> JsonDict:
    wanted = _typed(body, "policy/v1", "Eviction")
    eviction.evict(scope, kind, name, namespace, wanted)
    return dict(SUCCESS)


def _token(scope: Scope, kind: Kind, name: str, namespace: str, body: JsonDict) -> JsonDict:
    """Issue a token of a service account."""
    wanted = _typed(body, "authentication.k8s.io/v1", "TokenRequest")
    spec = wanted.get("spec") or {}
    if (given := metadata_of(wanted).get("name")) not in {None, "", name}:
        why = "must match the service account name if specified"
        error = fields.invalid_value("metadata.name", given, why)
        raise fields.invalid("TokenRequest", name, [error], group="authentication.k8s.io")
    return token_requests.give_out(scope, kind, name, namespace, spec)


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    ("create", "binding"): _bind,
    ("create", "eviction"): _evict,
    ("create", "token"): _token,
}
