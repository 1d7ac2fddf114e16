"""Horizontal autoscalers.

Source: k8s.io/kubernetes `pkg/apis/autoscaling/validation`, `pkg/apis/autoscaling/v1` and `v2`.
"""

from typing import Final

from dralab.api import fields
from dralab.api.core.access import any_name
from dralab.api.core.limits import container_resource_errors
from dralab.api.core.statuses import count_errors, status_of
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values import names, quantity
from dralab.values.json_types import JsonDict, JsonObject

DEFAULT_CPU: Final = 80
LONGEST_WINDOW: Final = 3_600  # seconds
LONGEST_PERIOD: Final = 1_800
# The field of each kind of source; the first that is there is looked into.
SOURCES: Final = {
    "object": "Object", "external": "External", "pods": "Pods", "resource": "Resource",
    "containerResource": "ContainerResource",
}  # fmt: skip


class AutoscalerStrategy(Strategy):
    """Horizontal autoscalers, in the form of v2."""

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        spec.setdefault("minReplicas", 1)
        if value.get("apiVersion") == "autoscaling/v1":
            spec.setdefault("targetCPUUtilizationPercentage", DEFAULT_CPU)
            return
        if not spec.get("metrics"):
            target = {"type": "Utilization", "averageUtilization": DEFAULT_CPU}
            metric = {"type": "Resource", "resource": {"name": "cpu", "target": target}}
            spec["metrics"] = [metric]
        behavior = spec.get("behavior")
        if behavior:
            _default_scaling(behavior, "scaleUp", [("Pods", 4), ("Percent", 100)], window=0)
            _default_scaling(behavior, "scaleDown", [("Percent", 100)], window=None)

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin without a status."""
        value["status"] = {"desiredReplicas": 0, "currentMetrics": None}

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the spec."""
        return self._errors(value, None)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the same; an API version of the target that did not change is not looked at."""
        return self._errors(new, old)

    def _errors(self, value: JsonDict, old: JsonDict | None) -> list[FieldError]:
        spec = value["spec"]
        errors = []
        low, high = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
        if low < 1:
            why = "must be greater than or equal to 1"
            errors.append(fields.invalid_value("spec.minReplicas", low, why))
        if high == 0:
            errors.append(fields.required("spec.maxReplicas", "must be set and greater than 0"))
        elif high < 0:
            why = "must be greater than or equal to 1"
            errors.append(fields.invalid_value("spec.maxReplicas", high, why))
        if high < low:
            why = "must be greater than or equal to `minReplicas`"
            errors.append(fields.invalid_value("spec.maxReplicas", high, why))
        target, path = spec.get("scaleTargetRef") or {}, "spec.scaleTargetRef"
        # The only scalable kind of the core API.
        grouped = target.get("kind") != "ReplicationController"
        errors += _reference_errors(target, path)
        if old is None or _version_of(target) != _version_of(old["spec"]["scaleTargetRef"]):
            errors += _version_errors(target, path, grouped=grouped)
        metrics = spec.get("metrics") or ()
        for index, metric in enumerate(metrics):
            errors += _metric_errors(metric, f"spec.metrics[{index}]")
        if low == 0 and not {metric.get("type") for metric in metrics} & {"External", "Object"}:
            why = (
                "must specify at least one Object or External metric to support scaling to zero "
                "replicas"
            )
            errors.append(fields.forbidden("spec.metrics", why))
        behavior = spec.get("behavior") or {}
        for part in ("scaleUp", "scaleDown"):
            if part in behavior:
                errors += _behavior_errors(behavior[part], f"spec.behavior.{part}")
        return errors

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return what is wrong with the counts of replicas."""
        return count_errors(status_of(new), ("currentReplicas", "desiredReplicas"))


def _version_of(target: JsonObject) -> tuple[str, str]:
    return target.get("apiVersion") or "", target.get("kind") or ""


def _reference_errors(target: JsonObject, path: str) -> list[FieldError]:
    errors = []
    for part in ("kind", "name"):
        if not (text := target.get(part)):
            errors.append(fields.required(f"{path}.{part}"))
        else:
            errors += fields.each(f"{path}.{part}", text, any_name(text))
    return errors


