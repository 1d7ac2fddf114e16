"""Rows of the cluster itself: nodes, namespaces, storage, access, extensions, devices."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dralab.apiserver.http.tables.ages import NONE, UNKNOWN, UNSET, age, human, joined
from dralab.apiserver.http.tables.printers import Cells, name_of, printer
from dralab.kernel.clock import SECOND
from dralab.objects.conditions import condition_of
from dralab.objects.metadata import annotations_of, is_deleting, labels_of, spec_of, status_of
from dralab.objects.nodes import is_unschedulable
from dralab.values.json_types import JsonObject

ROLE = "node-role.kubernetes.io/"


def named(obj: JsonObject) -> Sequence[Any]:
    """Return the cells of a kind with nothing to show but its age."""
    return [name_of(obj), age(obj)]


def dated(obj: JsonObject) -> Sequence[Any]:
    """Return the cells of a kind without a printer of its own."""
    return [name_of(obj), obj["metadata"].get("creationTimestamp")]


def _with_age(*parts: Callable[[JsonObject], Any]) -> Cells:
    """Return cells: the name, some parts of the object, and its age."""

    def cells(obj: JsonObject) -> Sequence[Any]:
        return [
            name_of(obj),
            *(part(obj) for part in parts),
            age(obj),
        ]

    return cells


def _spec(name: str, absent: Any = "") -> Callable[[JsonObject], Any]:
    def part(obj: JsonObject) -> Any:
        value = spec_of(obj).get(name)
        return absent if value is None else value

    return part


def _top(name: str, absent: Any = "") -> Callable[[JsonObject], Any]:
    def part(obj: JsonObject) -> Any:
        value = obj.get(name)
        return absent if value is None else value

    return part


# --- Nodes and storage ------------------------------------------------------------------------


def _node(obj: JsonObject) -> Sequence[Any]:
    status = status_of(obj)
    info = status.get("nodeInfo") or {}
    addresses = status.get("addresses") or ()

    def address(type_: str) -> str:
        return next((a.get("address", "") for a in addresses if a.get("type") == type_), NONE)

    return [
        name_of(obj),
        _node_word(obj),
        joined(sorted(_roles(obj)), empty=NONE),
        age(obj),
        info.get("kubeletVersion", ""),
        address("InternalIP"),
        address("ExternalIP"),
        info.get("osImage") or UNKNOWN,
        info.get("kernelVersion") or UNKNOWN,
        info.get("containerRuntimeVersion") or UNKNOWN,
    ]


def _node_word(obj: JsonObject) -> str:
    ready = condition_of(obj, "Ready")
    word = "Unknown"
    if ready is not None:
        word = "Ready" if ready.get("status") == "True" else "NotReady"
    return f"{word},SchedulingDisabled" if is_unschedulable(obj) else word


def _roles(obj: JsonObject) -> set[str]:
    found = set()
    for key, value in labels_of(obj).items():
        if key.startswith(ROLE) and key != ROLE:
            found.add(key.removeprefix(ROLE))
        elif key == "kubernetes.io/role" and value:
            found.add(value)
    return found


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


def _claim(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    bound = bool(spec.get("volumeName"))
    return [
        name_of(obj),
        _phase(obj),
        spec.get("volumeName", ""),
        (status.get("capacity") or {}).get("storage", "") if bound else "",
        _modes(status.get("accessModes")) if bound else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or UNSET,
        age(obj),
        spec.get("volumeMode") or UNSET,
    ]


def _volume(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    claim = spec.get("claimRef")
    return [
        name_of(obj),
        (spec.get("capacity") or {}).get("storage", ""),
        _modes(spec.get("accessModes")),
        spec.get("persistentVolumeReclaimPolicy", ""),
        _phase(obj),
        f"{claim.get('namespace', '')}/{claim.get('name', '')}" if claim else "",
        spec.get("storageClassName") or "",
        spec.get("volumeAttributesClassName") or UNSET,
        status.get("reason", ""),
        age(obj),
        spec.get("volumeMode") or UNSET,
    ]


def _storage_class_name(obj: JsonObject) -> str:
    notes = annotations_of(obj)
    keys = ("storageclass.kubernetes.io/is-default-class",)
    default = any(notes.get(key) == "true" for key in keys)
    return f"{name_of(obj)} (default)" if default else name_of(obj)


def _storage_class(obj: JsonObject) -> Sequence[Any]:
    return [
        _storage_class_name(obj),
        obj.get("provisioner", ""),
        obj.get("reclaimPolicy") or "Delete",
        obj.get("volumeBindingMode") or "Immediate",
        bool(obj.get("allowVolumeExpansion")),
        age(obj),
    ]


def _csi_driver(obj: JsonObject) -> Sequence[Any]:
    spec = spec_of(obj)
    tokens = [request.get("audience", "") for request in spec.get("tokenRequests") or ()]
    return [
        name_of(obj),
        spec.get("attachRequired", True),
        bool(spec.get("podInfoOnMount")),
        bool(spec.get("storageCapacity")),
        joined(tokens, empty=UNSET),
        bool(spec.get("requiresRepublish")),
        joined(spec.get("volumeLifecycleModes") or (), empty=NONE),
        age(obj),
    ]


# --- Access and extensions --------------------------------------------------------------------


def _binding(obj: JsonObject) -> Sequence[Any]:
    role = obj.get("roleRef") or {}
    subjects: dict[str, list[str]] = {"User": [], "Group": [], "ServiceAccount": []}
    for subject in obj.get("subjects") or ():
        name = subject.get("name", "")
        if subject.get("kind") == "ServiceAccount":
            name = f"{subject.get('namespace', '')}/{name}"
        subjects.setdefault(subject.get("kind", ""), []).append(name)
    return [
        name_of(obj),
        f"{role.get('kind', '')}/{role.get('name', '')}",
        age(obj),
        *(joined(subjects[kind], by=", ") for kind in ("User", "Group", "ServiceAccount")),
    ]


def _signing_request(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    types = {item.get("type") for item in status.get("conditions") or ()}
    word = "Denied" if "Denied" in types else "Approved" if "Approved" in types else "Pending"
    word += ",Failed" if "Failed" in types else ""
    word += ",Issued" if status.get("certificate") else ""
    lasts = spec.get("expirationSeconds")
    return [
        name_of(obj),
        age(obj),
        spec.get("signerName") or NONE,
        spec.get("username", ""),
        human(lasts * SECOND) if lasts is not None else NONE,
        word,
    ]


def _count(*path: str) -> Callable[[JsonObject], Any]:
    def part(obj: JsonObject) -> Any:
        found: Any = obj
        for name in path:
            found = (found or {}).get(name)
        return len(found or ())

    return part


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


def _api_service(obj: JsonObject) -> Sequence[Any]:
    service = spec_of(obj).get("service")
    where = f"{service.get('namespace')}/{service.get('name')}" if service else "Local"
    available = condition_of(obj, "Available")
    word = UNKNOWN if available is None else str(available.get("status"))
    if available is not None and word != "True":
        word += f" ({available.get('reason', '')})"
    return [name_of(obj), where, word, age(obj)]


def _flow_schema(obj: JsonObject) -> Sequence[Any]:
    spec = spec_of(obj)
    method = (spec.get("distinguisherMethod") or {}).get("type") or NONE
    dangling = condition_of(obj, "Dangling")
    return [
        name_of(obj),
        (spec.get("priorityLevelConfiguration") or {}).get("name") or NONE,
        spec.get("matchingPrecedence", 0),
        method,
        age(obj),
        "?" if dangling is None else dangling.get("status", "?"),
    ]


def _priority_level(obj: JsonObject) -> Sequence[Any]:
    spec = spec_of(obj)
    limits: Mapping[str, Any] = spec.get("limited") or spec.get("exempt") or {}
    queuing = (limits.get("limitResponse") or {}).get("queuing") or {}
    return [
        name_of(obj),
        spec.get("type", ""),
        limits.get("nominalConcurrencyShares", NONE),
        queuing.get("queues", NONE),
        queuing.get("handSize", NONE),
        queuing.get("queueLengthLimit", NONE),
        age(obj),
    ]


def _component(obj: JsonObject) -> Sequence[Any]:
    for item in obj.get("conditions") or ():
        if item.get("type") == "Healthy":
            word = {"True": "Healthy", "False": "Unhealthy"}.get(item.get("status"), "Unknown")
            return [name_of(obj), word, item.get("message", ""), item.get("error", "")]
    return [name_of(obj), "Unknown", "", ""]


def _quota(obj: JsonObject) -> Sequence[Any]:
    hard, used = spec_of(obj).get("hard") or {}, status_of(obj).get("used") or {}
    requests: list[str] = []
    limits: list[str] = []
    for name in sorted(hard):
        text = f"{name}: {used.get(name, '0')}/{hard[name]}"
        (limits if name.startswith("limits.") else requests).append(text)
    return [name_of(obj), joined(requests, by=", "), joined(limits, by=", "), age(obj)]


def _priority_class(obj: JsonObject) -> Sequence[Any]:
    return [
        name_of(obj),
        obj.get("value", 0),
        bool(obj.get("globalDefault")),
        age(obj),
        obj.get("preemptionPolicy") or "",
    ]


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


def _pool(obj: JsonObject) -> str:
    return str((spec_of(obj).get("pool") or {}).get("name", ""))


AGE = printer("Name, Age", named)
CREATED = printer("Name, Created At@", dated)
BINDINGS = printer("Name, Role, Age, Users*, Groups*, ServiceAccounts*", _binding)
ADMISSION = "admissionregistration.k8s.io"
RBAC = "rbac.authorization.k8s.io"
DEVICES = "resource.k8s.io"
PRINTERS = {
    ("", "namespaces"): printer(
        "Name, Status, Age", _with_age(lambda o: status_of(o).get("phase", ""))
    ),
    ("", "nodes"): printer(
        "Name, Status, Roles, Age, Version, Internal-IP*, External-IP*, OS-Image*,"
        "Kernel-Version*, Container-Runtime*",
        _node,
    ),
    ("", "persistentvolumeclaims"): printer(
        "Name, Status, Volume, Capacity, Access Modes, StorageClass, VolumeAttributesClass, Age,"
        "VolumeMode*",
        _claim,
    ),
    ("", "persistentvolumes"): printer(
        "Name, Capacity, Access Modes, Reclaim Policy, Status, Claim, StorageClass,"
        "VolumeAttributesClass, Reason, Age, VolumeMode*",
        _volume,
    ),
    ("", "serviceaccounts"): AGE,
    ("", "limitranges"): CREATED,
    ("", "resourcequotas"): printer("Name, Request, Limit, Age", _quota),
    ("", "componentstatuses"): printer("Name, Status, Message, Error", _component),
    ("storage.k8s.io", "storageclasses"): printer(
        "Name, Provisioner, ReclaimPolicy, VolumeBindingMode, AllowVolumeExpansion, Age",
        _storage_class,
    ),
    ("storage.k8s.io", "csidrivers"): printer(
        "Name, AttachRequired?, PodInfoOnMount?, StorageCapacity?, TokenRequests,"
        "RequiresRepublish?, Modes, Age",
        _csi_driver,
    ),
    ("storage.k8s.io", "csinodes"): printer(
        "Name, Drivers#, Age", _with_age(_count("spec", "drivers"))
    ),
    ("storage.k8s.io", "csistoragecapacities"): CREATED,
    ("storage.k8s.io", "volumeattachments"): printer(
        "Name, Attacher, PV, Node, Attached?, Age",
        _with_age(
            _spec("attacher"),
            lambda o: (spec_of(o).get("source") or {}).get("persistentVolumeName") or "",
            _spec("nodeName"),
            lambda o: bool(status_of(o).get("attached")),
        ),
    ),
    ("storage.k8s.io", "volumeattributesclasses"): printer(
        "Name, DriverName, Age", _with_age(_top("driverName"))
    ),
    (RBAC, "roles"): CREATED,
    (RBAC, "clusterroles"): CREATED,
    (RBAC, "rolebindings"): BINDINGS,
    (RBAC, "clusterrolebindings"): BINDINGS,
    ("certificates.k8s.io", "certificatesigningrequests"): printer(
        "Name, Age, SignerName, Requestor, RequestedDuration, Condition", _signing_request
    ),
    (ADMISSION, "mutatingwebhookconfigurations"): printer(
        "Name, Webhooks#, Age", _with_age(_count("webhooks"))
    ),
    (ADMISSION, "validatingwebhookconfigurations"): printer(
        "Name, Webhooks#, Age", _with_age(_count("webhooks"))
    ),
    (ADMISSION, "validatingadmissionpolicies"): printer(
        "Name, Validations#, ParamKind, Age", _with_age(_count("spec", "validations"), _param_kind)
    ),
    (ADMISSION, "mutatingadmissionpolicies"): printer(
        "Name, Mutations#, ParamKind, Age", _with_age(_count("spec", "mutations"), _param_kind)
    ),
    (ADMISSION, "validatingadmissionpolicybindings"): printer(
        "Name, PolicyName, ParamRef, Age", _with_age(_spec("policyName"), _param_ref)
    ),
    (ADMISSION, "mutatingadmissionpolicybindings"): printer(
        "Name, PolicyName, ParamRef, Age", _with_age(_spec("policyName"), _param_ref)
    ),
    ("apiextensions.k8s.io", "customresourcedefinitions"): CREATED,
    ("apiregistration.k8s.io", "apiservices"): printer(
        "Name, Service, Available, Age", _api_service
    ),
    ("flowcontrol.apiserver.k8s.io", "flowschemas"): printer(
        "Name, PriorityLevel, MatchingPrecedence, DistinguisherMethod, Age, MissingPL",
        _flow_schema,
    ),
    ("flowcontrol.apiserver.k8s.io", "prioritylevelconfigurations"): printer(
        "Name, Type, NominalConcurrencyShares, Queues, HandSize, QueueLengthLimit, Age",
        _priority_level,
    ),
    ("scheduling.k8s.io", "priorityclasses"): printer(
        "Name, Value#, Global-Default?, Age, PreemptionPolicy", _priority_class
    ),
    ("coordination.k8s.io", "leases"): printer(
        "Name, Holder, Age", _with_age(_spec("holderIdentity"))
    ),
    ("node.k8s.io", "runtimeclasses"): printer("Name, Handler, Age", _with_age(_top("handler"))),
    (DEVICES, "resourceclaims"): printer("Name, State, Age", _with_age(_claim_state)),
    (DEVICES, "resourceslices"): printer(
        "Name, Node, Driver, Pool, Age", _with_age(_spec("nodeName"), _spec("driver"), _pool)
    ),
}
