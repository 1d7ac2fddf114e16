"""Writes a cycle's decision: claims first, then the pod's binding.

Source: kube-scheduler's DynamicResources PreBind and DefaultBinder. All steps are idempotent: after
a crash between two writes, the next attempt finds what was written.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple, TypeVar

from dralab.api.status import ApiError
from dralab.kernel.clock import SECOND, from_rfc3339
from dralab.objects import volumes
from dralab.objects.binding_conditions import allocated_devices
from dralab.objects.claims import allocation_of, results_of
from dralab.objects.metadata import (
    annotations_of,
    is_deleting,
    key_of,
    status_of,
    uid_of,
)
from dralab.runtime.client import Client, PatchType, add_finalizer, amend
from dralab.runtime.resources import BINDINGS, CLAIMS, PODS, VOLUME_CLAIMS, VOLUMES
from dralab.scheduler.withdrawal import ATTEMPTS, marks_of
from dralab.scheduling.claims import EXTENDED_CLAIM, ClaimPlan
from dralab.scheduling.pods import PodInfo
from dralab.scheduling.state import PodPlacement
from dralab.values.json_types import JsonDict

T = TypeVar("T")
FINALIZER: Final = "resource.kubernetes.io/delete-protection"
BINDING_TIMEOUT: Final = 600 * SECOND


class WrittenClaims(NamedTuple):
    """The claims of a pod as they are stored now, and the pod as it was before or by own writes.

    `pod` is None where no other client is expected to write: then its version does not matter.
    """

    claims: list[JsonDict]
    pod: JsonDict | None


def write_claims(
    client: Client, placement: PodPlacement, now: str, pod: JsonDict | None = None
) -> WrittenClaims:
    """Write allocations and reservations, and the node resources that they consume.

    `pod` is the pod as it was read before. ApiError: another scheduler or the claim's owner was
    faster, or the server refuses. What was written before stays; `withdrawal` takes it back.
    """
    claims = []
    for plan in placement.plans:
        claim, pod = _write_claim(client, placement.pod, plan, now, pod)
        claims.append(claim)
    return WrittenClaims(claims, _tell_pod(client, placement, claims, pod))


def may_have_been_written(error: Exception, placement: PodPlacement) -> bool:
    """Return whether a failure of `write_claims` leaves the stored state unknown."""
    return is_unanswered(error) or len(placement.plans) > 1


def is_unanswered(error: Exception) -> bool:
    """Return whether a failure leaves unknown whether the server carried out the request."""
    return not isinstance(error, ApiError) or error.code >= 500


def _tell_pod(
    client: Client, placement: PodPlacement, claims: list[JsonDict], latest: JsonDict | None
) -> JsonDict | None:
    """Write the node resources that its devices consume into the pod's status."""
    pod = placement.pod
    known = status_of(pod.obj).get("nodeAllocatableResourceClaimStatuses") or []
    made = synthetic_claims(placement, claims)
    wanted = [
        {**status, "resourceClaimName": made[0]["metadata"]["name"]}
        if made and status["resourceClaimName"] == EXTENDED_CLAIM
        else status
        for status in pod.claimed
    ]
    if wanted == known:
        return latest
    # A merge of the whole list: what an attempt before left there is to go.
    status = {"nodeAllocatableResourceClaimStatuses": wanted}
    return _patch_pod(client, pod, status, latest, "merge")


def _patch_pod(
    client: Client, pod: PodInfo, status: JsonDict, latest: JsonDict | None, type: PatchType
) -> JsonDict | None:
    """Change a pod's status; return the pod, or None where its version does not matter."""

    def send(version: Mapping[str, str]) -> JsonDict:
        patch: JsonDict = {"metadata": {"uid": pod.uid, **version}, "status": status}
        name, namespace = pod.key.name, pod.key.namespace
        return client.patch(PODS, name, patch, namespace, type=type, subresource="status")

    sent = with_version(client, pod, latest, send)
    return None if latest is None else sent


def with_version(
    client: Client, pod: PodInfo, latest: JsonDict | None, send: Callable[[Mapping[str, str]], T]
) -> T:
    """Send a request about a pod that is refused if the pod is not as it was read.

    `send` is given the version as metadata has it; none where it does not matter. If only other
    things changed, the new version will do. ApiError: the pod is gone or bound, or allocations of
    it are being taken back.
    """
    for attempt in range(ATTEMPTS):
        version = {} if latest is None else {"resourceVersion": _version_of(latest)}
        try:
            return send(version)
        except ApiError as error:
            if error.reason != "Conflict" or latest is None or attempt == ATTEMPTS - 1:
                raise
            found = client.get(PODS, pod.key.name, pod.key.namespace)
            if (
                uid_of(found) != pod.uid
                or found["spec"].get("nodeName")
                or _version_of(found) == _version_of(latest)
                or marks_of(found) != marks_of(latest)
            ):
                raise
            latest = found
    raise AssertionError("unreachable: the last attempt returns or raises")


def _version_of(pod: JsonDict) -> str:
    version: str = pod["metadata"]["resourceVersion"]
    return version