def _version_errors(target: JsonObject, path: str, *, grouped: bool) -> list[FieldError]:
    errors = []
    version = target.get("apiVersion") or ""
    if version.count("/") > 1:
        why = f"unexpected GroupVersion string: {version}"
        errors.append(fields.invalid_value(f"{path}.apiVersion", version, why))
    elif grouped and not version.rpartition("/")[0]:
        why = "apiVersion must specify API group"
        errors.append(fields.invalid_value(f"{path}.apiVersion", version, why))
    return errors


def _metric_errors(metric: JsonObject, path: str) -> list[FieldError]:
    kind, errors = metric.get("type") or "", []
    if not kind:
        errors.append(fields.required(f"{path}.type", "must specify a metric source type"))
    if kind not in SOURCES.values():
        errors.append(fields.not_supported(f"{path}.type", kind, list(SOURCES.values())))
    given = [part for part in SOURCES if metric.get(part) is not None]
    if given:
        errors += _source_errors(given[0], metric[given[0]], f"{path}.{given[0]}")
    wanted = next((part for part, name in SOURCES.items() if name == kind), "")
    if wanted and wanted not in given:
        why = "must populate information for the given metric source"
        errors.append(fields.required(f"{path}.{wanted}", why))
    if not wanted:  # which is told twice
        errors.append(fields.not_supported(f"{path}.type", kind, list(SOURCES.values())))
    if len(given) != 1:
        why = "must populate the given metric source only"
        errors += [fields.forbidden(f"{path}.{part}", why) for part in given if part != wanted]
    return errors


