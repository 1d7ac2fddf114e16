"""Claims of classic DRA: created from templates, released when their pods are done.

Source: kube-controller-manager's resourceclaim controller, Kubernetes 1.28 and 1.30. A driver
deallocates the devices that it allocated, on request (`deallocationRequested`); those allocated by
the scheduler (structured parameters) are deallocated here.
"""

from collections.abc import Callable
from typing import Any

from dralab.controllers.generated_claims import GeneratedClaims
from dralab.objects.claims import (
    allocation_of,
    classic_claims_by_entry,
    classic_pod_claims,
    consumers_of,
)
from dralab.objects.metadata import (
    NamespacedName,
    controller_of,
    finalizers_of,
    is_deleting,
    key_of,
    uid_of,
)
from dralab.objects.pods import is_finished
from dralab.prototypes.classic.kinds import IMMEDIATE
from dralab.prototypes.classic.structured import FINALIZER
from dralab.runtime.client import amend, drop_finalizer, find
from dralab.runtime.manager import Manager
from dralab.runtime.resources import CLASSIC_CLAIMS, CLASSIC_TEMPLATES, PODS
from dralab.values.json_types import JsonDict


class ClassicClaims:
    """Creates the claims of pods whose entries have a `source`, and releases unused ones."""

    def __init__(self, manager: Manager) -> None:
        self.client = manager.client
        self.generated = GeneratedClaims(manager, CLASSIC_CLAIMS, CLASSIC_TEMPLATES)
        self.pods = manager.cache(PODS)
        self.claims = self.generated.claims
        self.pod_queue = manager.queue("classic/pods", self.sync_pod)
        self.claim_queue = manager.queue("classic/claims", self.sync_claim)
        self.pods.subscribe(self._pod)
        self.claims.subscribe(self._claim)
        self.generated.templates.subscribe(self._template)

    def _pod(self, old: JsonDict | None, new: JsonDict | None) -> None:
        pod = new if new is not None else old
        if pod is None or not classic_pod_claims(pod):
            return
        if new is not None:
            self.pod_queue.add(key_of(new))
        if new is None or is_deleting(new) or is_finished(new):
            for name in classic_claims_by_entry(pod).values():
                self.claim_queue.add(NamespacedName(key_of(pod).namespace, name))

    def _claim(self, old: JsonDict | None, new: JsonDict | None) -> None:
        claim = new if new is not None else old
        if claim is None:
            return
        self.claim_queue.add(key_of(claim))
        owner = controller_of(claim)
        if new is None and owner is not None and owner["kind"] == "Pod":
            self.pod_queue.add(NamespacedName(key_of(claim).namespace, owner["name"]))

    def _template(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None:
            for pod in self.pods.namespace(key_of(new).namespace):
                if classic_pod_claims(pod):
                    self.pod_queue.add(key_of(pod))

    def sync_pod(self, key: NamespacedName) -> int | None:
        """Create the missing claims of a pod."""
        pod = self.pods.get(key)
        if pod is None or is_deleting(pod) or is_finished(pod):
            return None
        known = dict(classic_claims_by_entry(pod))
        fresh = False
        generated = [item for item in classic_pod_claims(pod) if item.template]
        for item in generated:
            held = self.claims.get(NamespacedName(key.namespace, known.get(item.entry, "")))
            if held is None or is_deleting(held):
                made = self.generated.made(pod, item.entry, item.template)
                known[item.entry] = made["metadata"]["name"]
                fresh = True
        if not fresh:
            return None
        statuses = [
            {"name": item.entry, "resourceClaimName": known[item.entry]} for item in generated
        ]
        self.generated.write_claim_statuses(self.pods, pod, statuses)
        return None

    def sync_claim(self, key: NamespacedName) -> int | None:
        """Release a claim from finished pods; delete it if it was created for one of them."""
        claim = self.claims.get(key)
        if claim is None:
            return None
        gone = {
            user["uid"]
            for user in consumers_of(claim)
            if user.get("resource") == "pods" and not self._is_used(key.namespace, user)
        }
        if gone:
            claim = self._amend(claim, lambda latest: _released(latest, gone), "status")
        if FINALIZER in finalizers_of(claim):
            if is_deleting(claim):
                claim = self._amend(claim, _cleared, "status")
            if is_deleting(claim) or gone:
                claim = self._amend(claim, _unprotected)
        owner = controller_of(claim)
        if owner is None or owner["kind"] != "Pod" or is_deleting(claim):
            return None
        if not self._is_used(key.namespace, owner):
            self.generated.delete(claim)
        return None

    def _amend(
        self, claim: JsonDict, change: Callable[[JsonDict], bool], subresource: str = ""
    ) -> JsonDict:
        changed = amend(self.client, CLASSIC_CLAIMS, claim, change, subresource=subresource)
        self.claims.learn(changed)
        return changed

    def _is_used(self, namespace: str, consumer: Any) -> bool:
        """Return whether a pod is still there and may still run."""
        pod = find(self.client, PODS, consumer["name"], namespace)
        if pod is None or uid_of(pod) != consumer["uid"] or is_finished(pod):
            return False
        return not (is_deleting(pod) and not pod["spec"].get("nodeName"))


def _released(claim: JsonDict, gone: set[str]) -> bool:
    status = claim.get("status") or {}
    before = status.get("reservedFor") or []
    left = [user for user in before if user["uid"] not in gone]
    if len(left) == len(before):
        return False
    if left:
        status["reservedFor"] = left
        return True
    status.pop("reservedFor")
    if claim["spec"].get("allocationMode") != IMMEDIATE and "allocation" in status:
        if FINALIZER in finalizers_of(claim):
            _cleared(claim)
        else:
            status["deallocationRequested"] = True
    return True


def _cleared(claim: JsonDict) -> bool:
    """Deallocate what the scheduler allocated, unless it is in use."""
    status = claim.get("status") or {}
    if status.get("reservedFor") or "allocation" not in status:
        return False
    for name in ("allocation", "driverName"):
        status.pop(name, None)
    return True


def _unprotected(claim: JsonDict) -> bool:
    return allocation_of(claim) is None and drop_finalizer(claim, FINALIZER)
