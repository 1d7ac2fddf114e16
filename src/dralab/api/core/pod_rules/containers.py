"""The containers of a pod: those that run, those that come first, those for debugging."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from dralab.api import fields
from dralab.api.core.pod_rules import network, security
from dralab.api.core.pod_rules.environment import environment
from dralab.api.core.pod_rules.handlers import PROBES, probes_and_hooks
from dralab.api.core.pod_rules.mounts import mounts
from dralab.api.core.pod_rules.parts import choice, label
from dralab.api.core.pod_rules.resources import requirements, resize_policy
from dralab.api.fields import FieldError
from dralab.values.json_types import JsonObject

MESSAGES: Final = ("File", "FallbackToLogsOnError")
PULL_POLICIES: Final = ("Always", "IfNotPresent", "Never")
RESTARTS: Final = ("Always", "Never", "OnFailure")
ACTIONS: Final = ("Restart", "RestartAllContainers")
OPERATORS: Final = ("In", "NotIn")
MOST_RULES: Final = 20
MOST_CODES: Final = 255
RULES_NEED: Final = "must specify restartPolicy when restart rules are used"
# What a container for debugging may not say, in the order of the server's structure.
NOT_FOR_DEBUGGING: Final = (
    "ports", "resources", "resizePolicy", "restartPolicy", "restartPolicyRules", "livenessProbe",
    "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What of a pod the rules about its containers look at."""

    volumes: Mapping[str, JsonObject]
    claims: Collection[str]
    restart: str
    grace: int | None
    host_users: bool


def containers(spec: JsonObject, around: Surroundings, path: str) -> list[FieldError]:
    """Return what is wrong with the containers of a pod."""
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
        errors += _common(container, around, at)
        if name in seen:
            errors.append(fields.duplicate(f"{at}.name", name))
        seen.add(name)
        errors += probes_and_hooks(container, around.grace, at)
        errors += _restart(container, at)
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
        errors += _common(container, around, at)
        errors += _restart(container, at)
        if name in seen:
            errors.append(fields.duplicate(f"{at}.name", name))
        seen |= {name} - {""}
        errors += network.host_port_conflicts([container], path)
        if sidecar:
            errors += probes_and_hooks(container, around.grace, at)
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
        errors += _common(container, around, at)
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


def _common(container: JsonObject, around: Surroundings, path: str) -> list[FieldError]:
    name = container.get("name") or ""
    errors = label(name, f"{path}.name") if name else [fields.required(f"{path}.name")]
    if not container.get("image"):
        errors.append(fields.required(f"{path}.image"))
    errors += choice(container, "terminationMessagePolicy", MESSAGES, path)
    if container.get("ports"):
        errors += network.ports(container, path)
    if container.get("env") or container.get("envFrom"):
        errors += environment(container, path)
    errors += mounts(container, around.volumes, path)
    errors += choice(container, "imagePullPolicy", PULL_POLICIES, path)
    if resources := container.get("resources"):
        errors += requirements(resources, f"{path}.resources", around.claims)
    if container.get("resizePolicy"):
        errors += resize_policy(container, around.restart, f"{path}.resizePolicy")
    if context := container.get("securityContext"):
        at = f"{path}.securityContext"
        errors += security.of_container(context, at, host_users=around.host_users)
    return errors


def _restart(container: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with when a container of its own is restarted."""
    policy, rules = container.get("restartPolicy"), container.get("restartPolicyRules") or ()
    if policy is None and not rules:
        return []
    errors: list[FieldError] = []
    if policy is None:
        errors.append(fields.required(f"{path}.restartPolicy", RULES_NEED))
    elif policy not in RESTARTS:
        errors.append(fields.not_supported(f"{path}.restartPolicy", policy, RESTARTS))
    if len(rules) > MOST_RULES:
        errors.append(fields.too_many(f"{path}.restartPolicyRules", len(rules), MOST_RULES))
    for index, rule in enumerate(rules):
        at, action = f"{path}.restartPolicyRules[{index}]", rule.get("action") or ""
        if action not in ACTIONS:
            errors.append(fields.not_supported(f"{at}.action", action, ACTIONS))
        codes = rule.get("exitCodes")
        if codes is None:
            errors.append(fields.required(f"{at}.exitCodes", "must be specified"))
            continue
        if (operator := codes.get("operator") or "") not in OPERATORS:
            errors.append(fields.not_supported(f"{at}.exitCodes.operator", operator, OPERATORS))
        if (count := len(codes.get("values") or ())) > MOST_CODES:
            errors.append(fields.too_many(f"{at}.exitCodes.values", count, MOST_CODES))
    return errors
