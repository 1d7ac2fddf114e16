"""Reading nodes: cordons, allocatable amounts, and selectors."""

import re
from collections.abc import Mapping
from typing import Any, Final

from dralab.objects.conditions import condition_of
from dralab.objects.metadata import spec_of, status_of
from dralab.values import labels
from dralab.values.json_types import JsonObject

PODS: Final = "pods"
HOSTNAME: Final = "kubernetes.io/hostname"
_RELEASE: Final = re.compile(r"v(\d{1,4})\.(\d{1,4})\b")


def is_unschedulable(node: JsonObject) -> bool:
    """Return whether a node is cordoned."""
    return bool(spec_of(node).get("unschedulable"))


def is_lost(node: JsonObject) -> bool:
    """Return whether the kubelet of a node no longer reports: its lease ran out."""
    ready = condition_of(node, "Ready")
    return ready is not None and ready.get("status") == "Unknown"


def offered(node: JsonObject) -> Mapping[str, Any]:
    """Return the amounts that a node has for pods, as quantities."""
    status = status_of(node)
    found: Mapping[str, Any] = status.get("allocatable") or status.get("capacity") or {}
    return found


def release_of(node: JsonObject) -> tuple[int, int]:
    """Return the Kubernetes release of a node's kubelet; (0, 0) if unknown.

    >>> release_of({"status": {"nodeInfo": {"kubeletVersion": "v1.37.2-eks-1"}}})
    (1, 37)
    """
    told = (status_of(node).get("nodeInfo") or {}).get("kubeletVersion") or ""
    found = _RELEASE.match(told)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def required_affinity(spec: JsonObject) -> JsonObject | None:
    """Return the NodeSelector that the affinity of a pod's spec requires."""
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    found: JsonObject | None = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    return found


def selects(node: JsonObject, selector: Mapping[str, str], affinity: JsonObject | None) -> bool:
    """Return whether a pod's node selector and required affinity accept a node."""
    metadata = node["metadata"]
    own = metadata.get("labels") or {}
    if any(own.get(key) != value for key, value in selector.items()):
        return False
    return affinity is None or labels.node_selector_accepts(affinity, own, metadata["name"])