def _source_errors(part: str, source: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with a source of metrics; what it must say depends on its kind."""
    target, errors = source.get("target") or {}, []
    at = f"{path}.target"
    amount, average = target.get("value"), target.get("averageValue")
    utilization = target.get("averageUtilization")
    if part == "object":
        described = source.get("describedObject") or {}
        errors += _reference_errors(described, f"{path}.describedObject")
        errors += _version_errors(described, f"{path}.describedObject", grouped=False)
    if part in {"external", "object", "pods"}:
        name = (source.get("metric") or {}).get("name") or ""
        where = f"{path}.metric.name"
        if not name:
            errors.append(fields.required(where, "must specify a metric name"))
        errors += fields.each(where, name, any_name(name))
    elif not (name := source.get("name")):
        errors.append(fields.required(f"{path}.name", "must specify a resource name"))
    elif part == "containerResource":
        errors += container_resource_errors(name, f"{path}.name")
    if part == "containerResource":
        container = source.get("container") or ""
        if not container:
            errors.append(fields.required(f"{path}.container", "must specify a container"))
        else:
            errors += fields.each(f"{path}.container", container, names.label_problems(container))
    errors += _metric_target_errors(target, at)
    match part:
        case "object" if amount is None and average is None:
            why = "must set either a target value or averageValue"
            errors.append(fields.required(f"{at}.averageValue", why))
        case "pods" if average is None:
            why = "must specify a positive target averageValue"
            errors.append(fields.required(f"{at}.averageValue", why))
        case "external" if amount is None and average is None:
            why = "must set either a target value for metric or a per-pod target"
            errors.append(fields.required(f"{at}.averageValue", why))
        case "external" if amount is not None and average is not None:
            why = "may not set both a target value for metric and a per-pod target"
            errors.append(fields.forbidden(f"{at}.value", why))
        case "resource" | "containerResource" if utilization is None and average is None:
            why = "must set either a target raw value or a target utilization"
            errors.append(fields.required(f"{at}.averageUtilization", why))
        case "resource" | "containerResource" if utilization is not None and average is not None:
            why = "may not set both a target raw value and a target utilization"
            errors.append(fields.forbidden(f"{at}.averageValue", why))
        case _:
            pass
    return errors


def _metric_target_errors(target: JsonObject, path: str) -> list[FieldError]:
    kind, errors = target.get("type") or "", []
    if not kind:
        errors.append(fields.required(f"{path}.type", "must specify a metric target type"))
    if kind not in {"AverageValue", "Utilization", "Value"}:
        why = "must be either Utilization, Value, or AverageValue"
        errors.append(fields.invalid_value(f"{path}.type", kind, why))
    for part in ("value", "averageValue"):
        amount = target.get(part)
        if amount is not None and quantity.parse(amount) <= 0:
            errors.append(fields.invalid_value(f"{path}.{part}", amount, "must be positive"))
    utilization = target.get("averageUtilization")
    if utilization is not None and utilization < 1:
        why = "must be greater than 0"
        errors.append(fields.invalid_value(f"{path}.averageUtilization", utilization, why))
    return errors


def _behavior_errors(rules: JsonObject, path: str) -> list[FieldError]:
    window, errors = rules.get("stabilizationWindowSeconds"), []
    at = f"{path}.stabilizationWindowSeconds"
    if window is not None and window < 0:
        why = "must be greater than or equal to zero"
        errors.append(fields.invalid_value(at, window, why))
    if window is not None and window > LONGEST_WINDOW:
        why = f"must be less than or equal to {LONGEST_WINDOW}"
        errors.append(fields.invalid_value(at, window, why))
    choice, known = rules.get("selectPolicy"), ["Disabled", "Max", "Min"]
    if choice is not None and choice not in known:
        errors.append(fields.not_supported(f"{path}.selectPolicy", choice, known))
    policies = rules.get("policies") or ()
    if not policies:
        why = "must specify at least one Policy"
        errors.append(fields.required(f"{path}.policies", why))
    for index, policy in enumerate(policies):
        where, kind = f"{path}.policies[{index}]", policy.get("type") or ""
        if kind not in {"Percent", "Pods"}:
            errors.append(fields.not_supported(f"{where}.type", kind, ["Percent", "Pods"]))
        for part in ("value", "periodSeconds"):
            if (number := policy.get(part) or 0) <= 0:
                why = "must be greater than zero"
                errors.append(fields.invalid_value(f"{where}.{part}", number, why))
        if (period := policy.get("periodSeconds") or 0) > LONGEST_PERIOD:
            why = f"must be less than or equal to {LONGEST_PERIOD}"
            errors.append(fields.invalid_value(f"{where}.periodSeconds", period, why))
    tolerance = rules.get("tolerance")
    if tolerance is not None and quantity.parse(tolerance) < 0:
        why = "must be greater than or equal to 0"
        errors.append(fields.invalid_value(f"{path}.tolerance", tolerance, why))
    return errors


def _default_scaling(
    behavior: JsonDict, name: str, policies: list[tuple[str, int]], *, window: int | None
) -> None:
    rules = behavior.setdefault(name, {})
    rules.setdefault("selectPolicy", "Max")
    if window is not None:
        rules.setdefault("stabilizationWindowSeconds", window)
    if "policies" not in rules:
        rules["policies"] = [
            {"type": kind, "value": value, "periodSeconds": 15} for kind, value in policies
        ]


def autoscaler_to_v2(value: JsonDict) -> JsonDict:
    """Return an autoscaling/v1 autoscaler in the form of v2."""
    spec = dict(value.get("spec") or {})
    found = {**value, "apiVersion": "autoscaling/v2", "spec": spec}
    target = spec.pop("targetCPUUtilizationPercentage", None)
    if target is not None:
        utilization = {"type": "Utilization", "averageUtilization": target}
        spec["metrics"] = [{"type": "Resource", "resource": {"name": "cpu", "target": utilization}}]
    status = dict(value.get("status") or {})
    current = status.pop("currentCPUUtilizationPercentage", None)
    status.setdefault("desiredReplicas", 0)
    status["currentMetrics"] = None
    if current is not None:
        amount = {"averageUtilization": current, "averageValue": "0"}
        status["currentMetrics"] = [
            {"type": "Resource", "resource": {"name": "cpu", "current": amount}}
        ]
    found["status"] = status
    return found


def autoscaler_to_v1(value: JsonDict) -> JsonDict:
    """Return an autoscaler in the form of autoscaling/v1; other metrics than CPU are lost."""
    spec = dict(value.get("spec") or {})
    found = {**value, "apiVersion": "autoscaling/v1", "spec": spec}
    for metric in spec.pop("metrics", None) or ():
        resource = metric.get("resource") or {}
        target = (resource.get("target") or {}).get("averageUtilization")
        if resource.get("name") == "cpu" and target is not None:
            spec["targetCPUUtilizationPercentage"] = target
    spec.pop("behavior", None)
    status = dict(value.get("status") or {})
    metrics = status.pop("currentMetrics", None)
    status.pop("conditions", None)
    for metric in metrics or ():
        resource = metric.get("resource") or {}
        amount = (resource.get("current") or {}).get("averageUtilization")
        if resource.get("name") == "cpu" and amount is not None:
            status["currentCPUUtilizationPercentage"] = amount
    status.setdefault("currentReplicas", 0)
    status.setdefault("desiredReplicas", 0)
    found["status"] = status
    return found
