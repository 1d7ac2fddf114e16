"""What a node calls in a container: probes, and hooks at the start and the end."""

from collections.abc import Sequence
from typing import Any, Final

from dralab.api import fields
from dralab.api.core.addresses import each
from dralab.api.core.pod_rules.parts import choice, not_negative, port
from dralab.api.core.volume_sources import missing
from dralab.api.fields import FieldError
from dralab.values import names
from dralab.values.json_types import JsonObject

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
OF_PROBES: Final = ("exec", "httpGet", "tcpSocket", "grpc")
OF_HOOKS: Final = ("exec", "httpGet", "tcpSocket", "sleep")
COUNTED: Final = (
    "initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold",
    "failureThreshold",
)  # fmt: skip
SCHEMES: Final = ("HTTP", "HTTPS")


def probes_and_hooks(container: JsonObject, grace: int | None, path: str) -> list[FieldError]:
    """Return what is wrong with the hooks and probes of a container that keeps running."""
    errors: list[FieldError] = []
    if (hooks := container.get("lifecycle")) is not None:
        errors += _lifecycle(hooks, grace, f"{path}.lifecycle")
    for name in PROBES:
        if (probe := container.get(name)) is not None:
            errors += _probe(probe, name, f"{path}.{name}")
    return errors


def _probe(probe: JsonObject, name: str, path: str) -> list[FieldError]:
    errors = _handler(probe, OF_PROBES, None, path)
    for part in COUNTED:
        errors += not_negative(probe, part, path)
    grace = probe.get("terminationGracePeriodSeconds")
    at = f"{path}.terminationGracePeriodSeconds"
    if grace is not None and grace <= 0:
        errors.append(fields.invalid_value(at, grace, "must be greater than 0"))
    if name == "readinessProbe":
        if grace is not None:
            why = "must not be set for readinessProbes"
            errors.append(fields.invalid_value(at, grace, why))
    elif (times := probe.get("successThreshold", 0)) != 1:
        errors.append(fields.invalid_value(f"{path}.successThreshold", times, "must be 1"))
    return errors


def _handler(
    handler: JsonObject, kinds: Sequence[str], grace: int | None, path: str
) -> list[FieldError]:
    given = [kind for kind in kinds if handler.get(kind) is not None]
    if not given:
        return [fields.required(path, "must specify a handler type")]
    errors = _action(given[0], handler[given[0]], grace, f"{path}.{given[0]}")
    why = "may not specify more than 1 handler type"
    return errors + [fields.forbidden(f"{path}.{kind}", why) for kind in given[1:]]


def _action(kind: str, action: Any, grace: int | None, path: str) -> list[FieldError]:
    if kind == "exec":
        return missing(action, path, "command")
    if kind == "sleep":
        seconds = action.get("seconds") or 0
        if grace is None or 0 <= seconds <= grace:
            return []
        why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
        return [fields.invalid_value(path, seconds, why)]
    errors = missing(action, path, "path") if kind == "httpGet" else []
    errors += port(action.get("port", 0), f"{path}.port")
    if kind == "httpGet":
        errors += choice(action, "scheme", SCHEMES, path)
        for header in action.get("httpHeaders") or ():
            name = header.get("name") or ""
            errors += each(f"{path}.httpHeaders", name, names.header_problems(name))
    return errors


def _lifecycle(hooks: JsonObject, grace: int | None, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    for name in ("postStart", "preStop"):
        if (hook := hooks.get(name)) is not None:
            errors += _handler(hook, OF_HOOKS, grace, f"{path}.{name}")
    return errors
