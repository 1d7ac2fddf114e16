"""What objects count against a ResourceQuota: for admission and for the quota's status alike.

Sources: k8s.io/kubernetes `pkg/quota/v1/evaluator/core`; for devices KEP-4381 and KEP-5004. Amounts
are exact numbers by resource name, as in `spec.hard`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from dralab.objects.claims import alternatives_of, requests_of
from dralab.objects.extended_resources import IMPLICIT, SYNTHETIC
from dralab.objects.metadata import annotations_of, spec_of, status_of
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
BETA_CLASS: Final = "volume.beta.kubernetes.io/storage-class"
STORAGE_SUFFIX: Final = ".storageclass.storage.k8s.io/"
K8SRM: Final = "devmgmtproto.k8s.io"
K8SRM_SUFFIX: Final = f".deviceclass.{K8SRM}/devices"
K8SRM_ADMIN: Final = f"adminaccess.{K8SRM}/deviceclaims"
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
        found |= _volume_claim(obj)
    elif not group and resource == "services":
        kind = spec_of(obj).get("type", "ClusterIP")
        found["services.loadbalancers"] = int(kind == "LoadBalancer")
        ports = spec_of(obj).get("ports") or ()
        if kind == "LoadBalancer" and spec_of(obj).get("allocateLoadBalancerNodePorts") is False:
            ports = [port for port in ports if port.get("nodePort")]
        found["services.nodeports"] = len(ports) if kind in {"NodePort", "LoadBalancer"} else 0
    elif group == "resource.k8s.io" and resource == "resourceclaims":
        found |= _claim(obj)
    elif group == K8SRM and resource == "deviceclaims":
        found |= _device_claim(obj)
    return found


def kind_counted(name: str) -> tuple[str, str] | None:
    """Return plural and group of the only kind that a name in a quota counts.

    None for the kinds that every quota is about.

    >>> kind_counted("count/widgets.example.com")
    ('widgets', 'example.com')
    """
    if name.endswith(K8SRM_SUFFIX) or name == K8SRM_ADMIN:
        return "deviceclaims", K8SRM
    if not name.startswith("count/"):
        return None
    plural, _, group = name.removeprefix("count/").partition(".")
    return plural, group


def is_device(name: str) -> bool:
    """Return whether a name in a quota counts devices of a class."""
    return name.endswith(CLASS_SUFFIX) or name.startswith(f"requests.{IMPLICIT}")


def selects(spec: JsonObject, resource: str, group: str, obj: JsonObject) -> bool:
    """Return whether a quota's scopes match an object; without scopes all match."""
    scopes = [{"scopeName": name, "operator": "Exists"} for name in spec.get("scopes") or ()]
    scopes += (spec.get("scopeSelector") or {}).get("matchExpressions") or ()
    if not scopes:
        return True
    if group or resource not in {"pods", "persistentvolumeclaims"}:
        return False
    about = _in_scope if resource == "pods" else _in_volume_scope
    return all(about(scope, obj) for scope in scopes)


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


def _volume_claim(claim: JsonObject) -> dict[str, Number]:
    """Return the storage that a claim asks for, or has while it shrinks, also by its class."""
    spec, status = spec_of(claim), status_of(claim)
    asked = (spec.get("resources") or {}).get("requests") or {}
    storage = max(
        quantity.parse_any(amounts.get("storage", "0"))
        for amounts in (asked, status.get("allocatedResources") or {})
    )
    found: dict[str, Number] = {"requests.storage": storage}
    name = annotations_of(claim).get(BETA_CLASS) or spec.get("storageClassName")
    if name:
        found[f"{name}{STORAGE_SUFFIX}requests.storage"] = storage
        found[f"{name}{STORAGE_SUFFIX}persistentvolumeclaims"] = 1
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


def _device_claim(claim: JsonObject) -> dict[str, Number]:
    """Return the devices that a claim of k8srm asks for at least, by class, in all its forms.

    Of alternatives, the one that asks for most counts. A claim with a detail of adminAccess counts
    as one such claim.
    """
    spec = spec_of(claim)
    found: dict[str, Number] = {}
    details = []
    for entry in spec.get("devices") or spec.get("claims") or [spec]:
        ways = entry.get("oneOf") or ()
        most: dict[str, Number] = {}
        for way in ways:
            name, count = _class_and_count(way)
            most[name] = max(most.get(name, 0), count)
        alone = entry.get("allOf") or (() if ways else [entry])
        for name, count in [*most.items(), *map(_class_and_count, alone)]:
            if name:  # a detail of a type may be met by any class of it
                resource = f"{name}{K8SRM_SUFFIX}"
                found[resource] = found.get(resource, 0) + count
        details += [*ways, *alone]
    found[K8SRM_ADMIN] = int(any(detail.get("adminAccess") for detail in details))
    return found


def _class_and_count(detail: JsonObject) -> tuple[str, Number]:
    requests = detail.get("requests")
    requests = requests if isinstance(requests, dict) else {}  # capacities of stage K1: a list
    written = [requests.get("devices"), requests.get("count"), detail.get("devices")]
    written += [detail.get("count"), detail.get("minDeviceCount")]
    count = next((each for each in written if each is not None), 1)
    return detail.get("class") or detail.get("deviceClass") or "", quantity.parse_any(count)


def _in_volume_scope(scope: JsonObject, claim: JsonObject) -> bool:
    """Whether a claim has or awaits an attributes class that the scope matches."""
    if scope["scopeName"] != "VolumeAttributesClass":
        return False
    status = status_of(claim)
    names = {
        spec_of(claim).get("volumeAttributesClassName"),
        status.get("currentVolumeAttributesClassName"),
        (status.get("modifyVolumeStatus") or {}).get("targetVolumeAttributesClassName"),
    }
    named = [name for name in names if name]
    return any(_fits(scope, name) for name in named or [""])


def _fits(scope: JsonObject, name: str) -> bool:
    """Whether a scope matches a class name; empty: no class."""
    values = scope.get("values") or ()
    match scope.get("operator", "Exists"):
        case "In":
            return name in values
        case "NotIn":
            return name not in values
        case "DoesNotExist":
            return not name
        case _:
            return bool(name)


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
            return _fits(scope, spec.get("priorityClassName") or "")
        case "CrossNamespacePodAffinity":
            return any(
                term.get("namespaces") or term.get("namespaceSelector") is not None
                for term in _affinity_terms(spec.get("affinity") or {})
            )
        case _:
            return False


def _affinity_terms(affinity: JsonObject) -> Iterator[JsonObject]:
    """Yield the pod affinity terms: required and preferred, affinity and anti-affinity."""
    for sort in ("podAffinity", "podAntiAffinity"):
        terms = affinity.get(sort) or {}
        yield from terms.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for each in terms.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield each.get("podAffinityTerm") or {}
