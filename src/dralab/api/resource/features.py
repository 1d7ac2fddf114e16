"""Feature gates, as sets of names: those of device allocation, and what pods may say.

A function that depends on a gate takes a `frozenset` of the gates that are on; nothing is global.
Sources: kubernetes.io feature gate reference of 1.36 and 1.37, and the `kep.yaml` files.
"""

from typing import Final

Features = frozenset[str]

COMPARING_TOLERATIONS: Final = "TaintTolerationComparisonOperators"
"""Tolerations of pods may compare numbers: Lt and Gt (KEP-5471)."""

RESOURCE_HEALTH: Final = "ResourceHealthStatus"
"""The status of pods has the health of their devices (KEP-4680)."""

CBOR_SERVING: Final = "CBORServingAndStorage"
"""The server reads and writes CBOR (KEP-4222)."""

_STABLE_1_36: Final = frozenset(
    {
        "DRAAdminAccess",
        "DRAConsumableCapacity",
        "DRADeviceBindingConditions",
        "DRADeviceTaintRules",
        "DRADeviceTaints",
        "DRAExtendedResource",
        "DRAPartitionableDevices",
        "DRAPrioritizedList",
        "DRAResourceClaimDeviceStatus",
        "DRAResourceClaimGranularStatusAuthorization",
        "DRASchedulerFilterTimeout",
        "DynamicResourceAllocation",
        RESOURCE_HEALTH,
    }
)

DEFAULT_1_36: Final[Features] = _STABLE_1_36
"""On by default in Kubernetes 1.36."""

DEFAULT_1_37: Final[Features] = _STABLE_1_36 | {"DRAFractionalCapacityRange"}
"""On by default in Kubernetes 1.37."""

ALPHA: Final[Features] = frozenset(
    {
        "DRADerivedAttributes",
        "DRADeviceCompatibilityGroups",
        "DRAListTypeAttributes",
        "DRANodeAllocatableResources",
        "DRAOptionalNodeOperations",
        "DRAPartitionableDevicesType",
        "DRAResourcePoolStatus",
        "DRAWorkloadResourceClaims",
        CBOR_SERVING,
        COMPARING_TOLERATIONS,
    }
)

ALL: Final[Features] = DEFAULT_1_37 | ALPHA
"""Every gate that dralab knows."""


class GateError(ValueError):
    """A setting of feature gates that is none."""


def with_gates(text: str, default: Features = DEFAULT_1_36) -> Features:
    """Return the gates that are on after a setting as Kubernetes' --feature-gates has it.

    GateError: an unknown gate, or a value other than true and false.

    >>> sorted(with_gates("DRAAdminAccess=false,AllAlpha=true") ^ DEFAULT_1_36)[:2]
    ['CBORServingAndStorage', 'DRAAdminAccess']
    """
    found = set(default)
    for item in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = item.partition("=")
        named = ALPHA if name == "AllAlpha" else {name}
        if not named <= ALL:
            known = ", ".join(sorted(ALL))
            raise GateError(f"unknown feature gate {name!r}; known: AllAlpha, {known}")
        if value not in {"true", "false"}:
            raise GateError(f"feature gate {name} must be true or false, not {value!r}")
        found = found | named if value == "true" else found - named
    return frozenset(found)
