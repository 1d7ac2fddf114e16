"""What the kubelet of a node may do: read what its pods need, and write its own objects.

A node gets no more of the cluster than runs on it. What it may write of its own objects is left
to admission (`node_restriction`).

Source: k8s.io/kubernetes `plugin/pkg/auth/authorizer/node`. What a pod refers to is looked up in
the pods of the node whenever it is asked for; upstream keeps a graph of it.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Final

from dralab.apiserver.access.authorization.attributes import (
    ALLOWED,
    NO_OPINION,
    Attributes,
    Decision,
    RuleList,
)
from dralab.apiserver.access.authorization.rbac import Grants
from dralab.apiserver.access.authorization.reconciliation import expected
from dralab.apiserver.access.authorization.rules import read_rules
from dralab.apiserver.access.users import NODES, User, node_of
from dralab.apiserver.storage import Damaged, Key, Store, Stored
from dralab.objects.claims import claim_names
from dralab.objects.metadata import spec_of
from dralab.objects.pods import is_mirror
from dralab.objects.references import config_map_names, secret_names, secrets_of_volume
from dralab.objects.volumes import claims_of
from dralab.values.go_text import go_quoted
from dralab.values.json_types import JsonDict, JsonObject

ROLE: Final = "system:node"
LEASES: Final = "kube-node-lease"
SLICES: Final = "resource.k8s.io/resourceslices"
ATTACHMENTS: Final = "storage.k8s.io/volumeattachments"
NO_RULES: Final = "node authorizer does not support user rule resolution"
OWN_VERBS: Final = frozenset({"get", "create", "update", "patch", "delete"})
READ: Final = frozenset({"get", "list", "watch"})
# (node, namespace) → the pods of a node in a namespace, of all where it is empty.
PodsOn = Callable[[str, str], Sequence[Stored]]
# `group/resource` → the names of those claims that a pod uses.
ClaimsOfPods = Mapping[str, Callable[[JsonObject], Collection[str]]]


class NodeAuthorizer:
    """Decides about users `system:node:NAME` in the group `system:nodes`.

    `more_claims` are those of other device APIs than Kubernetes' own; they may be added later.
    """

    def __init__(
        self, store: Store, pods_on: PodsOn, more_claims: ClaimsOfPods | None = None
    ) -> None:
        self.store = store
        self.pods_on = pods_on
        self.more_claims = {} if more_claims is None else more_claims
        (role,) = (each for each in expected()["clusterroles"] if each["metadata"]["name"] == ROLE)
        self._grants = Grants([(rule, "") for rule in read_rules(role)])
        self._by_resource: Mapping[str, Callable[[str, Attributes], Decision]] = {
            "/secrets": self._readable(self._secret),
            "/configmaps": self._readable(self._config_map),
            "/persistentvolumeclaims": self._volume_claim,
            "/persistentvolumes": self._gettable(self._volume),
            "/pods": self._pods,
            "/nodes": _nodes,
            "/serviceaccounts": self._service_account,
            "resource.k8s.io/resourceclaims": self._gettable(self._claim),
            SLICES: self._slices,
            ATTACHMENTS: self._gettable(self._attachment),
            "coordination.k8s.io/leases": _lease,
            "storage.k8s.io/csinodes": _csi_node,
        }

    def authorize(self, attributes: Attributes) -> Decision:
        """Decide about a request of a node; no opinion about those of others."""
        if NODES not in attributes.user.groups:
            return NO_OPINION  # at once: most requests are of others
        node = node_of(attributes.user)
        if node is None:
            return NO_OPINION
        if not node:
            return _no(f"unknown node for user {go_quoted(attributes.user.name)}")
        if not attributes.path:
            resource = f"{attributes.group}/{attributes.resource}"
            decide = self._by_resource.get(resource)
            if decide is None and resource in self.more_claims:
                decide = self._gettable(self._other_claim)
            if decide is not None:
                return decide(node, attributes)
        allowed = self._grants.decide(attributes).allowed
        return ALLOWED if allowed else NO_OPINION

    def rules_for(self, user: User, namespace: str) -> RuleList:  # noqa: ARG002 - none of them
        """Return no rules: what a node may do depends on its pods."""
        if node_of(user) is None:
            return RuleList()
        return RuleList(incomplete=True, error=NO_RULES)

    # --- kinds ----------------------------------------------------------------------------

    def _readable(
        self, related: Callable[[str, Attributes], bool]
    ) -> Callable[[str, Attributes], Decision]:
        """Return the rule for a kind that is read one object at a time, watches included."""

        def decide(node: str, wanted: Attributes) -> Decision:
            if wanted.verb not in READ:
                return _no("can only read resources of this type")
            if wanted.subresource:
                return _no("cannot read subresource")
            if not wanted.namespace:
                return _no("can only read namespaced object of this type")
            return _related(node, wanted, related)

        return decide

    def _gettable(
        self, related: Callable[[str, Attributes], bool]
    ) -> Callable[[str, Attributes], Decision]:
        """Return the rule for a kind of which a node may only get single objects."""

        def decide(node: str, wanted: Attributes) -> Decision:
            if wanted.verb != "get":
                return _no("can only get individual resources of this type")
            if wanted.subresource:
                return _no("cannot get subresource")
            return _related(node, wanted, related)

        return decide

    def _pods(self, node: str, wanted: Attributes) -> Decision:
        verb, subresource = wanted.verb, wanted.subresource
        if not subresource and verb == "get":
            return _related(node, wanted, self._pod)
        if not subresource and verb in {"list", "watch"}:
            if ("spec.nodeName", node) in wanted.fields:
                return ALLOWED
            if wanted.name:
                return _related(node, wanted, self._pod)
            return _no("can only list/watch pods with spec.nodeName field selector")
        allowed = {
            "": {"create", "delete"},
            "status": {"update", "patch"},
            "eviction": {"create"},
        }
        return ALLOWED if verb in allowed.get(subresource, ()) else NO_OPINION

    def _volume_claim(self, node: str, wanted: Attributes) -> Decision:
        if wanted.subresource != "status":
            return self._gettable(self._claimed_volume)(node, wanted)
        if wanted.verb not in {"update", "patch"}:
            return _no("can only get/update/patch this type")
        return _related(node, wanted, self._claimed_volume)

    def _service_account(self, node: str, wanted: Attributes) -> Decision:
        if wanted.verb == "get" and not wanted.subresource:
            return _related(node, wanted, self._account)
        if wanted.verb != "create" or not wanted.name:
            return _no("can only create tokens for individual service accounts")
        if wanted.subresource != "token":
            return _no("can only create token subresource of serviceaccount")
        return _related(node, wanted, self._account)

    def _slices(self, node: str, wanted: Attributes) -> Decision:
        if wanted.subresource:
            return _no("cannot authorize ResourceSlice subresources")
        match wanted.verb:
            case "create":
                return ALLOWED
            case "get" | "update" | "patch" | "delete":
                return _related(node, wanted, self._slice)
            case "list" | "watch" | "deletecollection":
                if ("spec.nodeName", node) in wanted.fields:
                    return ALLOWED
                return _no(
                    "can only list/watch/deletecollection resourceslices with nodeName field "
                    "selector"
                )
            case _:
                return _no(
                    "only the following verbs are allowed for a ResourceSlice: get, watch, list, "
                    "create, update, patch, delete, deletecollection"
                )

    # --- what the pods of a node refer to -------------------------------------------------

    def _pods_of(self, node: str, namespace: str) -> Iterator[JsonDict]:
        """Return the pods that give a node access: not its mirror pods, which it creates itself."""
        with self.store.lock:
            found = [stored.value for stored in self.pods_on(node, namespace)]
        return (pod for pod in found if not is_mirror(pod))

    def _secret(self, node: str, wanted: Attributes) -> bool:
        place = (wanted.namespace, wanted.name)
        return any(
            wanted.name in secret_names(pod) for pod in self._pods_of(node, wanted.namespace)
        ) or any(place in secrets_of_volume(volume) for volume in self._volumes(node))

    def _config_map(self, node: str, wanted: Attributes) -> bool:
        pods = self._pods_of(node, wanted.namespace)
        return any(wanted.name in config_map_names(pod) for pod in pods)

    def _claimed_volume(self, node: str, wanted: Attributes) -> bool:
        pods = self._pods_of(node, wanted.namespace)
        return any(wanted.name == name for pod in pods for name, _ in claims_of(pod))

    def _volume(self, node: str, wanted: Attributes) -> bool:
        claim = spec_of(self._object("persistentvolumes", "", wanted.name)).get("claimRef") or {}
        pods = self._pods_of(node, claim.get("namespace", "")) if claim else ()
        return any(claim.get("name") == name for pod in pods for name, _ in claims_of(pod))

    def _volumes(self, node: str) -> Iterator[JsonDict]:
        """Return the PersistentVolumes of all pods of a node."""
        for pod in self._pods_of(node, ""):
            namespace = pod["metadata"]["namespace"]
            for name, _ in claims_of(pod):
                claim = self._object("persistentvolumeclaims", namespace, name)
                volume = spec_of(claim).get("volumeName")
                found = self._object("persistentvolumes", "", volume) if volume else {}
                bound = spec_of(found).get("claimRef") or {}
                if (bound.get("namespace"), bound.get("name")) == (namespace, name):
                    yield found

    def _claim(self, node: str, wanted: Attributes) -> bool:
        return any(wanted.name in claim_names(pod) for pod in self._pods_of(node, wanted.namespace))

    def _other_claim(self, node: str, wanted: Attributes) -> bool:
        names_of = self.more_claims[f"{wanted.group}/{wanted.resource}"]
        return any(wanted.name in names_of(pod) for pod in self._pods_of(node, wanted.namespace))

    def _account(self, node: str, wanted: Attributes) -> bool:
        pods = self._pods_of(node, wanted.namespace)
        return any(spec_of(pod).get("serviceAccountName") == wanted.name for pod in pods)

    def _pod(self, node: str, wanted: Attributes) -> bool:
        return self._is_of("pods", wanted.namespace, wanted.name, node)

    def _slice(self, node: str, wanted: Attributes) -> bool:
        return self._is_of(SLICES, "", wanted.name, node)

    def _attachment(self, node: str, wanted: Attributes) -> bool:
        return self._is_of(ATTACHMENTS, "", wanted.name, node)

    def _is_of(self, resource: str, namespace: str, name: str, node: str) -> bool:
        return spec_of(self._object(resource, namespace, name)).get("nodeName") == node

    def _object(self, resource: str, namespace: str, name: str) -> JsonDict:
        """Return an object; an empty one where it is missing or cannot be read."""
        try:
            found = self.store.get(Key(resource, namespace, name))
        except Damaged:
            return {}
        return {} if found is None else found.value


def _nodes(node: str, wanted: Attributes) -> Decision:
    verb, name = wanted.verb, wanted.name
    if wanted.subresource == "status":
        return ALLOWED if verb in {"update", "patch"} else NO_OPINION
    if wanted.subresource:
        return NO_OPINION
    if verb in {"create", "update", "patch"}:
        return ALLOWED
    if verb not in READ:
        return NO_OPINION
    if not name:
        return _no(f"node '{node}' cannot read all nodes, only its own Node object")
    if name != node:
        return _no(f"node '{node}' cannot read '{name}', only its own Node object")
    return ALLOWED


def _lease(node: str, wanted: Attributes) -> Decision:
    if wanted.verb not in OWN_VERBS:
        return _no("can only get, create, update, patch, or delete a node lease")
    if wanted.namespace != LEASES:
        return _no(f"can only access leases in the {go_quoted(LEASES)} system namespace")
    # Only admission knows the name of an object that is being created.
    if wanted.verb != "create" and wanted.name != node:
        return _no("can only access node lease with the same name as the requesting node")
    return ALLOWED


def _csi_node(node: str, wanted: Attributes) -> Decision:
    if wanted.verb not in OWN_VERBS:
        return _no("can only get, create, update, patch, or delete a CSINode")
    if wanted.subresource:
        return _no("cannot authorize CSINode subresources")
    if wanted.verb != "create" and wanted.name != node:
        return _no("can only access CSINode with the same name as the requesting node")
    return ALLOWED


def _related(node: str, wanted: Attributes, related: Callable[[str, Attributes], bool]) -> Decision:
    if not wanted.name:
        return _no("No Object name found")
    if related(node, wanted):
        return ALLOWED
    return _no(f"no relationship found between node '{node}' and this object")


def _no(why: str) -> Decision:
    return Decision("no opinion", why)
