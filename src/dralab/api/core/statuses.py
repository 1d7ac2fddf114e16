"""Validation of statuses: counts, replicas, load balancers, phases.

Source: the functions `Validate…Status…` of k8s.io/kubernetes `pkg/apis`. The statuses of Jobs are
left to `job_statuses`, those of resource.k8s.io to `api.resource`.
"""

from collections.abc import Sequence
from typing import Final

from dralab.api import fields
from dralab.api.core.addresses import address_problems, parsed_address
from dralab.api.fields import FieldError
from dralab.values import names
from dralab.values.json_types import JsonDict, JsonObject

BELOW_ZERO: Final = "must be greater than or equal to 0"
COLLISIONS: Final = "collisionCount"
IP_MODES: Final = ("Proxy", "VIP")
RESIZES: Final = (
    "ControllerResizeInProgress", "ControllerResizeInfeasible", "NodeResizeInProgress",
    "NodeResizeInfeasible", "NodeResizePending",
)  # fmt: skip


def status_of(value: JsonObject) -> JsonObject:
    """Return the status of an object; an empty one if it has none."""
    return value.get("status") or {}


def count_errors(status: JsonObject, counts: Sequence[str]) -> list[FieldError]:
    """Return an error for each of these numbers that is below zero."""
    return [
        fields.invalid_value(f"status.{name}", status[name], BELOW_ZERO)
        for name in counts
        if (status.get(name) or 0) < 0
    ]


def replica_errors(
    new: JsonObject, old: JsonObject, counts: Sequence[str], parts: Sequence[str], *, ready: str
) -> list[FieldError]:
    """Return the errors of counts of replicas.

    None of `counts` may be below zero, none of `parts` above `status.replicas`. There are no more
    available replicas than ready ones, which messages call `ready`.
    """
    status = status_of(new)
    errors = count_errors(status, counts)
    whole = status.get("replicas") or 0
    errors += [
        fields.invalid_value(
            f"status.{name}", status.get(name) or 0, "cannot be greater than status.replicas"
        )
        for name in parts
        if (status.get(name) or 0) > whole
    ]
    available = status.get("availableReplicas") or 0
    if parts and available > (status.get("readyReplicas") or 0):
        why = f"cannot be greater than {ready}"
        errors.append(fields.invalid_value("status.availableReplicas", available, why))
    return errors + collision_errors(status, status_of(old))


def collision_errors(status: JsonObject, before: JsonObject) -> list[FieldError]:
    """Return whether collisions of hashes were forgotten."""
    count, known = status.get(COLLISIONS), before.get(COLLISIONS)
    if known is None or (count is not None and count >= known):
        return []
    return [fields.invalid_value(f"status.{COLLISIONS}", count or 0, "cannot be decremented")]


def balancer_errors(new: JsonDict, old: JsonDict, *, modes: bool) -> list[FieldError]:
    """Return the errors of the addresses of a load balancer; `modes` asks for `ipMode`."""
    errors: list[FieldError] = []
    known = {item.get("ip") for item in _ingresses(old)}
    for index, ingress in enumerate(_ingresses(new)):
        at, address = f"status.loadBalancer.ingress[{index}]", ingress.get("ip")
        if address and address not in known:
            errors += fields.each(f"{at}.ip", address, address_problems(address))
        if modes:
            errors += _mode_errors(ingress.get("ipMode"), bool(address), f"{at}.ipMode")
        if host := ingress.get("hostname"):
            errors += fields.each(f"{at}.hostname", host, names.subdomain_problems(host))
            if parsed_address(host) is not None:
                why = "must be a DNS name, not an IP address"
                errors.append(fields.invalid_value(f"{at}.hostname", host, why))
    return errors


def _ingresses(value: JsonObject) -> Sequence[JsonObject]:
    return (status_of(value).get("loadBalancer") or {}).get("ingress") or ()


def _mode_errors(mode: str | None, has_address: bool, path: str) -> list[FieldError]:  # noqa: FBT001
    if mode is None:
        return [fields.required(path, "must be specified when `ip` is set")] if has_address else []
    if not has_address:
        return [fields.forbidden(path, "may not be specified when `ip` is not set")]
    return [] if mode in IP_MODES else [fields.not_supported(path, mode, IP_MODES)]


def service_status_errors(new: JsonDict, old: JsonDict) -> list[FieldError]:
    """Return the errors of the load balancer of a service."""
    if new["spec"].get("type") != "LoadBalancer" and _ingresses(new):
        why = "may only be used when `spec.type` is 'LoadBalancer'"
        return [fields.forbidden("status.loadBalancer.ingress", why)]
    return balancer_errors(new, old, modes=True)


def phase_errors(namespace: JsonObject) -> list[FieldError]:
    """Return whether the phase of a namespace is not what its deletion makes it."""
    phase = status_of(namespace).get("phase") or ""
    deleting = namespace["metadata"].get("deletionTimestamp") is not None
    wanted, state = ("Terminating", "not empty") if deleting else ("Active", "empty")
    if phase == wanted:
        return []
    why = f"may only be '{wanted}' if `deletionTimestamp` is {state}"
    return [fields.invalid_value("status.Phase", phase, why)]


def claim_status_errors(new: JsonObject) -> list[FieldError]:
    """Return the errors of the resizing in a volume claim's status."""
    status, errors = status_of(new), []
    path = "status.allocatedResourceStatuses"
    for name, state in (status.get("allocatedResourceStatuses") or {}).items():
        errors += _resource_key_errors(name, path)
        if state not in RESIZES:
            errors.append(fields.not_supported(path, name, RESIZES))
    path = "status.allocatedResources"
    for name in status.get("allocatedResources") or {}:
        errors += _resource_key_errors(name, path)
    return errors


def _resource_key_errors(name: str, path: str) -> list[FieldError]:
    errors = fields.each(path, name, names.qualified_problems(name))
    if not errors and "/" not in name and name != "storage":
        errors = [fields.not_supported(path, name, ["storage"])]
    return errors
