"""apps/v1: workloads that keep pods running."""

from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import amount_of, amount_or_percent_errors
from dralab.api.core.pods import WithPods, default_template
from dralab.api.core.statuses import COLLISIONS, replica_errors
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems, shown_selector
from dralab.api.rules import Ruleset, RuleTables
from dralab.api.strategy import Strategy
from dralab.values import labels
from dralab.values.json_types import JsonDict

QUARTER: Final = "25%"
DEPLOYMENT_COUNTS: Final = (
    "observedGeneration", "replicas", "updatedReplicas", "readyReplicas", "availableReplicas",
    "unavailableReplicas", "terminatingReplicas", COLLISIONS,
)  # fmt: skip
SET_COUNTS: Final = (
    "replicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas",
    "observedGeneration", "terminatingReplicas",
)  # fmt: skip
DAEMON_COUNTS: Final = (
    "currentNumberScheduled", "numberMisscheduled", "desiredNumberScheduled", "numberReady",
    "observedGeneration", "updatedNumberScheduled", "numberAvailable", "numberUnavailable",
    COLLISIONS,
)  # fmt: skip
TEMPLATE_GENERATION: Final = "deprecated.daemonset.template.generation"


RULES: Final = RuleTables(globals())


def template_of(obj: JsonDict | None) -> JsonDict | None:
    """Return the template of pods that an object had."""
    return None if obj is None else (obj.get("spec") or {}).get("template")


class TemplateStrategy(WithPods):
    """What kinds with a selector and a template of pods have in common.

    `called` is the kind in messages about an empty selector, `template_in` in those about the
    template. Where a selector is `unreadable`, that is said, and the template is not looked at;
    None says to look at it nevertheless. `first` are the rules before those of the template, which
    also get the object before, `later` those after them.
    """

    called = "deployment"
    template_in = "ReplicaSet"
    must_select = True
    unreadable: str | None = "invalid label selector"
    first = RULES["ValidateReplicaSetSpec"]
    later = Ruleset("")

    def default(self, value: JsonDict) -> None:
        """Fill in the template, one replica, ten revisions."""
        spec = value.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        default_template(spec)

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin with no replicas."""
        value["status"] = {"replicas": 0}

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return the errors of the spec."""
        spec = value["spec"]
        template, path = spec.get("template") or {}, "spec.selector"
        errors = self.first(spec, "spec", old)
        selector = spec.get("selector")
        wrong = [] if selector is None else label_selector_problems(selector, path)
        if selector is None and self.must_select:
            errors.append(fields.required(path))
        elif selector is not None and not any(selector.values()):
            why = f"empty selector is invalid for {self.called}"
            errors.append(fields.invalid_value(path, selector, why))
        if wrong and self.unreadable is not None:
            errors += [
                *wrong,
                fields.invalid_value(path, shown_selector(selector or {}), self.unreadable),
            ]
        else:
            errors += [*wrong, *self.all_template_problems(template, selector, old)]
        return errors + self.later(spec, "spec")

    def all_template_problems(
        self, template: JsonDict, selector: JsonDict | None, old: JsonDict | None
    ) -> list[FieldError]:
        """Return the errors of a template; a selector that is missing selects nothing."""
        mine, path = (template.get("metadata") or {}).get("labels") or {}, "spec.template"
        errors = []
        if selector is None or not _selects(selector, mine):
            why = "`selector` does not match template `labels`"
            errors.append(fields.invalid_value(f"{path}.metadata.labels", mine or None, why))
        errors += self.template_problems(template, path, template_of(old))
        if (template.get("spec") or {}).get("activeDeadlineSeconds") is not None:
            why = f"activeDeadlineSeconds in {self.template_in} is not Supported"
            errors.append(fields.forbidden(f"{path}.spec.activeDeadlineSeconds", why))
        return errors

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:
        """Return the warnings about the template."""
        template = value["spec"].get("template") or {}
        return self.template_warnings(template, "spec.template", value, old)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: selectors stay."""
        errors = self.validate(new, old)
        selector = new["spec"].get("selector")
        if selector != old["spec"].get("selector"):
            shown = shown_selector(selector)
            errors.append(fields.invalid_value("spec.selector", shown, "field is immutable"))
        return errors


def _selects(selector: JsonDict, mine: JsonDict) -> bool:
    """Return whether a selector selects these labels; one that cannot be read is not compared."""
    if label_selector_problems(selector, ""):
        return True
    return labels.from_mapping(selector).accepts(mine)


class DeploymentStrategy(TemplateStrategy):
    """Deployments."""

    # Annotations count as wanted: the controller copies them to its replica sets.
    counted = ("annotations",)
    status_keeps = frozenset({"annotations", "finalizers", "ownerReferences"})
    first = RULES["ValidateDeploymentSpec"]
    later = RULES["ValidateDeploymentSpec/more"]

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

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the counts of replicas."""
        return replica_errors(
            new, old, DEPLOYMENT_COUNTS, DEPLOYMENT_COUNTS[2:5], ready="readyReplicas"
        )


