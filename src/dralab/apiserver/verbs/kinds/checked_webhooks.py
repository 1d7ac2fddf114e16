"""Checks of webhook configurations before they are stored.

Source of rules and words: k8s.io/kubernetes `pkg/apis/admissionregistration/validation`,
k8s.io/apiserver `pkg/util/webhook/validation.go`.
"""

from collections.abc import Iterator
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import domain_errors
from dralab.api.core.policies import WebhookStrategy
from dralab.api.core.webhook_clients import review_version_errors, webhook_client_errors
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.apiserver.verbs.kinds.checked_policies import condition_problems, rule_problems
from dralab.values.json_types import JsonDict

CHOICES: Final = {"failurePolicy": ("Fail", "Ignore"), "matchPolicy": ("Equivalent", "Exact")}
AGAIN: Final = ("IfNeeded", "Never")
SIDE_EFFECTS: Final = ("None", "NoneOnDryRun")
LONGEST_WAIT: Final = 30  # seconds


class CheckedWebhooks(WebhookStrategy):
    """Webhook configurations, whose conditions must compile."""

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a configuration."""
        errors: list[FieldError] = []
        seen = set()
        for index, hook in enumerate(value.get("webhooks") or ()):
            path, name = f"webhooks[{index}]", hook.get("name") or ""
            errors += self._hook_errors(hook, path)
            errors += review_version_errors(
                hook.get("admissionReviewVersions") or (), f"{path}.admissionReviewVersions"
            )
            if name and name in seen:
                errors.append(fields.duplicate(f"{path}.name", name))
            seen.add(name)
        return errors

    def _hook_errors(self, hook: JsonDict, path: str) -> Iterator[FieldError]:
        from dralab.apiserver.access.admission.expressions import environment

        yield from domain_errors(hook.get("name") or "", f"{path}.name", labels=3)
        for index, rule in enumerate(hook.get("rules") or ()):
            yield from rule_problems(rule, f"{path}.rules[{index}]")
        for part, known in CHOICES.items():
            if (given := hook.get(part)) not in known:
                yield fields.not_supported(f"{path}.{part}", given, known)
        if (effects := hook.get("sideEffects")) is None:
            why = f"must specify one of {', '.join(SIDE_EFFECTS)}"
            yield fields.required(f"{path}.sideEffects", why)
        elif effects not in SIDE_EFFECTS:
            yield fields.not_supported(f"{path}.sideEffects", effects, SIDE_EFFECTS)
        timeout = hook.get("timeoutSeconds")
        if timeout is not None and not 1 <= timeout <= LONGEST_WAIT:
            why = f"the timeout value must be between 1 and {LONGEST_WAIT} seconds"
            yield fields.invalid_value(f"{path}.timeoutSeconds", timeout, why)
        for part in ("namespaceSelector", "objectSelector"):
            yield from label_selector_problems(hook.get(part) or {}, f"{path}.{part}")
        if self.mutating and (again := hook.get("reinvocationPolicy")) not in AGAIN:
            yield fields.not_supported(f"{path}.reinvocationPolicy", again, AGAIN)
        yield from webhook_client_errors(hook.get("clientConfig") or {}, f"{path}.clientConfig")
        conditions, at = hook.get("matchConditions") or (), f"{path}.matchConditions"
        yield from condition_problems(conditions, at, environment(params=False))
