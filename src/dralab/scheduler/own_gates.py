"""Removes fields of disabled gates from the objects that a scheduler reads.

A scheduler has the gates of its own release, which may be older than the server. What an allocation
makes of a gate is `AllocationFeatures`.
"""

from typing import Final

from dralab.api.gated_fields import Path, paths_of, without
from dralab.api.releases import MIXED
from dralab.values.json_types import JsonDict

GANG: Final[Path] = ("spec", "schedulingPolicy", "gang")
# Source: pkg/scheduler/framework/plugins/feature/feature.go. Others keep their fields: a device
# with counters, for instance, is not one without them where DRAPartitionableDevices is off.
ASKED: Final = frozenset(
    {
        "CompositePodGroup",
        "DRAExtendedResource",
        "DRANodeAllocatableResources",
        "DRAWorkloadResourceClaims",
        "DynamicResourceAllocation",
        "GenericWorkload",
        "PodGroupPreemptionPolicy",
        "TopologyAwareWorkloadScheduling",
        "WorkloadAwarePreemption",
    }
)


# What it reads with such fields, in the versions that have them.
READ: Final = {
    "Pod": ("v1",),
    "PodGroup": ("scheduling.k8s.io/v1alpha2", "scheduling.k8s.io/v1alpha3"),
    "CompositePodGroup": ("scheduling.k8s.io/v1alpha3",),
    "DeviceClass": ("resource.k8s.io/v1",),
    "ResourceSlice": ("resource.k8s.io/v1",),
}


class OwnGates:
    """The disabled gates of a scheduler; none by default."""

    def __init__(self, off: frozenset[str] = frozenset()) -> None:
        self.off = off
        asked = ASKED & self.off
        self._paths: dict[str, list[Path]] = {
            kind: [path for version in versions for path in paths_of(MIXED, version, kind, asked)]
            for kind, versions in (READ if self.off else {}).items()
        }
        if "GangScheduling" in self.off:
            self._paths["PodGroup"].append(GANG)

    def known(self, kind: str, obj: JsonDict) -> JsonDict:
        """Return an object without fields of disabled gates.

        >>> OwnGates(frozenset({"GenericWorkload"})).known("Pod", {"spec": {"schedulingGroup": {}}})
        {'spec': {}}
        """
        return without(obj, self._paths.get(kind, ()))
