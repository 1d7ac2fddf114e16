"""Taints of devices, tolerations of requests, and rules that taint from outside."""

from collections.abc import Mapping
from typing import Any, Final

from dralab.api.conditions import condition_errors
from dralab.api.fields import FieldError, invalid_value, not_supported, required, too_many
from dralab.api.resource.validation.names import (
    driver_errors,
    label_errors,
    label_key_errors,
    label_value_errors,
    pool_errors,
)

EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
OPERATORS: Final = ("Equal", "Exists")
MAX_RULE_CONDITIONS: Final = 8


def taint_errors(
    taint: Mapping[str, Any], path: str, old: Mapping[str, Any] | None = None
) -> list[FieldError]:
    """Return what is wrong with a taint; an effect that was there before stays valid."""
    found = label_key_errors(taint.get("key") or "", f"{path}.key")
    value, effect = taint.get("value"), taint.get("effect") or ""
    if value:
        found += label_value_errors(value, f"{path}.value")
    if old is None or (old.get("effect") or "") != effect:
        if not effect:
            found.append(required(f"{path}.effect"))
        elif effect not in EFFECTS:
            found.append(not_supported(f"{path}.effect", effect, EFFECTS))
    return found


def toleration_errors(toleration: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return what is wrong with a toleration."""
    found: list[FieldError] = []
    key, value = toleration.get("key"), toleration.get("value") or ""
    if key:
        found += label_key_errors(key, f"{path}.key")
    match toleration.get("operator") or "":
        case "Exists":
            if value:
                text = "must be empty for operator `Exists`"
                found.append(invalid_value(f"{path}.value", value, text))
        case "Equal":
            found += label_value_errors(value, f"{path}.value")
        case "":
            found.append(required(f"{path}.operator"))
        case operator:
            found.append(not_supported(f"{path}.operator", operator, OPERATORS))
    effect = toleration.get("effect")
    if effect and effect not in EFFECTS:
        found.append(not_supported(f"{path}.effect", effect, EFFECTS))
    return found


def rule_errors(
    spec: Mapping[str, Any], path: str, old: Mapping[str, Any] | None = None
) -> list[FieldError]:
    """Return what is wrong with the spec of a DeviceTaintRule."""
    found: list[FieldError] = []
    selector = spec.get("deviceSelector")
    if selector is not None:
        if selector.get("driver") is not None:
            found += driver_errors(selector["driver"], f"{path}.deviceSelector.driver")
        if selector.get("pool") is not None:
            found += pool_errors(selector["pool"], f"{path}.deviceSelector.pool")
        if selector.get("device") is not None:
            found += label_errors(selector["device"], f"{path}.deviceSelector.device")
    before = None if old is None else old.get("taint") or {}
    return found + taint_errors(spec.get("taint") or {}, f"{path}.taint", before)


def rule_status_errors(status: Mapping[str, Any], path: str) -> list[FieldError]:
    """Return what is wrong with the status of a DeviceTaintRule."""
    conditions = status.get("conditions") or ()
    found = condition_errors(conditions, f"{path}.conditions")
    if len(conditions) > MAX_RULE_CONDITIONS:
        found.append(too_many(f"{path}.conditions", len(conditions), MAX_RULE_CONDITIONS))
    return found
