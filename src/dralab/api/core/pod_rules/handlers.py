"""What a node calls in a container: probes, and hooks at the start and the end."""

from collections.abc import Mapping, Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules.facts import Surroundings
from dralab.api.core.pod_rules.parts import port
from dralab.api.fields import FieldError
from dralab.api.rules import Check, RuleTables
from dralab.values import names
from dralab.values.json_types import JsonObject

PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")


RULES: Final = RuleTables(globals(), port)
LIFECYCLE: Final = RULES["validateLifecycle"]
LIVENESS: Final = RULES["validateLivenessProbe"]
READINESS: Final = RULES["validateReadinessProbe"]
PROBES_AND_HOOKS: Final = RULES["validateProbesAndHooks"]


def _headers(headers: Sequence[JsonObject], path: str) -> list[FieldError]:
    # Upstream leaves the places of headers out.
    return [
        error
        for name in [header.get("name") or "" for header in headers]
        for error in fields.each(path, name, names.header_problems(name))
    ]


def _within_grace(sleep: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    seconds, grace = sleep.get("seconds") or 0, around.grace
    if grace is None or 0 <= seconds <= grace:
        return []
    why = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    return [fields.invalid_value(path, seconds, why)]


def _one_handler(
    handler: JsonObject, kinds: Mapping[str, Check], path: str, around: Surroundings
) -> list[FieldError]:
    given = [kind for kind in kinds if handler.get(kind) is not None]
    if not given:
        return [fields.required(path, "must specify a handler type")]
    errors = kinds[given[0]](handler[given[0]], f"{path}.{given[0]}", around)
    why = "may not specify more than 1 handler type"
    return errors + [fields.forbidden(f"{path}.{kind}", why) for kind in given[1:]]


def _handler_of_probe(probe: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    return _one_handler(probe, RULES["handlersOfProbes"].checks, path, around)


def _handler_of_hook(hook: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    return _one_handler(hook, RULES["handlersOfHooks"].checks, path, around)
