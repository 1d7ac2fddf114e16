"""What a resize of a pod may change: the CPU and memory of its containers, and nothing else.

Source: k8s.io/kubernetes `pkg/apis/core/validation`, `ValidatePodResize`. Resources of the pod as
a whole are not resized here.
"""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_defaults import qos_class
from dralab.api.fields import FieldError
from dralab.values import quantity
from dralab.values.json_types import JsonDict, JsonObject

RESIZABLE: Final = ("cpu", "memory")
MIRROR: Final = "kubernetes.io/config.mirror"
PARTS: Final = ("containers", "initContainers")
ONLY: Final = "only cpu and memory resources are mutable"
ONLY_OF_INITS: Final = "only cpu and memory resources for init or sidecar containers are mutable"
RESTARTS: Final = (
    "non-sidecar init containers with a resize policy of RestartContainer cannot be resized"
)


def resize_problems(new: JsonDict, old: JsonDict) -> list[FieldError]:
    """Return the errors of a resize, beside those of the new pod itself."""
    status = old.get("status") or {}
    if MIRROR in (old["metadata"].get("annotations") or {}):
        return [fields.forbidden("", "static pods cannot be resized")]
    if (old["spec"].get("os") or {}).get("name") == "windows":
        return [fields.forbidden("", "windows pods cannot be resized")]
    errors = []
    held = status.get("qosClass") or qos_class(old["spec"])
    if held != qos_class(new["spec"]):
        why = "Pod QOS Class may not change as a result of resizing"
        errors.append(fields.invalid_value("spec", held, why))
    if status.get("nodeAllocatableResourceClaimStatuses"):
        why = "pods with node allocatable resource claims cannot be resized"
        errors.append(fields.forbidden("spec", why))
    order = [each for part in PARTS for each in _order_problems(new, old, part)]
    if order:
        return errors + order
    for part in ("initContainers", "containers"):
        pairs = zip(new["spec"].get(part) or (), old["spec"].get(part) or (), strict=True)
        for index, (after, before) in enumerate(pairs):
            errors += _removal_problems(after, before, f"spec.{part}[{index}].resources")
    for part in PARTS:
        pairs = zip(new["spec"].get(part) or (), old["spec"].get(part) or (), strict=True)
        for index, (after, before) in enumerate(pairs):
            errors += _change_problems(after, before, part, index)
    return errors


def _order_problems(new: JsonDict, old: JsonDict, part: str) -> list[FieldError]:
    after: Sequence[JsonObject] = new["spec"].get(part) or ()
    before: Sequence[JsonObject] = old["spec"].get(part) or ()
    if len(after) != len(before):
        return [fields.forbidden(f"spec.{part}", f"{part} may not be added or removed on resize")]
    why = f"{part} may not be renamed or reordered on resize"
    return [
        fields.forbidden(f"spec.{part}[{index}].name", why)
        for index, each in enumerate(before)
        if after[index].get("name") != each.get("name")
    ]


def _removal_problems(after: JsonObject, before: JsonObject, path: str) -> list[FieldError]:
    errors = []
    for kind in ("requests", "limits"):
        held = (before.get("resources") or {}).get(kind) or {}
        wanted = (after.get("resources") or {}).get(kind) or {}
        if any(name not in wanted for name in held):
            errors.append(fields.forbidden(f"{path}.{kind}", f"resource {kind} cannot be removed"))
    return errors


def _change_problems(
    after: JsonObject, before: JsonObject, part: str, index: int
) -> list[FieldError]:
    inits = part == "initContainers"
    path = f"spec.{part}[{index}]" if inits else "spec"
    errors = []
    if _others(after) != _others(before):
        errors.append(fields.forbidden(path, ONLY_OF_INITS if inits else ONLY))
    restarts = any(
        each.get("restartPolicy") == "RestartContainer" for each in after.get("resizePolicy") or ()
    )
    sidecar = after.get("restartPolicy") == "Always"
    if inits and not sidecar and restarts and _sizes(after) != _sizes(before):
        errors.append(fields.forbidden(path, RESTARTS))
    return errors


def _others(container: JsonObject) -> JsonDict:
    """Return a container without what a resize may change."""
    resources = container.get("resources") or {}
    left = {
        kind: {name: text for name, text in amounts.items() if name not in RESIZABLE}
        for kind in ("requests", "limits")
        if (amounts := resources.get(kind))
    }
    kept = {kind: amounts for kind, amounts in left.items() if amounts}
    return {**container, "resources": {**kept, "claims": resources.get("claims") or []}}


def _sizes(container: JsonObject) -> list[quantity.Number | None]:
    resources = container.get("resources") or {}
    found = [
        (resources.get(kind) or {}).get(name)
        for kind in ("requests", "limits")
        for name in RESIZABLE
    ]
    return [None if text is None else quantity.parse_any(text) for text in found]
