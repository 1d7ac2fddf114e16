"""The forms in which a claim reaches a node: today's, and those of older generations.

A form says where the claim is read, who has to be reserved for it, and which drivers are called.
A generation whose claims no driver prepares (k8srm) only says whether a pod may start.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from dralab.api.status import ApiError
from dralab.objects.claims import PodClaim, allocation_of, has_device_claims, results_of
from dralab.objects.metadata import status_of, uid_of
from dralab.prototypes.evolution.on_nodes import handles, user_of_claims
from dralab.runtime.client import Client, Resource
from dralab.runtime.resources import CLAIMS, CLASSIC_CLAIMS, DEVICE_CLAIMS, EVOLUTION_CLAIMS
from dralab.values.json_types import JsonDict, JsonObject

# The drivers to be called, with what they are told besides the claim's name.
Drivers = Mapping[str, JsonObject | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimForm:
    """How the claims of a pod are read.

    `user` is the UID that has to be reserved for them; with `stand_ins`, drivers need not run.
    """

    resource: Resource
    user: str
    drivers: Callable[[JsonObject], Drivers]
    stand_ins: bool = False


def form_of(pod: JsonObject, item: PodClaim | None) -> ClaimForm:
    """Return the form of a pod's entry; without one, of the claim for its extended resources."""
    if user := user_of_claims(pod):
        return ClaimForm(
            resource=EVOLUTION_CLAIMS, user=user, drivers=_of_evolution, stand_ins=True
        )
    if item is not None and item.is_classic:
        return ClaimForm(resource=CLASSIC_CLAIMS, user=uid_of(pod), drivers=_of_classic)
    return ClaimForm(resource=CLAIMS, user=uid_of(pod), drivers=_of_today)


def unready(pod: JsonDict, client: Client) -> str:
    """Return why claims that no driver prepares keep a pod from starting; empty if none does."""
    if not has_device_claims(pod):
        return ""
    from dralab.prototypes.k8srm.pod_claims import unready as not_allocated  # its CEL is large

    def find(namespace: str, name: str) -> JsonDict | None:
        try:
            return client.get(DEVICE_CLAIMS, name, namespace)
        except ApiError as error:
            if error.code != 404:
                raise
            return None

    try:
        return not_allocated(pod, find)
    except ApiError as error:
        return f"fetch DeviceClaim: {error.message}"


def _of_today(claim: JsonObject) -> Drivers:
    return dict.fromkeys(result["driver"] for result in results_of(allocation_of(claim)))


def _of_classic(claim: JsonObject) -> Drivers:
    told = (allocation_of(claim) or {}).get("resourceHandles") or [{}]
    name = status_of(claim).get("driverName", "")
    return {one.get("driverName") or name: one for one in told}


def _of_evolution(claim: JsonObject) -> Drivers:
    return handles(allocation_of(claim) or {})
