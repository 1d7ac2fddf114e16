"""The environment of a container: variables, and what they are taken from."""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.volume_sources import step_back_errors
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables, qualified
from dralab.values import names, quantity
from dralab.values.json_types import JsonObject

# The fields of a pod that a variable, and a file of a volume, can show.
IN_VARIABLES: Final = (
    "metadata.name", "metadata.namespace", "metadata.uid", "spec.nodeName",
    "spec.serviceAccountName", "status.hostIP", "status.hostIPs", "status.podIP", "status.podIPs",
)  # fmt: skip
IN_FILES: Final = (
    "metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace",
    "metadata.uid",
)  # fmt: skip
WITH_KEYS: Final = ("metadata.annotations", "metadata.labels")
KNOWN_FIELDS: Final = {*IN_VARIABLES, *IN_FILES, "spec.host", "spec.restartPolicy",
                       "spec.schedulerName", "status.phase"}  # fmt: skip
AMOUNTS: Final = (
    "limits.cpu", "limits.ephemeral-storage", "limits.memory", "requests.cpu",
    "requests.ephemeral-storage", "requests.memory",
)  # fmt: skip
HUGE: Final = ("limits.hugepages-", "requests.hugepages-")
BYTES: Final = ("1", "1k", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei")
DIVISORS: Final = {
    "cpu": (("1m", "1"), "values 1m and 1 are supported with the cpu resource"),
    "memory": (BYTES, f"values {', '.join(BYTES)} are supported with the memory resource"),
    "ephemeral-storage": (
        BYTES, f"values {', '.join(BYTES)} are supported with the local ephemeral storage resource"
    ),
    "hugepages": (BYTES, f"values {', '.join(BYTES)} are supported with the hugepages resource"),
}  # fmt: skip
ONE_SOURCE: Final = "may not have more than one field specified at a time"
NO_SOURCE: Final = (
    "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, `secretKeyRef` or "
    "`fileKeyRef`"
)


RULES: Final = RuleTables(globals(), step_back_errors)
ENV: Final = RULES["ValidateEnv"]


def _source_of_value(variable: JsonObject, path: str) -> list[FieldError]:
    source = variable.get("valueFrom")
    if source is None:
        return []
    value, path = variable.get("value"), f"{path}.valueFrom"
    errors: list[FieldError] = []
    given = [
        (part, check)
        for part, check in RULES["validateEnvVarValueFrom"].checks.items()
        if source.get(part) is not None
    ]
    for part, check in given:
        errors += check(source[part], f"{path}.{part}")
    if not given:
        errors.append(fields.invalid_value(path, "", NO_SOURCE))
    elif value:
        why = "may not be specified when `value` is not empty"
        errors.append(fields.invalid_value(path, "", why))
    elif len(given) > 1:
        errors.append(fields.invalid_value(path, "", ONE_SOURCE))
    return errors


def _beginning_of_name(name: str, path: str) -> list[FieldError]:
    # A last hyphen counts for nothing.
    whole = name[:-1] + "a" if name.endswith("-") else name
    return fields.each(path, name, names.subdomain_problems(whole))


def whole_sources(sources: Sequence[JsonObject], path: str) -> list[FieldError]:
    """All keys of one config map or secret each are variables."""
    errors = []
    for index, source in enumerate(sources):
        errors += RULES["ValidateEnvFrom"](source, f"{path}[{index}]")
        given = [source.get(part) is not None for part in ("configMapRef", "secretRef")]
        if not any(given):
            why = "must specify one of: `configMapRef` or `secretRef`"
            errors.append(fields.invalid_value(path, "", why))
        elif all(given):
            errors.append(fields.invalid_value(path, "", ONE_SOURCE))
    return errors


def field_reference(
    reference: JsonObject, path: str, known: tuple[str, ...] = IN_VARIABLES
) -> list[FieldError]:
    """Return the errors of a field of the pod that is shown to it."""
    if errors := RULES["validateObjectFieldSelector"](reference, path)[:1]:
        return errors
    version, shown = reference["apiVersion"], reference["fieldPath"]
    at, (name, bracket, key) = f"{path}.fieldPath", shown.removesuffix("']").partition("['")
    keyed = bool(bracket and name and shown.endswith("']"))
    if why := _unreadable(version, shown, name if keyed else shown, keyed=keyed):
        return [fields.invalid_value(at, shown, f"error converting fieldPath: {why}")]
    if keyed:
        return qualified(key.lower() if name == "metadata.annotations" else key, path)
    shown = "spec.nodeName" if shown == "spec.host" else shown
    return [] if shown in known else [fields.not_supported(at, shown, known)]


def _unreadable(version: str, field: str, name: str, *, keyed: bool) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if keyed and name not in WITH_KEYS:
        return f"field label does not support subscript: {field}"
    return "" if name in KNOWN_FIELDS else f"field label not supported: {field}"


def resource_reference(
    reference: JsonObject, path: str, *, in_file: bool = False
) -> list[FieldError]:
    """Return the errors of a request or limit that is shown to a container."""
    errors, resource = [], reference.get("resource") or ""
    if in_file and not reference.get("containerName"):
        errors.append(fields.required(f"{path}.containerName"))
    elif not resource:
        errors.append(fields.required(f"{path}.resource"))
    elif resource not in AMOUNTS and not resource.startswith(HUGE):
        errors.append(fields.not_supported(f"{path}.resource", resource, AMOUNTS))
    divisor = reference.get("divisor")
    kind = "hugepages" if resource.startswith(HUGE) else resource.partition(".")[2]
    if divisor and kind in DIVISORS and (resource in AMOUNTS or kind == "hugepages"):
        known, which = DIVISORS[kind]
        if quantity.parse(divisor) and quantity.canonical(str(divisor)) not in known:
            why = f"only divisor's {which}"
            errors.append(fields.invalid_value(f"{path}.divisor", resource, why))
    return errors
