"""Rows of the kinds that releases after 1.32 added: pod groups, evictions, bundles, migrations.

Source: k8s.io/kubernetes 1.37 `pkg/printers/internalversion`.
"""

from collections.abc import Collection, Mapping
from typing import Final

from dralab.apiserver.http.tables.ages import UNSET, Elapsed, labels, since
from dralab.apiserver.http.tables.printers import Printer, printer
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


def _policy(obj: JsonObject) -> str:
    return "Basic" if least_of(obj) is None else "Gang"


def _placed(obj: JsonObject) -> str:
    state = "Pending"
    if placed := condition_status(obj, "PodGroupInitiallyScheduled"):
        state = "Scheduled" if placed == "True" else "Unschedulable"
    ended = condition_of(obj, "DisruptionTarget")
    return ended.get("reason", "") if ended else state


def _pod(obj: JsonObject) -> JsonObject | None:
    return (spec_of(obj).get("target") or {}).get("pod")


def _target(obj: JsonObject) -> str:
    pod = _pod(obj)
    return UNSET if pod is None else pod.get("name", "")


def _ended(obj: JsonObject) -> str:
    for type_ in ("TargetEvicted", "Failed"):
        found = condition_of(obj, type_)
        if found is not None and found.get("status") == "True":
            return f"{type_} ({found.get('reason', '')})"
    return "Progressing" if status_of(obj).get("observedGeneration") else "Pending"


def _certificate(obj: JsonObject) -> str:
    return _last_of(obj, {"Issued", "Denied", "Failed"}, "Pending")


def _migrated(obj: JsonObject) -> str:
    resource = spec_of(obj).get("resource") or {}
    return ".".join(filter(None, (resource.get("resource"), resource.get("group"))))


def _migration(obj: JsonObject) -> str:
    return _last_of(obj, {"Running", "Failed", "Succeeded"}, "Unknown", "True")


def _added(obj: JsonObject) -> Elapsed | str:
    added = (spec_of(obj).get("taint") or {}).get("timeAdded")
    return since(added) if added else ""


def _served(obj: JsonObject) -> str:
    return ",".join(
        sorted(
            each["name"] + ("(storage)" if each.get("storage") else "")
            for each in spec_of(obj).get("versions") or ()
            if each.get("served")
        )
    )


# Of CustomResourceDefinitions where a release has WIDE_DEFINITIONS.
DEFINITIONS: Final = printer(
    "Name, Scope: spec.scope, Versions, Created At@, Group*: spec.group, Kind*: spec.names.kind,"
    "ShortNames*, Established?*",
    _served,
    lambda obj: ",".join((spec_of(obj).get("names") or {}).get("shortNames") or ()),
    lambda obj: condition_status(obj, "Established") == "True",
)
GROUP: Final = "Name, Policy, Workload: spec.workloadRef.workloadName|<none>"
PRINTERS: Final[Mapping[tuple[str, str], Printer]] = {
    (SCHEDULING, "podgroups"): printer(f"{GROUP}, Status, Age", _policy, _placed),
    (SCHEDULING, "compositepodgroups"): printer(f"{GROUP}, Age", _policy),
    (LIFECYCLE, "evictionrequests"): printer(
        "Name, Target, Target Type, Status, Requester: spec.requester, Intent: spec.intent, Age",
        _target,
        lambda obj: UNSET if _pod(obj) is None else "Pod",
        _ended,
    ),
    (CERTIFICATES, "clustertrustbundles"): printer("Name, SignerName: spec.signerName|<none>"),
    (CERTIFICATES, "podcertificaterequests"): printer(
        "Name, PodName: spec.podName, ServiceAccountName: spec.serviceAccountName,"
        "NodeName: spec.nodeName, SignerName: spec.signerName, State, UnverifiedUserAnnotations",
        _certificate,
        lambda obj: labels(spec_of(obj).get("unverifiedUserAnnotations")),
    ),
    ("coordination.k8s.io", "leasecandidates"): printer(
        "Name, LeaseName: spec.leaseName, BinaryVersion: spec.binaryVersion,"
        "EmulationVersion: spec.emulationVersion, Age"
    ),
    ("resource.k8s.io", "devicetaintrules"): printer(
        "Name, Key: spec.taint.key, Value: spec.taint.value, Effect: spec.taint.effect, TimeAdded,"
        "Age",
        _added,
    ),
    ("storagemigration.k8s.io", "storageversionmigrations"): printer(
        "Name~, Resource, Status", _migrated, _migration
    ),
}
