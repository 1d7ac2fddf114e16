"""batch/v1: what runs pods to their end.

Source: k8s.io/kubernetes `pkg/apis/batch/validation`.
"""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import domain_path_errors
from dralab.api.core.job_statuses import job_status_errors
from dralab.api.core.pods import WithPods, default_template
from dralab.api.core.workloads import not_negative, template_of
from dralab.api.fields import OMITTED, FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.values import cron, labels, names
from dralab.values.json_types import JsonDict

JOB_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")
AMOUNTS: Final = (
    "parallelism", "completions", "activeDeadlineSeconds", "backoffLimit",
    "ttlSecondsAfterFinished", "backoffLimitPerIndex", "maxFailedIndexes",
)  # fmt: skip
HISTORY: Final = (
    "startingDeadlineSeconds", "successfulJobsHistoryLimit", "failedJobsHistoryLimit",
)  # fmt: skip
ANY_RESTART: Final = ("Always", "OnFailure", "Never")
ENDING: Final = ("OnFailure", "Never")
DIRECTIVES: Final = ("affinity", "nodeSelector", "schedulingGates", "tolerations")
ACTIONS: Final = ("Count", "FailIndex", "FailJob", "Ignore")


class JobStrategy(WithPods):
    """Jobs: the server makes the selector, and most of a spec is fixed."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        default_template(spec)
        if "completions" not in spec and "parallelism" not in spec:
            spec["completions"] = spec["parallelism"] = 1
        spec.setdefault("parallelism", 1)
        spec.setdefault("backoffLimit", 2**31 - 1 if "backoffLimitPerIndex" in spec else 6)
        spec.setdefault("completionMode", "NonIndexed")
        spec.setdefault("suspend", False)
        spec.setdefault("manualSelector", False)
        if "podReplacementPolicy" not in spec:
            failing = "podFailurePolicy" in spec
            spec["podReplacementPolicy"] = "Failed" if failing else "TerminatingOrFailed"
        for rule in (spec.get("podFailurePolicy") or {}).get("rules") or ():
            for pattern in rule.get("onPodConditions") or ():
                pattern["status"] = pattern.get("status") or "True"

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Give the job a selector that no other has."""
        value["status"] = {}
        spec, meta = value["spec"], value["metadata"]
        if spec.get("manualSelector"):
            return
        name = meta.get("name", "")  # validation tells that there is none
        mine = dict.fromkeys(JOB_LABELS, meta["uid"]) | dict.fromkeys(JOB_NAMES, name)
        template = spec["template"].setdefault("metadata", {})
        template["labels"] = {**(template.get("labels") or {}), **mine}
        if not meta.get("labels"):
            meta["labels"] = dict(template["labels"])
        spec["selector"] = {"matchLabels": {JOB_LABELS[0]: meta["uid"]}}

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec = value["spec"]
        template = spec.get("template") or {}
        errors = [error for name in AMOUNTS for error in not_negative(spec, name)]
        errors += _mode_problems(spec)
        errors += _failure_problems(spec, template.get("spec") or {})
        errors += _success_problems(spec)
        replaced, known = spec.get("podReplacementPolicy"), ["Failed", "TerminatingOrFailed"]
        if spec.get("podFailurePolicy") is not None:
            known = ["Failed"]
        if replaced is not None and replaced not in known:
            errors.append(fields.not_supported("spec.podReplacementPolicy", replaced, known))
        path, before = "spec.template", template_of(old)
        errors += self.template_problems(template, path, before, restart=ANY_RESTART)
        errors += restart_problems(spec, f"{path}.spec.restartPolicy")
        return errors + _selector_problems(value)

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return what to warn of in the template."""
        template = value["spec"].get("template") or {}
        return self.template_warnings(template, "spec.template", value, old)

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change of the status."""
        return job_status_errors(new, old)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change: selector, template and completions stay."""
        errors = self.validate(new, old)
        before, after = old["spec"], new["spec"]
        fixed = [
            "selector", "podFailurePolicy", "completionMode", "backoffLimitPerIndex", "managedBy",
            "successPolicy",
        ]  # fmt: skip
        if after.get("completionMode") != "Indexed":
            fixed.append("completions")
        template = after.get("template")
        if before.get("suspend"):
            template = _with_directives(template or {}, before.get("template") or {})
        if template != before.get("template"):
            shown = after.get("template")
            errors.append(fields.invalid_value("spec.template", shown, "field is immutable"))
        errors += [
            fields.invalid_value(f"spec.{name}", after.get(name), "field is immutable")
            for name in fixed
            if before.get(name) != after.get(name)
        ]
        return errors


def restart_problems(spec: JsonDict, path: str) -> list[FieldError]:
    """Return what is wrong with when the containers of a job are restarted."""
    policy = ((spec.get("template") or {}).get("spec") or {}).get("restartPolicy") or "Always"
    if policy == "Always":
        return [fields.required(path, 'valid values: "OnFailure", "Never"')]
    if policy not in ENDING:
        return [fields.not_supported(path, policy, ENDING, ordered=True)]
    if spec.get("podFailurePolicy") is not None and policy != "Never":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        return [fields.invalid_value(path, policy, why)]
    return []


def _selector_problems(job: JsonDict) -> list[FieldError]:
    """Return what is wrong with the selector: the server's own, unless a client may choose it."""
    spec, uid = job["spec"], job["metadata"].get("uid")
    selector = spec.get("selector")
    mine = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    path = "spec.template.metadata.labels"
    errors: list[FieldError] = []
    if selector is None:
        errors.append(fields.required("spec.selector"))
    elif not spec.get("manualSelector"):
        given = (selector.get("matchLabels") or {}).keys() | {
            item.get("key") for item in selector.get("matchExpressions") or ()
        }
        wanted = {"matchLabels": {JOB_LABELS[0]: uid}}
        if given != {JOB_LABELS[0]} and selector != wanted:
            why = "`selector` not auto-generated"
            errors.append(fields.invalid_value("spec.selector", selector, why))
    if selector is not None and (wrong := label_selector_problems(selector, "spec.selector")):
        return errors + wrong
    if selector is None or not labels.from_mapping(selector).accepts(mine):
        why = "`selector` does not match template `labels`"
        errors.append(fields.invalid_value(path, mine or None, why))
    return errors


