"""Who holds claims, and when they will end, by the names that explanations use."""

from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import Final

from dralab.explanation.names import shortened
from dralab.kernel.clock import SECOND, from_rfc3339, rfc3339
from dralab.objects.claims import pod_claims
from dralab.objects.extended_resources import SYNTHETIC
from dralab.objects.metadata import controller_of, is_deleting, spec_of, status_of
from dralab.scheduling.backlog import key
from dralab.scheduling.snapshot import Snapshot
from dralab.values.json_types import JsonDict, JsonObject

LAST: Final = 9


@dataclass(frozen=True, slots=True, order=True)
class HolderEnd:
    """When a pod ends: the smaller, the sooner. `text` says how that is known; empty: it is not.

    A pod that is being deleted comes first, then one with a deadline, then one that runs to its
    end; those that are started again for ever come last.
    """

    rank: int = LAST
    when: str = ""
    text: str = ""


UNKNOWN: Final = HolderEnd()


def end_of(pod: JsonObject) -> HolderEnd:
    """Return when a pod that runs will end.

    >>> spec, status = {"activeDeadlineSeconds": 3600}, {"startTime": "2026-11-01T08:00:00Z"}
    >>> end_of({"metadata": {}, "spec": spec, "status": status}).text
    'by 2026-11-01T09:00:00Z'
    """
    spec, status = spec_of(pod), status_of(pod)
    if is_deleting(pod):
        return HolderEnd(0, "", "it is being deleted")
    deadline, start = spec.get("activeDeadlineSeconds"), status.get("startTime")
    if deadline and start:
        when = rfc3339(from_rfc3339(start) + int(deadline) * SECOND)
        return HolderEnd(1, when, f"by {when}")
    owner: Mapping[str, object] = controller_of(pod) or {}
    if owner.get("kind") == "Job":
        return HolderEnd(2, "", f"it belongs to Job {owner.get('name')}")
    if spec.get("restartPolicy") in {"Never", "OnFailure"}:
        return HolderEnd(2, "", "it runs once")
    return UNKNOWN


def holders_of(cluster: Snapshot) -> dict[str, str]:
    """Return, by claim as explanations name it, the pod that uses it, as people call it."""
    found: dict[str, str] = {}
    for claim in cluster.claims.values():
        for consumer in status_of(claim).get("reservedFor") or ():
            if consumer.get("resource") == "pods":
                found.setdefault(
                    claim_name(claim), shortened(f"{key(claim)[0]}/{consumer['name']}")
                )
    for _, user in cluster.users():
        for claim in (*user.claims, *user.allocated):
            found.setdefault(claim_name(claim), shortened(f"{user.namespace}/{user.name}"))
    return found


def ends_of(cluster: Snapshot) -> dict[str, HolderEnd]:
    """Return, by claim as explanations name it, when the pod that uses it ends, where known."""
    found: dict[str, HolderEnd] = {}
    for pod, user in cluster.users():
        end = end_of(pod)
        if end != UNKNOWN:
            found |= dict.fromkeys((claim_name(claim) for claim in user.allocated), end)
    return found


def templates_of(cluster: Snapshot) -> dict[str, str]:
    """Return, by claim as explanations name it, the template that it is made from."""
    found: dict[str, str] = {}
    for pod, user in cluster.users():
        entries = spec_of(pod).get("resourceClaims") or ()
        if not any(entry.get("resourceClaimTemplateName") for entry in entries):
            continue
        made = {claim["metadata"]["name"]: claim for claim in (*user.claims, *user.allocated)}
        for entry in pod_claims(pod):
            # The claim of a PodGroup is named after the group.
            ends = [each for each in made if each.endswith(f"-{entry.entry}")]
            name = entry.made or (ends[0] if ends else "")
            if entry.template and name in made:
                found[claim_name(made[name])] = f"{user.namespace}/{entry.template}"
    return found


def extended_of(cluster: Snapshot) -> dict[str, tuple[str, str]]:
    """Return, by claim for extended resources, the pod and the field that ask for them."""
    found: dict[str, tuple[str, str]] = {}
    for pod, user in cluster.users():
        for claim in (*user.claims, *user.allocated):
            if SYNTHETIC in (claim["metadata"].get("annotations") or {}):
                field = resource_field(pod, cluster.provided)
                found[claim_name(claim)] = f"{user.namespace}/{user.name}", field
    return found


def claim_name(claim: JsonDict) -> str:
    """Return the name of a claim as problems have it: with its namespace where one is written."""
    metadata = claim["metadata"]
    name: str = metadata["name"]
    return f"{metadata['namespace']}/{name}" if metadata.get("namespace") else name


def resource_field(pod: JsonDict, provided: Container[str]) -> str:
    """Return where a pod first asks for a resource that devices provide."""
    for number, container in enumerate(spec_of(pod).get("containers") or ()):
        for part in ("requests", "limits"):
            for resource in (container.get("resources") or {}).get(part) or ():
                if resource in provided:
                    return f"spec.containers[{number}].resources.{part}[{resource}]"
    return "spec.containers"
