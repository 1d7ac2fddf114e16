"""Permissions that writers of a claim's status need besides `resourceclaims/status`.

`resourceclaims/binding` for the allocation and its users; `resourceclaims/driver`, by the driver's
name, for what is reported of devices. Who may do what is left to the server's authorizer.

Source: k8s.io/kubernetes `pkg/registry/resource/utils.go` (AuthorizedForBinding,
AuthorizedForDeviceStatus), gate DRAResourceClaimGranularStatusAuthorization, on in 1.36.
"""

from collections.abc import Iterator
from typing import Any, Final

from dralab.api.fields import FieldError, forbidden
from dralab.api.strategy import StatusWriter
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.names import subdomain_problems

GATE: Final = "DRAResourceClaimGranularStatusAuthorization"
ASSOCIATED: Final = "associated-node:"
ARBITRARY: Final = "arbitrary-node:"
NODE_NAME: Final = "authentication.kubernetes.io/node-name"
ACCOUNT: Final = "system:serviceaccount:"


def status_access_problems(
    new: JsonDict, old: JsonDict, writer: StatusWriter
) -> Iterator[FieldError]:
    """Yield what the writer of a claim's status may not change."""
    now, before = new.get("status") or {}, old.get("status") or {}
    if any(_differ(now, before, field) for field in ("allocation", "reservedFor")):
        why = writer.refusal(writer.verb, "binding", "")
        if why:
            yield forbidden(
                "status.allocation",
                "changing status.allocation or status.reservedFor requires "
                f'resource="resourceclaims/binding", verb="{writer.verb}" permission: {why}',
            )
    # What was reported of devices is dropped with the allocation.
    if now.get("allocation") is None:
        return
    verbs = [ARBITRARY + writer.verb]
    if _is_on(writer, _node_of(now["allocation"])):
        verbs.insert(0, ASSOCIATED + writer.verb)
    for driver in sorted(_changed_drivers(now, before)):
        refusals = [writer.refusal(verb, "driver", driver) for verb in verbs]
        if all(refusals):
            yield forbidden(
                "status.devices",
                'changing status.devices requires resource="resourceclaims/driver", '
                f'verb="[{" ".join(verbs)}]" permission: {refusals[0]}',
            )


def _differ(now: JsonObject, before: JsonObject, field: str) -> bool:
    return bool((now.get(field) or None) != (before.get(field) or None))


def _changed_drivers(now: JsonObject, before: JsonObject) -> set[str]:
    """Return the drivers of entries that were added, changed or taken away."""
    ours, theirs = _entries(now), _entries(before)
    return {key[0] for key in ours.keys() | theirs if ours.get(key) != theirs.get(key)}


def _entries(status: JsonObject) -> dict[tuple[str, ...], Any]:
    """Return what is reported, by driver, pool, device and share."""
    fields = ("driver", "pool", "device", "shareID")
    return {
        tuple(entry.get(field) or "" for field in fields): entry
        for entry in status.get("devices") or ()
    }


def _node_of(allocation: JsonObject) -> str:
    """Return the node of an allocation whose selector names one node and nothing else."""
    terms: Any = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or ()
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return ""
    fields: Any = terms[0].get("matchFields") or ()
    if len(fields) != 1 or (fields[0]["key"], fields[0]["operator"]) != ("metadata.name", "In"):
        return ""
    values: Any = fields[0].get("values") or ()
    return str(values[0]) if len(values) == 1 else ""


def _is_on(writer: StatusWriter, node: str) -> bool:
    """Return whether the writer is a service account whose pod runs on a node."""
    return (
        bool(node)
        and writer.user_name.startswith(ACCOUNT)
        and tuple(writer.user_extra.get(NODE_NAME) or ()) == (node,)
        and not subdomain_problems(node)
    )
