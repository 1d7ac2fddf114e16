"""Rows of the cluster itself: nodes, namespaces, storage, access, extensions, devices."""

from collections.abc import Sequence
from typing import Any

from dralab.apiserver.http.tables.ages import NONE, UNKNOWN, UNSET, human, joined
from dralab.apiserver.http.tables.printers import Cell, name_of, printer
from dralab.kernel.clock import SECOND
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import annotations_of, is_deleting, labels_of, spec_of, status_of
from dralab.objects.nodes import is_unschedulable
from dralab.values.json_types import JsonObject

ROLE = "node-role.kubernetes.io/"


# --- Nodes and storage ------------------------------------------------------------------------


def _address(type_: str) -> Cell:
    def cell(obj: JsonObject) -> str:
        addresses = status_of(obj).get("addresses") or ()
        return next((a.get("address", "") for a in addresses if a.get("type") == type_), NONE)

    return cell


def _node_word(obj: JsonObject) -> str:
    ready = condition_of(obj, "Ready")
    word = "Unknown"
    if ready is not None:
        word = "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if is_unschedulable(obj) else word


def _roles(obj: JsonObject) -> str:
    found = set()
    for key, value in labels_of(obj).items():
        if key.startswith(ROLE) and key != ROLE:
            found.add(key.removeprefix(ROLE))
        elif key == "kubernetes.io/role" and value:
            found.add(value)
    return joined(sorted(found), empty=NONE)


MODES = {
    "ReadWriteOnce": "RWO",
    "ReadOnlyMany": "ROX",
    "ReadWriteMany": "RWX",
    "ReadWriteOncePod": "RWOP",
}


def _modes(found: Sequence[str] | None) -> str:
    return joined([short for mode, short in MODES.items() if mode in (found or ())])


def _phase(obj: JsonObject) -> str:
    if is_deleting(obj):
        return "Terminating"
    return str(status_of(obj).get("phase", ""))


def _bound(obj: JsonObject) -> JsonObject:
    """Return the status of a claim that has a volume."""
    return status_of(obj) if spec_of(obj).get("volumeName") else {}


def _volume_claim(obj: JsonObject) -> str:
    claim = spec_of(obj).get("claimRef")
    return f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else ""


def _storage_class_name(obj: JsonObject) -> str:
    notes = annotations_of(obj)
    keys = ("storageclass.kubernetes.io/is-default-class",)
    default = any(notes.get(key) == "true" for key in keys)
    return f"{name_of(obj)} (default)" if default else name_of(obj)


# --- Access and extensions --------------------------------------------------------------------


def _role(obj: JsonObject) -> str:
    role = obj.get("roleRef") or {}
    return f"{role.get('kind', '')}/{role.get('name', '')}"


def _subjects(kind: str) -> Cell:
    def cell(obj: JsonObject) -> str:
        found = []
        for subject in obj.get("subjects") or ():
            if subject.get("kind", "") == kind:
                name = subject.get("name", "")
                account = kind == "ServiceAccount"
                found.append(f"{subject.get('namespace', '')}/{name}" if account else name)
        return joined(found, by=", ")

    return cell


def _requested(obj: JsonObject) -> str:
    lasts = spec_of(obj).get("expirationSeconds")
    return human(lasts * SECOND) if lasts is not None else NONE


def _decided(obj: JsonObject) -> str:
    status = status_of(obj)
    types = {item.get("type") for item in status.get("conditions") or ()}
    word = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    word += ",Failed" if "Failed" in types else ""
    return word + (",Issued" if status.get("certificate") else "")


def _param_kind(obj: JsonObject) -> str:
    kind = spec_of(obj).get("paramKind")
    return f"{kind.get('apiVersion', '')}/{kind.get('kind', '')}" if kind else UNSET


def _param_ref(obj: JsonObject) -> str:
    reference = spec_of(obj).get("paramRef")
    if not reference:
        return UNSET
    name = reference.get("name") or "*"
    namespace = reference.get("namespace")
    return f"{namespace}/{name}" if namespace else str(name)


def _service(obj: JsonObject) -> str:
    service = spec_of(obj).get("service")
    return f"{service.get('namespace')}/{service.get('name')}" if service else "Local"


def _available(obj: JsonObject) -> str:
    available = condition_of(obj, "Available")
    word = UNKNOWN if available is None else str(available.get("status"))
    if available is not None and word != "True":
        word += f" ({available.get('reason', '')})"
    return word


