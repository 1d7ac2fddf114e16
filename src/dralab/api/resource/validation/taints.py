"""Taints of devices, tolerations of requests, and rules that taint from outside."""

from collections.abc import Mapping
from typing import Any, Final

from dralab.api.conditions import condition_errors
from dralab.api.fields import FieldError, not_supported, required, too_many
from dralab.api.resource.validation.names import (
    driver_errors,
    label_errors,
    label_key_errors,
    label_value_errors,
    pool_errors,
)
from dralab.api.rules import RuleTables

EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
MAX_RULE_CONDITIONS: Final = 8
RULES: Final = RuleTables(globals(), driver_errors, label_errors, label_key_errors, pool_errors)
taint_errors: Final = RULES["validateDeviceTaint"]
"""What is wrong with a taint; an effect that was there before stays valid."""
toleration_errors: Final = RULES["validateDeviceToleration"]
rule_errors: Final = RULES["validateDeviceTaintRuleSpec"]
"""What is wrong with the spec of a DeviceTaintRule, given the one before if there is one."""


def _effect(taint: Mapping[str, Any], path: str, old: Mapping[str, Any] | None) -> list[FieldError]:
    effect, at = taint.get("effect") or "", f"{path}.effect"
    if effect in EFFECTS or (old is not None and (old.get("effect") or "") == effect):
        return []
    return [not_supported(at, effect, EFFECTS) if effect else required(at)]


def _value_of_equal(toleration: Mapping[str, Any], path: str) -> list[FieldError]:
    if toleration.get("operator") != "Equal":
        return []
    return label_value_errors(toleration.get("value") or "", f"{path}.value")


def _taint_of_rule(
    spec: Mapping[str, Any], path: str, old: Mapping[str, Any] | None
) -> list[FieldError]:
    before = None if old is None else old.get("taint") or {}
    return taint_errors(spec.get("taint") or {}, f"{path}.taint", before)


def rule_status_errors(status: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return the errors of the status of a DeviceTaintRule."""
    conditions = status.get("conditions") or ()
    found = condition_errors(conditions, f"{path}.conditions")
    if len(conditions) > MAX_RULE_CONDITIONS:
        found.append(too_many(f"{path}.conditions", len(conditions), MAX_RULE_CONDITIONS))
    return found
