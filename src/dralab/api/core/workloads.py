"""apps/v1 and batch/v1: what keeps pods running, or runs them to their end."""

from typing import Final

from dralab.api import fields
from dralab.api.core.pods import WithPods, default_template, selector_problems
from dralab.api.fields import FieldError
from dralab.values import cron, labels, names
from dralab.values.json_types import JsonDict

QUARTER: Final = "25%"
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"
JOB_LABELS: Final = ("batch.kubernetes.io/controller-uid", "controller-uid")
JOB_NAMES: Final = ("batch.kubernetes.io/job-name", "job-name")


def _not_negative(spec: JsonDict, name: str) -> list[FieldError]:
    value = spec.get(name)
    if isinstance(value, int) and value < 0:
        why = "must be greater than or equal to 0"
        return [fields.invalid_value(f"spec.{name}", value, why)]
    return []


def _template(obj: JsonDict | None) -> JsonDict | None:
    """Return the template of pods that an object had."""
    return None if obj is None else (obj.get("spec") or {}).get("template")


class TemplateStrategy(WithPods):
    """What kinds with a selector and a template of pods have in common."""

    def default(self, value: JsonDict) -> None:
        """Fill in the template, one replica, ten revisions."""
        spec = value.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        default_template(spec)

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin with no replicas."""
        value["status"] = {"replicas": 0}

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec = value["spec"]
        template = spec.get("template") or {}
        return [
            *_not_negative(spec, "replicas"),
            *_not_negative(spec, "revisionHistoryLimit"),
            *selector_problems(spec.get("selector"), template),
            *self.template_problems(template, "spec.template", _template(old)),
        ]

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change: selectors stay."""
        errors = self.validate(new, old)
        selector = new["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            errors.append(fields.invalid_value("spec.selector", selector, "field is immutable"))
        return errors


class DeploymentStrategy(TemplateStrategy):
    """Deployments."""

    # Annotations count as wanted: the controller copies them to its replica sets.
    counted = ("annotations",)
    status_keeps = frozenset({"annotations", "finalizers"})

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        super().default(value)
        spec = value["spec"]
        strategy = spec.setdefault("strategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", QUARTER)
            rolling.setdefault("maxSurge", QUARTER)
        spec.setdefault("revisionHistoryLimit", 10)
        spec.setdefault("progressDeadlineSeconds", 600)

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin without a status."""
        value["status"] = {}

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return what is wrong with the spec."""
        errors = super().validate(value, old)
        strategy = value["spec"].get("strategy") or {}
        kind = strategy.get("type")
        if kind not in {"Recreate", "RollingUpdate"}:
            known = ["Recreate", "RollingUpdate"]
            errors.append(fields.not_supported("spec.strategy.type", kind, known))
        elif kind == "Recreate" and "rollingUpdate" in strategy:
            why = "may not be specified when strategy `type` is 'Recreate'"
            errors.append(fields.forbidden("spec.strategy.rollingUpdate", why))
        return errors


class ReplicaSetStrategy(TemplateStrategy):
    """Replica sets."""


class ReplicationControllerStrategy(TemplateStrategy):
    """Replication controllers: selector and labels come from the template."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        super().default(value)
        spec = value["spec"]
        mine = (spec["template"].get("metadata") or {}).get("labels") or {}
        if mine:
            if not spec.get("selector"):
                spec["selector"] = dict(mine)
            if not value["metadata"].get("labels"):
                value["metadata"]["labels"] = dict(mine)

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return what is wrong with the spec; the selector is a plain map."""
        spec = value["spec"]
        template = spec.get("template") or {}
        selector = spec.get("selector") or {}
        errors = _not_negative(spec, "replicas")
        mine = (template.get("metadata") or {}).get("labels") or {}
        if not selector:
            errors.append(fields.required("spec.selector"))
        elif not labels.from_mapping({"matchLabels": selector}).accepts(mine):
            why = "`selector` does not match template `labels`"
            errors.append(fields.invalid_value("spec.template.metadata.labels", mine, why))
        return errors + self.template_problems(template, "spec.template", _template(old))

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change; this kind's selector may change."""
        return self.validate(new, old)


class StatefulSetStrategy(TemplateStrategy):
    """Stateful sets."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        super().default(value)
        spec = value["spec"]
        spec.setdefault("podManagementPolicy", "OrderedReady")
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            strategy.setdefault("rollingUpdate", {}).setdefault("partition", 0)
        spec.setdefault("revisionHistoryLimit", 10)
        policy = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
        policy.setdefault("whenDeleted", "Retain")
        policy.setdefault("whenScaled", "Retain")
        for claim in spec.get("volumeClaimTemplates") or ():
            claim.setdefault("kind", "PersistentVolumeClaim")
            claim.setdefault("apiVersion", "v1")
            claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")
            claim["status"] = {"phase": "Pending"}

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin with no replicas."""
        value["status"] = {"replicas": 0, "availableReplicas": 0}

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return what is wrong with the spec; pods mount the claims made for them by name."""
        spec = value["spec"]
        made = {
            name: {"name": name, "emptyDir": {}}
            for claim in spec.get("volumeClaimTemplates") or ()
            if (name := (claim.get("metadata") or {}).get("name"))
        }
        if not made:
            return super().validate(value, old)
        template = spec.get("template") or {}
        inside = template.get("spec") or {}
        own = [each for each in inside.get("volumes") or () if each.get("name") not in made]
        inside = {**inside, "volumes": [*own, *made.values()]}
        seen = {**spec, "template": {**template, "spec": inside}}
        return super().validate({**value, "spec": seen}, old)

    def name_problems(self, name: str) -> list[str]:
        """Return why a name is none: it becomes a part of host names."""
        return names.label_problems(name)


class DaemonSetStrategy(TemplateStrategy):
    """Daemon sets."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        default_template(spec)
        strategy = spec.setdefault("updateStrategy", {})
        strategy.setdefault("type", "RollingUpdate")
        if strategy["type"] == "RollingUpdate":
            rolling = strategy.setdefault("rollingUpdate", {})
            rolling.setdefault("maxUnavailable", 1)
            rolling.setdefault("maxSurge", 0)
        spec.setdefault("revisionHistoryLimit", 10)

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin with nothing scheduled, and the first generation of the template."""
        value["status"] = dict.fromkeys(
            (
                "currentNumberScheduled",
                "numberMisscheduled",
                "desiredNumberScheduled",
                "numberReady",
            ),
            0,
        )
        _number_template(value, max(template_generation(value), 1))

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Count the changes of the template; a client may not set the number."""
        changed = new["spec"].get("template") != old["spec"].get("template")
        _number_template(new, template_generation(old) + changed)


def template_generation(daemon_set: JsonDict) -> int:
    """Return the number of a DaemonSet's template; its pods carry it as a label. 0 if it has none.

    Source: `spec.templateGeneration` of extensions/v1beta1, which lives on as an annotation.
    """
    text = (daemon_set["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION) or ""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else 0


def _number_template(value: JsonDict, number: int) -> None:
    metadata = value["metadata"]
    annotations = metadata.get("annotations") or {}
    metadata["annotations"] = {**annotations, TEMPLATE_GENERATION: str(number)}


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
        errors = [
            error
            for name in ("parallelism", "completions", "backoffLimit", "ttlSecondsAfterFinished")
            for error in _not_negative(spec, name)
        ]
        template = spec.get("template") or {}
        policy = (template.get("spec") or {}).get("restartPolicy")
        if policy == "Always":
            errors.append(
                fields.required(
                    "spec.template.spec.restartPolicy",
                    'valid values: "OnFailure", "Never"',
                )
            )
        if spec.get("completionMode") == "Indexed" and spec.get("completions") is None:
            why = "when completion mode is Indexed"
            errors.append(fields.required("spec.completions", why))
        errors += _failure_problems(spec, policy)
        known = ("Always", "OnFailure", "Never")
        before = _template(old)
        return errors + self.template_problems(template, "spec.template", before, restart=known)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change: selector, template and completions stay."""
        errors = self.validate(new, old)
        before, after = old["spec"], new["spec"]
        fixed = ["selector", "podFailurePolicy", "completionMode", "backoffLimitPerIndex"]
        if after.get("completionMode") != "Indexed":
            fixed.append("completions")
        if not before.get("suspend"):
            fixed.append("template")
        errors += [
            fields.invalid_value(f"spec.{name}", after.get(name), "field is immutable")
            for name in fixed
            if before.get(name) != after.get(name)
        ]
        return errors


def _failure_problems(spec: JsonDict, restart: str | None) -> list[FieldError]:
    """Return what is wrong with how a job counts its failures."""
    errors: list[FieldError] = []
    indexed = spec.get("completionMode") == "Indexed"
    per_index, most = spec.get("backoffLimitPerIndex"), spec.get("maxFailedIndexes")
    for name in ("backoffLimitPerIndex", "maxFailedIndexes", "successPolicy"):
        if spec.get(name) is not None and not indexed:
            why = "requires indexed completion mode"
            errors.append(fields.invalid_value(f"spec.{name}", spec[name], why))
    if most is not None and per_index is None:
        why = "when maxFailedIndexes is specified"
        errors.append(fields.required("spec.backoffLimitPerIndex", why))
    policy = spec.get("podFailurePolicy")
    if policy is None:
        return errors
    if restart != "Never":
        why = 'only "Never" is supported when podFailurePolicy is specified'
        path = "spec.template.spec.restartPolicy"
        errors.append(fields.invalid_value(path, restart or "", why))
    for number, rule in enumerate(policy.get("rules") or ()):
        path = f"spec.podFailurePolicy.rules[{number}]"
        action = rule.get("action") or ""
        if action not in ACTIONS:
            errors.append(fields.not_supported(f"{path}.action", action, ACTIONS))
        elif action == "FailIndex" and per_index is None:
            why = "requires the backoffLimitPerIndex to be set"
            errors.append(fields.invalid_value(f"{path}.action", action, why))
        if bool(rule.get("onExitCodes")) == bool(rule.get("onPodConditions")):
            why = "exactly one of OnExitCodes and OnPodConditions is required"
            errors.append(fields.invalid_value(path, "", why))
    return errors


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
        template = (spec["jobTemplate"].get("spec") or {}).get("template") or {}
        before = _template(None if old is None else old["spec"]["jobTemplate"])
        path = "spec.jobTemplate.spec.template"
        return errors + self.template_problems(
            template, path, before, restart=("OnFailure", "Never")
        )

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change."""
        return self.validate(new, old)

    def name_problems(self, name: str) -> list[str]:
        """Return why a name is none: the names of its jobs are eleven characters longer."""
        problems = names.subdomain_problems(name)
        if len(name) > 52:
            problems.append("must be no more than 52 characters")
        return problems
