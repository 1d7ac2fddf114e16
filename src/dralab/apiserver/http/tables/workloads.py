"""Rows of workloads: deployments and the like, jobs, autoscalers, budgets."""

from collections.abc import Mapping, Sequence
from typing import Any

from dralab.apiserver.http.tables.ages import (
    NONE,
    UNKNOWN,
    UNSET,
    Elapsed,
    human,
    joined,
    labels,
    since,
    yes,
)
from dralab.apiserver.http.tables.ages import selector as query
from dralab.apiserver.http.tables.printers import Cell, printer
from dralab.kernel.clock import from_rfc3339
from dralab.objects.conditions import is_true
from dralab.objects.metadata import controller_of, is_deleting, spec_of, status_of
from dralab.values.json_types import JsonObject


def _containers(*path: str) -> Sequence[Cell]:
    """Return the cells of a template's containers: their names, and their images."""

    def cell(part: str) -> Cell:
        def shown(obj: JsonObject) -> str:
            found: Any = obj
            for step in (*path, "spec", "containers"):
                found = (found or {}).get(step)
            return joined([each.get(part, "") for each in found or ()])

        return shown

    return cell("name"), cell("image")


def _query(obj: JsonObject) -> str:
    return query(spec_of(obj).get("selector"))


def _selected(obj: JsonObject) -> str:
    plain = obj.get("kind") == "ReplicationController"
    return labels(spec_of(obj).get("selector")) if plain else _query(obj)


def _ready(obj: JsonObject) -> str:
    return f"{status_of(obj).get('readyReplicas', 0)}/{spec_of(obj).get('replicas', 0)}"


def _node_labels(obj: JsonObject) -> str:
    return labels(spec_of(spec_of(obj).get("template") or {}).get("nodeSelector"))


def _owner(obj: JsonObject) -> str:
    reference = controller_of(obj)
    if reference is None:
        return NONE
    group = reference.get("apiVersion", "").rpartition("/")[0]
    kind = reference.get("kind", "").lower()
    return f"{kind}.{group}/{reference['name']}" if group else f"{kind}/{reference['name']}"


JOB_WORDS = (("Complete", "Complete"), ("Failed", "Failed"))
JOB_LATER_WORDS = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _job_word(obj: JsonObject) -> str:
    for condition, word in JOB_WORDS:
        if is_true(obj, condition):
            return word
    if is_deleting(obj):
        return "Terminating"
    return next((word for word in JOB_LATER_WORDS if is_true(obj, word)), "Running")


def _completions(obj: JsonObject) -> str:
    spec, done = spec_of(obj), status_of(obj).get("succeeded", 0)
    if spec.get("completions") is not None:
        return f"{done}/{spec['completions']}"
    if (spec.get("parallelism") or 0) > 1:
        return f"{done}/1 of {spec['parallelism']}"
    return f"{done}/1"


def _duration(obj: JsonObject) -> Elapsed | str:
    status = status_of(obj)
    if not status.get("startTime"):
        return ""
    began, end = from_rfc3339(status["startTime"]), status.get("completionTime")
    return human(from_rfc3339(end) - began) if end else Elapsed(began)


def _last_schedule(obj: JsonObject) -> Elapsed | str:
    last = status_of(obj).get("lastScheduleTime")
    return since(last) if last else NONE


def _job_query(obj: JsonObject) -> str:
    return _query(spec_of(obj).get("jobTemplate") or {})


def _scaled(obj: JsonObject) -> str:
    target = spec_of(obj).get("scaleTargetRef") or {}
    return f"{target.get('kind', '')}/{target.get('name', '')}"


def _least(obj: JsonObject) -> str:
    least = spec_of(obj).get("minReplicas")
    return str(least) if least is not None else UNSET


def _targets(obj: JsonObject) -> str:
    spec, status = spec_of(obj), status_of(obj)
    if "targetCPUUtilizationPercentage" in spec:
        now = status.get("currentCPUUtilizationPercentage")
        current = UNKNOWN if now is None else f"{now}%"
        return f"cpu: {current}/{spec['targetCPUUtilizationPercentage']}%"
    known = status.get("currentMetrics") or ()
    found = []
    for number, metric in enumerate(spec.get("metrics") or ()):
        now = known[number] if number < len(known) else {}
        found.append(_target(metric, now))
    return joined(found, most=2, empty="<none>", by=", ")


