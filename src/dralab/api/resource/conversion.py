"""Between the versions of resource.k8s.io: v1 is the hub, the others are its differences.

v1beta2 has the fields of v1. v1beta1 nests a device's fields in `basic`, spells a request's
`exactly` as fields of the request itself, and writes an absent node name as "" and an absent
`allNodes` as false. v1alpha3 has two kinds of its own. Error paths follow the shape that the
writer used.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from dralab.api.fields import FieldError
from dralab.api.resource.types import GROUP, KINDS, structs
from dralab.values.json_types import JsonDict

EXACT_FIELDS: Final = tuple(structs("v1")["ExactDeviceRequest"])
DEVICE_FIELDS: Final = tuple(structs("v1beta1")["BasicDevice"])
_REQUEST_PATH: Final = re.compile(r"^((?:spec\.)?spec\.devices\.requests\[\d+\])\.exactly\b")
_DEVICE_PATH: Final = re.compile(r"^(spec\.devices\[\d+\])\.(?!name\b)")


class ConversionError(ValueError):
    """A kind or version that resource.k8s.io does not have."""


def hub_version(kind: str) -> str:
    """Return the version in which objects of a kind are stored and reasoned about."""
    return KINDS[kind][0]


def convert(obj: Mapping[str, Any], version: str) -> JsonDict:
    """Return the object in another version of its group; `obj` itself stays as it is.

    >>> device = {"name": "d", "basic": {"attributes": {"a": {"int": 1}}}}
    >>> slice_ = {"apiVersion": "resource.k8s.io/v1beta1", "kind": "ResourceSlice"}
    >>> convert(slice_ | {"spec": {"devices": [device]}}, "v1")["spec"]["devices"]
    [{'name': 'd', 'attributes': {'a': {'int': 1}}}]
    """
    kind = str(obj.get("kind", ""))
    group, _, given = str(obj.get("apiVersion", "")).partition("/")
    if group != GROUP or kind not in KINDS:
        raise ConversionError(f"{obj.get('apiVersion')} {kind} is not a kind of {GROUP}")
    for wanted in (given, version):
        if wanted not in KINDS[kind]:
            raise ConversionError(
                f"{GROUP}/{wanted} has no {kind}; versions with it: {', '.join(KINDS[kind])}"
            )
    result = dict(obj) | {"apiVersion": f"{GROUP}/{version}"}
    if (given == "v1beta1") != (version == "v1beta1") and "spec" in result:
        steps = _FROM_V1BETA1 if given == "v1beta1" else _TO_V1BETA1
        if kind in steps and result["spec"] is not None:
            result["spec"] = steps[kind](result["spec"])
    return result


def errors_in(version: str, kind: str, errors: Iterable[FieldError]) -> list[FieldError]:
    """Return errors of the hub form with the paths of a version.

    >>> found = FieldError("FieldValueInvalid", "spec.devices[0].taints[1].key", "", "bad")
    >>> errors_in("v1beta1", "ResourceSlice", [found])[0].field
    'spec.devices[0].basic.taints[1].key'
    """
    if version != "v1beta1":
        return list(errors)
    return [replace(error, field=_path_in_v1beta1(kind, error.field)) for error in errors]


def _path_in_v1beta1(kind: str, path: str) -> str:
    if kind == "ResourceSlice":
        return _DEVICE_PATH.sub(r"\1.basic.", path)
    return _REQUEST_PATH.sub(r"\1", path)


def _slice_with(
    change: Callable[[Mapping[str, Any] | None], JsonDict],
) -> Callable[[Mapping[str, Any]], JsonDict]:
    def changed(spec: Mapping[str, Any]) -> JsonDict:
        result = dict(spec)
        for name in ("nodeName", "allNodes"):
            if not result.get(name):
                result.pop(name, None)
        if result.get("devices") is not None:
            result["devices"] = [change(device) for device in result["devices"]]
        return result

    return changed


def _device_from_v1beta1(device: Mapping[str, Any] | None) -> JsonDict:
    device = device or {}
    result = {name: value for name, value in device.items() if name != "basic"}
    return result | (device.get("basic") or {})


def _device_to_v1beta1(device: Mapping[str, Any] | None) -> JsonDict:
    device = device or {}
    basic = {name: device[name] for name in DEVICE_FIELDS if name in device}
    rest = {name: value for name, value in device.items() if name not in basic}
    return rest | {"basic": basic}


def _claim_with(change: Callable[[Mapping[str, Any]], JsonDict]) -> Callable[[Any], JsonDict]:
    def changed(spec: Mapping[str, Any]) -> JsonDict:
        devices = spec.get("devices")
        if not devices or not devices.get("requests"):
            return dict(spec)
        requests = [change(request or {}) for request in devices["requests"]]
        return dict(spec) | {"devices": dict(devices) | {"requests": requests}}

    return changed


def _request_from_v1beta1(request: Mapping[str, Any]) -> JsonDict:
    # A request with any of the fields becomes `exactly`, even where that makes it invalid:
    # validation then says so (conversion must not lose what was written).
    exact = {name: request[name] for name in EXACT_FIELDS if _is_set(request.get(name))}
    result = {name: value for name, value in request.items() if name not in EXACT_FIELDS}
    if not exact:
        return result
    first = {"name": result.pop("name")} if "name" in result else {}
    return first | {"exactly": exact} | result


def _request_to_v1beta1(request: Mapping[str, Any]) -> JsonDict:
    result = {name: value for name, value in request.items() if name != "exactly"}
    alternatives = result.pop("firstAvailable", None)
    result |= request.get("exactly") or {}
    return result | ({"firstAvailable": alternatives} if alternatives is not None else {})


def _is_set(value: Any) -> bool:
    # `adminAccess: false` is set (a pointer in Go); empty texts, lists and zero counts are not.
    return value is not None and (isinstance(value, (bool, dict)) or bool(value))


def _template_with(change: Callable[[Any], JsonDict]) -> Callable[[Any], JsonDict]:
    def changed(spec: Mapping[str, Any]) -> JsonDict:
        inner = spec.get("spec")
        return dict(spec) | ({"spec": change(inner)} if inner is not None else {})

    return changed


_FROM_V1BETA1: Final[Mapping[str, Callable[[Any], JsonDict]]] = {
    "ResourceSlice": _slice_with(_device_from_v1beta1),
    "ResourceClaim": _claim_with(_request_from_v1beta1),
    "ResourceClaimTemplate": _template_with(_claim_with(_request_from_v1beta1)),
}
_TO_V1BETA1: Final[Mapping[str, Callable[[Any], JsonDict]]] = {
    "ResourceSlice": _slice_with(_device_to_v1beta1),
    "ResourceClaim": _claim_with(_request_to_v1beta1),
    "ResourceClaimTemplate": _template_with(_claim_with(_request_to_v1beta1)),
}
