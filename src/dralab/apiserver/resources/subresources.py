"""Subresources other than status: scale, binding, eviction, token, approval, finalize."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.resources import writing
from dralab.apiserver.resources.context import Context, Object
from dralab.apiserver.resources.options import WriteOptions
from dralab.apiserver.resources.patching import PatchType

SUCCESS: Final[Mapping[str, Any]] = {
    "kind": "Status",
    "apiVersion": "v1",
    "metadata": {},
    "status": "Success",
    "code": 201,
}
# (context, kind, name, namespace, body, options) → what the server answers.
Handler = Callable[[Context, Kind, str, str, Object, WriteOptions], Object]


def call(
    context: Context,
    verb: str,
    kind: Kind,
    name: str,
    subresource: str,
    *,
    body: Any,
    namespace: str,
    options: WriteOptions,
    type: PatchType,  # noqa: ARG001 - for scale, later
) -> Object:
    """Do one verb on one subresource."""
    handler = HANDLERS.get((verb, subresource))
    if handler is None:
        raise ApiError(
            "MethodNotAllowed",
            "the server does not allow this method on the requested resource",
            details={},
        )
    return handler(context, kind, name, namespace, body, options)


def _bind(  # noqa: PLR0917 - the shape of every handler
    context: Context, kind: Kind, name: str, namespace: str, body: Object, options: WriteOptions
) -> Object:
    """Give a pod its node, once."""
    target = body.get("target") or {}
    node = target.get("name") or ""
    if target.get("kind") not in {None, "", "Node"} or not node:
        raise ApiError.bad_request("Binding: target must be a Node with a name")
    live = context.live(kind, namespace, name)
    if live.value["metadata"].get("deletionTimestamp"):
        raise _bind_conflict(name, f"pod {name} is being deleted, cannot be assigned to a host")
    now = context.now()

    def edit(pod: Object) -> Object:
        spec = pod["spec"]
        if spec.get("nodeName"):
            raise _bind_conflict(
                name, f'pod {name} is already assigned to node "{spec["nodeName"]}"'
            )
        spec["nodeName"] = node
        if annotations := (body.get("metadata") or {}).get("annotations"):
            pod["metadata"]["annotations"] = {
                **(pod["metadata"].get("annotations") or {}),
                **annotations,
            }
        status = pod.setdefault("status", {})
        status["conditions"] = with_condition(
            status.get("conditions") or [],
            {
                "type": "PodScheduled",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now,
            },
        )
        return pod

    writing.change(context, kind, name, namespace, edit, options=options, subresource="binding")
    return dict(SUCCESS)


def _bind_conflict(name: str, why: str) -> ApiError:
    return ApiError.conflict("pods/binding", name, why)


def with_condition(conditions: list[Object], condition: Object) -> list[Object]:
    """Return conditions with one of them set; the time of its last change stays if it did not."""
    found = []
    for each in conditions:
        if each.get("type") != condition["type"]:
            found.append(each)
        elif each.get("status") == condition["status"]:
            condition = {**condition, "lastTransitionTime": each.get("lastTransitionTime")}
    return [*found, condition]


HANDLERS: Final[Mapping[tuple[str, str], Handler]] = {
    ("create", "binding"): _bind,
}
