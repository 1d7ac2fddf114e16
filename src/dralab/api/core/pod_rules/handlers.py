"""What a node calls in a container: probes, and hooks at the start and the end."""

from collections.abc import Mapping
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.facts import Surroundings
from dralab.api.core.pod_rules.parts import not_negative, port
from dralab.api.fields import FieldError
from dralab.api.rules import Ruleset, at_least, field, needs, one_of
from dralab.values import names
from dralab.values.json_types import JsonObject

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


def headers(action: JsonObject, path: str) -> list[FieldError]:
    """Names of headers have the form of names; upstream leaves their places out."""
    return [
        error
        for header in action.get("httpHeaders") or ()
        for name in [header.get("name") or ""]
        for error in fields.each(f"{path}.httpHeaders", name, names.header_problems(name))
    ]


def within_grace(sleep: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    """A hook does not sleep for longer than a pod takes to end."""
    seconds, grace = sleep.get("seconds") or 0, around.grace
    if grace is None or 0 <= seconds <= grace:
        return []
    why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [fields.invalid_value(path, seconds, why)]


EXEC: Final = Ruleset("core.validateExecAction", needs("command"))
HTTP_GET: Final = Ruleset(
    "core.validateHTTPGetAction",
    needs("path"),
    field("port", port, absent=0),
    needs("scheme", one_of("HTTP", "HTTPS", ordered=True)),
    headers,
)
TCP_SOCKET: Final = Ruleset("core.validateTCPSocketAction", field("port", port, absent=0))
SLEEP: Final = Ruleset("core.validateSleepAction", within_grace)
OF_PROBES: Final = {"exec": EXEC, "httpGet": HTTP_GET, "tcpSocket": TCP_SOCKET, "grpc": TCP_SOCKET}
OF_HOOKS: Final = {"exec": EXEC, "httpGet": HTTP_GET, "tcpSocket": TCP_SOCKET, "sleep": SLEEP}


def _one_handler(
    handler: JsonObject, kinds: Mapping[str, Ruleset], path: str, around: Surroundings
) -> list[FieldError]:
    given = [kind for kind in kinds if handler.get(kind) is not None]
    if not given:
        return [fields.required(path, "must specify a handler type")]
    errors = kinds[given[0]](handler[given[0]], f"{path}.{given[0]}", around)
    why = "may not specify more than 1 handler type"
    return errors + [fields.forbidden(f"{path}.{kind}", why) for kind in given[1:]]


def handler_of_probe(probe: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    """A probe has one handler."""
    return _one_handler(probe, OF_PROBES, path, around)


def handler_of_hook(hook: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    """A hook has one handler."""
    return _one_handler(hook, OF_HOOKS, path, around)


def is_one(times: int, path: str) -> list[FieldError]:
    """A probe succeeds at once."""
    return [] if times == 1 else [fields.invalid_value(path, times, "must be 1")]


def not_of_readiness(grace: int, path: str) -> list[FieldError]:
    """Nothing ends when a container is not ready."""
    return [fields.invalid_value(path, grace, "must not be set for readinessProbes")]


PROBE: Final = Ruleset(
    "core.validateProbe",
    handler_of_probe,
    field("initialDelaySeconds", not_negative),
    field("timeoutSeconds", not_negative),
    field("periodSeconds", not_negative),
    field("successThreshold", not_negative),
    field("failureThreshold", not_negative),
    field("terminationGracePeriodSeconds", at_least(1, "must be greater than 0")),
)
LIVENESS: Final = Ruleset(
    "core.validateLivenessProbe", PROBE, field("successThreshold", is_one, absent=0)
)
READINESS: Final = Ruleset(
    "core.validateReadinessProbe", PROBE, field("terminationGracePeriodSeconds", not_of_readiness)
)
LIFECYCLE: Final = Ruleset(
    "core.validateLifecycle", field("postStart", handler_of_hook), field("preStop", handler_of_hook)
)
PROBES_AND_HOOKS: Final = Ruleset(
    "core.validateContainers",
    field("lifecycle", LIFECYCLE),
    field("livenessProbe", LIVENESS),
    field("readinessProbe", READINESS),
    field("startupProbe", LIVENESS),
)
