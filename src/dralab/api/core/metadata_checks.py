"""How often upstream checks the metadata of a changed object, by kind.

Each kind calls for it what it thinks fit, and so an error is told two to four times. A letter
stands for each call beyond the two that all kinds share, as `api.metadata.change_problems` reads
them. Found by asking a kube-apiserver 1.36.2.
"""

from collections.abc import Mapping
from typing import Final

OTHER: Final = "u"
"""The checks of custom resources."""

_HOOKS: Final = "admissionregistration.k8s.io"
_RBAC: Final = "rbac.authorization.k8s.io"
_KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "": ("events", "policy/poddisruptionbudgets"),
    "C": (
        "limitranges", "discovery.k8s.io/endpointslices",
        "flowcontrol.apiserver.k8s.io/flowschemas",
        "flowcontrol.apiserver.k8s.io/prioritylevelconfigurations", "storage.k8s.io/csinodes",
        "storage.k8s.io/volumeattachments",
    ),
    "CC": ("persistentvolumes",),
    "CU": (
        "configmaps", "endpoints", "namespaces", "nodes", "persistentvolumeclaims", "pods",
        "secrets", "serviceaccounts", "apps/controllerrevisions", "batch/jobs",
        "certificates.k8s.io/certificatesigningrequests", "networking.k8s.io/ingressclasses",
        "networking.k8s.io/ingresses", "networking.k8s.io/ipaddresses",
        f"{_RBAC}/clusterrolebindings", f"{_RBAC}/clusterroles", f"{_RBAC}/rolebindings",
        f"{_RBAC}/roles", "resource.k8s.io/deviceclasses", "resource.k8s.io/resourceclaims",
        "resource.k8s.io/resourceclaimtemplates", "storage.k8s.io/csistoragecapacities",
        "storage.k8s.io/storageclasses", "storage.k8s.io/volumeattributesclasses",
    ),
    "U": (
        "podtemplates", "replicationcontrollers", "resourcequotas", "services",
        "apps/daemonsets", "apps/deployments", "apps/replicasets", "apps/statefulsets",
        "autoscaling/horizontalpodautoscalers", "batch/cronjobs", "events.k8s.io/events",
        "networking.k8s.io/networkpolicies", "networking.k8s.io/servicecidrs",
        "resource.k8s.io/devicetaintrules", "resource.k8s.io/resourcepoolstatusrequests",
        "resource.k8s.io/resourceslices", "scheduling.k8s.io/priorityclasses",
        "storage.k8s.io/csidrivers",
    ),
    "c": (
        f"{_HOOKS}/mutatingadmissionpolicies", f"{_HOOKS}/mutatingadmissionpolicybindings",
        f"{_HOOKS}/mutatingwebhookconfigurations", f"{_HOOKS}/validatingadmissionpolicies",
        f"{_HOOKS}/validatingadmissionpolicybindings",
        f"{_HOOKS}/validatingwebhookconfigurations",
    ),
    "cu": ("apiregistration.k8s.io/apiservices", "node.k8s.io/runtimeclasses"),
    "u": ("apiextensions.k8s.io/customresourcedefinitions", "coordination.k8s.io/leases"),
}  # fmt: skip
CHECKS: Final[Mapping[str, str]] = {
    name: checks for checks, names in _KINDS.items() for name in names
}
_STATUS: Final = {"": "", "C": "", "c": "", "cu": "", "u": "u", "batch/cronjobs": ""}


def metadata_checks(group: str, plural: str, subresource: str = "") -> str:
    """Return the checks of a write to a kind, or to a subresource of it.

    Events have other ones in each of their two groups, though they are stored as one kind.
    """
    name = f"{group}/{plural}" if group else plural
    checks = CHECKS.get(name, OTHER)
    if subresource != "status":
        return checks
    return _STATUS.get(name, _STATUS.get(checks, "U"))
