"""Validation of APIServices.

Source: k8s.io/kube-aggregator `pkg/apis/apiregistration/validation`, `v1` (defaults).
"""

from typing import Final

from dralab.api import fields
from dralab.api.core.access import any_name
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict, JsonObject

HTTPS: Final = 443


RULES: Final = RuleTables(globals())


class ApiServiceStrategy(Strategy):
    """APIServices: their names are the version and group."""

    status_keeps = frozenset()
    rules = RULES["ValidateAPIService"]

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name; `validate` compares it with the group and version."""
        return any_name(name)

    def default(self, value: JsonDict) -> None:
        """Aggregated API servers are reached by HTTPS."""
        service = (value.get("spec") or {}).get("service")
        if isinstance(service, dict):
            service.setdefault("port", HTTPS)

    def prepare_create(self, value: JsonDict, now: str) -> None:
        """Begin available, if no other server answers for the version."""
        value["status"] = {}
        if (value.get("spec") or {}).get("service") is None:
            condition = {
                "type": "Available",
                "status": "True",
                "lastTransitionTime": now,
                "reason": "Local",
                "message": "Local APIServices are always available",
            }
            value["status"] = {"conditions": [condition]}


def size_of(spec: JsonObject) -> str:
    """Return how many bytes a bundle has, as errors show it."""
    bundle = spec["caBundle"]
    return f"{len(bundle) * 3 // 4 - bundle.count('=')} bytes"


def _named_by_version(value: JsonObject, path: str) -> list[FieldError]:  # noqa: ARG001
    spec, name = value.get("spec") or {}, value["metadata"].get("name") or ""
    wanted = f"{spec.get('version') or ''}.{spec.get('group') or ''}"
    if name == wanted:
        return []
    why = f'must be `spec.version+"."+spec.group`: "{wanted}"'
    return [fields.invalid_value("metadata.name", name, why)]