def _mode_problems(spec: JsonDict) -> list[FieldError]:
    """Return what is wrong with how completions are counted."""
    errors = []
    mode, completions = spec.get("completionMode"), spec.get("completions")
    most = spec.get("maxFailedIndexes")
    if most is not None and spec.get("backoffLimitPerIndex") is None:
        why = "when maxFailedIndexes is specified"
        errors.append(fields.required("spec.backoffLimitPerIndex", why))
    if (manager := spec.get("managedBy")) is not None:
        errors += domain_path_errors(manager, "spec.managedBy")
    if mode == "Indexed":
        if completions is None:
            errors.append(fields.required("spec.completions", "when completion mode is Indexed"))
        elif most is not None and most > completions:
            why = "must be less than or equal to completions"
            errors.append(fields.invalid_value("spec.maxFailedIndexes", most, why))
    elif mode != "NonIndexed":
        known = ["NonIndexed", "Indexed"]
        errors.append(fields.not_supported("spec.completionMode", mode, known, ordered=True))
    else:
        why = "requires indexed completion mode"
        errors += [
            fields.invalid_value(f"spec.{name}", spec[name], why)
            for name in ("backoffLimitPerIndex", "maxFailedIndexes")
            if spec.get(name) is not None
        ]
    return errors


def _success_problems(spec: JsonDict) -> list[FieldError]:
    """Return what is wrong with when a job has succeeded early."""
    policy, path = spec.get("successPolicy"), "spec.successPolicy"
    if policy is None:
        return []
    rules = policy.get("rules") or ()
    if spec.get("completionMode") != "Indexed":
        # By the names that the fields have in Go.
        shown = [
            {
                "SucceededIndexes": rule.get("succeededIndexes"),
                "SucceededCount": rule.get("succeededCount"),
            }
            for rule in rules
        ]
        why = "requires indexed completion mode"
        return [fields.invalid_value(path, {"Rules": shown or None}, why)]
    if not rules:
        why = "at least one rules must be specified when the successPolicy is specified"
        return [fields.required(f"{path}.rules", why)]
    errors = []
    completions = spec.get("completions")
    for number, rule in enumerate(rules):
        at, count = f"{path}.rules[{number}]", rule.get("succeededCount")
        if count is None and rule.get("succeededIndexes") is None:
            why = "at least one of succeededCount or succeededIndexes must be specified"
            errors.append(fields.required(at, why))
        if count is not None and completions is not None and count > completions:
            why = (
                f"must be less than or equal to {completions} (the number of specified completions)"
            )
            errors.append(fields.invalid_value(f"{at}.succeededCount", count, why))
    return errors


