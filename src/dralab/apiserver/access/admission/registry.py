"""The admission plugins: their names, in the order in which they are asked, and where each is.

Those that are nowhere are kube-apiserver's alone: nothing is lost when they are switched off.
`docs/guides/write-an-admission-plugin.md` says how one is added. Source of names and order:
k8s.io/kubernetes 1.36 `pkg/kubeapiserver/options/plugins.go` (AllOrderedPlugins).
"""

from collections.abc import Mapping
from typing import Final

_ADMISSION: Final = "dralab.apiserver.access.admission"
_AUTHORIZATION: Final = "dralab.apiserver.access.authorization"
_RESOURCES: Final = "dralab.apiserver.verbs"
# By name: the module, and the class in it.
PLUGINS: Final[Mapping[str, str]] = {
    "AlwaysAdmit": "",
    "NamespaceAutoProvision": "",
    "NamespaceLifecycle": f"{_ADMISSION}.namespaces:NamespaceLifecycle",
    "NamespaceExists": "",
    "LimitPodHardAntiAffinityTopology": "",
    "LimitRanger": f"{_ADMISSION}.limits:LimitRanges",
    "ServiceAccount": f"{_ADMISSION}.service_accounts:PodServiceAccount",
    "NodeRestriction": f"{_AUTHORIZATION}.node_restriction:NodeRestriction",
    "TaintNodesByCondition": f"{_ADMISSION}.classes:NewNodeTaint",
    "AlwaysPullImages": "",
    "ImagePolicyWebhook": "",
    "PodSecurity": f"{_ADMISSION}.pod_security:PodSecurity",
    "PodNodeSelector": "",
    "Priority": f"{_ADMISSION}.pods:PodPriority",
    "DefaultTolerationSeconds": f"{_ADMISSION}.pods:DefaultTolerations",
    "PodTolerationRestriction": "",
    "EventRateLimit": "",
    "ExtendedResourceToleration": "",
    "DefaultStorageClass": f"{_ADMISSION}.storage:DefaultStorageClass",
    "StorageObjectInUseProtection": f"{_ADMISSION}.storage:ObjectInUseProtection",
    "OwnerReferencesPermissionEnforcement": "",
    "PersistentVolumeClaimResize": f"{_ADMISSION}.storage:ClaimResize",
    "RuntimeClass": f"{_ADMISSION}.classes:RuntimeClasses",
    "CertificateApproval": f"{_AUTHORIZATION}.signers:CertificateApproval",
    "CertificateSigning": f"{_AUTHORIZATION}.signers:CertificateSigning",
    "ClusterTrustBundleAttest": "",
    "CertificateSubjectRestriction": f"{_ADMISSION}.certificates:CertificateSubjectRestriction",
    "DefaultIngressClass": f"{_ADMISSION}.classes:DefaultIngressClass",
    "DenyServiceExternalIPs": "",
    "PodTopologyLabels": f"{_ADMISSION}.pods:TopologyLabels",
    # What other parts of kube-apiserver do, and no flag switches off.
    "ServiceAddresses": f"{_ADMISSION}.services:ServiceAddresses",
    "CertificateRequester": f"{_ADMISSION}.certificates:CertificateRequester",
    "RoleEscalation": f"{_AUTHORIZATION}.escalation:RoleEscalation",
    "Dynamic": f"{_ADMISSION}.dynamic:DynamicAdmission",
    "ConfiguredAdmission": f"{_RESOURCES}.configured_admission:ConfiguredAdmission",
    # What users configure, and `Dynamic` calls.
    "MutatingAdmissionPolicy": f"{_ADMISSION}.policies.mutating:MutatingPolicies",
    "MutatingAdmissionWebhook": f"{_ADMISSION}.webhooks.plugins:MutatingWebhooks",
    "ValidatingAdmissionPolicy": f"{_ADMISSION}.policies.validating:ValidatingPolicies",
    "ValidatingAdmissionWebhook": f"{_ADMISSION}.webhooks.plugins:ValidatingWebhooks",
    "ResourceQuota": f"{_ADMISSION}.quotas:QuotaLimits",
    "AlwaysDeny": "",
}
OWN: Final = frozenset(
    {
        "ServiceAddresses", "CertificateRequester", "RoleEscalation", "Dynamic",
        "ConfiguredAdmission",
    }
)  # fmt: skip
# Those that flags may name, here and not here.
OURS: Final = frozenset(name for name, place in PLUGINS.items() if place) - OWN
OTHERS: Final = frozenset(name for name, place in PLUGINS.items() if not place)
_PLACES: Final = {name: number for number, name in enumerate(PLUGINS)}


def place_of(name: str) -> int:
    """Return where a plugin is in the order; one that is not listed comes last.

    >>> place_of("LimitRanger") < place_of("PodSecurity") < place_of("of a test")
    True
    """
    return _PLACES.get(name, len(_PLACES))
