"""Scaling, budgets and what hooks into the server."""

from typing import Final

from dralab.api import fields
from dralab.api.core.access import any_name
from dralab.api.core.addresses import amount_or_percent_errors
from dralab.api.core.pods import label_selector_problems
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict

DEFAULT_CPU: Final = 80


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
        spec = value["spec"]
        errors = []
        low, high = spec.get("minReplicas", 1), spec.get("maxReplicas", 0)
        if low < 1:
            why = "must be greater than or equal to 1"
            errors.append(fields.invalid_value("spec.minReplicas", low, why))
        if high < 1:
            errors.append(fields.invalid_value("spec.maxReplicas", high, "must be greater than 0"))
        elif high < low:
            why = "must be greater than or equal to `minReplicas`"
            errors.append(fields.invalid_value("spec.maxReplicas", high, why))
        target = spec.get("scaleTargetRef") or {}
        errors += [
            fields.required(f"spec.scaleTargetRef.{part}")
            for part in ("kind", "name")
            if not target.get(part)
        ]
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


class BudgetStrategy(Strategy):
    """Pod disruption budgets."""

    unconditional = False

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin without a status."""
        value["status"] = dict.fromkeys(
            ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
        )

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the spec."""
        spec = value.get("spec") or {}
        errors = []
        given = [part for part in ("minAvailable", "maxUnavailable") if part in spec]
        if len(given) > 1:
            why = "minAvailable and maxUnavailable cannot be both set"
            errors.append(fields.invalid_value("spec", _in_go(spec), why))
        for part in given:
            errors += amount_or_percent_errors(spec[part], f"spec.{part}")
        if spec.get("selector"):
            errors += label_selector_problems(spec["selector"], "spec.selector")
        policy, known = spec.get("unhealthyPodEvictionPolicy"), ["AlwaysAllow", "IfHealthyBudget"]
        if policy is not None and policy not in known:
            errors.append(fields.not_supported("spec.unhealthyPodEvictionPolicy", policy, known))
        return errors

    def name_problems(self, name: str) -> list[str]:
        """Return why a name cannot be a part of a path; upstream asks for no more."""
        return any_name(name)


def _in_go(spec: JsonDict) -> JsonDict:
    """Return the spec of a budget by the names that its fields have in Go."""
    names = ("minAvailable", "selector", "maxUnavailable", "unhealthyPodEvictionPolicy")
    return {name[0].upper() + name[1:]: spec.get(name) for name in names}


class WebhookStrategy(Strategy):
    """Webhook configurations; `mutating` ones may be called again."""

    unconditional = False

    def __init__(self, *, mutating: bool) -> None:
        self.mutating = mutating

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        for hook in value.get("webhooks") or ():
            hook.setdefault("failurePolicy", "Fail")
            hook.setdefault("matchPolicy", "Equivalent")
            hook.setdefault("namespaceSelector", {})
            hook.setdefault("objectSelector", {})
            hook.setdefault("timeoutSeconds", 10)
            if self.mutating:
                hook.setdefault("reinvocationPolicy", "Never")
            for rule in hook.get("rules") or ():
                rule.setdefault("scope", "*")
            service = (hook.get("clientConfig") or {}).get("service")
            if service is not None:
                service.setdefault("port", 443)


class AdmissionPolicyStrategy(Strategy):
    """Admission policies."""

    unconditional = False

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        spec = value.setdefault("spec", {})
        spec.setdefault("failurePolicy", "Fail")
        for name in ("matchConstraints", "matchResources"):
            if name in spec:
                match = spec[name]
                match.setdefault("matchPolicy", "Equivalent")
                match.setdefault("namespaceSelector", {})
                match.setdefault("objectSelector", {})
                for part in ("resourceRules", "excludeResourceRules"):
                    for rule in match.get(part) or ():
                        rule.setdefault("scope", "*")