def _dangling(obj: JsonObject) -> str:
    dangling = condition_of(obj, "Dangling")
    return "?" if dangling is None else str(dangling.get("status", "?"))


def _limits(*path: str) -> Cell:
    def cell(obj: JsonObject) -> Any:
        spec = spec_of(obj)
        found = spec.get("limited") or spec.get("exempt") or {}
        for part in path[:-1]:
            found = found.get(part) or {}
        return found.get(path[-1], NONE)

    return cell


def _healthy(obj: JsonObject) -> JsonObject:
    conditions = obj.get("conditions") or ()
    return next((item for item in conditions if item.get("type") == "Healthy"), {})


def _health(obj: JsonObject) -> str:
    words = {"True": "Healthy", "False": "Unhealthy"}
    return words.get(_healthy(obj).get("status", ""), "Unknown")


def _used(*, limits: bool) -> Cell:
    def cell(obj: JsonObject) -> str:
        hard, used = spec_of(obj).get("hard") or {}, status_of(obj).get("used") or {}
        names = [name for name in sorted(hard) if name.startswith("limits.") is limits]
        return joined([f"{name}: {used.get(name, '0')}/{hard[name]}" for name in names], by=", ")

    return cell


# --- Devices ------------------------------------------------------------------------------------


def _claim_state(obj: JsonObject) -> str:
    """Return what is known of a resource claim; source: `resourceClaimState` upstream."""
    status = status_of(obj)
    deleted = is_deleting(obj)
    words = ["deleted"] if deleted else []
    if status.get("allocation") is None:
        words += [] if deleted else ["pending"]
    else:
        words.append("allocated")
        if status.get("reservedFor"):
            words.append("reserved")
    return ",".join(words)


