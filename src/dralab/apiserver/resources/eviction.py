"""Evicting a pod: a deletion that disruption budgets may forbid.

Source: k8s.io/kubernetes `pkg/registry/core/pod/storage/eviction.go`.
"""

from dataclasses import replace
from typing import Any, Final

from dralab.api.kinds import Kind
from dralab.api.status import ApiError, Cause
from dralab.apiserver.resources import deleting, writing
from dralab.apiserver.resources.context import Context
from dralab.apiserver.resources.options import WriteOptions, delete_options
from dralab.apiserver.storage import Stored
from dralab.objects.budgets import covers, disruptions_allowed
from dralab.objects.metadata import is_deleting, status_of
from dralab.objects.pods import is_finished
from dralab.values.json_types import JsonDict

BUDGETS: Final = "policy/poddisruptionbudgets"
REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(  # noqa: PLR0917 - the shape of every handler
    context: Context,
    kind: Kind,
    name: str,
    namespace: str,
    body: JsonDict,
    options: WriteOptions,
) -> None:
    """Delete a pod if its budget allows; ApiError TooManyRequests where it does not."""
    if (body.get("metadata") or {}).get("name") != name:
        raise ApiError.bad_request("name in URL does not match name in Eviction object")
    with context.store.lock:
        live = context.live(kind, namespace, name)
        pod = live.value
        how = delete_options({}, body.get("deleteOptions"))
        dry_run = how.dry_run or options.dry_run
        deleting.check_preconditions(live, kind, how)
        if not _needs_no_budget(pod):
            _spend(context, pod, namespace, dry_run=dry_run)
        if not dry_run and not is_deleting(pod):
            _note(context, kind, name, namespace, options)
        # The revision was compared above; the condition has changed it since.
        how = replace(how, internal=True, dry_run=dry_run, revision="")
        deleting.delete(context, kind, name, namespace, how, user=options.user)


def _needs_no_budget(pod: JsonDict) -> bool:
    pending = status_of(pod).get("phase") == "Pending"
    return pending or is_finished(pod) or is_deleting(pod)


def _spend(context: Context, pod: JsonDict, namespace: str, *, dry_run: bool) -> None:
    budgets = [
        stored
        for stored in context.store.list(BUDGETS, namespace).items
        if covers(stored.value, pod)
    ]
    if not budgets:
        return
    if len(budgets) > 1:
        raise ApiError(
            "InternalError",
            "Internal error occurred: This pod has more than one PodDisruptionBudget, which the "
            "eviction subresource does not support.",
            code=500,
        )
    budget = budgets[0]
    status = status_of(budget.value)
    if disruptions_allowed(budget.value) <= 0:
        raise _refusal(budget, status)
    if dry_run:
        return
    name = pod["metadata"]["name"]
    kind = context.kinds.find("policy", "v1", "poddisruptionbudgets")
    now = context.now()

    def edit(value: JsonDict) -> JsonDict:
        found = value["status"]
        found["disruptionsAllowed"] -= 1
        found["disruptedPods"] = {**(found.get("disruptedPods") or {}), name: now}
        return value

    how = WriteOptions(agent="kube-apiserver", internal=True)
    writing.change(
        context, kind, budget.key.name, namespace, edit, options=how, subresource="status"
    )


def _refusal(budget: Stored, status: Any) -> ApiError:
    needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
    return ApiError(
        "TooManyRequests",
        REFUSED,
        causes=[
            Cause(
                reason="DisruptionBudget",
                message=f"The disruption budget {budget.key.name} needs {needed} healthy pods "
                f"and has {healthy} currently",
            )
        ],
    )


def _note(context: Context, kind: Kind, name: str, namespace: str, options: WriteOptions) -> None:
    now = context.now()

    def edit(pod: JsonDict) -> JsonDict:
        status = pod.setdefault("status", {})
        conditions = [
            each for each in status.get("conditions") or [] if each["type"] != "DisruptionTarget"
        ]
        conditions.append(
            {
                "type": "DisruptionTarget",
                "status": "True",
                "lastProbeTime": None,
                "lastTransitionTime": now,
                "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting",
            }
        )
        status["conditions"] = conditions
        return pod

    writing.change(
        context, kind, name, namespace, edit, options=options, subresource="eviction", typed=True
    )
