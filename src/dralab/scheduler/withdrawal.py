"""Withdraws allocations although a binding that uses them may still be under way.

A binding carries the version that its pod had before the claims were written, so a change of the
pod stops all bindings that were sent before. Hence three steps: the claim is read, its pods are
marked, the claim is changed if it is still as it was read. A scheduler that reads the pod later
finds the mark, and does not count on an allocation that it names.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from dralab.api.status import ApiError
from dralab.objects.claims import claim_names, consumers_of
from dralab.objects.conditions import conditions_of
from dralab.objects.metadata import NamespacedName, key_of, revision_of, uid_of
from dralab.objects.pods import group_of, is_finished
from dralab.runtime.client import Client, amend, find
from dralab.runtime.resources import CLAIMS, PODS
from dralab.scheduling.pods import PodInfo
from dralab.values.json_types import JsonDict, JsonObject

# The type of the condition that marks a pod ends with the claim's uid.
MARK: Final = "devices-withdrawn.dralab.dev/"
REASON: Final = "DeviceConflict"
ATTEMPTS: Final = 5


def withdraw(client: Client, claim: JsonDict, why: str, now: str) -> None:
    """Withdraw the allocation of a claim as it was read, unless a bound pod uses it.

    ApiError Conflict: such a pod is bound, or the claim has changed; it keeps what it has.
    """
    for namespace, name, uid in _consumers(client, claim):
        _mark(client, NamespacedName(namespace, name), uid, claim, f"{_prefix(claim)}{why}", now)
    status = {**claim["status"], "reservedFor": []}
    status.pop("allocation", None)
    status.pop("devices", None)
    client.update(CLAIMS, {**claim, "status": status}, subresource="status")


def unreserve(client: Client, pod: PodInfo, claims: list[JsonDict], *, deallocate: bool) -> None:
    """Remove a pod's reservations; errors are left to the claim controller."""

    def change(claim: JsonDict) -> bool:
        status = claim.get("status") or {}
        reserved = status.get("reservedFor") or []
        left = [item for item in reserved if item.get("uid") != pod.uid]
        drop = deallocate and not left and "allocation" in status
        if len(left) == len(reserved) and not drop:
            return False
        status["reservedFor"] = left
        if drop:
            status.pop("allocation")
            status.pop("devices", None)
        return True

    for claim in claims:
        try:
            amend(client, CLAIMS, claim, change, subresource="status")
        except ApiError:
            continue


def give_back(client: Client, pod: PodInfo, claims: Iterable[JsonDict], why: str, now: str) -> None:
    """Remove the reservations of an unbound pod, and release claims that no other pod uses.

    What is refused is left as it is: the next attempt of the pod finds it.
    """
    for claim in claims:
        try:
            if any(consumer["uid"] != pod.uid for consumer in consumers_of(claim)):
                unreserve(client, pod, [claim], deallocate=False)
            else:
                withdraw(client, claim, why, now)
        except ApiError:
            continue


def marks_of(pod: JsonObject) -> list[JsonObject]:
    """Return a pod's conditions about withdrawn allocations."""
    return [each for each in conditions_of(pod) if each["type"].startswith(MARK)]


def withdrawal_of(pod: JsonObject, claim: JsonDict) -> str:
    """Return the reason for withdrawing an allocation, from a pod's condition; empty if none.

    A mark of before the last change of the claim has no effect any more.
    """
    for condition in marks_of(pod):
        if condition["type"] == MARK + uid_of(claim):
            version, _, why = str(condition.get("message", "")).partition(": ")
            number = version.rpartition(" ")[2]
            if number.isdecimal() and int(number) >= revision_of(claim):
                return why
    return ""


def _prefix(claim: JsonDict) -> str:
    return f"resourceVersion {revision_of(claim)}: "


def _consumers(client: Client, claim: JsonDict) -> Iterator[tuple[str, str, str]]:
    """Yield namespace, name and uid of the pods that may use an allocation."""
    key = key_of(claim)
    for consumer in consumers_of(claim):
        if consumer.get("resource") != "podgroups":
            yield key.namespace, consumer["name"], consumer["uid"]
            continue
        for pod in client.list(PODS, key.namespace).items:
            if group_of(pod) == consumer["name"] and key.name in claim_names(pod):
                yield key.namespace, pod["metadata"]["name"], uid_of(pod)


def _mark(  # noqa: PLR0917 - which pod, and what it is told
    client: Client, key: NamespacedName, uid: str, claim: JsonDict, message: str, now: str
) -> None:
    """Make earlier bindings of a pod fail, by changing it. ApiError Conflict: it is bound."""
    for attempt in range(ATTEMPTS):
        pod = find(client, PODS, key.name, key.namespace)
        if pod is None or uid_of(pod) != uid or is_finished(pod):
            return
        if pod["spec"].get("nodeName"):
            raise ApiError.conflict(
                CLAIMS.plural, claim["metadata"]["name"], f"pod {key} is bound", group=CLAIMS.group
            )
        if withdrawal_of(pod, claim):
            return
        condition = {
            "type": MARK + uid_of(claim),
            "status": "True",
            "reason": REASON,
            "message": message,
            "lastTransitionTime": now,
        }
        version = pod["metadata"]["resourceVersion"]
        patch: JsonDict = {
            "metadata": {"uid": uid, "resourceVersion": version},
            "status": {"conditions": [condition]},
        }
        try:
            client.patch(
                PODS, key.name, patch, key.namespace, type="strategic", subresource="status"
            )
        except ApiError as error:
            if error.reason != "Conflict" or attempt == ATTEMPTS - 1:
                raise
        else:
            return
