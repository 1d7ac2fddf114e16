"""The forms of claims on a node: today's, and those of older generations.

A form says where the claim is read, who has to be reserved for it, and which drivers are called.
"""

from collections.abc import Callable, Mapping

import orjson

from dralab.objects.claims import (
    PodClaim,
    allocation_of,
    claims_by_entry,
    extended_claim,
    has_device_claims,
    pod_claims,
    results_of,
    uses_of,
)
from dralab.objects.metadata import key_of, status_of, uid_of
from dralab.prototypes.evolution.on_nodes import handles, user_of_claims
from dralab.runtime.client import Resource
from dralab.runtime.resources import CLAIMS, CLASSIC_CLAIMS, DEVICE_CLAIMS, EVOLUTION_CLAIMS
from dralab.values.json_types import JsonObject
from dralab.values.records import dataclass


class ClaimMissing(Exception):  # noqa: N818 - a fact about a pod
    """A claim of a pod is not created yet."""


# The drivers to be called, with what they are told besides the claim's name.
Drivers = Mapping[str, JsonObject | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimForm:
    """How the claims of a pod are read.

    `user` is the UID that has to be reserved for them; with `stand_ins`, drivers need not run.
    `problem` says why a claim keeps its pod from starting; None: the rules of resource.k8s.io.
    """

    resource: Resource
    user: str
    drivers: Callable[[JsonObject], Drivers]
    stand_ins: bool = False
    problem: Callable[[JsonObject], str] | None = None


def claims_of(pod: JsonObject) -> dict[str, tuple[bool, ClaimForm]]:
    """Return the created claims of a pod, by name: whether it owns the claim, and the form.

    ClaimMissing: one is not made yet.
    """
    if has_device_claims(pod):
        from dralab.prototypes.k8srm.pod_claims import generated_claims  # its CEL is large

        names = generated_claims(pod)
        return {name: (made, _of_k8srm(pod, generated=made)) for name, made in names.items()}
    found = {}
    for item in pod_claims(pod):
        if item.name is None:
            raise ClaimMissing(f'pod "{key_of(pod)}": ResourceClaim not created yet')
        if item.name:
            found[item.name] = not item.claim, _form_of(pod, item)
    if extended := extended_claim(pod):
        found[extended["resourceClaimName"]] = True, _form_of(pod, None)
    return found


def uses_of_container(pod: JsonObject, container: JsonObject) -> list[tuple[str, str]]:
    """Return the claims that a container uses, each with one request or an empty text."""
    if has_device_claims(pod):
        from dralab.prototypes.k8srm.pod_claims import uses_of as uses_of_k8srm

        return uses_of_k8srm(pod, container["name"])
    names = claims_by_entry(pod)
    extended = extended_claim(pod)
    return [(names.get(entry, ""), request) for entry, request in uses_of(container)] + [
        (extended["resourceClaimName"], mapping["requestName"])
        for mapping in extended.get("requestMappings") or ()
        if mapping["containerName"] == container["name"]
    ]


def _of_k8srm(pod: JsonObject, *, generated: bool) -> ClaimForm:
    from dralab.prototypes.k8srm import pod_claims as k8srm

    def drivers(claim: JsonObject) -> Drivers:
        told = orjson.dumps({"results": k8srm.results(claim)}).decode()
        return {DEVICE_CLAIMS.group: {"data": told}}

    return ClaimForm(
        resource=DEVICE_CLAIMS,
        user=uid_of(pod),
        drivers=drivers,
        stand_ins=True,
        problem=lambda claim: k8srm.problem(pod, claim, generated=generated),
    )


def _form_of(pod: JsonObject, item: PodClaim | None) -> ClaimForm:
    """Return the form of a pod's entry; without one, of the claim for its extended resources."""
    if user := user_of_claims(pod):
        return ClaimForm(
            resource=EVOLUTION_CLAIMS, user=user, drivers=_of_evolution, stand_ins=True
        )
    if item is not None and item.is_classic:
        return ClaimForm(resource=CLASSIC_CLAIMS, user=uid_of(pod), drivers=_of_classic)
    return ClaimForm(resource=CLAIMS, user=uid_of(pod), drivers=_of_today)


def _of_today(claim: JsonObject) -> Drivers:
    return dict.fromkeys(result["driver"] for result in results_of(allocation_of(claim)))


def _of_classic(claim: JsonObject) -> Drivers:
    told = (allocation_of(claim) or {}).get("resourceHandles") or [{}]
    name = status_of(claim).get("driverName", "")
    return {one.get("driverName") or name: one for one in told}


def _of_evolution(claim: JsonObject) -> Drivers:
    return handles(allocation_of(claim) or {})
