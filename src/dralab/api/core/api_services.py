"""APIServices: what they must be.

Source: k8s.io/kube-aggregator `pkg/apis/apiregistration/validation`, `v1` (defaults).
"""

from typing import Any, Final

from dralab.api import fields
from dralab.api.core.access import any_name
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values.json_types import JsonDict
from dralab.values.names import label_1035_problems, subdomain_problems

HTTPS: Final = 443
PORTS: Final = 65535
MOST: Final = {"groupPriorityMinimum": 20000, "versionPriority": 1000}


class ApiServiceStrategy(Strategy):
    """APIServices, whose names say what they are for."""

    status_keeps = frozenset()

    def name_problems(self, name: str) -> list[str]:
        """Return why a name is none; `validate` compares it with the group and version."""
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

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return what is wrong with an APIService."""
        spec = value.get("spec") or {}
        group, version = spec.get("group") or "", spec.get("version") or ""
        name, wanted = value["metadata"].get("name") or "", f"{version}.{group}"
        errors = []
        if name != wanted:
            why = f'must be `spec.version+"."+spec.group`: "{wanted}"'
            errors.append(fields.invalid_value("metadata.name", name, why))
        if not group and version != "v1":
            why = "only v1 may have an empty group and it better be legacy kube"
            errors.append(fields.required("spec.group", why))
        if group:
            errors += [
                fields.invalid_value("spec.group", group, why) for why in subdomain_problems(group)
            ]
        errors += [
            fields.invalid_value("spec.version", version, why)
            for why in label_1035_problems(version)
        ]
        for part, most in MOST.items():
            number = spec.get(part) or 0
            if not 0 < number <= most:
                why = f"must be positive and less than {most}"
                errors.append(fields.invalid_value(f"spec.{part}", number, why))
        return errors + _server_errors(spec)


def _server_errors(spec: dict[str, Any]) -> list[FieldError]:
    """Return what is wrong with the Service, or with what only a Service may have."""
    service, bundle = spec.get("service"), spec.get("caBundle")
    insecure = bool(spec.get("insecureSkipTLSVerify"))
    errors = []
    if service is None:
        if bundle:
            why = "local APIServices may not have a caBundle"
            size = f"{len(bundle) * 3 // 4 - bundle.count('=')} bytes"
            errors.append(fields.invalid_value("spec.caBundle", size, why))
        if insecure:
            why = "local APIServices may not have insecureSkipTLSVerify"
            errors.append(fields.invalid_value("spec.insecureSkipTLSVerify", insecure, why))
        return errors
    errors += [
        fields.required(f"spec.service.{part}")
        for part in ("namespace", "name")
        if not service.get(part)
    ]
    port = service.get("port") or 0
    if not 0 < port <= PORTS:
        why = f"port is not valid: must be between 1 and {PORTS}, inclusive"
        errors.append(fields.invalid_value("spec.service.port", port, why))
    if insecure and bundle:
        why = "may not be true if caBundle is present"
        errors.append(fields.invalid_value("spec.insecureSkipTLSVerify", insecure, why))
    return errors
