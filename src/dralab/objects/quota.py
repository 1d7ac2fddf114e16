"""What objects count against a ResourceQuota: for admission and for the quota's status alike.

Sources: k8s.io/kubernetes `pkg/quota/v1/evaluator/core`; for devices KEP-4381 and KEP-5004. Amounts
are exact numbers by resource name, as in `spec.hard`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from dralab.objects.claims import alternatives_of, requests_of
from dralab.objects.extended_resources import IMPLICIT, SYNTHETIC
from dralab.objects.metadata import annotations_of, spec_of
from dralab.objects.pods import is_finished
from dralab.objects.requests import exact_limits, exact_requests
from dralab.values import quantity
from dralab.values.json_types import JsonObject
from dralab.values.quantity import Number

COUNTED: Final[Mapping[str, str]] = {
    "pods": "pods",
    "services": "services",
    "replicationcontrollers": "replicationcontrollers",
    "resourcequotas": "resourcequotas",
    "secrets": "secrets",
    "configmaps": "configmaps",
    "persistentvolumeclaims": "persistentvolumeclaims",
}
CLASS_SUFFIX: Final = ".deviceclass.resource.k8s.io/devices"


def usage(resource: str, group: str, obj: JsonObject) -> dict[str, Number]:
    """Return what one object uses; `resource` is the plural of its kind.

    >>> usage("configmaps", "", {"metadata": {"name": "a"}})["count/configmaps"]
    1
    """
    found: dict[str, Number] = {f"count/{resource}.{group}" if group else f"count/{resource}": 1}
    if not group and resource in COUNTED and resource != "pods":
        found[COUNTED[resource]] = 1
    if not group and resource == "pods":
        found |= _pod(obj)
    elif not group and resource == "persistentvolumeclaims":
        asked = (spec_of(obj).get("resources") or {}).get("requests") or {}
        found["requests.storage"] = quantity.parse_any(asked.get("storage", "0"))
    elif not group and resource == "services":
        kind = spec_of(obj).get("type", "ClusterIP")
        found["services.loadbalancers"] = int(kind == "LoadBalancer")
        found["services.nodeports"] = (
            len(spec_of(obj).get("ports") or ()) if kind in {"NodePort", "LoadBalancer"} else 0
        )
    elif group == "resource.k8s.io" and resource == "resourceclaims":
        found |= _claim(obj)
    return found


def is_device(name: str) -> bool:
    """Return whether a name in a quota counts devices of a class."""
    return name.endswith(CLASS_SUFFIX) or name.startswith(f"requests.{IMPLICIT}")


def selects(spec: JsonObject, resource: str, group: str, obj: JsonObject) -> bool:
    """Return whether a quota's scopes are about an object; without scopes every quota is."""
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if not scopes:
        return True
    return not group and resource == "pods" and all(_in_scope(scope, obj) for scope in scopes)


def total(
    spec: JsonObject, objects: Iterable[tuple[str, str, JsonObject]], names: Iterable[str]
) -> dict[str, Number]:
    """Return what objects, as (plural, group, object), use of the named resources of a quota."""
    found: dict[str, Number] = dict.fromkeys(names, 0)
    for resource, group, obj in objects:
        if selects(spec, resource, group, obj):
            for name, amount in usage(resource, group, obj).items():
                if name in found:
                    found[name] += amount
    return found


def _pod(pod: JsonObject) -> dict[str, Number]:
    if is_finished(pod):
        return {}
    spec = spec_of(pod)
    requests, limits = exact_requests(spec), exact_limits(spec)
    found: dict[str, Number] = {"pods": 1}
    for name, amount in requests.items():
        found[f"requests.{name}"] = amount
        if name in {"cpu", "memory", "ephemeral-storage"}:
            found[name] = amount
        if name.startswith(IMPLICIT):
            device_class = name.removeprefix(IMPLICIT)
            found[f"{device_class}{CLASS_SUFFIX}"] = amount
    for name, amount in limits.items():
        found[f"limits.{name}"] = amount
    return found


def _claim(claim: JsonObject) -> dict[str, Number]:
    """Return the devices that a claim may get, by class: the most that any alternative asks for."""
    found: dict[str, Number] = {}
    annotations = annotations_of(claim)
    if annotations.get(SYNTHETIC) == "true":
        return found  # its devices are counted with the pod that it was made for
    for request in requests_of(spec_of(claim)):
        most: dict[str, int] = {}
        for item in alternatives_of(request):
            # "All" is unknown until allocation; a claim never has more than 32 devices.
            count = 32 if item.get("allocationMode") == "All" else item.get("count") or 1
            name = item.get("deviceClassName", "")
            most[name] = max(most.get(name, 0), count)
        for name, count in most.items():
            for resource in (f"{name}{CLASS_SUFFIX}", f"requests.{IMPLICIT}{name}"):
                found[resource] = found.get(resource, 0) + count
    return found


def _in_scope(scope: JsonObject, pod: JsonObject) -> bool:
    spec = spec_of(pod)
    match scope["scopeName"]:
        case "Terminating":
            return spec.get("activeDeadlineSeconds") is not None
        case "NotTerminating":
            return spec.get("activeDeadlineSeconds") is None
        case "BestEffort":
            return not (exact_requests(spec) or exact_limits(spec))
        case "NotBestEffort":
            return bool(exact_requests(spec) or exact_limits(spec))
        case "PriorityClass":
            name, values = spec.get("priorityClassName") or "", scope.get("values") or ()
            match scope.get("operator", "Exists"):
                case "In":
                    return name in values
                case "NotIn":
                    return name not in values
                case "DoesNotExist":
                    return not name
                case _:
                    return bool(name)
        case "CrossNamespacePodAffinity":
            return "namespaces" in str(spec.get("affinity") or "")
        case _:
            return False
