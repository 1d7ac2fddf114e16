"""Rows of workloads: deployments and the like, jobs, autoscalers, budgets."""

from collections.abc import Mapping, Sequence
from typing import Any

from dralab.apiserver.http.tables.ages import (
    NONE,
    UNKNOWN,
    UNSET,
    Elapsed,
    age,
    human,
    joined,
    labels,
    since,
    yes,
)
from dralab.apiserver.http.tables.ages import selector as query
from dralab.apiserver.http.tables.printers import name_of, printer
from dralab.kernel.clock import from_rfc3339
from dralab.objects.conditions import is_true
from dralab.objects.metadata import controller_of, is_deleting, spec_of, status_of
from dralab.values.json_types import JsonObject


def _containers(template: Mapping[str, Any] | None) -> list[str]:
    found = ((template or {}).get("spec") or {}).get("containers") or ()
    return [joined([c.get("name", "") for c in found]), joined([c.get("image", "") for c in found])]


def _replicas(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    chosen = spec.get("selector")
    plain = obj.get("kind") == "ReplicationController"
    return [
        name_of(obj),
        spec.get("replicas", 0),
        status.get("replicas", 0),
        status.get("readyReplicas", 0),
        age(obj),
        *_containers(spec.get("template")),
        labels(chosen) if plain else query(chosen),
    ]


def _deployment(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    return [
        name_of(obj),
        f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}",
        status.get("updatedReplicas", 0),
        status.get("availableReplicas", 0),
        age(obj),
        *_containers(spec.get("template")),
        query(spec.get("selector")),
    ]


def _stateful_set(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    ready = f"{status.get('readyReplicas', 0)}/{spec.get('replicas', 0)}"
    return [name_of(obj), ready, age(obj), *_containers(spec.get("template"))]


def _daemon_set(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    template = spec.get("template") or {}
    return [
        name_of(obj),
        status.get("desiredNumberScheduled", 0),
        status.get("currentNumberScheduled", 0),
        status.get("numberReady", 0),
        status.get("updatedNumberScheduled", 0),
        status.get("numberAvailable", 0),
        labels(spec_of(template).get("nodeSelector")),
        age(obj),
        *_containers(template),
        query(spec.get("selector")),
    ]


def _revision(obj: JsonObject) -> Sequence[Any]:
    owner, reference = NONE, controller_of(obj)
    if reference is not None:
        group = reference.get("apiVersion", "").rpartition("/")[0]
        kind = reference.get("kind", "").lower()
        owner = f"{kind}.{group}/{reference['name']}" if group else f"{kind}/{reference['name']}"
    return [name_of(obj), owner, obj.get("revision", 0), age(obj)]


def _template(obj: JsonObject) -> Sequence[Any]:
    template = obj.get("template") or {}
    shown = labels((template.get("metadata") or {}).get("labels"))
    return [name_of(obj), *_containers(template), shown]


JOB_WORDS = (("Complete", "Complete"), ("Failed", "Failed"))
JOB_LATER_WORDS = ("Suspended", "FailureTarget", "SuccessCriteriaMet")


def _job_word(obj: JsonObject) -> str:
    for condition, word in JOB_WORDS:
        if is_true(obj, condition):
            return word
    if is_deleting(obj):
        return "Terminating"
    return next((word for word in JOB_LATER_WORDS if is_true(obj, word)), "Running")


def _job(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    done = status.get("succeeded", 0)
    if spec.get("completions") is not None:
        completions = f"{done}/{spec['completions']}"
    elif (spec.get("parallelism") or 0) > 1:
        completions = f"{done}/1 of {spec['parallelism']}"
    else:
        completions = f"{done}/1"
    duration: Elapsed | str = ""
    if status.get("startTime"):
        began, end = from_rfc3339(status["startTime"]), status.get("completionTime")
        duration = human(from_rfc3339(end) - began) if end else Elapsed(began)
    return [
        name_of(obj),
        _job_word(obj),
        completions,
        duration,
        age(obj),
        *_containers(spec.get("template")),
        query(spec.get("selector")),
    ]


def _cron_job(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    job = (spec.get("jobTemplate") or {}).get("spec") or {}
    last = status.get("lastScheduleTime")
    return [
        name_of(obj),
        spec.get("schedule", ""),
        spec.get("timeZone") or NONE,
        yes(spec.get("suspend")),
        len(status.get("active") or ()),
        since(last) if last else NONE,
        age(obj),
        *_containers(job.get("template")),
        query(job.get("selector")),
    ]


def _autoscaler(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    target = spec.get("scaleTargetRef") or {}
    return [
        name_of(obj),
        f"{target.get('kind', '')}/{target.get('name', '')}",
        _targets(spec, status),
        str(spec["minReplicas"]) if spec.get("minReplicas") is not None else UNSET,
        spec.get("maxReplicas", 0),
        status.get("currentReplicas", 0),
        age(obj),
    ]


def _targets(spec: Mapping[str, Any], status: Mapping[str, Any]) -> str:
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


def _budget(obj: JsonObject) -> Sequence[Any]:
    spec, status = spec_of(obj), status_of(obj)
    return [
        name_of(obj),
        str(spec.get("minAvailable", "N/A")),
        str(spec.get("maxUnavailable", "N/A")),
        status.get("disruptionsAllowed", 0),
        age(obj),
    ]


RUN = "Containers*, Images*"
REPLICAS = printer(f"Name, Desired#, Current#, Ready#, Age, {RUN}, Selector*", _replicas)
AUTOSCALERS = printer("Name, Reference, Targets, MinPods, MaxPods, Replicas, Age", _autoscaler)
PRINTERS = {
    ("", "replicationcontrollers"): REPLICAS,
    ("apps", "replicasets"): REPLICAS,
    ("apps", "deployments"): printer(
        f"Name, Ready, Up-to-date, Available, Age, {RUN}, Selector*", _deployment
    ),
    ("apps", "statefulsets"): printer(f"Name, Ready, Age, {RUN}", _stateful_set),
    ("apps", "daemonsets"): printer(
        "Name, Desired#, Current#, Ready#, Up-to-date#, Available#, Node Selector, Age,"
        f"{RUN}, Selector*",
        _daemon_set,
    ),
    ("apps", "controllerrevisions"): printer("Name, Controller, Revision, Age", _revision),
    ("", "podtemplates"): printer("Name, Containers, Images, Pod Labels", _template),
    ("batch", "jobs"): printer(f"Name, Status, Completions, Duration, Age, {RUN}, Selector*", _job),
    ("batch", "cronjobs"): printer(
        f"Name, Schedule, Timezone, Suspend?, Active#, Last Schedule, Age, {RUN}, Selector*",
        _cron_job,
    ),
    ("autoscaling", "horizontalpodautoscalers"): AUTOSCALERS,
    ("policy", "poddisruptionbudgets"): printer(
        "Name, Min Available, Max Unavailable, Allowed Disruptions#, Age", _budget
    ),
}
