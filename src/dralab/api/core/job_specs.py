"""What a Job has to do, in a Job or in the template of a CronJob.

Source: k8s.io/kubernetes `pkg/apis/batch/validation` (validateJobSpec). The template of the pods
is left to `pods`, the selector to `jobs`.
"""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import domain_path_errors
from dralab.api.core.declared import declared_problems
from dralab.api.fields import OMITTED, FieldError
from dralab.api.internal_forms import internal_form
from dralab.api.rules import RuleTables
from dralab.values.json_types import JsonDict

ENDING: Final = ("OnFailure", "Never")
ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")


RULES: Final = RuleTables(globals(), domain_path_errors)
JOB_SPEC: Final = RULES["validateJobSpec"]
"""What a Job must say, its template and selector apart."""


def _replacement(spec: JsonDict, path: str) -> list[FieldError]:
    replaced, known = spec["podReplacementPolicy"], ["Failed", "TerminatingOrFailed"]
    if spec.get("podFailurePolicy") is not None:
        known = ["Failed"]
    if replaced is None or replaced in known:
        return []
    return [fields.not_supported(f"{path}.podReplacementPolicy", replaced, known)]


def scheduling_problems(spec: JsonDict, old: JsonDict | None, path: str) -> list[FieldError]:
    """Return the errors of how the pods of a Job are scheduled together (KEP-5547)."""
    asked, before = spec.get("scheduling"), (old or {}).get("scheduling")
    if old is not None and (asked is None) != (before is None):
        set_ = "field cannot be set once created"
        text = set_ if before is None else "field cannot be cleared once set"
        return [fields.invalid_value(path, None, text)]
    if asked is None:
        return []
    policy, mode = asked.get("schedulingPolicy") or {}, asked.get("disruptionMode") or {}
    least, most = (policy.get("gang") or {}).get("minCount"), spec.get("parallelism", 1)
    errors = []
    if least is not None and least > most:
        why = f"must not be greater than parallelism ({most})"
        errors.append(fields.invalid_value(f"{path}.schedulingPolicy.gang.minCount", least, why))
    if mode.keys() == {"all"} and ("basic" in policy or "gang" not in policy):
        why = "the disruptionMode `all` is not supported with the Basic scheduling policy"
        errors.append(fields.invalid_value(f"{path}.disruptionMode", "", why))
    return errors + declared_problems("batch/v1.JobSchedulingConfiguration", asked, before, path)


def policy_changes(spec: JsonDict, old: JsonDict) -> list[FieldError]:
    """Return the errors of the change of a Job's policy: its variant stays."""
    was, is_ = (
        (each.get("scheduling") or {}).get("schedulingPolicy") or {} for each in (old, spec)
    )
    if not was or not is_ or ("basic" in was) == ("basic" in is_):
        return []
    why = (
        "the basic/gang policy variant is immutable after creation; only "
        "schedulingPolicy.gang.minCount may be updated"
    )
    return [fields.invalid_value("spec.scheduling.schedulingPolicy", None, why)]


def restart_problems(spec: JsonDict, path: str) -> list[FieldError]:
    """Return the errors of when the containers of a job are restarted."""
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") or "Always"
    if policy == "Always":
        return [fields.required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ENDING:
        return [fields.not_supported(path, policy, ENDING, ordered=True)]
    if spec.get("podFailurePolicy") is not None and policy != "Never":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        return [fields.invalid_value(path, policy, why)]
    return []


def _success_policy(spec: JsonDict, path: str) -> list[FieldError]:
    policy, path = spec.get("successPolicy"), f"{path}.successPolicy"
    if policy is None:
        return []
    rules = policy.get("rules") or ()
    if spec.get("completionMode") != "Indexed":
        why = "requires indexed completion mode"
        shown = internal_form("batch.SuccessPolicy", policy)
        return [fields.invalid_value(path, shown, why)]
    if not rules:
        why = "at least one rules must be specified when the successPolicy is specified"
        return [fields.required(f"{path}.rules", why)]
    errors = []
    completions = spec.get("completions")
    for number, rule in enumerate(rules):
        at, count = f"{path}.rules[{number}]", rule.get("succeededCount")
        errors += RULES["validateSuccessPolicyRule"](rule, at)
        if count is not None and completions is not None and count > completions:
            why = (
                f"must be less than or equal to {completions} (the number of specified completions)"
            )
            errors.append(fields.invalid_value(f"{at}.succeededCount", count, why))
    return errors


def _failure_policy(spec: JsonDict, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    pod = (spec.get("template") or {}).get("spec") or {}
    containers = [
        container.get("name")
        for part in ("containers", "initContainers")
        for container in pod.get(part) or ()
    ]
    for number, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        at = f"{path}.podFailurePolicy.rules[{number}]"
        action = rule.get("action") or ""
        if not action:
            shown = " ".join(f'"{name}"' for name in ACTIONS)
            errors.append(fields.required(f"{at}.action", f"valid values: [{shown}]"))
        elif action not in ACTIONS:
            errors.append(fields.not_supported(f"{at}.action", action, ACTIONS))
        elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            why = "requires the backoffLimitPerIndex to be set"
            errors.append(fields.invalid_value(f"{at}.action", action, why))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes is not None:
            errors += _exit_code_problems(codes, f"{at}.onExitCodes", containers)
        for index, pattern in enumerate(conditions or ()):
            errors += RULES["validatePodFailurePolicyRuleOnPodConditions"](
                pattern, f"{at}.onPodConditions[{index}]"
            )
        if codes is not None and conditions:
            why = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.append(FieldError("FieldValueInvalid", at, OMITTED, why))
        if codes is None and not conditions:
            why = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.append(FieldError("FieldValueInvalid", at, OMITTED, why))
    return errors


def _exit_code_problems(
    codes: JsonDict, path: str, containers: Sequence[str | None]
) -> list[FieldError]:
    operator, values, errors = codes.get("operator") or "", codes.get("values") or (), []
    if not operator:
        errors.append(fields.required(f"{path}.operator", 'valid values: ["In" "NotIn"]'))
    elif operator not in {"In", "NotIn"}:
        errors.append(fields.not_supported(f"{path}.operator", operator, ["In", "NotIn"]))
    name = codes.get("containerName")
    if name is not None and name not in containers:
        why = "must be one of the container or initContainer names in the pod template"
        errors.append(fields.invalid_value(f"{path}.containerName", name, why))
    if not values:
        why = "at least one value is required"
        errors.append(fields.invalid_value(f"{path}.values", [], why))
    again = fields.repeated(values)
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            why = "must not be 0 for the In operator"
            errors.append(fields.invalid_value(f"{path}.values[{index}]", value, why))
        if index in again:
            errors.append(fields.duplicate(f"{path}.values[{index}]", value))
    if list(values) != sorted(values):
        errors.append(fields.invalid_value(f"{path}.values", list(values), "must be ordered"))
    return errors
