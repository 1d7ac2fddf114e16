"""The environment of a container: variables, and what they are taken from."""

from collections.abc import Callable
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import each
from dralab.api.core.pod_rules.parts import label, qualified, subdomain
from dralab.api.core.volume_sources import missing, step_back_errors
from dralab.api.fields import FieldError
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


def environment(container: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with the variables of a container."""
    errors: list[FieldError] = []
    for index, variable in enumerate(container.get("env") or ()):
        at, name = f"{path}.env[{index}]", variable.get("name") or ""
        if not name:
            errors.append(fields.required(f"{at}.name"))
        else:
            errors += each(f"{at}.name", name, names.variable_problems(name))
        if (source := variable.get("valueFrom")) is not None:
            errors += _source(source, variable.get("value") or "", f"{at}.valueFrom")
    for index, whole in enumerate(container.get("envFrom") or ()):
        errors += _whole(whole, f"{path}.envFrom", index)
    return errors


def _source(source: JsonObject, value: str, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    given = [(part, check) for part, check in SOURCES.items() if source.get(part) is not None]
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


def _whole(source: JsonObject, path: str, index: int) -> list[FieldError]:
    """Return what is wrong with a config map or secret of which each key is a variable."""
    at, errors, given = f"{path}[{index}]", [], 0
    if prefix := source.get("prefix"):
        errors += each(f"{at}.prefix", prefix, names.variable_problems(prefix))
    for part in ("configMapRef", "secretRef"):
        if (reference := source.get(part)) is None:
            continue
        given += 1
        name = reference.get("name") or ""
        if not name:
            errors.append(fields.required(f"{at}.{part}.name"))
        else:
            # Either may be the beginning of a name: a last hyphen counts for nothing.
            problems = names.subdomain_problems(name[:-1] + "a" if name.endswith("-") else name)
            errors += each(f"{at}.{part}.name", name, problems)
    if not given:
        why = "must specify one of: `configMapRef` or `secretRef`"
        errors.append(fields.invalid_value(path, "", why))
    elif given > 1:
        errors.append(fields.invalid_value(path, "", ONE_SOURCE))
    return errors


def field_reference(
    reference: JsonObject, path: str, known: tuple[str, ...] = IN_VARIABLES
) -> list[FieldError]:
    """Return what is wrong with a field of the pod that is shown to it."""
    version, field = reference.get("apiVersion") or "", reference.get("fieldPath") or ""
    for part, text in (("apiVersion", version), ("fieldPath", field)):
        if not text:
            return [fields.required(f"{path}.{part}")]
    at, (name, bracket, key) = f"{path}.fieldPath", field.removesuffix("']").partition("['")
    keyed = bool(bracket and name and field.endswith("']"))
    if why := _unreadable(version, field, name if keyed else field, keyed=keyed):
        return [fields.invalid_value(at, field, f"error converting fieldPath: {why}")]
    if keyed:
        return qualified(key.lower() if name == "metadata.annotations" else key, path)
    field = "spec.nodeName" if field == "spec.host" else field
    return [] if field in known else [fields.not_supported(at, field, known)]


def _unreadable(version: str, field: str, name: str, *, keyed: bool) -> str:
    if version != "v1":
        return f"unsupported pod version: {version}"
    if keyed and name not in WITH_KEYS:
        return f"field label does not support subscript: {field}"
    return "" if name in KNOWN_FIELDS else f"field label not supported: {field}"


def resource_reference(
    reference: JsonObject, path: str, *, in_file: bool = False
) -> list[FieldError]:
    """Return what is wrong with a request or limit that is shown to a container."""
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


def _key(reference: JsonObject, path: str) -> list[FieldError]:
    errors = subdomain(reference.get("name") or "", f"{path}.name")
    key = reference.get("key") or ""
    if not key:
        return [*errors, fields.required(f"{path}.key")]
    return errors + each(f"{path}.key", key, names.config_key_problems(key))


def _in_file(reference: JsonObject, path: str) -> list[FieldError]:
    errors = []
    checks: tuple[tuple[str, Callable[[str, str], list[FieldError]]], ...] = (
        ("key", lambda text, at: each(at, text, names.variable_problems(text))),
        ("volumeName", label),
        ("path", step_back_errors),
    )
    for part, check in checks:
        text = reference.get(part)
        errors += check(text, f"{path}.{part}") if text else missing(reference, path, part)
    return errors


SOURCES: Final[dict[str, Callable[[JsonObject, str], list[FieldError]]]] = {
    "fieldRef": field_reference,
    "resourceFieldRef": resource_reference,
    "configMapKeyRef": _key,
    "secretKeyRef": _key,
    "fileKeyRef": _in_file,
}
