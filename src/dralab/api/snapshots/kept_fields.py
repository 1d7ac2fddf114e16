"""What a snapshot keeps of each object: the fields by which pods get nodes and devices.

A list of what is kept, not of what is left out: Secrets, environment values, commands, images, what
volumes are made of, addresses, annotations, configuration of devices and whatever a newer
Kubernetes adds stay behind, because they are not needed here.
"""

from collections.abc import Mapping
from typing import Any, Final

from dralab.values.json_types import JsonDict

EVERYTHING: Final = True
Kept = Mapping[str, Any]
"""Fields to keep: EVERYTHING below one, or the fields of the mapping (or of each list item)."""

MIRROR: Final = "kubernetes.io/config.mirror"
ENTRY: Final = "resource.kubernetes.io/pod-claim-name"
BOUND: Final = "pv.kubernetes.io/bind-completed"
CLASS: Final = "volume.beta.kubernetes.io/storage-class"
METADATA: Final[Kept] = {
    "name": EVERYTHING,
    "namespace": EVERYTHING,
    "uid": EVERYTHING,
    "creationTimestamp": EVERYTHING,
    "deletionTimestamp": EVERYTHING,
    "labels": EVERYTHING,
    "finalizers": EVERYTHING,
    "annotations": dict.fromkeys((MIRROR, ENTRY, BOUND, CLASS), EVERYTHING),
    "ownerReferences": EVERYTHING,
}
CONTAINER: Final[Kept] = {
    "name": EVERYTHING,
    "resources": EVERYTHING,
    "restartPolicy": EVERYTHING,  # a sidecar counts for as long as its pod runs
    # A port without containerPort is not valid: the pod could not be made anew.
    "ports": dict.fromkeys(("containerPort", "hostPort", "hostIP", "protocol"), EVERYTHING),
}
POD_SPEC: Final[Kept] = {
    "activeDeadlineSeconds": EVERYTHING,
    "affinity": EVERYTHING,
    "containers": CONTAINER,
    "deviceClaims": EVERYTHING,  # k8srm
    "initContainers": CONTAINER,
    "nodeName": EVERYTHING,
    "nodeSelector": EVERYTHING,
    "overhead": EVERYTHING,
    "preemptionPolicy": EVERYTHING,
    "priority": EVERYTHING,
    "priorityClassName": EVERYTHING,
    "resourceClaims": EVERYTHING,
    "resources": EVERYTHING,
    "restartPolicy": EVERYTHING,
    "schedulerName": EVERYTHING,
    "schedulingGates": EVERYTHING,
    "schedulingGroup": EVERYTHING,
    "terminationGracePeriodSeconds": EVERYTHING,
    "tolerations": EVERYTHING,
    "topologySpreadConstraints": EVERYTHING,
    "volumes": {
        "name": EVERYTHING,
        "persistentVolumeClaim": {"claimName": EVERYTHING},
        "ephemeral": {"volumeClaimTemplate": {"spec": EVERYTHING}},
    },
}
VOLUME: Final[Kept] = dict.fromkeys(
    ("accessModes", "capacity", "nodeAffinity", "resources", "selector", "storageClassName",
     "volumeMode", "volumeName"), EVERYTHING,
) | {"claimRef": {"namespace": EVERYTHING, "name": EVERYTHING, "uid": EVERYTHING}}  # fmt: skip
"""What is kept of volumes and of claims for them: not where their data is."""
CONDITION: Final[Kept] = {
    "type": EVERYTHING,
    "status": EVERYTHING,
    "reason": EVERYTHING,
    "lastTransitionTime": EVERYTHING,
}
CLAIM_SPEC: Final[Kept] = {"devices": {"requests": EVERYTHING, "constraints": EVERYTHING}}
ALLOCATION: Final[Kept] = {
    "devices": {"results": EVERYTHING},
    "nodeSelector": EVERYTHING,
    "allocationTimestamp": EVERYTHING,
}
KINDS: Final[Mapping[str, Kept]] = {
    "DeviceClass": {"spec": {"selectors": EVERYTHING, "extendedResourceName": EVERYTHING}},
    "DeviceTaintRule": {"spec": EVERYTHING},
    "Node": {
        "spec": {"taints": EVERYTHING, "unschedulable": EVERYTHING},
        "status": {
            "allocatable": EVERYTHING,
            "capacity": EVERYTHING,
            "conditions": CONDITION,
            "declaredFeatures": EVERYTHING,
            "nodeInfo": {"kubeletVersion": EVERYTHING},
        },
    },
    "PersistentVolume": {"spec": VOLUME, "status": {"phase": EVERYTHING}},
    "PersistentVolumeClaim": {"spec": VOLUME, "status": {"phase": EVERYTHING}},
    "Pod": {
        "spec": POD_SPEC,
        "status": {
            "conditions": CONDITION,
            "extendedResourceClaimStatus": EVERYTHING,
            "nominatedNodeName": EVERYTHING,
            "phase": EVERYTHING,
            "resourceClaimStatuses": EVERYTHING,
            "startTime": EVERYTHING,
        },
    },
    "PodDisruptionBudget": {
        "spec": EVERYTHING,
        "status": {
            "currentHealthy": EVERYTHING,
            "desiredHealthy": EVERYTHING,
            "disruptionsAllowed": EVERYTHING,
            "expectedPods": EVERYTHING,
            "observedGeneration": EVERYTHING,
        },
    },
    "PodGroup": {"spec": EVERYTHING},
    "PriorityClass": {
        "value": EVERYTHING,
        "globalDefault": EVERYTHING,
        "preemptionPolicy": EVERYTHING,
    },
    "ResourceClaim": {
        "spec": CLAIM_SPEC,
        "status": {
            "allocation": ALLOCATION,
            "devices": {
                "driver": EVERYTHING,
                "pool": EVERYTHING,
                "device": EVERYTHING,
                "shareID": EVERYTHING,
                "conditions": CONDITION,
            },
            "reservedFor": EVERYTHING,
        },
    },
    "ResourceClaimTemplate": {"spec": {"spec": CLAIM_SPEC}},
    "ResourceQuota": {"spec": dict.fromkeys(("hard", "scopes", "scopeSelector"), EVERYTHING)},
    "ResourceSlice": {"spec": EVERYTHING},
    "StorageClass": {
        "provisioner": EVERYTHING,
        "volumeBindingMode": EVERYTHING,
        "allowedTopologies": EVERYTHING,
    },
}