def _strategy(strategy: JsonDict, path: str) -> list[FieldError]:
    kind, rolling = strategy.get("type"), strategy.get("rollingUpdate")
    if kind == "Recreate":
        if rolling is None:
            return []
        why = "may not be specified when strategy `type` is 'Recreate'"
        return [fields.forbidden(f"{path}.rollingUpdate", why)]
    if kind != "RollingUpdate":
        return [fields.not_supported(path, _in_go(strategy), ["Recreate", "RollingUpdate"])]
    rolling, at = rolling or {}, f"{path}.rollingUpdate"
    down, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    errors = amount_or_percent_errors(down, f"{at}.maxUnavailable", most=None)
    errors += amount_or_percent_errors(surge, f"{at}.maxSurge", most=None)
    if not amount_of(down) and not amount_of(surge):
        why = "may not be 0 when `maxSurge` is 0"
        errors.append(fields.invalid_value(f"{at}.maxUnavailable", down, why))
    return errors + [
        error
        for error in amount_or_percent_errors(down, f"{at}.maxUnavailable")
        if error not in errors
    ]


def _in_go(strategy: JsonDict) -> JsonDict:
    """Return a strategy by the names that its fields have in Go."""
    rolling = strategy.get("rollingUpdate")
    if rolling is not None:
        parts = ("MaxUnavailable", "MaxSurge")
        rolling = {part: rolling.get(part[0].lower() + part[1:], 0) for part in parts}
    return {"Type": strategy.get("type", ""), "RollingUpdate": rolling}


class ReplicaSetStrategy(TemplateStrategy):
    """Replica sets."""

    called = "deployment"

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the counts of replicas."""
        return replica_errors(new, old, SET_COUNTS, SET_COUNTS[1:4], ready="readyReplicas")


class ReplicationControllerStrategy(TemplateStrategy):
    """Replication controllers: selector and labels come from the template."""

    prefixed = False
    orphans = True
    template_in = "ReplicationController"

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out, but for a template."""
        spec = value.setdefault("spec", {})
        spec.setdefault("replicas", 1)
        if spec.get("template") is None:
            return
        default_template(spec)
        mine = (spec["template"].get("metadata") or {}).get("labels") or {}
        if mine:
            if not spec.get("selector"):
                spec["selector"] = dict(mine)
            if not value["metadata"].get("labels"):
                value["metadata"]["labels"] = dict(mine)

    def validate(self, value: JsonDict, old: JsonDict | None = None) -> list[FieldError]:
        """Return the errors of the spec; the selector is a plain map."""
        spec = value["spec"]
        selector = spec.get("selector") or {}
        errors = RULES["ValidateReplicationControllerSpec"](spec, "spec")
        if spec.get("template") is None:
            return errors
        plain = {"matchLabels": selector} if selector else {}
        errors += self.all_template_problems(spec["template"], plain, old)
        mine = (spec["template"].get("metadata") or {}).get("labels") or {}
        path, why = "spec.template.metadata.labels", "`selector` does not match template `labels`"
        told = any((error.field, error.detail) == (path, why) for error in errors)
        if not told and any(mine.get(key) != text for key, text in selector.items()):
            # The selector is not judged itself: no label is like it.
            errors.append(fields.invalid_value(path, mine or None, why))
        return errors

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the counts of replicas."""
        return replica_errors(new, old, SET_COUNTS, SET_COUNTS[1:4], ready="readyReplicas")

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change; this kind's selector may change."""
        return self.validate(new, old)


class RevisionStrategy(Strategy):
    """Controller revisions: the data stays."""

    rules = RULES["ValidateControllerRevision"]
    change_rules = RULES["ValidateControllerRevisionUpdate"]


class DaemonSetStrategy(TemplateStrategy):
    """Daemon sets."""

    called = "daemonset"
    template_in = "DaemonSet"
    must_select = False
    unreadable = None
    first = Ruleset("")
    later = RULES["ValidateDaemonSetSpec"]

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
        # Upstream's internal type has a number, which is always written: its writer owns it.
        _number_template(value, template_generation(value))

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

    def prepare_status(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Keep the number of the template: it is of the spec, which a status leaves alone."""
        _number_template(new, template_generation(old))

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the counts of pods."""
        return replica_errors(new, old, DAEMON_COUNTS, (), ready="readyReplicas")

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: the selector stays."""
        selector, errors = new["spec"].get("selector"), []
        if selector != old["spec"].get("selector"):
            shown = shown_selector(selector)
            errors.append(fields.invalid_value("spec.selector", shown, "field is immutable"))
        return errors + self.validate(new, old)


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


def _daemon_strategy(strategy: JsonDict, path: str) -> list[FieldError]:
    if strategy.get("type") == "OnDelete":
        return []
    if strategy.get("type") != "RollingUpdate":
        known = ("RollingUpdate", "OnDelete")
        return [fields.not_supported(path, _in_go(strategy), known, ordered=True)]
    rolling, path = strategy.get("rollingUpdate") or {}, f"{path}.rollingUpdate"
    down, surge = rolling.get("maxUnavailable", 0), rolling.get("maxSurge", 0)
    errors = amount_or_percent_errors(down, f"{path}.maxUnavailable")
    errors += amount_or_percent_errors(surge, f"{path}.maxSurge")
    if amount_of(down) and amount_of(surge):
        why = "may not be set when maxUnavailable is non-zero"
        errors.append(fields.invalid_value(f"{path}.maxSurge", surge, why))
    elif not amount_of(down) and not amount_of(surge):
        errors.append(fields.required(f"{path}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return errors
