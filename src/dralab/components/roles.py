"""Permissions of dralab's components beyond Kubernetes' roles.

The scheduler is `system:kube-scheduler`, controllers have the service accounts of
kube-controller-manager's, nodes are `system:node:NAME`. Where dralab's do what those never do,
such as serving older device APIs, a small role of their own allows just that.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from dralab.api.status import ApiError
from dralab.runtime.client import Client, Resource
from dralab.runtime.resources import CLUSTER_ROLES
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from dralab.apiserver.server import ApiServer

GROUP: Final = "rbac.authorization.k8s.io"
CLUSTER_BINDINGS: Final = Resource(GROUP, "v1", "clusterrolebindings", namespaced=False)
DEVICES: Final = "resource.k8s.io"
READ: Final = ("get", "list", "watch")
# Verbs, API group, resources.
Rule = tuple[Sequence[str], str, Sequence[str]]
EVENTS: Final[Sequence[Rule]] = [
    (("create", "patch", "update"), "", ("events",)),
    (("create", "patch", "update"), "events.k8s.io", ("events",)),
]
ACCOUNTS: Final[Mapping[str, Sequence[Rule]]] = {
    "deployment-controller": [(("patch",), "apps", ("deployments",))],
    "device-taint-eviction-controller": [(("update",), DEVICES, ("devicetaintrules/status",))],
    "dralab-autoscaler": [
        (READ, "", ("configmaps", "namespaces", "nodes", "pods", "resourcequotas")),
        (READ, "", ("persistentvolumeclaims", "persistentvolumes")),
        (READ, DEVICES, ("deviceclasses", "devicetaintrules", "resourceslices")),
        (READ, DEVICES, ("resourceclaims", "resourceclaimtemplates")),
        (READ, "policy", ("poddisruptionbudgets",)),
        (READ, "scheduling.k8s.io", ("compositepodgroups", "podgroups", "priorityclasses")),
        (READ, "storage.k8s.io", ("storageclasses",)),
        (READ, "karpenter.sh", ("nodeclaims", "nodepools")),
        (("create", "delete", "update"), "karpenter.sh", ("nodeclaims",)),
        (("update",), "karpenter.sh", ("nodeclaims/status", "nodepools/status")),
        (READ, "karpenter.kwok.sh", ("kwoknodeclasses",)),
        (("create", "update"), "", ("configmaps",)),
        (("create", "delete", "update"), "", ("nodes",)),
        (("create",), "", ("pods/eviction",)),
        (("create", "deletecollection"), DEVICES, ("resourceslices",)),
        (("create",), DEVICES, ("deviceclasses",)),
        (("delete",), "coordination.k8s.io", ("leases",)),
        *EVENTS,
    ],
    "dralab-nodes": [
        (READ, "", ("nodes", "pods", "services")),
        (("update",), "", ("nodes",)),
        (READ, DEVICES, ("resourceslices",)),
        (("create", "delete", "update"), DEVICES, ("deviceclasses", "resourceslices")),
        ((*READ, "create"), "storage.k8s.io", ("storageclasses",)),
        (READ, "", ("persistentvolumeclaims", "persistentvolumes")),
    ],
    "dralab-volumes": [(("create", "delete"), "", ("persistentvolumes",)), *EVENTS],
    "evictionrequest-controller": [
        (READ, "", ("pods",)),
        (("create",), "", ("pods/eviction",)),
        ((*READ, "create", "delete"), "lifecycle.k8s.io", ("evictionrequests", "evictions")),
        (("update",), "lifecycle.k8s.io", ("evictionrequests/status", "evictions/status")),
        *EVENTS,
    ],
    "job-controller": [
        (("update",), "", ("pods",)),
        (("create", "get", "patch"), "scheduling.k8s.io", ("podgroups", "workloads")),
    ],
    "resourcepoolstatus-controller": [
        (("delete",), DEVICES, ("resourcepoolstatusrequests",)),
        (("update",), DEVICES, ("resourcepoolstatusrequests/status",)),
    ],
    "service-account-controller": [(("create", "update"), "", ("configmaps",))],
}
# What kube-scheduler's role lacks for features that are off there by default.
SCHEDULER: Final[Sequence[Rule]] = [
    (READ, DEVICES, ("devicetaintrules",)),
    (READ, "scheduling.k8s.io", ("compositepodgroups", "podgroups")),
    (("patch", "update"), "scheduling.k8s.io", ("podgroups/status",)),
]


class PartsRoles(Protocol):
    """The additional rules for the parts of an older generation."""

    @property
    def accounts(self) -> Mapping[str, Sequence[Rule]]:
        """Rules of service accounts in kube-system."""
        ...

    @property
    def scheduler_rules(self) -> Sequence[Rule]:
        """Rules of the scheduler."""
        ...


class RolesHost(Protocol):
    """What the roles need from a cluster."""

    @property
    def client(self) -> Client:
        """The administrator's client."""
        ...

    @property
    def server(self) -> "ApiServer":
        """The server itself."""
        ...


def install_for(cluster: RolesHost, more: Iterable[PartsRoles] = ()) -> None:
    """Create the roles if the cluster uses RBAC. ApiError."""
    if cluster.server.resources.context.authorizer is not None:
        install(cluster.client, more)


def install(client: Client, more: Iterable[PartsRoles] = ()) -> None:
    """Create missing roles and bindings. ApiError."""
    accounts = {name: list(rules) for name, rules in ACCOUNTS.items()}
    scheduler = list(SCHEDULER)
    for parts in more:
        scheduler += parts.scheduler_rules
        for account, rules in parts.accounts.items():
            accounts.setdefault(account, []).extend(rules)
    user = {"kind": "User", "apiGroup": GROUP, "name": "system:kube-scheduler"}
    _ensure(client, "dralab:scheduler", scheduler, user)
    for account, rules in accounts.items():
        subject = {"kind": "ServiceAccount", "name": account, "namespace": "kube-system"}
        _ensure(client, f"dralab:{account}", rules, subject)


def _ensure(client: Client, name: str, rules: Sequence[Rule], subject: JsonDict) -> None:
    wanted = [
        {"verbs": list(verbs), "apiGroups": [group], "resources": list(resources)}
        for verbs, group, resources in rules
    ]
    metadata = {"name": name}
    role = {"metadata": metadata, "rules": wanted}
    reference = {"apiGroup": GROUP, "kind": "ClusterRole", "name": name}
    binding = {"metadata": metadata, "roleRef": reference, "subjects": [subject]}
    for resource, obj in ((CLUSTER_ROLES, role), (CLUSTER_BINDINGS, binding)):
        try:
            client.create(resource, obj)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
            if resource is CLUSTER_ROLES:
                client.patch(resource, name, {"rules": wanted})
