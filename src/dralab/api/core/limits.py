"""Limit ranges and quotas: validation.

Source: k8s.io/kubernetes `pkg/apis/core/validation`, `pkg/apis/core/helper`.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values import names, quantity
from dralab.values.json_types import JsonDict, JsonObject

CONTAINER_RESOURCES: Final = frozenset({"cpu", "memory", "ephemeral-storage"})
COUNTED: Final = frozenset(
    {
        "configmaps", "persistentvolumeclaims", "pods", "replicationcontrollers",
        "resourcequotas", "secrets", "services", "services.loadbalancers", "services.nodeports",
    }
)  # fmt: skip
QUOTA_RESOURCES: Final = (
    COUNTED
    | CONTAINER_RESOURCES
    | {f"{part}.{name}" for part in ("limits", "requests") for name in CONTAINER_RESOURCES}
    | {"requests.storage"}
)
RESOURCES: Final = QUOTA_RESOURCES | {"storage"}
HUGE_PAGES: Final = "hugepages-"
LIMIT_TYPES: Final = frozenset({"Container", "PersistentVolumeClaim", "Pod"})
COMPUTE: Final = frozenset(
    {"cpu", "memory", "limits.cpu", "limits.memory", "requests.cpu", "requests.memory"}
)
VOLUME_SCOPE: Final = "VolumeAttributesClass"
POD_SCOPES: Final = frozenset(
    {"CrossNamespacePodAffinity", "NotBestEffort", "NotTerminating", "PriorityClass", "Terminating"}
)
SCOPES: Final = POD_SCOPES | {"BestEffort", VOLUME_SCOPE}
CONFLICTS: Final = (("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating"))
NO_SELECTOR: Final = (
    "must be 'Exists' when scope is any of ResourceQuotaScopeTerminating, "
    "ResourceQuotaScopeNotTerminating, ResourceQuotaScopeBestEffort, "
    "ResourceQuotaScopeNotBestEffort or ResourceQuotaScopeCrossNamespacePodAffinity"
)


def resource_name_errors(name: str, path: str) -> list[FieldError]:
    """Return the errors of the name of any resource."""
    errors = fields.each(path, name, names.qualified_problems(name))
    huge = (HUGE_PAGES, f"requests.{HUGE_PAGES}")
    if not errors and "/" not in name and name not in RESOURCES and not name.startswith(huge):
        why = "must be a standard resource type or fully qualified"
        errors.append(fields.invalid_value(path, name, why))
    return errors


def container_resource_errors(name: str, path: str) -> list[FieldError]:
    """Return the errors of the name of a resource of containers."""
    errors = resource_name_errors(name, path)
    if "/" not in name:
        if name not in CONTAINER_RESOURCES and not name.startswith(HUGE_PAGES):
            why = "must be a standard resource for containers"
            errors.append(fields.invalid_value(path, name, why))
    elif "kubernetes.io/" not in name and not is_extended(name):
        why = "doesn't follow extended resource name standard"
        errors.append(fields.invalid_value(path, name, why))
    return errors


def is_extended(name: str) -> bool:
    """Return whether a resource is an extended one, by its name."""
    if "/" not in name or "kubernetes.io/" in name or name.startswith("requests."):
        return False
    return names.is_qualified(f"requests.{name}")


def amount_errors(name: str, amount: str, path: str) -> list[FieldError]:
    """Return the errors of an amount of a resource."""
    number = quantity.parse(amount)
    errors = []
    if number < 0:
        why = "must be greater than or equal to 0"
        errors.append(fields.invalid_value(path, amount, why))
    if (name in COUNTED or is_extended(name)) and number * 1000 % 1000:
        errors.append(fields.invalid_value(path, amount, "must be an integer"))
    return errors


class LimitRangeStrategy(Strategy):
    """Limit ranges: missing defaults follow from the limits."""

    creates_on_update = True

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out."""
        for limit in (value.get("spec") or {}).get("limits") or ():
            if limit.get("type") != "Container":
                continue
            default = limit.setdefault("default", {})
            for name, amount in (limit.get("max") or {}).items():
                default.setdefault(name, amount)
            request = limit.setdefault("defaultRequest", {})
            for name, amount in default.items():
                request.setdefault(name, amount)
            for name, amount in (limit.get("min") or {}).items():
                request.setdefault(name, amount)
            for part in ("default", "defaultRequest"):
                if not limit[part]:
                    del limit[part]

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of the limits."""
        errors, seen = [], set()
        for index, limit in enumerate((value.get("spec") or {}).get("limits") or ()):
            path, kind = f"spec.limits[{index}]", limit.get("type") or ""
            problems = fields.each(f"{path}.type", kind, names.qualified_problems(kind))
            if not problems and "/" not in kind and kind not in LIMIT_TYPES:
                why = "must be a standard limit type or fully qualified"
                problems.append(fields.invalid_value(f"{path}.type", kind, why))
            errors += problems
            if kind in seen:
                errors.append(fields.duplicate(f"{path}.type", kind))
            seen.add(kind)
            errors += _limit_errors(limit, kind, path)
        return errors


def _limit_errors(limit: JsonObject, kind: str, path: str) -> list[FieldError]:
    errors = []
    name_errors = (
        container_resource_errors if kind in {"Container", "Pod"} else resource_name_errors
    )
    amounts: dict[str, Mapping[str, str]] = {}
    for part in ("max", "min", "default", "defaultRequest"):
        given = limit.get(part) or {}
        if kind == "Pod" and part.startswith("default"):
            if given:
                why = "may not be specified when `type` is 'Pod'"
                errors.append(fields.forbidden(f"{path}.{part}", why))
            continue
        amounts[part] = given
        for name in given:
            errors += name_errors(name, f"{path}.{part}[{name}]")
    if kind == "PersistentVolumeClaim" and not {"storage"} & {*amounts["min"], *amounts["max"]}:
        why = "either minimum or maximum storage value is required, but neither was provided"
        errors.append(fields.required(f"{path}.limits", why))
    amounts["maxLimitRequestRatio"] = limit.get("maxLimitRequestRatio") or {}
    for name in amounts["maxLimitRequestRatio"]:
        errors += name_errors(name, f"{path}.maxLimitRequestRatio[{name}]")
    for name in dict.fromkeys(name for given in amounts.values() for name in given):
        given = {part: texts[name] for part, texts in amounts.items() if name in texts}
        errors += _comparison_errors(name, given, path)
    return errors


# (the smaller, the greater, the field that is blamed, the value that is shown, the sentence)
ORDERED: Final = (
    ("min", "max", "min", "min", "min value {} is greater than max value {}"),
    (
        "min", "defaultRequest", "defaultRequest", "defaultRequest",
        "min value {} is greater than default request value {}",
    ),
    (
        "defaultRequest", "max", "defaultRequest", "defaultRequest",
        "default request value {} is greater than max value {}",
    ),
    (
        "defaultRequest", "default", "defaultRequest", "defaultRequest",
        "default request value {} is greater than default limit value {}",
    ),
    ("min", "default", "default", "min", "min value {} is greater than default value {}"),
    ("default", "max", "default", "max", "default value {} is greater than max value {}"),
)  # fmt: skip


def _comparison_errors(name: str, given: Mapping[str, str], path: str) -> list[FieldError]:
    numbers = {part: quantity.parse(text) for part, text in given.items()}
    errors = []
    for low, high, blamed, shown, sentence in ORDERED:
        if low in numbers and high in numbers and numbers[low] > numbers[high]:
            why = sentence.format(given[low], given[high])
            errors.append(fields.invalid_value(f"{path}.{blamed}[{name}]", given[shown], why))
    ratio = given.get("maxLimitRequestRatio")
    if ratio is not None:
        at, number = f"{path}.maxLimitRequestRatio[{name}]", numbers["maxLimitRequestRatio"]
        if number < 1:
            errors.append(fields.invalid_value(at, ratio, f"ratio {ratio} is less than 1"))
        if numbers.get("min") and "max" in numbers:
            most = float(numbers["max"] / numbers["min"])
            if number > most:
                why = f"ratio {ratio} is greater than max/min = {most:f}"
                errors.append(fields.invalid_value(at, ratio, why))
    if (
        (is_extended(name) or name.startswith(HUGE_PAGES))
        and {"default", "defaultRequest"} <= set(given)
        and numbers["default"] != numbers["defaultRequest"]
    ):
        why = (
            f"default value {given['default']} must equal to defaultRequest value "
            f"{given['defaultRequest']} in {name}"
        )
        at = f"{path}.defaultRequest[{name}]"
        errors.append(fields.invalid_value(at, given["defaultRequest"], why))
    return errors


class ResourceQuotaStrategy(Strategy):
    """Quotas."""

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of the spec."""
        spec = value.get("spec") or {}
        hard = spec.get("hard") or {}
        errors = _amounts_errors(hard, "spec.hard")
        scopes = spec.get("scopes") or ()
        errors += _scope_errors(scopes, hard)
        selector = spec.get("scopeSelector") or {}
        return errors + _selector_errors(selector, hard)

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002
        """Return the errors of the amounts in the status."""
        status = new.get("status") or {}
        return [
            error
            for part in ("hard", "used")
            for error in _amounts_errors(status.get(part) or {}, f"status.{part}")
        ]

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change: the scopes stay."""
        errors = self.validate(new)
        before, after = ((each.get("spec") or {}).get("scopes") or () for each in (old, new))
        if set(before) != set(after):
            shown = list(after) or None
            errors.append(fields.invalid_value("spec.scopes", shown, "field is immutable"))
        return errors


def _amounts_errors(amounts: Mapping[str, str], path: str) -> list[FieldError]:
    errors = []
    for name, amount in amounts.items():
        at = f"{path}[{name}]"
        errors += resource_name_errors(name, at)
        if "/" not in name and not _is_quota_resource(name):
            why = "must be a standard resource for quota"
            errors.append(fields.invalid_value(at, name, why))
        errors += amount_errors(name, amount, at)
    return errors


def _is_quota_resource(name: str) -> bool:
    return name in QUOTA_RESOURCES or name.startswith((HUGE_PAGES, f"requests.{HUGE_PAGES}"))


def _fits(scope: str, resource: str) -> bool:
    """Return whether a scope narrows what a resource counts."""
    if scope in POD_SCOPES:
        return resource == "pods" or resource in COMPUTE
    if scope == "BestEffort":
        return resource == "pods"
    if scope == VOLUME_SCOPE:
        return resource in {"persistentvolumeclaims", "requests.storage"}
    return True


def _scope_errors(scopes: Sequence[str], hard: Mapping[str, str]) -> list[FieldError]:
    path, shown = "spec.scopes", list(scopes)
    errors = []
    for scope in scopes:
        if scope not in SCOPES:
            errors.append(fields.invalid_value(path, shown, "unsupported scope"))
        why = "unsupported scope applied to resource"
        errors += [
            fields.invalid_value(path, shown, why)
            for resource in sorted(hard)
            if _is_quota_resource(resource) and not _fits(scope, resource)
        ]
    return errors + _conflicts(scopes, path, shown)


def _conflicts(scopes: Sequence[str], path: str, shown: Sequence[str] | None) -> list[FieldError]:
    return [
        fields.invalid_value(path, shown, "conflicting scopes")
        for pair in CONFLICTS
        if set(pair) <= set(scopes)
    ]


def _selector_errors(selector: JsonObject, hard: Mapping[str, str]) -> list[FieldError]:
    path = "spec.scopeSelector.matchExpressions"
    errors, scopes = [], []
    for item in selector.get("matchExpressions") or ():
        scope, operator = item.get("scopeName") or "", item.get("operator") or ""
        values = item.get("values") or ()
        if scope not in SCOPES:
            errors.append(fields.invalid_value(f"{path}.scopeName", scope, "unsupported scope"))
        why = "unsupported scope applied to resource"
        errors += [
            fields.invalid_value(path, dict(selector), why)
            for resource in sorted(hard)
            if _is_quota_resource(resource) and not _fits(scope, resource)
        ]
        if scope in SCOPES - {"PriorityClass", VOLUME_SCOPE} and operator != "Exists":
            errors.append(fields.invalid_value(f"{path}.operator", operator, NO_SELECTOR))
        if operator in {"In", "NotIn"}:
            if not values:
                why = (
                    "must be at least one value when `operator` is 'In' or 'NotIn' for scope "
                    "selector"
                )
                errors.append(fields.required(f"{path}.values", why))
        elif operator in {"DoesNotExist", "Exists"}:
            if values:
                why = (
                    "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope "
                    "selector"
                )
                errors.append(fields.invalid_value(f"{path}.values", list(values), why))
        else:
            why = "not a valid selector operator"
            errors.append(fields.invalid_value(f"{path}.operator", operator, why))
        scopes.append(scope)
    return errors + _conflicts(scopes, path, None)
