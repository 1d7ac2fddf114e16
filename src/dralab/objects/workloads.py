"""The pods of a workload, for tools that read files; and how a Job has ended.

Deployment, ReplicaSet, ReplicationController and StatefulSet make as many as their `replicas`, a
Job as many as run at once, a DaemonSet one for each node.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from dralab.objects.conditions import conditions_of
from dralab.objects.metadata import metadata_of, spec_of
from dralab.values.json_types import JsonDict, JsonObject

REPLICATED: Final = frozenset({"Deployment", "ReplicaSet", "ReplicationController", "StatefulSet"})
KINDS: Final = REPLICATED | {"Job", "DaemonSet"}
OF_GROUPS: Final = ("schedulingConstraints", "disruptionMode", "resourceClaims")
MOST: Final = 10_000
"""A workload with more pods than this is taken for a typo."""


def pods_of(workload: Mapping[str, Any], nodes: Sequence[str] = ()) -> Iterator[JsonDict]:
    """Yield the pods of a workload, named NAME-0, NAME-1, and so on.

    >>> job = {"kind": "Job", "metadata": {"name": "j"}, "spec": {"parallelism": 2, "template": {}}}
    >>> [pod["metadata"]["name"] for pod in pods_of(job)]
    ['j-0', 'j-1']
    """
    spec = spec_of(workload)
    kind = workload.get("kind")
    if kind == "DaemonSet":
        for number, node in enumerate(nodes):
            yield _pod(workload, spec, number, {"nodeName": node})
        return
    count = _count(spec, "replicas")
    if kind == "Job":
        running, whole = _count(spec, "parallelism"), spec.get("completions")
        count = running if whole is None else min(running, int(whole))
    together: JsonDict = {}
    if kind == "Job" and group_spec(workload) is not None:
        together = {"schedulingGroup": {"podGroupName": metadata_of(workload).get("name")}}
    for number in range(min(count, MOST)):
        yield _pod(workload, spec, number, together)


def group_spec(job: Mapping[str, Any]) -> JsonDict | None:
    """Return the spec of a Job's PodGroup (KEP-5547); None if it has none.

    >>> group_spec({"spec": {"parallelism": 2, "scheduling": {"schedulingPolicy": {"gang": {}}}}})
    {'schedulingPolicy': {'gang': {'minCount': 2}}}
    """
    spec = spec_of(job)
    asked, pod = spec.get("scheduling"), spec_of(spec.get("template") or {})
    if asked is None or pod.get("schedulingGroup"):
        return None
    policy = dict(asked.get("schedulingPolicy") or {"basic": {}})
    if (gang := policy.get("gang")) is not None:
        policy = {"gang": {"minCount": gang.get("minCount") or max(1, _count(spec, "parallelism"))}}
    made = {"schedulingPolicy": policy}
    made |= {field: asked[field] for field in OF_GROUPS if asked.get(field)}
    if pod.get("priorityClassName"):
        made["priorityClassName"] = pod["priorityClassName"]
    return made


def job_end(job: JsonObject) -> JsonObject | None:
    """Return the condition by which a Job is over, Complete or Failed; None while it continues."""
    for condition in conditions_of(job):
        if condition["type"] in {"Complete", "Failed"} and condition["status"] == "True":
            found: JsonObject = condition
            return found
    return None


def _count(spec: Mapping[str, Any], name: str) -> int:
    value = spec.get(name)
    return 1 if value is None else int(value)


def _pod(
    workload: Mapping[str, Any], spec: Mapping[str, Any], number: int, more: JsonDict
) -> JsonDict:
    template = spec.get("template") or {}
    owner = metadata_of(workload)
    metadata = dict(metadata_of(template)) | {"name": f"{owner.get('name')}-{number}"}
    if owner.get("namespace"):
        metadata["namespace"] = owner["namespace"]
    metadata["ownerReferences"] = [
        {
            "apiVersion": workload.get("apiVersion"),
            "kind": workload.get("kind"),
            "name": owner.get("name"),
            "uid": owner.get("uid") or "",
            "controller": True,
        }
    ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": dict(spec_of(template)) | more,
    }
