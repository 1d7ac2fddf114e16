"""The collections that the components read and write, by name."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from dralab.api.kinds import Kinds
from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.values.json_types import JsonObject

BINDINGS: Final = "binding"

PODS: Final = Resource("", "v1", "pods")
NODES: Final = Resource("", "v1", "nodes", namespaced=False)
NAMESPACES: Final = Resource("", "v1", "namespaces", namespaced=False)
EVENTS: Final = Resource("", "v1", "events")
CONFIG_MAPS: Final = Resource("", "v1", "configmaps")
SERVICE_ACCOUNTS: Final = Resource("", "v1", "serviceaccounts")
CRDS: Final = Resource("apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False)
RESOURCE_QUOTAS: Final = Resource("", "v1", "resourcequotas")
SERVICES: Final = Resource("", "v1", "services")
SECRETS: Final = Resource("", "v1", "secrets")
REPLICATION_CONTROLLERS: Final = Resource("", "v1", "replicationcontrollers")
VOLUME_CLAIMS: Final = Resource("", "v1", "persistentvolumeclaims")
VOLUMES: Final = Resource("", "v1", "persistentvolumes", namespaced=False)
STORAGE_CLASSES: Final = Resource("storage.k8s.io", "v1", "storageclasses", namespaced=False)
ATTRIBUTES_CLASSES: Final = Resource(
    "storage.k8s.io", "v1", "volumeattributesclasses", namespaced=False
)
ENDPOINTS: Final = Resource("", "v1", "endpoints")
ENDPOINT_SLICES: Final = Resource("discovery.k8s.io", "v1", "endpointslices")
DEPLOYMENTS: Final = Resource("apps", "v1", "deployments")
REPLICA_SETS: Final = Resource("apps", "v1", "replicasets")
STATEFUL_SETS: Final = Resource("apps", "v1", "statefulsets")
DAEMON_SETS: Final = Resource("apps", "v1", "daemonsets")
CONTROLLER_REVISIONS: Final = Resource("apps", "v1", "controllerrevisions")
JOBS: Final = Resource("batch", "v1", "jobs")
CRON_JOBS: Final = Resource("batch", "v1", "cronjobs")
LEASES: Final = Resource("coordination.k8s.io", "v1", "leases")
PRIORITY_CLASSES: Final = Resource("scheduling.k8s.io", "v1", "priorityclasses", namespaced=False)
CLUSTER_ROLES: Final = Resource("rbac.authorization.k8s.io", "v1", "clusterroles", namespaced=False)
CERTIFICATE_REQUESTS: Final = Resource(
    "certificates.k8s.io", "v1", "certificatesigningrequests", namespaced=False
)
POD_GROUPS: Final = Resource("scheduling.k8s.io", "v1alpha2", "podgroups")
COMPOSITE_POD_GROUPS: Final = Resource("scheduling.k8s.io", "v1alpha3", "compositepodgroups")
WORKLOADS: Final = Resource("scheduling.k8s.io", "v1alpha2", "workloads")
EVICTION_REQUESTS: Final = Resource("lifecycle.k8s.io", "v1alpha1", "evictionrequests")
EVICTIONS: Final = Resource("lifecycle.k8s.io", "v1alpha1", "evictions")
DISRUPTION_BUDGETS: Final = Resource("policy", "v1", "poddisruptionbudgets")
CLAIMS: Final = Resource("resource.k8s.io", "v1", "resourceclaims")
CLAIM_TEMPLATES: Final = Resource("resource.k8s.io", "v1", "resourceclaimtemplates")
CLASSES: Final = Resource("resource.k8s.io", "v1", "deviceclasses", namespaced=False)
SLICES: Final = Resource("resource.k8s.io", "v1", "resourceslices", namespaced=False)
TAINT_RULES: Final = Resource("resource.k8s.io", "v1", "devicetaintrules", namespaced=False)
POOL_STATUS_REQUESTS: Final = Resource(
    "resource.k8s.io", "v1alpha3", "resourcepoolstatusrequests", namespaced=False
)
# k8srm, which every dralab serves and no other server.
DEVICE_POOLS: Final = Resource("devmgmtproto.k8s.io", "v1alpha1", "devicepools", namespaced=False)
DEVICE_CLASSES: Final = Resource(
    "devmgmtproto.k8s.io", "v1alpha1", "deviceclasses", namespaced=False
)
DEVICE_DRIVERS: Final = Resource(
    "devmgmtproto.k8s.io", "v1alpha1", "devicedrivers", namespaced=False
)
DEVICE_CLAIMS: Final = Resource("devmgmtproto.k8s.io", "v1alpha1", "deviceclaims")
# dra-evolution, where a cluster serves that profile.
EVOLUTION_POOLS: Final = Resource("resource.k8s.io", "v1alpha2", "resourcepools", namespaced=False)
EVOLUTION_CLAIMS: Final = Resource("resource.k8s.io", "v1alpha2", "resourceclaims")
EVOLUTION_PODS: Final = Resource("resource.k8s.io", "v1alpha2", "pods")
# Classic DRA, where a cluster serves that profile.
CLASSIC_CLASSES: Final = Resource(
    "resource.k8s.io", "v1alpha2", "resourceclasses", namespaced=False
)
CLASSIC_CLAIMS: Final = Resource("resource.k8s.io", "v1alpha2", "resourceclaims")
CLASSIC_TEMPLATES: Final = Resource("resource.k8s.io", "v1alpha2", "resourceclaimtemplates")
SCHEDULING_CONTEXTS: Final = Resource("resource.k8s.io", "v1alpha2", "podschedulingcontexts")
# Its structured parameters: devices that the scheduler gives without asking a driver.
NAMED_SLICES: Final = Resource("resource.k8s.io", "v1alpha2", "resourceslices", namespaced=False)
CLAIM_PARAMETERS: Final = Resource("resource.k8s.io", "v1alpha2", "resourceclaimparameters")
CLASS_PARAMETERS: Final = Resource("resource.k8s.io", "v1alpha2", "resourceclassparameters")
ALLOCATION_STATES: Final = Resource(
    "nas.fake.resource.3-shake.com", "v1alpha1", "nodeallocationstates"
)
FAKE_PARAMETERS: Final = Resource("fake.resource.3-shake.com", "v1alpha1", "fakeclaimparameters")
FAKE_CLASS_PARAMETERS: Final = Resource(
    "fake.resource.3-shake.com", "v1alpha1", "deviceclassparameters", namespaced=False
)


# The newer versions in which servers of newer releases have a collection.
NEWER: Final[Mapping[Resource, Sequence[str]]] = {
    POD_GROUPS: ("v1beta1", "v1alpha3"),
    WORKLOADS: ("v1beta1", "v1alpha3"),
}


def versions_of(resource: Resource) -> list[Resource]:
    """Return a collection in each version in which a server may have it, the newest first."""
    return [*(replace(resource, version=each) for each in NEWER.get(resource, ())), resource]


def is_served(resource: Resource, kinds: Kinds | None) -> bool:
    """Return whether a server with these kinds has a collection; None stands for unknown kinds."""
    path = (resource.group, resource.version, resource.plural)
    return kinds is not None and kinds.within(*path) is not None


def resource_of(kinds: Kinds, body: JsonObject) -> Resource:
    """Return the collection of an object. ApiError: a server of these kinds does not serve it."""
    version, name = str(body.get("apiVersion", "")), str(body.get("kind", ""))
    kind = kinds.of_object(version, name)
    if kind is None:
        raise ApiError("NotFound", f'no matches for kind "{name}" in version "{version}"')
    return Resource(kind.group, kind.version, kind.plural, kind.namespaced)
