"""Reading pods: whether one is finished or ready, its group, its containers."""

from collections.abc import Iterable

from dralab.objects.conditions import is_true
from dralab.objects.metadata import annotations_of, spec_of, status_of
from dralab.values.json_types import JsonObject

FINISHED = frozenset({"Succeeded", "Failed"})
"""The phases that no pod leaves."""
MIRROR = "kubernetes.io/config.mirror"
"""The annotation of mirror pods."""
SAFE_TO_EVICT = "cluster-autoscaler.kubernetes.io/safe-to-evict"
"""The annotation by which a pod says whether it may be evicted to tidy up."""


def is_finished(pod: JsonObject) -> bool:
    """Return whether the containers of a pod will never run again."""
    return status_of(pod).get("phase") in FINISHED


def is_mirror(pod: JsonObject) -> bool:
    """Return whether a pod is a mirror of a static pod."""
    return MIRROR in annotations_of(pod)


def is_ready(pod: JsonObject) -> bool:
    """Return whether a pod's Ready condition is true."""
    return is_true(pod, "Ready")


def group_of(pod: JsonObject) -> str:
    """Return the name of the PodGroup that a pod is scheduled with; empty if it has none."""
    group = spec_of(pod).get("schedulingGroup") or {}
    name: str = group.get("podGroupName") or ""
    return name


def containers_of(pod: JsonObject) -> Iterable[JsonObject]:
    """Return the containers of a pod, init containers first: in the order in which they start."""
    spec = spec_of(pod)
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]
