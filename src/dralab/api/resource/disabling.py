"""Fields of disabled features: dropped when an object is created, kept where they are in use.

Source of the habit: `dropDisabled…Fields` of k8s.io/kubernetes `pkg/registry/resource`.
"""

import copy
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

import orjson

from dralab.api.gated_fields import holders, uses
from dralab.api.resource.features import Features
from dralab.values.json_types import JsonDict

_BINDING: Final = ("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus")
_RESULTS: Final = "status.allocation.devices.results.*"
_LISTS: Final = ("bools", "ints", "strings", "versions")


def _in_devices(*names: str) -> tuple[str, ...]:
    return tuple(f"spec.devices.*.{name}" for name in names)


def _in_requests(name: str) -> tuple[str, ...]:
    return (
        f"spec.devices.requests.*.exactly.{name}",
        f"spec.devices.requests.*.firstAvailable.*.{name}",
    )


_SLICE: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (
        ("DRAPartitionableDevices",),
        (
            "spec.perDeviceNodeSelection", "spec.sharedCounters",
            *_in_devices("consumesCounters", "nodeName", "nodeSelector", "allNodes"),
        ),
    ),
    (("DRADeviceTaints",), _in_devices("taints")),
    (_BINDING, _in_devices("bindsToNode", "bindingConditions", "bindingFailureConditions")),
    (
        ("DRAConsumableCapacity",),
        _in_devices("allowMultipleAllocations", "capacity.*.requestPolicy"),
    ),
    (("DRAListTypeAttributes",), _in_devices(*(f"attributes.*.{name}" for name in _LISTS))),
    (
        ("DRANodeAllocatableResources",),
        _in_devices("nodeAllocatableResources", "nodeAllocatableResourceMappings"),
    ),
    (("DRAOptionalNodeOperations",), ("spec.skipNodeOperations",)),
    (("DRADeviceCompatibilityGroups",), _in_devices("consumesCounters.*.compatibilityGroups")),
)  # fmt: skip
_CLAIM: Final[tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]] = (
    (("DRAPrioritizedList",), ("spec.devices.requests.*.firstAvailable",)),
    (
        ("DRAAdminAccess",),
        ("spec.devices.requests.*.exactly.adminAccess", f"{_RESULTS}.adminAccess"),
    ),
    (("DRADeviceTaints",), (*_in_requests("tolerations"), f"{_RESULTS}.tolerations")),
    (
        ("DRAConsumableCapacity",),
        (
            *_in_requests("capacity"), "spec.devices.constraints.*.distinctAttribute",
            f"{_RESULTS}.shareID", f"{_RESULTS}.consumedCapacity", "status.devices.*.shareID",
        ),
    ),
    (
        _BINDING,
        (
            f"{_RESULTS}.bindingConditions", f"{_RESULTS}.bindingFailureConditions",
            "status.allocation.allocationTimestamp",
        ),
    ),
    (("DRAResourceClaimDeviceStatus",), ("status.devices",)),
    (("DRADerivedAttributes",), _in_requests("derivedAttributes")),
    (("DRAOptionalNodeOperations",), (f"{_RESULTS}.skipNodeOperations",)),
)  # fmt: skip
_OF_KIND: Final[Mapping[str, tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]]] = {
    "ResourceSlice": _SLICE,
    "ResourceClaim": _CLAIM,
    "ResourceClaimTemplate": tuple(
        (gates, tuple(f"spec.{path}" for path in paths if path.startswith("spec.")))
        for gates, paths in _CLAIM
    ),
    "DeviceClass": ((("DRAExtendedResource",), ("spec.extendedResourceName",)),),
}


def without_disabled(
    obj: JsonDict, features: Features, old: Mapping[str, Any] | None = None
) -> JsonDict:
    """Return the object without the fields of features that are off and that `old` does not use.

    The object itself is returned where there is nothing to drop.

    >>> class_ = {"kind": "DeviceClass", "spec": {"extendedResourceName": "example.com/gpu"}}
    >>> without_disabled(class_, frozenset())
    {'kind': 'DeviceClass', 'spec': {}}
    """
    suspects = _disabled(str(obj.get("kind", "")), features)
    if not suspects:
        return obj
    # Nearly no object has such a field: its JSON says so sooner than a walk along every path. What
    # is the old object's uses no more than that.
    parts = [obj.get(part) for part in ("spec", "status")]
    if old is not None:
        parts = [
            part for part in parts if part is not old.get("spec") and part is not old.get("status")
        ]
    text = orjson.dumps(parts)
    paths = [
        path
        for path in suspects
        if b'"%s":' % path[-1].encode() in text
        and uses(obj, path)
        and (old is None or not uses(old, path))
    ]
    if not paths:
        return obj
    result = copy.deepcopy(obj)
    for path in paths:
        for holder in list(holders(result, path)):
            holder.pop(path[-1], None)
    return result


@lru_cache(256)
def _disabled(kind: str, features: Features) -> tuple[tuple[str, ...], ...]:
    return tuple(
        tuple(path.split("."))
        for gates, paths in _OF_KIND.get(kind, ())
        if not features.issuperset(gates)
        for path in paths
    )