def _failure_problems(spec: JsonDict, pod: JsonDict) -> list[FieldError]:
    """Return what is wrong with how a job counts its failures."""
    errors: list[FieldError] = []
    containers = [
        each.get("name")
        for part in ("containers", "initContainers")
        for each in pod.get(part) or ()
    ]
    for number, rule in enumerate((spec.get("podFailurePolicy") or {}).get("rules") or ()):
        path = f"spec.podFailurePolicy.rules[{number}]"
        action = rule.get("action") or ""
        if not action:
            shown = " ".join(f'"{name}"' for name in ACTIONS)
            errors.append(fields.required(f"{path}.action", f"valid values: [{shown}]"))
        elif action not in ACTIONS:
            errors.append(fields.not_supported(f"{path}.action", action, ACTIONS))
        elif action == "FailIndex" and spec.get("backoffLimitPerIndex") is None:
            why = "requires the backoffLimitPerIndex to be set"
            errors.append(fields.invalid_value(f"{path}.action", action, why))
        codes, conditions = rule.get("onExitCodes"), rule.get("onPodConditions")
        if codes is not None:
            errors += _exit_code_problems(codes, f"{path}.onExitCodes", containers)
        if codes is not None and conditions:
            why = "specifying both OnExitCodes and OnPodConditions is not supported"
            errors.append(FieldError("FieldValueInvalid", path, OMITTED, why))
        if codes is None and not conditions:
            why = "specifying one of OnExitCodes and OnPodConditions is required"
            errors.append(FieldError("FieldValueInvalid", path, OMITTED, why))
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
    for index, value in enumerate(values):
        if operator == "In" and value == 0:
            why = "must not be 0 for the In operator"
            errors.append(fields.invalid_value(f"{path}.values[{index}]", value, why))
        if value in values[:index]:
            errors.append(fields.duplicate(f"{path}.values[{index}]", value))
    if list(values) != sorted(values):
        errors.append(fields.invalid_value(f"{path}.values", list(values), "must be ordered"))
    return errors


def _with_directives(template: JsonDict, before: JsonDict) -> JsonDict:
    """Return a template with what may change while a job is suspended as it was before.

    These are where its pods are scheduled, and their labels and annotations.
    """
    spec, earlier = dict(template.get("spec") or {}), before.get("spec") or {}
    for part in DIRECTIVES:
        spec.pop(part, None)
        if part in earlier:
            spec[part] = earlier[part]
    metadata = dict(template.get("metadata") or {})
    for part in ("labels", "annotations"):
        metadata.pop(part, None)
        if part in (was := before.get("metadata") or {}):
            metadata[part] = was[part]
    return {**template, "metadata": metadata, "spec": spec}


def _schedule_problems(schedule: str, zone: str | None) -> list[FieldError]:
    errors = []
    if "TZ" in schedule:
        why = "cannot use TZ or CRON_TZ in schedule, use timeZone field instead"
        errors.append(fields.invalid_value("spec.schedule", schedule, why))
    else:
        try:
            cron.parse(schedule)
        except cron.ScheduleError as error:
            errors.append(fields.invalid_value("spec.schedule", schedule, str(error)))
    if zone is not None and (problem := _zone_problem(zone)):
        errors.append(fields.invalid_value("spec.timeZone", zone, problem))
    return errors


def _zone_problem(zone: str) -> str | None:
    if not zone:
        return "timeZone must be nil or non-empty string"
    if zone.lower() == "local":
        return (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
    try:
        cron.time_zone(zone)
    except cron.ScheduleError as error:
        return str(error)
    return None


class CronJobStrategy(WithPods):
    """Cron jobs."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        spec.setdefault("concurrencyPolicy", "Allow")
        spec.setdefault("suspend", False)
        spec.setdefault("successfulJobsHistoryLimit", 3)
        spec.setdefault("failedJobsHistoryLimit", 1)
        job = spec.setdefault("jobTemplate", {})
        job.setdefault("metadata", {})
        default_template(job.setdefault("spec", {}))

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin without a status."""
        value["status"] = {}

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec = value["spec"]
        errors = []
        if not spec.get("schedule"):
            errors.append(fields.required("spec.schedule"))
        else:
            errors += _schedule_problems(spec["schedule"], spec.get("timeZone"))
        policy = spec.get("concurrencyPolicy")
        known = ["Allow", "Forbid", "Replace"]
        if policy not in known:
            errors.append(fields.not_supported("spec.concurrencyPolicy", policy, known))
        for name in HISTORY:
            errors += not_negative(spec, name)
        job = spec["jobTemplate"].get("spec") or {}
        template = job.get("template") or {}
        before = template_of(None if old is None else old["spec"]["jobTemplate"])
        path = "spec.jobTemplate.spec.template"
        errors += self.template_problems(template, path, before, restart=ANY_RESTART)
        errors += restart_problems(job, f"{path}.spec.restartPolicy")
        if job.get("manualSelector"):
            at, known = "spec.jobTemplate.spec.manualSelector", ["nil", "false"]
            errors.append(fields.not_supported(at, True, known, ordered=True))  # noqa: FBT003
        return errors

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return what to warn of in the template of its jobs' pods."""
        template = (value["spec"]["jobTemplate"].get("spec") or {}).get("template") or {}
        return self.template_warnings(template, "spec.jobTemplate.spec.template", value, old)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change."""
        return self.validate(new, old)

    def name_problems(self, name: str) -> list[str]:
        """Return why a name is none: the names of its jobs are eleven characters longer."""
        problems = names.subdomain_problems(name)
        if len(name) > 52:
            problems.append("must be no more than 52 characters")
        return problems
