"""Why a pod is refused, as data: each reason with its plugin, its code and what may lift it.

kube-scheduler's sentence is one rendering of a reason, printed last and never read back. Longer
words, values on offer and remedies are left to `explanation`.

Sources: the statuses of kube-scheduler 1.36's plugins; the extension point and the plugin of each
are its `filter`.
"""

from collections import Counter
from collections.abc import Iterable
from enum import Flag, auto
from functools import partial
from typing import Final

from dralab.values.records import dataclass

PODS: Final = "pods"


class ClusterChange(Flag):
    """A kind of cluster event that may help a waiting pod."""

    NOTHING = 0
    NODE = auto()
    POD_GONE = auto()
    POD_PLACED = auto()
    DEVICES = auto()
    VOLUMES = auto()
    ANY = NODE | POD_GONE | POD_PLACED | DEVICES | VOLUMES


@dataclass(frozen=True, slots=True)
class RefusalRule:
    """A kind of refusal by a plugin, of a pod or of a node for it.

    `sentence` is kube-scheduler's, with the fields of a reason by position. `lifted_by` are the
    changes after which the pod may be tried again; what happens to its own claims and its group
    reaches a pod by name. `title` is said of many pods together where the sentence names one.
    """

    plugin: str
    code: str
    sentence: str
    lifted_by: ClusterChange = ClusterChange.NOTHING
    title: str = ""


@dataclass(frozen=True, slots=True)
class Reason:
    """A refusal rule with its fields.

    >>> print(Reason(INSUFFICIENT, ("cpu",)))
    Insufficient cpu
    """

    rule: RefusalRule
    fields: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.rule.sentence.format(*self.fields)

    @property
    def title(self) -> str:
        """The text under which pods that are refused likewise are counted."""
        return self.rule.title or str(self)

    @property
    def code(self) -> str:
        """The stable code of the cause, such as DRA053."""
        return self.rule.code

    @property
    def subject(self) -> str:
        """The subject of the reason: a resource, a taint's key, a name; may be empty."""
        return self.fields[0] if self.fields else ""

    @property
    def lifted_by(self) -> ClusterChange:
        """The changes that may lift it."""
        if self.rule is INSUFFICIENT and "/" in self.subject:
            # A class may come whose devices provide the resource.
            return self.rule.lifted_by | ClusterChange.DEVICES
        return self.rule.lifted_by


_NODE = ClusterChange.NODE
_PODS = _NODE | ClusterChange.POD_GONE
_NEAR = _PODS | ClusterChange.POD_PLACED
_DEVICES = _NODE | ClusterChange.DEVICES
_VOLUMES = _NODE | ClusterChange.VOLUMES
_devices = partial(RefusalRule, "DynamicResources")
_volumes = partial(RefusalRule, "VolumeBinding", "DRA062")
_affinity = partial(RefusalRule, "InterPodAffinity")
_fit = partial(RefusalRule, "NodeResourcesFit")
_gang = partial(RefusalRule, "GangScheduling", "DRA063")
_SPREAD = "node(s) didn't match pod topology spread constraints"

# --- Filter: a node is refused

