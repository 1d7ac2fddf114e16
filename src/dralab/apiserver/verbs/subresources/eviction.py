"""Evicting a pod: a deletion that disruption budgets may forbid.

Source: k8s.io/kubernetes `pkg/registry/core/pod/storage/eviction.go`.
"""

from dataclasses import replace
from typing import Final

from dralab.api.kinds import Kind
from dralab.api.status import ApiError, Cause
from dralab.apiserver.storage import Stored
from dralab.apiserver.verbs import deleting, writing
from dralab.apiserver.verbs.state.context import Scope
from dralab.apiserver.verbs.state.options import WriteOptions, delete_options
from dralab.objects.budgets import covers, disruptions_allowed
from dralab.objects.conditions import with_condition
from dralab.objects.metadata import is_deleting, status_of
from dralab.objects.pods import is_finished, is_ready
from dralab.values.json_types import JsonDict, JsonObject

BUDGETS: Final = "policy/poddisruptionbudgets"
CONDITION: Final = "DisruptionAllowed"
AGENT: Final = "kube-apiserver"
RETRY_AFTER: Final = 10  # seconds
MOST_DISRUPTED: Final = 2000  # pods that a budget has let go and that are not gone
REFUSED: Final = "Cannot evict pod as it would violate the pod's disruption budget."


def evict(scope: Scope, kind: Kind, name: str, namespace: str, body: JsonDict) -> None:
    """Delete a pod if its budget allows; ApiError TooManyRequests where it does not."""
    if (body.get("metadata") or {}).get("name") != name:
        raise ApiError.bad_request("name in URL does not match name in Eviction object")
    with scope.store.lock:
        live = scope.live(kind, namespace, name)
        pod = live.value
        how = delete_options({}, body.get("deleteOptions"))
        dry_run = how.dry_run or scope.options.dry_run
        deleting.check_preconditions(live, kind, how)
        if not _needs_no_budget(pod):
            budget = _budget_of(scope, pod, namespace)
            if budget is not None and not _spares(budget.value, pod):
                _spend(scope, budget, name, dry_run=dry_run)
        if not dry_run and not is_deleting(pod):
            _note(scope, kind, name, namespace)
        # The revision was compared above; the condition has changed it since.
        how = replace(how, dry_run=dry_run, revision="")
        deleting.delete(replace(scope, internal=True), kind, name, namespace, how)


def _needs_no_budget(pod: JsonDict) -> bool:
    pending = status_of(pod).get("phase") == "Pending"
    return pending or is_finished(pod) or is_deleting(pod)


def _spares(budget: JsonObject, pod: JsonDict) -> bool:
    """Whether a pod may be evicted regardless of a budget: it is not ready, by its policy.

    Nothing is taken of what the budget allows: it is not one of the healthy ones (`EvictionREST`).
    """
    if is_ready(pod):
        return False
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = status_of(budget)
    needed = status.get("desiredHealthy") or 0
    return 0 < needed <= (status.get("currentHealthy") or 0)


def _budget_of(scope: Scope, pod: JsonDict, namespace: str) -> Stored | None:
    """Return the budget that covers a pod. ApiError: more than one."""
    budgets = [
        stored for stored in scope.store.list(BUDGETS, namespace).items if covers(stored.value, pod)
    ]
    if len(budgets) > 1:
        raise ApiError.failed(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does "
            "not support."
        )
    return budgets[0] if budgets else None


def _spend(scope: Scope, budget: Stored, pod: str, *, dry_run: bool) -> None:
    """Take one from what a budget allows. ApiError: it allows none."""
    _check_budget(budget)
    if dry_run:
        return
    kind = scope.context.kinds.find("policy", "v1", "poddisruptionbudgets")
    now = scope.context.now()

    def edit(value: JsonDict) -> JsonDict:
        found = value["status"]
        found["disruptionsAllowed"] -= 1
        found["disruptedPods"] = {**(found.get("disruptedPods") or {}), pod: now}
        if not found["disruptionsAllowed"]:
            condition = {
                "type": CONDITION,
                "status": "False",
                "observedGeneration": found.get("observedGeneration") or 0,
                "reason": "InsufficientPods",
                "message": "",
            }
            found["conditions"] = with_condition(found.get("conditions") or [], condition, now=now)
        return value

    writing.change(
        replace(scope, options=WriteOptions(agent=AGENT), internal=True),
        kind,
        budget.key.name,
        budget.key.namespace,
        edit,
        subresource="status",
    )


def _check_budget(budget: Stored) -> None:
    """Refuse an eviction that a budget does not allow now. ApiError."""
    name, status = budget.key.name, status_of(budget.value)
    generation = budget.value["metadata"].get("generation") or 0
    if (status.get("observedGeneration") or 0) < generation:
        why = f"The disruption budget {name} is still being processed by the server."
        raise _refusal(why, {"retryAfterSeconds": RETRY_AFTER})
    refused = ""
    if (status.get("disruptionsAllowed") or 0) < 0:
        refused = "pdb disruptions allowed is negative"
    elif len(status.get("disruptedPods") or ()) > MOST_DISRUPTED:
        refused = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
    if refused:
        raise ApiError.forbidden("poddisruptionbudget", name, refused, group="policy")
    if not disruptions_allowed(budget.value):
        raise _refusal(f"The disruption budget {name} {_hindrance(status)}")


def _hindrance(status: JsonObject) -> str:
    """Return the reason that a budget allows no disruptions."""
    needed, healthy = status.get("desiredHealthy") or 0, status.get("currentHealthy") or 0
    conditions = status.get("conditions") or ()
    condition: JsonObject = next((each for each in conditions if each.get("type") == CONDITION), {})
    message, reason = condition.get("message") or "", condition.get("reason")
    known = condition.get("status") == "False" and message
    if known and reason == "SyncFailed":
        return f"does not allow evicting pods currently because it failed sync: {message}"
    if healthy <= needed:
        return f"needs {needed} healthy pods and has {healthy} currently"
    if known:
        return f"does not allow evicting pods currently ({reason}): {message}"
    return "does not allow evicting pods currently"


def _refusal(why: str, details: JsonObject | None = None) -> ApiError:
    cause = Cause(reason="DisruptionBudget", message=why)
    return ApiError("TooManyRequests", REFUSED, details=details, causes=[cause])


def _note(scope: Scope, kind: Kind, name: str, namespace: str) -> None:
    now = scope.context.now()

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

    writing.change(scope, kind, name, namespace, edit, subresource="eviction", typed=True)