AGE = printer("Name, Age")
CREATED = printer("Name, Created At@")
BINDINGS = printer(
    "Name, Role, Age, Users*, Groups*, ServiceAccounts*",
    _role,
    *map(_subjects, ("User", "Group", "ServiceAccount")),
)
ADMISSION = "admissionregistration.k8s.io"
RBAC = "rbac.authorization.k8s.io"
DEVICES = "resource.k8s.io"
WEBHOOKS = printer("Name, Webhooks#: #webhooks, Age")
POLICY_BINDINGS = printer("Name, PolicyName: spec.policyName, ParamRef, Age", _param_ref)
QUEUING = ("limitResponse", "queuing")
PRINTERS = {
    ("", "namespaces"): printer("Name, Status: status.phase, Age"),
    ("", "nodes"): printer(
        "Name, Status, Roles, Age, Version: status.nodeInfo.kubeletVersion, Internal-IP*,"
        "External-IP*, OS-Image*: status.nodeInfo.osImage|<unknown>,"
        "Kernel-Version*: status.nodeInfo.kernelVersion|<unknown>,"
        "Container-Runtime*: status.nodeInfo.containerRuntimeVersion|<unknown>",
        _node_word,
        _roles,
        _address("InternalIP"),
        _address("ExternalIP"),
    ),
    ("", "persistentvolumeclaims"): printer(
        "Name, Status, Volume: spec.volumeName, Capacity, Access Modes,"
        "StorageClass: spec.storageClassName|,"
        "VolumeAttributesClass: spec.volumeAttributesClassName|<unset>, Age,"
        "VolumeMode*: spec.volumeMode|<unset>",
        _phase,
        lambda obj: (_bound(obj).get("capacity") or {}).get("storage", ""),
        lambda obj: _modes(_bound(obj).get("accessModes")),
    ),
    ("", "persistentvolumes"): printer(
        "Name, Capacity: spec.capacity.storage, Access Modes,"
        "Reclaim Policy: spec.persistentVolumeReclaimPolicy, Status, Claim,"
        "StorageClass: spec.storageClassName|,"
        "VolumeAttributesClass: spec.volumeAttributesClassName|<unset>, Reason: status.reason, Age,"
        "VolumeMode*: spec.volumeMode|<unset>",
        lambda obj: _modes(spec_of(obj).get("accessModes")),
        _phase,
        _volume_claim,
    ),
    ("", "serviceaccounts"): AGE,
    ("", "limitranges"): CREATED,
    ("", "resourcequotas"): printer(
        "Name, Request, Limit, Age", _used(limits=False), _used(limits=True)
    ),
    ("", "componentstatuses"): printer(
        "Name, Status, Message, Error",
        _health,
        lambda obj: _healthy(obj).get("message", ""),
        lambda obj: _healthy(obj).get("error", ""),
    ),
    ("storage.k8s.io", "storageclasses"): printer(
        "Name, Provisioner: provisioner, ReclaimPolicy: reclaimPolicy|Delete,"
        "VolumeBindingMode: volumeBindingMode|Immediate,"
        "AllowVolumeExpansion: ?allowVolumeExpansion, Age",
        name=_storage_class_name,
    ),
    ("storage.k8s.io", "csidrivers"): printer(
        "Name, AttachRequired?, PodInfoOnMount?: ?spec.podInfoOnMount,"
        "StorageCapacity?: ?spec.storageCapacity, TokenRequests,"
        "RequiresRepublish?: ?spec.requiresRepublish, Modes, Age",
        lambda obj: spec_of(obj).get("attachRequired", True),
        lambda obj: joined(
            [each.get("audience", "") for each in spec_of(obj).get("tokenRequests") or ()],
            empty=UNSET,
        ),
        lambda obj: joined(spec_of(obj).get("volumeLifecycleModes") or (), empty=NONE),
    ),
    ("storage.k8s.io", "csinodes"): printer("Name, Drivers#: #spec.drivers, Age"),
    ("storage.k8s.io", "csistoragecapacities"): CREATED,
    ("storage.k8s.io", "volumeattachments"): printer(
        "Name, Attacher: spec.attacher, PV: spec.source.persistentVolumeName|, Node: spec.nodeName,"
        "Attached?: ?status.attached, Age"
    ),
    ("storage.k8s.io", "volumeattributesclasses"): printer("Name, DriverName: driverName, Age"),
    (RBAC, "roles"): CREATED,
    (RBAC, "clusterroles"): CREATED,
    (RBAC, "rolebindings"): BINDINGS,
    (RBAC, "clusterrolebindings"): BINDINGS,
    ("certificates.k8s.io", "certificatesigningrequests"): printer(
        "Name, Age, SignerName: spec.signerName|<none>, Requestor: spec.username,"
        "RequestedDuration, Condition",
        _requested,
        _decided,
    ),
    (ADMISSION, "mutatingwebhookconfigurations"): WEBHOOKS,
    (ADMISSION, "validatingwebhookconfigurations"): WEBHOOKS,
    (ADMISSION, "validatingadmissionpolicies"): printer(
        "Name, Validations#: #spec.validations, ParamKind, Age", _param_kind
    ),
    (ADMISSION, "mutatingadmissionpolicies"): printer(
        "Name, Mutations#: #spec.mutations, ParamKind, Age", _param_kind
    ),
    (ADMISSION, "validatingadmissionpolicybindings"): POLICY_BINDINGS,
    (ADMISSION, "mutatingadmissionpolicybindings"): POLICY_BINDINGS,
    ("apiextensions.k8s.io", "customresourcedefinitions"): CREATED,
    ("apiregistration.k8s.io", "apiservices"): printer(
        "Name, Service, Available, Age", _service, _available
    ),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): printer(
        "Name, PriorityLevel: spec.priorityLevelConfiguration.name|<none>,"
        "MatchingPrecedence: spec.matchingPrecedence=0,"
        "DistinguisherMethod: spec.distinguisherMethod.type|<none>, Age, MissingPL",
        _dangling,
    ),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): printer(
        "Name, Type: spec.type, NominalConcurrencyShares, Queues, HandSize, QueueLengthLimit, Age",
        _limits("nominalConcurrencyShares"),
        *(_limits(*QUEUING, part) for part in ("queues", "handSize", "queueLengthLimit")),
    ),
    ("scheduling.k8s.io", "priorityclasses"): printer(
        "Name, Value#: value=0, Global-Default?: ?globalDefault, Age,"
        "PreemptionPolicy: preemptionPolicy|"
    ),
    ("coordination.k8s.io", "leases"): printer("Name, Holder: spec.holderIdentity, Age"),
    ("node.k8s.io", "runtimeclasses"): printer("Name, Handler: handler, Age"),
    (DEVICES, "resourceclaims"): printer("Name, State, Age", _claim_state),
    (DEVICES, "resourceslices"): printer(
        "Name, Node: spec.nodeName, Driver: spec.driver, Pool: spec.pool.name, Age"
    ),
}
