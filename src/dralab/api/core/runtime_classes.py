"""Validation of Runtime classes.

Source: k8s.io/kubernetes `pkg/apis/node/validation`.
"""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.limits import amount_errors, container_resource_errors
from dralab.api.core.pod_rules.tolerations import TOLERATION
from dralab.api.fields import FieldError
from dralab.api.metadata import label_problems
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonObject

PARTS: Final = ("key", "operator", "value", "effect")


RULES: Final = RuleTables(globals(), TOLERATION, label_problems)


class RuntimeClassStrategy(Strategy):
    """Runtime classes: the handler stays."""

    unconditional = False
    rules = RULES["ValidateRuntimeClass"]
    change_rules = RULES["ValidateRuntimeClassUpdate"]


def _overhead(amounts: JsonObject, path: str) -> list[FieldError]:  # noqa: ARG001
    errors = []
    for name, amount in amounts.items():
        at = f"overhead.limits[{name}]"  # as upstream checks them: like a container's limits
        errors += container_resource_errors(name, at) + amount_errors(name, amount, at)
    return errors


def _distinct(tolerations: Sequence[JsonObject], path: str) -> list[FieldError]:
    errors, seen = [], []
    for index, toleration in enumerate(tolerations):
        key = [toleration.get(part) for part in PARTS]
        if key in seen:
            seconds = {"TolerationSeconds": toleration.get("tolerationSeconds")}
            shown = {part.title(): text or "" for part, text in zip(PARTS, key, strict=True)}
            errors.append(fields.duplicate(f"{path}[{index}]", shown | seconds))
        seen.append(key)
    return errors
