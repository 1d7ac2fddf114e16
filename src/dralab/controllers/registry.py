"""The controllers, by their names in kube-controller-manager."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, Final

from dralab.api.kinds import Kinds
from dralab.controllers.attributes_classes import AttributesClassProtection
from dralab.controllers.certificates import Authority, CertificateSigner
from dralab.controllers.claims import ResourceClaims
from dralab.controllers.cluster_roles import ClusterRoleAggregation
from dralab.controllers.cron_jobs import CronJobs
from dralab.controllers.daemon_sets import DaemonSets
from dralab.controllers.deployments import Deployments
from dralab.controllers.device_taints import DeviceTaintEviction
from dralab.controllers.disruption import DisruptionBudgets
from dralab.controllers.endpoint_slices import EndpointSlices
from dralab.controllers.endpoints import ServiceEndpoints
from dralab.controllers.eviction_requests import EvictionRequests
from dralab.controllers.garbage_collection import GarbageCollector
from dralab.controllers.jobs import Jobs
from dralab.controllers.mirrored_slices import MirroredSlices
from dralab.controllers.namespaces import Namespaces
from dralab.controllers.node_lifecycle import NodeLifecycle
from dralab.controllers.pod_gc import PodGarbage
from dralab.controllers.pool_status import PoolStatus
from dralab.controllers.quotas import ResourceQuotas
from dralab.controllers.replica_sets import ReplicaSets, ReplicationControllers
from dralab.controllers.service_accounts import ServiceAccounts
from dralab.controllers.stateful_sets import StatefulSets
from dralab.controllers.volumes import PersistentVolumes
from dralab.runtime.manager import Manager

SIGNING: Final = "certificatesigningrequest-signing-controller"
CLAIMS: Final = "resourceclaim-controller"
CONTROLLERS: Final[Mapping[str, Callable[..., Any]]] = {
    CLAIMS: ResourceClaims,
    "device-taint-eviction-controller": DeviceTaintEviction,
    "resourcepoolstatus-controller": PoolStatus,
    "resourcequota-controller": ResourceQuotas,
    "garbage-collector-controller": GarbageCollector,
    "namespace-controller": Namespaces,
    "node-lifecycle-controller": NodeLifecycle,
    "pod-garbage-collector-controller": PodGarbage,
    "serviceaccount-controller": ServiceAccounts,
    "disruption-controller": DisruptionBudgets,
    "evictionrequest-controller": EvictionRequests,
    "replicaset-controller": ReplicaSets,
    "replicationcontroller-controller": ReplicationControllers,
    "deployment-controller": Deployments,
    "statefulset-controller": StatefulSets,
    "daemonset-controller": DaemonSets,
    "job-controller": Jobs,
    "cronjob-controller": CronJobs,
    "persistentvolume-binder-controller": PersistentVolumes,
    "volumeattributesclass-protection-controller": AttributesClassProtection,
    "endpoint-controller": ServiceEndpoints,
    "endpointslice-controller": EndpointSlices,
    "endpointslicemirroring-controller": MirroredSlices,
    "clusterrole-aggregation-controller": ClusterRoleAggregation,
    SIGNING: CertificateSigner,
}


# Accounts that are not named like their controller (kube-controller-manager's
# `--use-service-account-credentials`).
ACCOUNTS: Final[Mapping[str, str]] = {
    CLAIMS: "resource-claim-controller",
    "garbage-collector-controller": "generic-garbage-collector",
    "node-lifecycle-controller": "node-controller",
    "pod-garbage-collector-controller": "pod-garbage-collector",
    "serviceaccount-controller": "service-account-controller",
    "replicationcontroller-controller": "replication-controller",
    "daemonset-controller": "daemon-set-controller",
    "persistentvolume-binder-controller": "persistent-volume-binder",
    SIGNING: "certificate-controller",
}


def account_of(controller: str) -> str:
    """Return the user of a controller: a service account of kube-system.

    >>> account_of("job-controller")
    'system:serviceaccount:kube-system:job-controller'
    """
    return f"system:serviceaccount:kube-system:{ACCOUNTS.get(controller, controller)}"


# Those that watch kinds of today's device API: they cannot run where only older ones are served.
OF_TODAYS_DEVICES: Final = frozenset(
    {
        CLAIMS,
        "device-taint-eviction-controller",
        "resourcepoolstatus-controller",
        "resourcequota-controller",
    }
)


def assemble(
    manager: Manager,
    *,
    without: Collection[str] = (),
    kinds: Kinds | None = None,
    ca: str = "",
    signing_files: tuple[Path, Path] | None = None,
) -> list[Any]:
    """Put the controllers on a manager, in a fixed order; return them.

    `kinds` are those of the server, where they are known to be more than the standard ones; `ca`
    is its certificate authority as PEM, for pods; without `signing_files` (certificate and private
    key) no requests for certificates are signed.
    """
    unknown = sorted(set(without) - set(CONTROLLERS))
    if unknown:
        known = ", ".join(CONTROLLERS)
        raise ValueError(f"unknown controller {unknown[0]!r}; known: {known}")
    by_kind: Mapping[str, Callable[[Manager], Any]] = {
        "evictionrequest-controller": lambda own: EvictionRequests(own, kinds),
        "garbage-collector-controller": lambda own: GarbageCollector(own, kinds),
        "namespace-controller": lambda own: Namespaces(own, kinds),
        "pod-garbage-collector-controller": lambda own: PodGarbage(own, kinds),
        "serviceaccount-controller": lambda own: ServiceAccounts(own, ca=ca),
        SIGNING: lambda own: CertificateSigner(own, Authority(*(signing_files or ()))),
    }
    if signing_files is None:
        without = {*without, SIGNING}
    made: Mapping[str, Callable[[Manager], Any]] = {**CONTROLLERS, **by_kind}
    return [
        made[name](manager.acting_as(account_of(name)))
        for name in CONTROLLERS
        if name not in without
    ]
