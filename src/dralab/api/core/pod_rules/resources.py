"""What containers and pods ask for: amounts, limits, claims, and what a resize restarts."""

from collections.abc import Callable, Collection, Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.limits import (
    HUGE_PAGES,
    amount_errors,
    container_resource_errors,
    resource_name_errors,
)
from dralab.api.core.pod_rules.facts import Surroundings
from dralab.api.core.pod_rules.parts import WINDOWS
from dralab.api.fields import FieldError
from dralab.api.rules import label
from dralab.values import quantity
from dralab.values.container_sums import at_peak
from dralab.values.json_types import JsonObject

Names = Callable[[str, str], list[FieldError]]

COMPUTE: Final = frozenset({"cpu", "memory"})
OF_PODS: Final = ("cpu", "hugepages-", "memory")
RESIZED: Final = ("cpu", "memory")
RESIZES: Final = ("NotRequired", "RestartContainer")


def container_resources(resources: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    """Return the errors of what a container asks for."""
    return requirements(resources, path, around.claims)


def overhead(amounts: JsonObject, path: str) -> list[FieldError]:
    """Return the errors of what a pod takes beside its containers: it is like limits."""
    return requirements({"limits": amounts}, path)


def requirements(
    resources: JsonObject,
    path: str,
    claims: Collection[str] = (),
    named: Names = container_resource_errors,
) -> list[FieldError]:
    """Return the errors of requests, limits and claims; `named` judges resources' names."""
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    errors: list[FieldError] = []
    for name, amount in limits.items():
        errors += _amount(name, amount, f"{path}.limits[{name}]", named)
    for name, amount in requests.items():
        errors += _amount(name, amount, f"{path}.requests[{name}]", named)
        errors += _within_limit(name, amount, limits.get(name), path)
        if name.startswith(HUGE_PAGES):
            errors += _pages(name, amount, f"{path}.requests[{name}]")
    given = {*limits, *requests}
    if not given & COMPUTE and any(name.startswith(HUGE_PAGES) for name in given):
        errors.append(fields.forbidden(path, "HugePages require cpu or memory"))
    if used := resources.get("claims"):
        errors += _claims(used, claims, f"{path}.claims")
    return errors


def _amount(name: str, amount: str, path: str, named: Names) -> list[FieldError]:
    errors = named(name, path) + amount_errors(name, amount, path)
    is_limit = path.rpartition("[")[0].endswith(".limits")
    return errors + (_pages(name, amount, path) if is_limit else [])


def _pages(name: str, amount: str, path: str) -> list[FieldError]:
    """Return whether an amount of huge pages is not a number of whole ones."""
    if not name.startswith(HUGE_PAGES):
        return []
    text = name.removeprefix(HUGE_PAGES)
    size = quantity.parse(text) if quantity.is_quantity(text) else 0
    if size > 0 and size == int(size) and quantity.parse(amount) % size == 0:
        return []
    why = f"{amount} is not positive integer multiple of {name}"
    return [fields.invalid_value(path, amount, why)]


def _within_limit(name: str, amount: str, limit: str | None, path: str) -> list[FieldError]:
    native = "/" not in name or "kubernetes.io/" in name
    shareable = native and not name.startswith(HUGE_PAGES)
    if limit is None:
        why = "Limit must be set for non overcommitable resources"
        return [] if shareable else [fields.required(f"{path}.limits", why)]
    wanted, most = quantity.parse(amount), quantity.parse(limit)
    if wanted != most and not shareable:
        why = f"must be equal to {name} limit of {limit}"
    elif wanted > most:
        why = f"must be less than or equal to {name} limit of {limit}"
    else:
        return []
    return [fields.invalid_value(f"{path}.requests", amount, why)]


def _claims(used: Collection[JsonObject], known: Collection[str], path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    seen: set[str] = set()
    partly: set[str] = set()
    for index, claim in enumerate(used):
        at, name, request = f"{path}[{index}]", claim.get("name") or "", claim.get("request") or ""
        if not name:
            errors.append(fields.required(at))
            continue
        key = f"{name}/{request}" if request else name
        if name in seen:
            errors.append(fields.duplicate(at, name))
        else:
            errors += label(request, f"{at}.request") if request else []
            if key in seen or (not request and name in partly):
                errors.append(fields.duplicate(at, key))
            seen.add(key)
            if request:
                partly.add(name)
        if name not in known:
            names = ": " + ", ".join(sorted(known)) if known else " which is empty"
            why = f"must be one of the names in pod.spec.resourceClaims{names}"
            errors.append(FieldError("FieldValueNotFound", at, name, why))
    return errors


def resize_policy(rules: Sequence[JsonObject], path: str, around: Surroundings) -> list[FieldError]:
    """Return the errors of what a change of resources restarts."""
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, rule in enumerate(rules):
        name, policy = rule.get("resourceName") or "", rule.get("restartPolicy") or ""
        if name in seen:
            errors.append(fields.duplicate(f"{path}[{index}]", name))
        seen.add(name)
        # Upstream names the list and not its item from here on.
        for value, known in ((name, RESIZED), (policy, RESIZES)):
            if not value:
                errors.append(fields.required(path))
            elif value not in known:
                errors.append(fields.not_supported(path, value, known))
        if around.restart == "Never" and policy != "NotRequired":
            why = "must be 'NotRequired' when pod `restartPolicy` is 'Never'"
            errors.append(fields.invalid_value(path, policy, why))
    return errors


def _pod_resource_errors(name: str, path: str) -> list[FieldError]:
    errors = resource_name_errors(name, path)
    if errors or name in COMPUTE or name.startswith(HUGE_PAGES):
        return errors
    return [fields.not_supported(path, name, OF_PODS)]


def pod_resources(spec: JsonObject, path: str) -> list[FieldError]:
    """Return the errors of the resources of the pod itself, given those of its containers."""
    resources = spec.get("resources")
    if resources is None:
        return []
    at = f"{path}.resources"
    if (spec.get("os") or {}).get("name") == WINDOWS:
        return [fields.forbidden(at, "may not be set for a windows pod")]
    errors: list[FieldError] = []
    if resources.get("claims") is not None:
        why = "claims may not be set for Resources at pod-level"
        errors.append(fields.forbidden(f"{at}.claims", why))
    errors += requirements(resources, at, named=_pod_resource_errors)
    errors += _less_than_containers(spec, resources, "requests", at)
    errors += _less_than_containers(spec, resources, "limits", at)
    limits = resources.get("limits") or {}
    for index, container in enumerate(spec.get("containers") or ()):
        for name, amount in ((container.get("resources") or {}).get("limits") or {}).items():
            most = limits.get(name)
            if most is not None and quantity.parse(amount) > quantity.parse(most):
                here = f"{at}.containers[{index}][{name}].limits"
                why = f"must be less than or equal to pod limits of {most}"
                errors.append(fields.invalid_value(here, amount, why))
    return errors


def _less_than_containers(
    spec: JsonObject, resources: JsonObject, part: str, path: str
) -> list[FieldError]:
    """Return where a pod has less than its containers together; of limits only huge pages."""

    def of(container: JsonObject) -> dict[str, quantity.Number]:
        amounts = (container.get("resources") or {}).get(part) or {}
        return {name: quantity.parse_any(amount) for name, amount in amounts.items()}

    errors = []
    for name, needed in at_peak(spec, of).items():
        mine = (resources.get(part) or {}).get(name)
        if mine is None or (part == "limits" and not name.startswith(HUGE_PAGES)):
            continue
        if needed > quantity.parse(mine):
            shown = quantity.render(needed, "DecimalSI" if name == "cpu" else "BinarySI")
            why = f"must be greater than or equal to aggregate container {part} of {shown}"
            errors.append(fields.invalid_value(f"{path}.{part}[{name}]", mine, why))
    return errors
