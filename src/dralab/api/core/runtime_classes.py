"""Runtime classes: what they must be.

Source: k8s.io/kubernetes `pkg/apis/node/validation`.
"""

from typing import Final

from dralab.api import fields
from dralab.api.core.limits import amount_errors, container_resource_errors
from dralab.api.core.pod_rules.tolerations import TOLERATION
from dralab.api.fields import FieldError
from dralab.api.metadata import label_problems
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

PARTS: Final = ("key", "operator", "value", "effect")


class RuntimeClassStrategy(Strategy):
    """Runtime classes: the handler stays."""

    unconditional = False

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with the class."""
        handler = value.get("handler") or ""
        if not handler:
            errors = [fields.required("handler")]
        else:
            errors = fields.each("handler", handler, names.label_problems(handler))
        for name, amount in ((value.get("overhead") or {}).get("podFixed") or {}).items():
            path = f"overhead.limits[{name}]"  # as upstream checks them: like a container's limits
            errors += container_resource_errors(name, path)
            errors += amount_errors(name, amount, path)
        return errors + _scheduling_errors(value.get("scheduling") or {})

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return what is wrong with the change."""
        errors, handler = self.validate(new), new.get("handler") or ""
        if handler != old.get("handler"):
            errors.append(fields.invalid_value("handler", handler, "field is immutable"))
        return errors


def _scheduling_errors(scheduling: JsonObject) -> list[FieldError]:
    errors = label_problems(scheduling.get("nodeSelector") or {}, "scheduling.nodeSelector")
    seen = []
    tolerations = scheduling.get("tolerations") or ()
    for index, toleration in enumerate(tolerations):
        path = f"scheduling.tolerations[{index}]"
        errors += TOLERATION(toleration, path)
    for index, toleration in enumerate(tolerations):
        key = [toleration.get(part) for part in PARTS]
        if key in seen:
            path = f"scheduling.tolerations[{index}]"
            seconds = {"TolerationSeconds": toleration.get("tolerationSeconds")}
            shown = {part.title(): text or "" for part, text in zip(PARTS, key, strict=True)}
            errors.append(fields.duplicate(path, shown | seconds))
        seen.append(key)
    return errors
