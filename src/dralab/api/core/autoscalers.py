"""Horizontal autoscalers.

Source: k8s.io/kubernetes `pkg/apis/autoscaling/validation`, `pkg/apis/autoscaling/v1` and `v2`.
"""

from typing import Final

from dralab.api import fields
from dralab.api.core.access import any_name
from dralab.api.core.limits import container_resource_errors
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict, JsonObject

DEFAULT_CPU: Final = 80
# The field of each kind of source; the first that is there is looked into.
SOURCES: Final = {
    "object": "Object", "external": "External", "pods": "Pods", "resource": "Resource",
    "containerResource": "ContainerResource",
}  # fmt: skip


RULES: Final = RuleTables(globals(), any_name, container_resource_errors)


class AutoscalerStrategy(Strategy):
    """Horizontal autoscalers, in the form of v2."""

    status_rules = RULES["ValidateHorizontalPodAutoscalerStatusUpdate"]

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
        """Return the errors of the spec."""
        return self._errors(value, None)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the same; an API version of the target that did not change is not looked at."""
        return self._errors(new, old)

    def _errors(self, value: JsonDict, old: JsonDict | None) -> list[FieldError]:
        return RULES["validateHorizontalPodAutoscalerSpec"](value["spec"], "spec", old)


def low(spec: JsonObject) -> int:
    """Return the fewest replicas that an autoscaler may want."""
    least: int = spec.get("minReplicas", 1)
    return least


def _version_of_target(spec: JsonObject, path: str, old: JsonObject | None) -> list[FieldError]:
    target, before = spec.get("scaleTargetRef") or {}, old and old["spec"]["scaleTargetRef"]
    if before is not None and _version_of(target) == _version_of(before):
        return []
    # The only scalable kind of the core API.
    grouped = target.get("kind") != "ReplicationController"
    return _version_errors(target, f"{path}.scaleTargetRef", grouped=grouped)


def _version_of(target: JsonObject) -> tuple[str, str]:
    return target.get("apiVersion") or "", target.get("kind") or ""


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


def _version(target: JsonObject, path: str) -> list[FieldError]:
    return _version_errors(target, path, grouped=False)


def _source(metric: JsonObject, path: str) -> list[FieldError]:
    kind, errors = metric.get("type") or "", []
    given = [part for part in SOURCES if metric.get(part) is not None]
    if given:
        errors += RULES["metricSources"].checks[given[0]](metric[given[0]], f"{path}.{given[0]}")
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
