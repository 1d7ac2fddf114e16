"""batch/v1: workloads that run pods to completion.

Source: k8s.io/kubernetes `pkg/apis/batch/validation`.
"""

from typing import Any, Final

from dralab.api import fields
from dralab.api.core.job_specs import (
    JOB_SPEC,
    policy_changes,
    restart_problems,
    scheduling_problems,
)
from dralab.api.core.job_statuses import job_status_errors
from dralab.api.core.pods import WithPods, default_template
from dralab.api.core.workloads import template_of
from dralab.api.fields import FieldError
from dralab.api.internal_forms import internal_form
from dralab.api.label_selectors import label_selector_problems, shown_selector
from dralab.api.rules import RuleTables
from dralab.values import labels, names
from dralab.values.json_types import JsonDict

JOB_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")
ANY_RESTART: Final = ("Always", "OnFailure", "Never")
IN_GO: Final = {
    "podFailurePolicy": "*batch.PodFailurePolicy",
    "successPolicy": "*batch.SuccessPolicy",
}
DIRECTIVES: Final = ("affinity", "nodeSelector", "schedulingGates", "tolerations")


RULES: Final = RuleTables(globals())


class JobStrategy(WithPods):
    """Jobs: the server makes the selector, and most of a spec is fixed."""

    orphans = True

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        default_template(spec)
        meta, labels_of_pods = value["metadata"], spec["template"]["metadata"].get("labels")
        if labels_of_pods and not meta.get("labels"):
            meta["labels"] = labels_of_pods  # the same mapping, which `prepare_create` looks at
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
        # What a client says instead is refused later.
        shared = not meta.get("labels") or meta["labels"] is template.get("labels")
        template["labels"] = {**mine, **(template.get("labels") or {})}
        if shared:
            meta["labels"] = dict(template["labels"])
        selector = spec.setdefault("selector", {})
        selector["matchLabels"] = {JOB_LABELS[0]: meta["uid"], **selector.get("matchLabels", {})}

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return the errors of the spec."""
        return _generated_problems(value) + self._spec_problems(value, old)

    def _spec_problems(self, value: JsonDict, old: JsonDict | None) -> list[FieldError]:
        spec, path = value["spec"], "spec.template"
        errors = JOB_SPEC(spec, "spec")
        errors += scheduling_problems(spec, None if old is None else old["spec"], "spec.scheduling")
        errors += self.template_problems(
            spec.get("template") or {}, path, template_of(old), restart=ANY_RESTART
        )
        errors += restart_problems(spec, f"{path}.spec.restartPolicy")
        return errors + _selector_problems(spec)

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return the warnings about the template."""
        template = value["spec"].get("template") or {}
        return self.template_warnings(template, "spec.template", value, old)

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change of the status."""
        return job_status_errors(new, old)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: selector, template and completions stay."""
        errors = self.validate(new, old)
        # Upstream judges the spec twice, the generated selector once.
        errors += self._spec_problems(new, old)
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
            shown = internal_form("core.PodTemplateSpec", after.get("template"))
            errors.append(fields.invalid_value("spec.template", shown, "field is immutable"))
        errors += [
            fields.invalid_value(f"spec.{name}", _shown(name, after), "field is immutable")
            for name in fixed
            if before.get(name) != after.get(name)
        ]
        return errors + policy_changes(after, before)


def _shown(name: str, spec: JsonDict) -> Any:
    """Return a field of a job's spec as errors show it."""
    if name in IN_GO:
        return internal_form(IN_GO[name], spec.get(name))
    return shown_selector(spec.get(name)) if name == "selector" else spec.get(name)


def _selector_problems(spec: JsonDict) -> list[FieldError]:
    """Return the errors of a selector, and whether it selects the job's own pods."""
    selector = spec.get("selector")
    mine = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    path = "spec.template.metadata.labels"
    errors: list[FieldError] = []
    if selector is None:
        errors.append(fields.required("spec.selector"))
    elif wrong := label_selector_problems(selector, "spec.selector"):
        return wrong
    if selector is None or not labels.from_mapping(selector).accepts(mine):
        why = "`selector` does not match template `labels`"
        errors.append(fields.invalid_value(path, mine or None, why))
    return errors


