"""Classic DRA's negotiation with drivers: potential and selected nodes, allocation, reservation.

Sources: kube-scheduler's DynamicResources plugin of Kubernetes 1.28 and 1.30; KEP-3063. The
scheduler decides which nodes have room. Which of them have devices is decided by the driver, in the
pod's PodSchedulingContext, or by `structured_parameters` for classes with structured parameters.
Room is not reserved while a driver decides: if the node is full by then, the kubelet refuses the
pod, as with any two schedulers.
"""

from typing import Any, Final

from dralab.api.status import ignoring
from dralab.kernel.clock import SECOND
from dralab.objects.claims import allocation_of, classic_pod_claims, consumer_of
from dralab.objects.conditions import conditions_of
from dralab.objects.event_texts import shortened
from dralab.objects.metadata import (
    NamespacedName,
    finalizers_of,
    is_deleting,
    key_of,
    labels_of,
    owner_reference,
    owners_of,
    status_of,
    uid_of,
)
from dralab.objects.pods import is_finished
from dralab.prototypes.classic.kinds import API_VERSION, IMMEDIATE, MAX_NODES, MAX_RESERVED_FOR
from dralab.prototypes.classic.structured import FINALIZER, ClassicClaimsWait
from dralab.runtime.client import add_finalizer, amend
from dralab.runtime.manager import Manager
from dralab.runtime.resources import (
    BINDINGS,
    CLASSIC_CLAIMS,
    CLASSIC_CLASSES,
    NODES,
    PODS,
    SCHEDULING_CONTEXTS,
)
from dralab.scheduler.scheduler import Scheduler
from dralab.scheduler.structured_parameters import NamedResources
from dralab.scheduling.pods import DEFAULT_SCHEDULER
from dralab.values.json_types import JsonDict
from dralab.values.labels import node_selector_accepts

WAITING: Final = "waiting for resource driver to allocate resource"
ELSEWHERE: Final = "resourceclaim not available on the node"
STRUCTURED: Final = "structuredParameters"
UNSUITABLE: Final = "excluded by the resource driver"
# Waiting pods are retried, as kube-scheduler flushes its queue of unschedulable pods.
AGAIN: Final = 30 * SECOND