SOURCES = {
    "External": "external",
    "Pods": "pods",
    "Object": "object",
    "Resource": "resource",
    "ContainerResource": "containerResource",
}


def _target(metric: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    """Return one metric as CURRENT/TARGET."""
    field = SOURCES.get(metric.get("type", ""), "")
    wanted = (metric.get(field) or {}).get("target") or {}
    current = (now.get(field) or {}).get("current") or {}
    average = " (avg)" if field in {"external", "object"} else ""
    name = (metric.get(field) or {}).get("name")
    prefix = f"{name}: " if field in {"resource", "containerResource"} else ""
    if wanted.get("averageUtilization") is not None:
        used = current.get("averageUtilization")
        shown = UNKNOWN if used is None else f"{used}%"
        return f"{prefix}{shown}/{wanted['averageUtilization']}%"
    if wanted.get("averageValue") is not None:
        return f"{prefix}{current.get('averageValue', UNKNOWN)}/{wanted['averageValue']}{average}"
    return f"{prefix}{current.get('value', UNKNOWN)}/{wanted.get('value', UNKNOWN)}"


TEMPLATE = _containers("spec", "template")
RUN = "Containers*, Images*"
REPLICAS = printer(
    "Name, Desired#: spec.replicas=0, Current#: status.replicas=0, Ready#: status.readyReplicas=0,"
    f"Age, {RUN}, Selector*",
    *TEMPLATE,
    _selected,
)
PRINTERS = {
    ("", "replicationcontrollers"): REPLICAS,
    ("apps", "replicasets"): REPLICAS,
    ("apps", "deployments"): printer(
        "Name, Ready, Up-to-date: status.updatedReplicas=0,"
        f"Available: status.availableReplicas=0, Age, {RUN}, Selector*",
        _ready,
        *TEMPLATE,
        _query,
    ),
    ("apps", "statefulsets"): printer(f"Name, Ready, Age, {RUN}", _ready, *TEMPLATE),
    ("apps", "daemonsets"): printer(
        "Name, Desired#: status.desiredNumberScheduled=0,"
        "Current#: status.currentNumberScheduled=0, Ready#: status.numberReady=0,"
        "Up-to-date#: status.updatedNumberScheduled=0, Available#: status.numberAvailable=0,"
        f"Node Selector, Age, {RUN}, Selector*",
        _node_labels,
        *TEMPLATE,
        _query,
    ),
    ("apps", "controllerrevisions"): printer("Name, Controller, Revision: revision=0, Age", _owner),
    ("", "podtemplates"): printer(
        "Name, Containers, Images, Pod Labels",
        *_containers("template"),
        lambda obj: labels(((obj.get("template") or {}).get("metadata") or {}).get("labels")),
    ),
    ("batch", "jobs"): printer(
        f"Name, Status, Completions, Duration, Age, {RUN}, Selector*",
        _job_word,
        _completions,
        _duration,
        *TEMPLATE,
        _query,
    ),
    ("batch", "cronjobs"): printer(
        "Name, Schedule: spec.schedule, Timezone: spec.timeZone|<none>, Suspend?,"
        f"Active#: #status.active, Last Schedule, Age, {RUN}, Selector*",
        lambda obj: yes(spec_of(obj).get("suspend")),
        _last_schedule,
        *_containers("spec", "jobTemplate", "spec", "template"),
        _job_query,
    ),
    ("autoscaling", "horizontalpodautoscalers"): printer(
        "Name, Reference, Targets, MinPods, MaxPods: spec.maxReplicas=0,"
        "Replicas: status.currentReplicas=0, Age",
        _scaled,
        _targets,
        _least,
    ),
    ("policy", "poddisruptionbudgets"): printer(
        "Name, Min Available, Max Unavailable,"
        "Allowed Disruptions#: status.disruptionsAllowed=0, Age",
        lambda obj: str(spec_of(obj).get("minAvailable", "N/A")),
        lambda obj: str(spec_of(obj).get("maxUnavailable", "N/A")),
    ),
}
