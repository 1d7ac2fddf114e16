"""Rows of the kinds that releases after 1.32 added: pod groups, evictions, bundles, migrations.

Source: k8s.io/kubernetes 1.37 `pkg/printers/internalversion`.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from dralab.apiserver.http.tables.ages import NONE, UNSET, age, labels, since
from dralab.apiserver.http.tables.printers import Printer, name_of, printer
from dralab.objects.conditions import condition_of, condition_status, conditions_of
from dralab.objects.metadata import spec_of, status_of
from dralab.objects.pod_groups import least_of
from dralab.values.json_types import JsonObject

SCHEDULING: Final = "scheduling.k8s.io"
LIFECYCLE: Final = "lifecycle.k8s.io"
CERTIFICATES: Final = "certificates.k8s.io"


def _last_of(obj: JsonObject, types: Collection[str], otherwise: str, status: str = "") -> str:
    """Return the last condition of some types, and of a status if one is given."""
    found = [
        each["type"]
        for each in conditions_of(obj)
        if each["type"] in types and status in {"", each.get("status")}
    ]
    return found[-1] if found else otherwise


def _group(obj: JsonObject) -> list[str]:
    workload = (spec_of(obj).get("workloadRef") or {}).get("workloadName") or NONE
    return [name_of(obj), "Basic" if least_of(obj) is None else "Gang", workload]


def _pod_group(obj: JsonObject) -> Sequence[Any]:
    state = "Pending"
    if placed := condition_status(obj, "PodGroupInitiallyScheduled"):
        state = "Scheduled" if placed == "True" else "Unschedulable"
    if ended := condition_of(obj, "DisruptionTarget"):
        state = ended.get("reason", "")
    return [*_group(obj), state, age(obj)]


def _target(obj: JsonObject) -> list[str]:
    pod = (spec_of(obj).get("target") or {}).get("pod")
    return [UNSET, UNSET] if pod is None else [pod.get("name", ""), "Pod"]


def _ended(obj: JsonObject) -> str:
    for type_ in ("TargetEvicted", "Failed"):
        found = condition_of(obj, type_)
        if found is not None and found.get("status") == "True":
            return f"{type_} ({found.get('reason', '')})"
    return "Progressing" if status_of(obj).get("observedGeneration") else "Pending"


def _eviction_request(obj: JsonObject) -> Sequence[Any]:
    spec = spec_of(obj)
    asked = [spec.get("requester", ""), spec.get("intent", "")]
    return [name_of(obj), *_target(obj), _ended(obj), *asked, age(obj)]


def _pod_certificate(obj: JsonObject) -> Sequence[Any]:
    spec = spec_of(obj)
    names = ("podName", "serviceAccountName", "nodeName", "signerName")
    state = _last_of(obj, {"Issued", "Denied", "Failed"}, "Pending")
    more = labels(spec.get("unverifiedUserAnnotations"))
    return [name_of(obj), *(spec.get(name, "") for name in names), state, more]


def _migration(obj: JsonObject) -> Sequence[Any]:
    resource = spec_of(obj).get("resource") or {}
    text = ".".join(filter(None, (resource.get("resource"), resource.get("group"))))
    state = _last_of(obj, {"Running", "Failed", "Succeeded"}, "Unknown", "True")
    return [name_of(obj), text, state]


def _taint_rule(obj: JsonObject) -> Sequence[Any]:
    taint = spec_of(obj).get("taint") or {}
    parts = (taint.get(part, "") for part in ("key", "value", "effect"))
    added = taint.get("timeAdded")
    return [name_of(obj), *parts, since(added) if added else "", age(obj)]


def _definition(obj: JsonObject) -> Sequence[Any]:
    spec, names = spec_of(obj), spec_of(obj).get("names") or {}
    served = sorted(
        each["name"] + ("(storage)" if each.get("storage") else "")
        for each in spec.get("versions") or ()
        if each.get("served")
    )
    return [
        name_of(obj),
        spec.get("scope", ""),
        ",".join(served),
        obj["metadata"].get("creationTimestamp"),
        spec.get("group", ""),
        names.get("kind", ""),
        ",".join(names.get("shortNames") or ()),
        condition_status(obj, "Established") == "True",
    ]


# Of CustomResourceDefinitions where a release has WIDE_DEFINITIONS.
DEFINITIONS: Final = printer(
    "Name, Scope, Versions, Created At@, Group*, Kind*, ShortNames*, Established?*", _definition
)
PRINTERS: Final[Mapping[tuple[str, str], Printer]] = {
    (SCHEDULING, "podgroups"): printer("Name, Policy, Workload, Status, Age", _pod_group),
    (SCHEDULING, "compositepodgroups"): printer(
        "Name, Policy, Workload, Age", lambda obj: [*_group(obj), age(obj)]
    ),
    (LIFECYCLE, "evictionrequests"): printer(
        "Name, Target, Target Type, Status, Requester, Intent, Age", _eviction_request
    ),
    (CERTIFICATES, "clustertrustbundles"): printer(
        "Name, SignerName", lambda obj: [name_of(obj), spec_of(obj).get("signerName") or NONE]
    ),
    (CERTIFICATES, "podcertificaterequests"): printer(
        "Name, PodName, ServiceAccountName, NodeName, SignerName, State, UnverifiedUserAnnotations",
        _pod_certificate,
    ),
    ("coordination.k8s.io", "leasecandidates"): printer(
        "Name, LeaseName, BinaryVersion, EmulationVersion, Age",
        lambda obj: [
            name_of(obj),
            *(
                spec_of(obj).get(part, "")
                for part in ("leaseName", "binaryVersion", "emulationVersion")
            ),
            age(obj),
        ],
    ),
    ("resource.k8s.io", "devicetaintrules"): printer(
        "Name, Key, Value, Effect, TimeAdded, Age", _taint_rule
    ),
    ("storagemigration.k8s.io", "storageversionmigrations"): printer(
        "Name~, Resource, Status", _migration
    ),
}