CORDONED: Final = RefusalRule("NodeUnschedulable", "DRA050", "node(s) were unschedulable", _NODE)
OTHER_NODE: Final = RefusalRule(
    "NodeName", "DRA052", "node(s) didn't match the requested node name", _NODE
)
TAINTED: Final = RefusalRule(
    "TaintToleration", "DRA051", "node(s) had untolerated taint {{{0}: {1}}}", _NODE
)
UNSELECTED: Final = RefusalRule(
    "NodeAffinity", "DRA052", "node(s) didn't match Pod's node affinity/selector", _NODE
)
# Of nodes that a pod does not name whose affinity names nodes: they are not looked at.
NOT_NAMED: Final = RefusalRule(
    "NodeAffinity", "DRA052", "node(s) didn't satisfy plugin(s) [NodeAffinity]", _NODE
)
PORT_TAKEN: Final = RefusalRule(
    "NodePorts", "DRA055", "node(s) didn't have free ports for the requested pod ports", _PODS
)
INSUFFICIENT: Final = _fit("DRA053", "Insufficient {0}", _PODS)
TOO_MANY_PODS: Final = _fit("DRA053", "Too many pods", _PODS)
OTHER_MODEL: Final = RefusalRule("SharedGpus", "DRA053", "node(s) had GPUs of another model", _NODE)
NO_SHARES: Final = RefusalRule("SharedGpus", "DRA053", "Insufficient {0}", _PODS)
# A user's policy of a simulation said so.
AGAINST_POLICY: Final = RefusalRule("", "DRA053", "node(s) were refused by the policy", _PODS)
VOLUME_IN_USE: Final = RefusalRule(
    "VolumeRestrictions", "DRA062", "node(s) unavailable due to PersistentVolumeClaim with "
    "ReadWriteOncePod access mode already in-use by another pod", _PODS,
)  # fmt: skip
VOLUME_ELSEWHERE: Final = _volumes(
    "node(s) didn't match PersistentVolume's node affinity", _VOLUMES
)
NO_VOLUME: Final = _volumes("node(s) didn't find available persistent volumes to bind", _VOLUMES)
NO_VOLUME_ZONE: Final = RefusalRule(
    "VolumeZone", "DRA062", "node(s) had no available volume zone", _VOLUMES
)
NO_SPREAD_LABEL: Final = RefusalRule(
    "PodTopologySpread", "DRA058", f"{_SPREAD} (missing required label)", _DEVICES
)
TOO_UNEVEN: Final = RefusalRule("PodTopologySpread", "DRA058", _SPREAD, _NEAR)
NOT_NEAR: Final = _affinity("DRA056", "node(s) didn't match pod affinity rules", _NEAR)
TOO_NEAR: Final = _affinity("DRA057", "node(s) didn't match pod anti-affinity rules", _PODS)
REPELLED: Final = _affinity(
    "DRA057", "node(s) didn't satisfy existing pods anti-affinity rules", _PODS
)
CLAIM_ELSEWHERE: Final = _devices("DRA054", "resourceclaim not available on the node", _DEVICES)
NO_DEVICES: Final = _devices("DRA030", "cannot allocate all claims", _DEVICES)
SELECTOR_FAILS: Final = _devices("DRA006", "{0}", _DEVICES)
MAPPED_DEVICE_SHARED: Final = _devices(
    "DRA064", "node allocatable resource claim {0} has a mapped device and cannot be shared across "
    "pods", _DEVICES,
)  # fmt: skip
POD_BUDGET: Final = _devices(
    "DRA064", "pod level request for {0} is insufficient to cover the aggregated container and "
    "node-allocatable DRA requests", _DEVICES,
)  # fmt: skip

# --- before any node is looked at