def kept(obj: JsonDict) -> JsonDict | None:
    """Return what a snapshot keeps of an object; None for kinds that it does not keep.

    >>> container = {"name": "c", "env": [{"name": "TOKEN", "value": "secret"}]}
    >>> pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [container]}}
    >>> kept(pod | {"metadata": {"name": "p"}})["spec"]
    {'containers': [{'name': 'c'}]}
    >>> kept({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}}) is None
    True
    """
    fields = KINDS.get(obj["kind"])
    if fields is None:
        return None
    always = {"apiVersion": EVERYTHING, "kind": EVERYTHING, "metadata": METADATA}
    found: JsonDict = _part(obj, {**always, **fields})
    if volumes := (found.get("spec") or {}).get("volumes"):
        # Of a volume that is not a claim only its name is left, which decides nothing.
        found["spec"]["volumes"] = [each for each in volumes if len(each) > 1]
    return found


def _part(value: Any, fields: Any) -> Any:
    if fields is EVERYTHING:
        return value
    if isinstance(value, list):
        return [_part(item, fields) for item in value]
    if not isinstance(value, dict):
        return None
    found = {}
    for name, below in fields.items():
        if value.get(name) is not None:
            part = _part(value[name], below)
            if part is not None and (part != {} or value[name] == {}):
                found[name] = part
    return found