def write_volumes(client: Client, placement: PodPlacement) -> None:
    """Write volumes of claims, or the node for their provisioners; controllers complete it."""
    for claim, volume in placement.volumes:
        if volume is not None:
            if not volumes.belongs_to(volume, claim):
                annotations = {volumes.BY_CONTROLLER: "yes"}
                annotations |= annotations_of(volume)
                metadata = {**volume["metadata"], "annotations": annotations}
                spec = {**volume["spec"], "claimRef": volumes.reference(claim)}
                # With its resourceVersion: the first writer wins.
                client.update(VOLUMES, {**volume, "metadata": metadata, "spec": spec})
            continue
        key = key_of(claim)
        patch = {
            "metadata": {
                "uid": uid_of(claim),
                "annotations": {volumes.SELECTED_NODE: placement.node},
            }
        }
        client.patch(VOLUME_CLAIMS, key.name, patch, key.namespace)


def bind(client: Client, placement: PodPlacement, latest: JsonDict | None = None) -> None:
    """Bind a pod to its node, if it is still as it was read (`latest`).

    It does nothing where an attempt without an answer has bound it there already.
    """
    key = placement.pod.key

    def send(version: Mapping[str, str]) -> None:
        names = {"name": key.name, "namespace": key.namespace, "uid": placement.pod.uid}
        body: JsonDict = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**names, **version},
            "target": {"apiVersion": "v1", "kind": "Node", "name": placement.node},
        }
        client.post(PODS, key.name, BINDINGS, body, key.namespace)

    try:
        with_version(client, placement.pod, latest, send)
    except ApiError as error:
        if error.reason != "Conflict":
            raise
        found = client.get(PODS, key.name, key.namespace)
        if (uid_of(found), found["spec"].get("nodeName")) != (placement.pod.uid, placement.node):
            raise


def evict(client: Client, victim: PodInfo, scheduler: str, now: str) -> None:
    """Mark a pod as preempted, and delete it."""
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": f"{scheduler}: preempting to accommodate a higher priority pod",
        "lastTransitionTime": now,
    }
    patch: JsonDict = {"metadata": {"uid": victim.uid}, "status": {"conditions": [condition]}}
    name, namespace = victim.key.name, victim.key.namespace
    client.patch(PODS, name, patch, namespace, type="strategic", subresource="status")
    client.delete(PODS, name, namespace, options={"preconditions": {"uid": victim.uid}})


def awaits_conditions(claims: list[JsonDict]) -> bool:
    """Return whether some allocated device must be made ready before its pod may be bound."""
    return any(item.get("bindingConditions") for claim in claims for item in _results(claim))


def given_up_at(claims: list[JsonDict], now: int) -> int:
    """Return when to give up devices that are not ready: ten minutes after their allocation."""
    times = [
        from_rfc3339(stamp)
        for claim in claims
        if (stamp := claim["status"]["allocation"].get("allocationTimestamp"))
    ]
    return min(times, default=now) + BINDING_TIMEOUT


def conditions_met(claims: list[JsonDict]) -> bool | str:
    """Return whether all devices are ready; an error text if one never will be."""
    ready = True
    for claim in claims:
        for device in allocated_devices(claim):
            if device.failed:
                return f"claim {claim['metadata']['name']}: device {device}: {device.failed}"
            ready = ready and not device.awaited
    return ready


def _write_claim(
    client: Client, pod: PodInfo, plan: ClaimPlan, now: str, latest: JsonDict | None
) -> tuple[JsonDict, JsonDict | None]:
    claim = plan.claim
    if plan.is_new:
        claim, latest = _create_synthetic(client, pod, plan, latest)
    if is_deleting(claim):
        raise ApiError.conflict(
            CLAIMS.plural,
            claim["metadata"]["name"],
            "it is being deleted",
            group=CLAIMS.group,
        )
    if allocation_of(claim) is None:
        claim = amend(client, CLAIMS, claim, _protect)

    def change(latest: JsonDict) -> bool:
        status = latest.setdefault("status", {})
        held = status.get("allocation")
        if held is None:
            status["allocation"] = {**plan.allocation, "allocationTimestamp": now}
        elif not _same_devices(held, plan.allocation):
            raise ApiError.conflict(
                CLAIMS.plural,
                latest["metadata"]["name"],
                "another client has allocated it differently",
                group=CLAIMS.group,
            )
        reserved = status.get("reservedFor") or []
        if any(item.get("uid") == plan.consumer["uid"] for item in reserved):
            return held is None
        status["reservedFor"] = [*reserved, dict(plan.consumer)]
        return True

    return amend(client, CLAIMS, claim, change, subresource="status"), latest


def _protect(claim: JsonDict) -> bool:
    return add_finalizer(claim, FINALIZER)


def _create_synthetic(
    client: Client, pod: PodInfo, plan: ClaimPlan, latest: JsonDict | None
) -> tuple[JsonDict, JsonDict | None]:
    claim = client.create(CLAIMS, plan.claim, pod.key.namespace)
    status = {
        "extendedResourceClaimStatus": {
            "resourceClaimName": claim["metadata"]["name"],
            "requestMappings": [dict(item) for item in plan.mappings],
        }
    }
    return claim, _patch_pod(client, pod, status, latest, "strategic")


def synthetic_claims(placement: PodPlacement, claims: list[JsonDict]) -> list[JsonDict]:
    """Return those of the written claims that were made for extended resources."""
    planned = {uid_of(plan.claim) for plan in placement.plans}
    return [claim for claim in claims if uid_of(claim) not in planned]


def _results(claim: JsonDict) -> list[Mapping[str, Any]]:
    return list(results_of(allocation_of(claim)))


def _same_devices(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    def devices(allocation: Mapping[str, Any]) -> list[tuple[str, ...]]:
        return [
            (item["request"], item["driver"], item["pool"], item["device"])
            for item in results_of(allocation)
        ]

    return devices(one) == devices(other)