def _generated_problems(job: JsonDict) -> list[FieldError]:
    """Return which generated labels the template lacks, and whether the selector selects others.

    Nothing is wrong where a client chose the selector.
    """
    spec, meta = job["spec"], job["metadata"]
    selector, path = spec.get("selector"), "spec.template.metadata.labels"
    if selector is None or spec.get("manualSelector"):
        return []
    mine = ((spec.get("template") or {}).get("metadata") or {}).get("labels") or {}
    wanted = dict.fromkeys(JOB_LABELS, meta.get("uid")) | dict.fromkeys(
        JOB_NAMES, meta.get("name", "")
    )
    errors: list[FieldError] = []
    for key, value in wanted.items():
        why = f"must be '{value}'"
        if key not in mine:
            errors.append(fields.required(f"{path}[{key}]", why))
        elif mine[key] != value:
            errors.append(fields.invalid_value(f"{path}[{key}]", mine, why))
    readable = not label_selector_problems(selector, "spec.selector")
    if readable and not labels.from_mapping(selector).accepts(wanted):
        why = "`selector` not auto-generated"
        errors.append(fields.invalid_value("spec.selector", shown_selector(selector), why))
    return errors


def _with_directives(template: JsonDict, before: JsonDict) -> JsonDict:
    """Return a template in which what may change while a job is suspended is as before.

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


def schedule_problems(schedule: str) -> list[str]:
    """Return the problems of a schedule."""
    if "TZ" in schedule:
        return ["cannot use TZ or CRON_TZ in schedule, use timeZone field instead"]
    from dralab.values import cron  # not needed to start

    try:
        cron.parse(schedule)
    except cron.ScheduleError as error:
        return [str(error)]
    return []


def _zone(spec: JsonDict, path: str) -> list[FieldError]:
    zone = spec["timeZone"]
    if zone is None or not spec.get("schedule") or not (problem := _zone_problem(zone)):
        return []
    return [fields.invalid_value(f"{path}.timeZone", zone, problem)]


def _zone_problem(zone: str) -> str | None:
    if not zone:
        return "timeZone must be nil or non-empty string"
    if zone.lower() == "local":
        return (
            "timeZone must be an explicit time zone as defined in https://www.iana.org/time-zones"
        )
    from dralab.values import cron  # not needed to start

    try:
        cron.time_zone(zone)
    except cron.ScheduleError as error:
        return str(error)
    return None


def _not_manual(manual: bool, path: str) -> list[FieldError]:  # noqa: FBT001
    return [fields.not_supported(path, manual, ["nil", "false"], ordered=True)] if manual else []


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
        """Return the errors of the spec."""
        spec = value["spec"]
        errors = RULES["validateCronJobSpec"](spec, "spec")
        job = spec["jobTemplate"].get("spec") or {}
        template = job.get("template") or {}
        earlier = None if old is None else old["spec"]["jobTemplate"]
        before, path = template_of(earlier), "spec.jobTemplate.spec.template"
        errors += JOB_SPEC(job, "spec.jobTemplate.spec")
        was = None if earlier is None else earlier.get("spec") or {}
        errors += scheduling_problems(job, was, "spec.jobTemplate.spec.scheduling")
        errors += self.template_problems(template, path, before, restart=ANY_RESTART)
        errors += restart_problems(job, f"{path}.spec.restartPolicy")
        errors += RULES["ValidateJobTemplateSpec"](job, "spec.jobTemplate.spec")
        return errors + RULES["validateCronJobSpec/more"](spec, "spec")

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return the warnings about the template of its jobs' pods."""
        template = (value["spec"]["jobTemplate"].get("spec") or {}).get("template") or {}
        return self.template_warnings(template, "spec.jobTemplate.spec.template", value, old)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change."""
        return self.validate(new, old)

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name: the names of its jobs are eleven characters longer."""
        problems = names.subdomain_problems(name)
        if len(name) > 52:
            problems.append("must be no more than 52 characters")
        return problems