GATED: Final = RefusalRule(
    "SchedulingGates", "DRA065", "Scheduling is blocked due to non-empty scheduling gates"
)
CLAIM_NOT_CREATED: Final = _devices(
    "DRA066", 'pod "{0}": ResourceClaim not created yet', title="ResourceClaim not created yet"
)
NO_NODES: Final = RefusalRule("", "DRA007", "no nodes available to schedule pods")
CLAIM_NOT_FOUND: Final = _devices("DRA001", 'resourceclaim.resource.k8s.io "{0}" not found')
TEMPLATE_NOT_FOUND: Final = _devices("DRA001", 'resourceclaimtemplate "{0}" not found')
QUOTA_EXCEEDED: Final = RefusalRule(
    "", "DRA061", "exceeded quota: {0}, requested: {1}={2}, used: {1}={3}, limited: {1}={4}"
)
BAD_QUANTITY: Final = RefusalRule("", "DRA003", "it requests {0!r}, which is not a quantity")
CLAIM_DELETED: Final = _devices("DRA067", 'resourceclaim "{0}" is being deleted')
CLAIM_NOT_OWNED: Final = _devices(
    "DRA068", "ResourceClaim {0} was not created for Pod {1} (Pod is not owner)"
)
CLAIM_IN_USE: Final = _devices("DRA069", "resourceclaim in use")
NOT_OFFERED: Final = _fit("DRA073", "no node offers {0}, and no DeviceClass provides it", _DEVICES)
CLASS_NOT_FOUND: Final = _devices(
    "DRA002", "request {0}: device class {1} does not exist", ClusterChange.DEVICES
)
OTHER_API: Final = _devices(
    "DRA003", "spec.deviceClaims: this scheduler does not allocate devices of devmgmtproto.k8s.io; "
    "run `dralab allocate --kubeconfig FILE --apply {0}/{1}`",
)  # fmt: skip
VOLUME_CLAIM_NOT_CREATED: Final = _volumes(
    'waiting for ephemeral volume controller to create the persistentvolumeclaim '
    '"{0}"', ClusterChange.VOLUMES,
)  # fmt: skip
VOLUME_CLAIM_NOT_FOUND: Final = RefusalRule(
    "VolumeBinding", "DRA001", 'persistentvolumeclaim "{0}" not found', ClusterChange.VOLUMES
)
VOLUME_CLAIM_NOT_OWNED: Final = _volumes(
    "PVC {0} was not created for pod {1}", ClusterChange.VOLUMES
)
VOLUME_CLAIM_DELETED: Final = _volumes(
    'persistentvolumeclaim "{0}" is being deleted', ClusterChange.VOLUMES
)
VOLUME_LOST: Final = _volumes(
    'persistentvolumeclaim "{0}" bound to non-existent persistentvolume '
    '"{1}"', ClusterChange.VOLUMES,
)  # fmt: skip
VOLUME_UNBOUND: Final = _volumes(
    "pod has unbound immediate PersistentVolumeClaims", ClusterChange.VOLUMES
)
GROUP_NOT_FOUND: Final = _gang('{0}.scheduling.k8s.io "{1}" not found')
GROUPS_TOO_DEEP: Final = _gang("more than {0} levels of groups above pod group {1}")
GROUP_PRIORITY: Final = _gang(
    "all pods in a single pod group should have the same priority as the pod group's priority, got "
    "{0} and {1}",
)  # fmt: skip
GANG_INCOMPLETE: Final = _gang(
    "waiting for {0} pods of gang {1}: {2} exist", title="the gang is not complete"
)
COMPOSITE_INCOMPLETE: Final = _gang(
    "waiting for the pods of {0} groups of composite pod group {1}: those of {2} exist"
)
GROUPS_TOO_FEW: Final = _gang(
    "{0} of the {1} groups of composite pod group {2} have to fit at once and {3} do, {4} "
    "not", ClusterChange.ANY,
)  # fmt: skip
GROUP_EMPTY: Final = _gang("no pod of group {0} fits", ClusterChange.ANY)
GROUP_STARTED: Final = _gang(
    "group {0} starts without it: there is no more room where its pods may be", ClusterChange.ANY
)
NO_DOMAIN: Final = RefusalRule(
    "TopologyPlacementGenerator", "DRA075", "group {0} needs {1} pods in one {2}; {3} has room for "
    "{4}", ClusterChange.ANY, "no domain has room for the gang",
)  # fmt: skip
NO_DOMAIN_LABEL: Final = RefusalRule(
    "TopologyPlacementGenerator", "DRA075", "no usable node has label {0}, of which group {1} "
    "needs one value", _NODE,
)  # fmt: skip
GROUP_SPLIT: Final = RefusalRule(
    "TopologyPlacementGenerator", "DRA075", "group {0} needs one {1}, and its pods run in several: "
    "{2}", _PODS,
)  # fmt: skip

# --- outside the scheduling of one pod

OTHER_SCHEDULER: Final = RefusalRule("", "DRA070", "it is left to scheduler {0}")
POD_DELETED: Final = RefusalRule("", "DRA071", "the pod is being deleted")
NOMINATED: Final = RefusalRule(
    "DefaultPreemption", "DRA074", "{0} is nominated for it, once {1} has ended there"
)
BINDING_CONDITIONS: Final = _devices(
    "DRA072", "it waits on node {0} for conditions {1} of device {2}, allocated {3}"
)


def lifted_by(reasons: Iterable[Reason]) -> ClusterChange:
    """Return the changes of which each may lift one of several reasons."""
    found = 0
    for reason in reasons:
        found |= reason.lifted_by.value
    return ClusterChange(found)


def insufficient(resource: str) -> Reason:
    """Return that a node has too little of a resource, or too many pods."""
    return Reason(TOO_MANY_PODS) if resource == PODS else Reason(INSUFFICIENT, (resource,))


def unavailable(nodes: int, counts: Iterable[tuple[Reason, int]]) -> str:
    """Return kube-scheduler's sentence on nodes of which none can run a pod (FitError).

    >>> unavailable(3, [(insufficient("cpu"), 2), (Reason(CORDONED), 1)])
    '0/3 nodes are available: 1 node(s) were unschedulable, 2 Insufficient cpu.'
    """
    total: Counter[str] = Counter()
    for reason, count in counts:
        total[str(reason)] += count
    told = sorted(f"{count} {reason}" for reason, count in total.items())
    return f"0/{nodes} nodes are available: {', '.join(told)}."
