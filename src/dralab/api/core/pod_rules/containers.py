"""The containers of a pod: those that run, those that come first, those for debugging."""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules import network
from dralab.api.core.pod_rules.environment import ENV, whole_sources
from dralab.api.core.pod_rules.facts import Surroundings
from dralab.api.core.pod_rules.handlers import (
    LIFECYCLE,
    LIVENESS,
    PROBES,
    PROBES_AND_HOOKS,
    READINESS,
)
from dralab.api.core.pod_rules.mounts import mounts
from dralab.api.core.pod_rules.network import ports
from dralab.api.core.pod_rules.resources import container_resources, resize_policy
from dralab.api.core.pod_rules.security import SECURITY_CONTEXT
from dralab.api.fields import FieldError
from dralab.api.rules import RuleTables
from dralab.values.json_types import JsonObject

MOST_RULES: Final = 20
MOST_CODES: Final = 255
# What a container for debugging may not say, in the order of the server's structure.
NOT_FOR_DEBUGGING: Final = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe",
    "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip


RULES: Final = RuleTables(
    globals(),
    ENV,
    LIFECYCLE,
    LIVENESS,
    READINESS,
    SECURITY_CONTEXT,
    container_resources,
    mounts,
    ports,
    resize_policy,
    whole_sources,
)
CONTAINER: Final = RULES["validateContainerCommon"]
RESTART: Final = RULES["validateContainerRestartPolicy"]
REGULAR: Final = RULES["validateContainers"]


def containers(spec: JsonObject, path: str, around: Surroundings) -> list[FieldError]:
    """Return the errors of the containers of a pod."""
    main: Sequence[JsonObject] = spec.get("containers") or ()
    errors = _main(main, around, f"{path}.containers")
    if first := spec.get("initContainers"):
        errors += _first(first, main, around, f"{path}.initContainers")
    if debugging := spec.get("ephemeralContainers"):
        others = [*main, *(first or ())]
        errors += _debugging(debugging, others, around, f"{path}.ephemeralContainers")
    return errors


def _main(main: Sequence[JsonObject], around: Surroundings, path: str) -> list[FieldError]:
    if not main:
        return [fields.required(path)]
    errors: list[FieldError] = []
    seen: set[str] = set()
    for index, container in enumerate(main):
        at, name = f"{path}[{index}]", container.get("name") or ""
        errors += CONTAINER(container, at, around)
        if name in seen:
            errors.append(fields.duplicate(f"{at}.name", name))
        seen.add(name)
        errors += REGULAR(container, at, around)
        if len(errors) > fields.MAX_ERRORS:
            return errors
    return errors + network.host_port_conflicts(main, path)


def _first(
    first: Sequence[JsonObject], main: Sequence[JsonObject], around: Surroundings, path: str
) -> list[FieldError]:
    errors: list[FieldError] = []
    seen = {container.get("name") or "" for container in main}
    for index, container in enumerate(first):
        at, name = f"{path}[{index}]", container.get("name") or ""
        sidecar = container.get("restartPolicy") == "Always"
        errors += CONTAINER(container, at, around)
        errors += RESTART(container, at)
        if name in seen:
            errors.append(fields.duplicate(f"{at}.name", name))
        seen |= {name} - {""}
        errors += network.host_port_conflicts([container], path)
        if sidecar:
            errors += PROBES_AND_HOOKS(container, at, around)
            continue
        why = "may not be set for init containers without restartPolicy=Always"
        errors += [
            fields.forbidden(f"{at}.{part}", why)
            for part in ("lifecycle", *PROBES)
            if container.get(part) is not None
        ]
        why = "must not be set to 'RestartContainer' for non-sidecar initContainers"
        errors += [
            fields.invalid_value(f"{at}.resizePolicy[{number}].restartPolicy", policy, why)
            for number, rule in enumerate(container.get("resizePolicy") or ())
            for policy in [rule.get("restartPolicy")]
            if policy == "RestartContainer"
        ]
    return errors


def _debugging(
    debugging: Sequence[JsonObject],
    others: Sequence[JsonObject],
    around: Surroundings,
    path: str,
) -> list[FieldError]:
    errors: list[FieldError] = []
    running = {container.get("name") or "" for container in others}
    seen = set(running)
    why = "cannot be set for an Ephemeral Container"
    for index, container in enumerate(debugging):
        at, name = f"{path}[{index}]", container.get("name") or ""
        errors += CONTAINER(container, at, around)
        errors += image_problems(container, at)
        if name in seen:
            errors.append(fields.duplicate(f"{at}.name", name))
        seen.add(name)
        target = container.get("targetContainerName")
        if target and target not in running:
            errors.append(fields.not_found(f"{at}.targetContainerName", target))
        errors += [
            fields.forbidden(f"{at}.{part}", why)
            for part in NOT_FOR_DEBUGGING
            if container.get(part)
        ]
        errors += [
            fields.forbidden(f"{at}.volumeMounts[{number}].{part}", why)
            for number, mount in enumerate(container.get("volumeMounts") or ())
            for part in ("subPath", "subPathExpr")
            if mount.get(part)
        ]
    return errors


def image_problems(container: JsonObject, path: str) -> list[FieldError]:
    """Return whether an image begins or ends with a space, which only templates may."""
    image = container.get("image") or ""
    if image == image.strip():
        return []
    why = "must not have leading or trailing whitespace"
    return [fields.invalid_value(f"{path}.image", image, why)]


def _not_too_many_rules(rules: Sequence[JsonObject], path: str) -> list[FieldError]:
    return [fields.too_many(path, len(rules), MOST_RULES)] if len(rules) > MOST_RULES else []


def _not_too_many_codes(codes: Sequence[int], path: str) -> list[FieldError]:
    return [fields.too_many(path, len(codes), MOST_CODES)] if len(codes) > MOST_CODES else []
