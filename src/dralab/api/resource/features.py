"""Feature gates of device allocation, as sets of names.

A function that depends on a gate takes a `frozenset` of the gates that are on; nothing is global.
Sources: kubernetes.io feature gate reference of 1.36 and 1.37, and the `kep.yaml` files.
"""

from typing import Final

Features = frozenset[str]

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
        "DRASchedulerFilterTimeout",
        "DynamicResourceAllocation",
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
    }
)

ALL: Final[Features] = DEFAULT_1_37 | ALPHA
"""Every gate that dralab knows."""
