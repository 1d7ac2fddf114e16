"""Access to devices that others use: claims ask for it only in namespaces with a label.

Source: k8s.io/kubernetes `pkg/registry/resource/utils.go`.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dralab.api.fields import FieldError, forbidden
from dralab.values.json_types import JsonDict, JsonObject

LABEL: Final = "resource.kubernetes.io/admin-access"
WHY: Final = (
    f"admin access to devices requires the `{LABEL}: true` label on the containing namespace"
)


def admin_access_problems(
    new: JsonDict, old: JsonDict | None, labels: Callable[[], Mapping[str, str]]
) -> list[FieldError]:
    """Return the errors of admin access that the namespace does not allow.

    `old` is the claim before a write to its status, None for a new object; `labels` returns
    those of the namespace and is called only if they matter.
    """
    if old is None:
        path, asking = "spec.devices.requests", map(_wanted, _requests(new))
    elif any(map(_granted, _results(old))):
        return []  # the allocation stays as it is
    else:
        path, asking = "status.allocation.devices.results", map(_granted, _results(new))
    first = next((index for index, asks in enumerate(asking) if asks), None)
    if first is None or labels().get(LABEL) == "true":
        return []
    # Upstream names neither the template's spec nor `exactly`.
    return [forbidden(f"{path}[{first}].adminAccess", WHY)]


def _requests(value: JsonObject) -> Iterable[JsonObject]:
    if value.get("kind") not in {"ResourceClaim", "ResourceClaimTemplate"}:
        return ()
    spec: Any = value.get("spec") or {}
    spec = spec.get("spec", spec) or {}
    return (spec.get("devices") or {}).get("requests") or ()


def _results(value: JsonObject) -> Iterable[JsonObject]:
    allocation = (value.get("status") or {}).get("allocation") or {}
    return (allocation.get("devices") or {}).get("results") or ()


def _wanted(request: JsonObject) -> bool:
    return bool((request.get("exactly") or {}).get("adminAccess"))


def _granted(result: JsonObject) -> bool:
    return bool(result.get("adminAccess"))