class ClassicScheduling:
    """Schedules the pods whose claims have a `source`; the others are `scheduler`'s own."""

    def __init__(self, manager: Manager, scheduler: Scheduler) -> None:
        self.client = manager.client
        self.scheduler = scheduler
        self.recorder = manager.recorder(scheduler.name)
        self.pods = manager.cache(PODS)
        self.nodes = manager.cache(NODES)
        self.claims = manager.cache(CLASSIC_CLAIMS)
        self.classes = manager.cache(CLASSIC_CLASSES)
        self.contexts = manager.cache(SCHEDULING_CONTEXTS)
        self.named = NamedResources(manager)
        self.queue = manager.queue("scheduler/classic", self.reconcile)
        self.pods.subscribe(self._pod)
        self.contexts.subscribe(self._context)
        parameters = (self.named.claim_parameters, self.named.class_parameters)
        for cache in (self.nodes, self.claims, self.classes, self.named.slices, *parameters):
            cache.subscribe(self._around)

    def _pod(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None and self._is_waiting(new):
            self.queue.add(key_of(new))
        elif new is None or is_finished(new):
            self._around(None, None)  # its room may be what another waits for

    def _context(self, _old: JsonDict | None, new: JsonDict | None) -> None:
        if new is not None:
            self.queue.add(key_of(new))

    def _around(self, _old: JsonDict | None, _new: JsonDict | None) -> None:
        for pod in self.pods:
            if self._is_waiting(pod):
                self.queue.add(key_of(pod))

    def _is_waiting(self, pod: JsonDict) -> bool:
        spec = pod["spec"]
        mine = spec.get("schedulerName", DEFAULT_SCHEDULER) == self.scheduler.name
        idle = spec.get("nodeName") or spec.get("schedulingGates")
        over = is_deleting(pod) or is_finished(pod)
        return bool(mine and not idle and not over and classic_pod_claims(pod))

    def reconcile(self, key: NamespacedName) -> int | None:
        """Advance a pod by one step, or record what it waits for."""
        pod = self.pods.get(key)
        if pod is None or not self._is_waiting(pod):
            return None
        if not self.scheduler.leads:
            return SECOND  # another one's turn, and then ours
        try:
            self._step(pod)
        except ClassicClaimsWait as why:
            self._tell(pod, str(why))
            return AGAIN
        return None

    def _step(self, pod: JsonDict) -> None:
        claims = self._claims_of(pod)
        open_ = {entry: claim for entry, claim in claims.items() if allocation_of(claim) is None}
        classes = {entry: self._class_of(claim) for entry, claim in open_.items()}
        structured = {e: open_[e] for e, found in classes.items() if found.get(STRUCTURED)}
        asked = {e: open_[e] for e in open_ if e not in structured}
        suiting = self._suiting(pod, claims, classes, structured)
        if any(claim["spec"].get("allocationMode") == IMMEDIATE for claim in asked.values()):
            raise ClassicClaimsWait("unallocated immediate resourceclaim")
        if asked:
            self._negotiate(pod, asked, claims, list(suiting))
        node, allocations = next(iter(suiting.items()))
        for (entry, claim), allocation in zip(structured.items(), allocations, strict=True):
            self._allocate(pod, claim, classes[entry], allocation)
        for entry, claim in claims.items():
            if entry not in structured:
                self._reserve(pod, claim)
        self._bind(pod, node)

    def _suiting(
        self,
        pod: JsonDict,
        claims: dict[str, JsonDict],
        classes: dict[str, JsonDict],
        structured: dict[str, JsonDict],
    ) -> dict[str, list[JsonDict]]:
        """Return the suitable nodes of a pod, with the allocations of its structured claims.

        `classes` are those of the claims without devices. ClassicClaimsWait: there is no such node.
        """
        wanted = [(claim, classes[entry]) for entry, claim in structured.items()]
        found, reasons = {}, []
        for name in self.scheduler.room_for(pod):
            if not self._reaches(claims, classes, name):
                reasons.append(ELSEWHERE)
                continue
            try:
                found[name] = self.named.allocations(wanted, name)
            except ClassicClaimsWait as why:
                reasons.append(str(why))
            if found and len(structured) == len(classes):
                break  # no driver wants to know where else
        if not found:
            self._give_up(pod, claims)
            first = reasons[0] if reasons else "no node has room"
            raise ClassicClaimsWait(f"0/{len(self.nodes)} nodes are available: {first}.")
        return found

    def _class_of(self, claim: JsonDict) -> JsonDict:
        wanted = claim["spec"]["resourceClassName"]
        found = self.classes.get(NamespacedName("", wanted))
        if found is None:
            raise ClassicClaimsWait(f"reference to non-existing ResourceClass {wanted}")
        return found

    def _claims_of(self, pod: JsonDict) -> dict[str, JsonDict]:
        found: dict[str, JsonDict] = {}
        for item in classic_pod_claims(pod):
            entry, name = item.entry, item.name
            if not name:
                raise ClassicClaimsWait(
                    "waiting for dynamic resource controller to create the resourceclaims"
                )
            claim = self.claims.get(NamespacedName(key_of(pod).namespace, name))
            if claim is None:
                raise ClassicClaimsWait(
                    f'waiting for resourceclaim.resource.k8s.io "{name}" to be created'
                )
            if is_deleting(claim):
                raise ClassicClaimsWait(f'resourceclaim "{name}" is being deleted')
            status = status_of(claim)
            if status.get("deallocationRequested"):
                raise ClassicClaimsWait("resourceclaim must be reallocated")
            if not _may_reserve(claim, uid_of(pod)):
                raise ClassicClaimsWait("resourceclaim in use")
            if all(uid_of(claim) != uid_of(other) for other in found.values()):
                found[entry] = claim
        return found

    def _reaches(
        self, claims: dict[str, JsonDict], classes: dict[str, JsonDict], name: str
    ) -> bool:
        """Return whether a node suits allocated claims and unallocated ones."""
        node = self.nodes.get(NamespacedName("", name))
        if node is None:
            return False
        labels = labels_of(node)
        for entry, claim in claims.items():
            if entry in classes:
                selector = classes[entry].get("suitableNodes")
            else:
                selector = claim["status"]["allocation"].get("availableOnNodes")
            if selector and not node_selector_accepts(selector, labels, name):
                return False
        return True

    def _negotiate(
        self,
        pod: JsonDict,
        open_: dict[str, JsonDict],
        claims: dict[str, JsonDict],
        reachable: list[str],
    ) -> None:
        key = key_of(pod)
        context = self.contexts.get(key)
        if context is not None and not _controls(pod, context):
            raise ClassicClaimsWait(f"PodSchedulingContext {key} belongs to another pod")
        told = {
            item["name"]: set(item.get("unsuitableNodes") or ())
            for item in ((context or {}).get("status") or {}).get("resourceClaims") or ()
        }
        bad = {name for entry in open_ for name in told.get(entry, ())}
        good = [name for name in reachable if name not in bad]
        spec = dict((context or {}).get("spec") or {})
        wanted: dict[str, Any] = {"potentialNodes": reachable[:MAX_NODES]}
        selected = spec.get("selectedNode")
        if selected in good:
            wanted["selectedNode"] = selected
        elif good and (len(open_) == 1 or all(entry in told for entry in open_)):
            # One claim needs no answer first: if it fails there, nothing else was taken.
            wanted["selectedNode"] = good[0]
        same = set(spec.get("potentialNodes") or ()) == set(wanted["potentialNodes"])
        if context is None:
            body: JsonDict = {
                "apiVersion": API_VERSION,
                "kind": "PodSchedulingContext",
                "metadata": {
                    "name": key.name,
                    "namespace": key.namespace,
                    "ownerReferences": [owner_reference(pod, api_version="v1", kind="Pod")],
                },
                "spec": wanted,
            }
            self.contexts.learn(self.client.create(SCHEDULING_CONTEXTS, body, key.namespace))
        elif not same or selected != wanted.get("selectedNode"):
            changed = self.client.update(SCHEDULING_CONTEXTS, {**context, "spec": wanted})
            self.contexts.learn(changed)
        if not good:
            self._give_up(pod, claims)
            raise ClassicClaimsWait(f"0/{len(self.nodes)} nodes are available: {UNSUITABLE}.")
        raise ClassicClaimsWait(WAITING)

    def _allocate(
        self, pod: JsonDict, claim: JsonDict, class_: JsonDict, allocation: JsonDict
    ) -> None:
        """Write an allocation of a claim for one pod; ClassicClaimsWait: it is too late."""

        def protect(latest: JsonDict) -> bool:
            return add_finalizer(latest, FINALIZER)

        def change(latest: JsonDict) -> bool:
            status = latest.setdefault("status", {})
            if "allocation" in status:
                raise ClassicClaimsWait("resourceclaim in use")
            status |= {
                "driverName": class_["driverName"],
                "allocation": allocation,
                "reservedFor": [consumer_of(pod)],
            }
            return True

        claim = amend(self.client, CLASSIC_CLAIMS, claim, protect)
        self.claims.learn(amend(self.client, CLASSIC_CLAIMS, claim, change, subresource="status"))

    def _reserve(self, pod: JsonDict, claim: JsonDict) -> None:
        user = consumer_of(pod)

        def change(latest: JsonDict) -> bool:
            status = latest.get("status") or {}
            if "allocation" not in status or not _may_reserve(latest, user["uid"]):
                raise ClassicClaimsWait("resourceclaim in use")
            users = status.get("reservedFor") or []
            if any(item["uid"] == user["uid"] for item in users):
                return False
            status["reservedFor"] = [*users, user]
            return True

        self.claims.learn(amend(self.client, CLASSIC_CLAIMS, claim, change, subresource="status"))

    def _bind(self, pod: JsonDict, node: str) -> None:
        key = key_of(pod)
        body: JsonDict = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": key.name, "namespace": key.namespace, "uid": uid_of(pod)},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        self.client.post(PODS, key.name, BINDINGS, body, key.namespace)
        self.recorder.event(pod, "Pod", "Scheduled", f"Successfully assigned {key} to {node}")
        context = self.contexts.get(key)
        if context is not None and _controls(pod, context):
            self._delete(context)

    def _delete(self, context: JsonDict) -> None:
        key = key_of(context)
        with ignoring("NotFound"):
            self.client.delete(SCHEDULING_CONTEXTS, key.name, key.namespace)

    def _give_up(self, pod: JsonDict, claims: dict[str, JsonDict]) -> None:
        """Request the deallocation of an unused claim that ties the pod to a node."""
        for claim in claims.values():
            status = status_of(claim)
            users = {user["uid"] for user in status.get("reservedFor") or ()}
            if "allocation" not in status or users - {uid_of(pod)}:
                continue
            if claim["spec"].get("allocationMode") == IMMEDIATE:
                continue  # it would be given devices again, of any node

            def change(latest: JsonDict) -> bool:
                held = latest.get("status") or {}
                others = {user["uid"] for user in held.get("reservedFor") or ()} - {uid_of(pod)}
                if "allocation" not in held or others or held.get("deallocationRequested"):
                    return False
                held.pop("reservedFor", None)
                if FINALIZER in finalizers_of(latest):
                    # It was the scheduler that gave them.
                    held.pop("allocation")
                    held.pop("driverName", None)
                else:
                    held["deallocationRequested"] = True
                return True

            self.claims.learn(
                amend(self.client, CLASSIC_CLAIMS, claim, change, subresource="status")
            )
            return

    def _tell(self, pod: JsonDict, why: str) -> None:
        """Write the reason for waiting into the pod's condition, once for each reason."""
        conditions = conditions_of(pod)
        if any(c["type"] == "PodScheduled" and c.get("message") == why for c in conditions):
            return
        key = key_of(pod)
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": shortened(why),
        }
        patch: JsonDict = {
            "metadata": {"uid": uid_of(pod)},
            "status": {"conditions": [condition]},
        }
        self.client.patch(
            PODS, key.name, patch, key.namespace, type="strategic", subresource="status"
        )
        self.recorder.event(pod, "Pod", "FailedScheduling", why, type="Warning")


def _controls(pod: JsonDict, context: JsonDict) -> bool:
    owners = owners_of(context)
    return any(owner["uid"] == uid_of(pod) for owner in owners)


def _may_reserve(claim: JsonDict, uid: str) -> bool:
    """Return whether a pod has a claim already, or may share it with its users."""
    status = status_of(claim)
    users = [user["uid"] for user in status.get("reservedFor") or ()]
    shareable = (status.get("allocation") or {}).get("shareable")
    return uid in users or not users or (bool(shareable) and len(users) < MAX_RESERVED_FOR)
