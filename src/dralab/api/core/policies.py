"""Disruption budgets, webhook configurations and admission policies."""

from typing import Final

from dralab.api.conditions import condition_errors
from dralab.api.core.access import any_name
from dralab.api.core.addresses import amount_or_percent_errors
from dralab.api.core.webhook_clients import default_webhook_client
from dralab.api.label_selectors import label_selector_problems
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict

RULES: Final = RuleTables(
    globals(), amount_or_percent_errors, condition_errors, label_selector_problems
)


class BudgetStrategy(Strategy):
    """Pod disruption budgets."""

    unconditional = False
    rules = RULES["ValidatePodDisruptionBudget"]
    status_rules = RULES["ValidatePodDisruptionBudgetStatus"]

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Begin without a status."""
        value["status"] = dict.fromkeys(
            ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods"), 0
        )

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name as a path segment; upstream requires nothing else."""
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
            default_webhook_client(hook.get("clientConfig"))


class AdmissionPolicyStrategy(Strategy):
    """Admission policies."""

    status_keeps = frozenset()
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
