"""Limits on what the kubelet of a node may write into its objects (NodeRestriction).

Source: k8s.io/kubernetes `plugin/pkg/admission/noderestriction`; the labels: k8s.io/kubelet
`pkg/apis`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from dralab.api.status import ApiError
from dralab.apiserver.access.admission.chain import Review
from dralab.apiserver.access.authorization.nodes import LEASES, SLICES
from dralab.apiserver.access.users import node_of
from dralab.apiserver.storage import Key
from dralab.objects.claims import made_claims
from dralab.objects.metadata import labels_of, owners_of, spec_of, status_of
from dralab.objects.pods import MIRROR, is_mirror
from dralab.objects.references import config_map_names, secret_names
from dralab.objects.volumes import claims_of
from dralab.values.go_text import go_quoted

RESTRICTED: Final = "node-restriction.kubernetes.io"
LABELS: Final = frozenset(
    {
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "beta.kubernetes.io/os",
        "failure-domain.beta.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "kubernetes.io/arch",
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/region",
        "topology.kubernetes.io/zone",
    }
)
LABEL_DOMAINS: Final = ("kubelet.kubernetes.io", "node.kubernetes.io")
# What a node reports about a volume claim.
CLAIM_STATUS: Final = (
    "allocatedResourceStatuses",
    "allocatedResources",
    "capacity",
    "conditions",
    "modifyVolumeStatus",
)
OWN_LEASE: Final = "can only access node lease with the same name as the requesting node"
OWN_CSI_NODE: Final = "can only access CSINode with the same name as the requesting node"


class NodeRestriction:
    """Refuses what a node must not write; requests of others pass."""

    name = "NodeRestriction"

    def __init__(self) -> None:
        self._checks: Mapping[str, Callable[[Review, str], None]] = {
            "pods": _pod,
            "nodes": _node,
            "persistentvolumeclaims": _volume_claim,
            "serviceaccounts": _service_account,
            "coordination.k8s.io/leases": _lease,
            "storage.k8s.io/csinodes": _csi_node,
            SLICES: _slice,
        }

    def admit(self, review: Review) -> None:
        """Check a write. ApiError Forbidden, NotFound."""
        node = node_of(review.user)
        if node is None:
            return
        if not node:
            user = go_quoted(review.user.name)
            raise _forbidden(review, f"could not determine node from user {user}")
        if check := self._checks.get(review.kind.hub):
            check(review, node)


def _pod(review: Review, node: str) -> None:
    match review.subresource:
        case "":
            _whole_pod(review, node)
        case "status":
            _pod_status(review, node)
        case "eviction":
            pod = _found(review, "pods", review.name)
            if spec_of(pod).get("nodeName") != node:
                why = f"node {node} can only evict pods with spec.nodeName set to itself"
                raise _forbidden(review, why)
        case other:
            raise _forbidden(
                review,
                f"unexpected pod subresource {go_quoted(other)}, only 'status' and 'eviction' are "
                "allowed",
            )


def _whole_pod(review: Review, node: str) -> None:
    shown = go_quoted(node)
    if review.operation == "DELETE":
        if spec_of(review.old or {}).get("nodeName") != node:
            why = f"node {shown} can only delete pods with spec.nodeName set to itself"
            raise _forbidden(review, why)
        return
    if review.operation != "CREATE" or review.value is None:
        operation = go_quoted(review.operation)
        raise _forbidden(
            review,
            f"unexpected operation {operation}, node {shown} can only create and delete mirror "
            "pods",
        )
    pod, spec = review.value, spec_of(review.value)
    if not is_mirror(pod):
        raise _forbidden(
            review,
            f"pod does not have {go_quoted(MIRROR)} annotation, node {shown} can only create "
            "mirror pods",
        )
    if spec.get("nodeName") != node:
        why = f"node {shown} can only create pods with spec.nodeName set to itself"
        raise _forbidden(review, why)
    _check_owner(review, node)
    named = {
        "a service account": spec.get("serviceAccountName"),
        "secrets": secret_names(pod),
        "configmaps": config_map_names(pod),
        "clustertrustbundles": _projects(spec, "clusterTrustBundle"),
        "persistentvolumeclaims": claims_of(pod),
        "resourceclaims": spec.get("resourceClaims"),
    }
    for what, found in named.items():
        if found:
            raise _forbidden(review, f"node {shown} can not create pods that reference {what}")


def _check_owner(review: Review, node: str) -> None:
    """Check that a mirror pod belongs to the node that creates it."""
    shown, owners = go_quoted(node), owners_of(review.value or {})
    if len(owners) > 1:
        why = f"node {shown} can only create pods with a single owner reference set to itself"
        raise _forbidden(review, why)
    owner = owners[0] if owners else {}
    if (owner.get("apiVersion"), owner.get("kind"), owner.get("name")) != ("v1", "Node", node):
        why = f"node {shown} can only create pods with an owner reference set to itself"
        raise _forbidden(review, why)
    if not owner.get("controller"):
        why = f"node {shown} can only create pods with a controller owner reference set to itself"
        raise _forbidden(review, why)
    if owner.get("blockOwnerDeletion"):
        why = f"node {shown} must not set blockOwnerDeletion on an owner reference"
        raise _forbidden(review, why)
    uid = _found(review, "nodes", node)["metadata"]["uid"]
    if owner.get("uid") != uid:
        why = f"node {node} UID mismatch: expected {owner.get('uid')} got {uid}"
        raise _forbidden(review, why)


def _projects(spec: Mapping[str, Any], kind: str) -> bool:
    return any(
        source.get(kind) is not None
        for volume in spec.get("volumes") or ()
        for source in (volume.get("projected") or {}).get("sources") or ()
    )


def _pod_status(review: Review, node: str) -> None:
    old, new, shown = review.old or {}, review.value or {}, go_quoted(node)
    if spec_of(old).get("nodeName") != node:
        raise _forbidden(
            review,
            f"node {shown} can only update pod status for pods with spec.nodeName set to itself",  # noqa: S608 - an answer
        )
    if labels_of(old) != labels_of(new):
        raise _forbidden(review, f"node {shown} cannot update labels through pod status")
    extended = "extendedResourceClaimStatus"
    if made_claims(old) != made_claims(new) or (
        status_of(old).get(extended) != status_of(new).get(extended)
    ):
        raise _forbidden(review, f"node {shown} cannot update resource claim statues")


def _node(review: Review, node: str) -> None:
    shown = go_quoted(node)
    if review.name != node:
        why = f"node {shown} is not allowed to modify node {go_quoted(review.name)}"
        raise _forbidden(review, why)
    if review.value is None:
        return
    old, new = review.old or {"metadata": {}}, review.value
    source = spec_of(new).get("configSource")
    if source is not None and source != spec_of(old).get("configSource"):
        why = (
            "to create pods with a non-nil configSource"
            if review.old is None
            else "to update configSource to a new non-nil configSource"
        )
        raise _forbidden(review, f"node {shown} is not allowed {why}")
    if review.old is not None and _taints(new) != _taints(old):
        raise _forbidden(review, f"node {shown} is not allowed to modify taints")
    # An owner that does not exist has the garbage collector delete the node, which may then be
    # created with other labels and taints (CVE-2025-5187).
    if review.old is not None and owners_of(new) != owners_of(old):
        raise _forbidden(review, f"node {shown} is not allowed to modify ownerReferences")
    before, after = labels_of(old), labels_of(new)
    changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    refused = ", ".join(sorted(key for key in changed if not _may_label(key)))
    if refused and review.old is None:
        why = f"node {shown} is not allowed to set the following labels: {refused}"
        raise _forbidden(review, why)
    if refused:
        raise _forbidden(review, f"is not allowed to modify labels: {refused}")


def _taints(node: Mapping[str, Any]) -> Any:
    return spec_of(node).get("taints") or []


def _may_label(key: str) -> bool:
    """Return whether a node may set a label on itself: none that attracts workloads."""
    domain = key.partition("/")[0] if "/" in key else ""
    if _is_below(domain, RESTRICTED):
        return False
    if not (_is_below(domain, "kubernetes.io") or _is_below(domain, "k8s.io")):
        return True
    return key in LABELS or any(_is_below(domain, each) for each in LABEL_DOMAINS)


def _is_below(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")


def _volume_claim(review: Review, node: str) -> None:
    if review.subresource != "status":
        raise _forbidden(review, "may only update PVC status")

    def rest(claim: Mapping[str, Any]) -> dict[str, Any]:
        left_out = {"managedFields", "resourceVersion"}
        metadata = {k: part for k, part in claim["metadata"].items() if k not in left_out}
        status = {k: part for k, part in status_of(claim).items() if k not in CLAIM_STATUS}
        return {**claim, "metadata": metadata, "status": status}

    if rest(review.old or {"metadata": {}}) != rest(review.value or {"metadata": {}}):
        raise _forbidden(
            review,
            f"node {go_quoted(node)} is not allowed to update fields other than status.capacity "
            "and status.conditions",
        )


def _service_account(review: Review, node: str) -> None:
    """Check that a token that a node asks for is bound to one of its own pods."""
    if review.operation != "CREATE" or review.subresource != "token":
        return
    reference = spec_of(review.value or {}).get("boundObjectRef")
    reference = reference if isinstance(reference, dict) else {}
    if (reference.get("apiVersion"), reference.get("kind")) != ("v1", "Pod") or not reference.get(
        "name"
    ):
        raise _forbidden(review, "node requested token not bound to a pod")
    if not (uid := reference.get("uid")):
        raise _forbidden(review, "node requested token with a pod binding without a uid")
    pod = _found(review, "pods", str(reference["name"]))
    if uid != pod["metadata"]["uid"]:
        raise _forbidden(
            review,
            f"the UID in the bound object reference ({uid}) does not match the UID in record. The "
            "object might have been deleted and then recreated",
        )
    if spec_of(pod).get("nodeName") != node:
        why = "node requested token bound to a pod scheduled on a different node"
        raise _forbidden(review, why)


def _lease(review: Review, node: str) -> None:
    if review.namespace != LEASES:
        why = f"can only access leases in the {go_quoted(LEASES)} system namespace"
        raise _forbidden(review, why)
    if review.name != node:
        raise _forbidden(review, OWN_LEASE)


def _csi_node(review: Review, node: str) -> None:
    if review.name != node:
        raise _forbidden(review, OWN_CSI_NODE)


def _slice(review: Review, node: str) -> None:
    # Deletions of many are allowed by their selector alone.
    obj, verb = (review.old, "delete") if review.operation == "DELETE" else (review.value, "create")
    if review.operation != "UPDATE" and spec_of(obj or {}).get("nodeName") != node:
        raise _forbidden(
            review,
            f"can only {verb} ResourceSlice with the same NodeName as the requesting node",
        )


def _found(review: Review, resource: str, name: str) -> dict[str, Any]:
    """Return an object beside the one that is written. ApiError NotFound."""
    namespace = review.namespace if resource == "pods" else ""
    found = review.scope.find(Key(resource, namespace, name))
    if found is None:
        raise ApiError.not_found(resource, name)
    return found.value


def _forbidden(review: Review, why: str) -> ApiError:
    kind = review.kind
    return ApiError.forbidden(kind.plural, review.name, why, group=kind.group)
